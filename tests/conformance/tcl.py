#!/usr/bin/env python3
"""Runs Redis 7.0's own Tcl suite against the server, from outside, and counts what holds.

    tests/conformance/tcl.py [--server PATH] [--update] [--isolate] [--spawn] [UNIT...]

The suite comes from Debian's source package at run time, into .conformance/; nothing of it is
committed. Every unit runs in a process of its own against a fresh server. `--durable` makes the
suite go on after an error inside a test; where the server dies or a test hangs, that test is
counted as failed, the server is started anew, and the unit runs again without it.

--isolate also runs a unit again without its first failure, as long as one is left: a test that
passes then had failed only in the wake of another. --spawn adds the units that the suite runs only
on servers it starts itself, through a link called redis-server.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import time

from outcome import HERE, ROOT, WORK, Group, Report, read_list, reason_for
from server import Server, free_port

VERSION = "7.0.15"
SOURCE = WORK / f"redis-{VERSION}"
UNITS = (
    "type/string type/list type/list-2 type/list-3 type/set type/hash type/zset type/incr "
    "type/stream type/stream-cgroups "
    "keyspace expire scan sort multi pubsub pubsubshard bitops bitfield geo hyperloglog protocol "
    "quit info limits other querybuf scripting functions"
).split()
# In external mode the suite itself leaves out all of these.
SPAWNED_UNITS = ["info", "limits", "pubsubshard", "querybuf"]
# integration/aof-race is not in Redis's own list: the suite deletes the files between its servers,
# so that redis-server fails it, too. tests/persistence/test_aof.py has what it is about.
# What files and dumps are about: always on servers that the suite starts, with DEBUG and saves.
PERSISTENCE_UNITS = (
    "unit/dump unit/aofrw integration/aof integration/aof-multi-part "
    "integration/rdb integration/corrupt-dump integration/corrupt-dump-fuzzer "
    "integration/convert-ziplist-hash-on-load integration/convert-ziplist-zset-on-load "
    "integration/convert-zipmap-hash-on-load integration/logging"
).split()
TAGS = "-slow -needs:debug -needs:repl -needs:save"
PERSISTENCE_TAGS = "-slow -needs:repl"
TAG_REASONS = {
    "slow": "slow tests are left out by the issue",
    "needs:debug": "needs DEBUG, left out by the issue",
    "needs:repl": "replication: a later issue",
    "needs:save": "RDB files: a later issue",
    "external server": "the suite runs it only on a server it starts itself",
    "large memory": "needs more than 4 GB for one value",
}
FLOOR_PERCENT = 97.0
HANG_SECONDS = 60
UNIT_SECONDS_MAX = 600
RERUNS_MAX = 12
OUTSIDE = "(outside a test)"
WAKE_OF_AN_ERROR = 'key "pid" not known in dictionary'
SERVER_GONE = re.compile(r"I/O error|connection refused|broken pipe|reset by peer", re.I)


def get_source():
    """Fetches and unpacks Debian's source package, patches applied, where it is not there yet."""
    if (SOURCE / "tests/test_helper.tcl").exists():
        return
    state = WORK / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "src.list").write_text("\n".join(deb_src_lines()) + "\n")
    apt = [
        "apt-get", "-qq", "-o", f"Dir::Etc::sourcelist={state}/src.list",
        "-o", "Dir::Etc::sourceparts=-", "-o", f"Dir::State::lists={state}/lists",
        "-o", f"Dir::Cache={state}/cache", "-o", "APT::Sandbox::User=root",
    ]
    subprocess.run([*apt, "update"], check=True)
    shown = subprocess.run(
        ["apt-cache", *apt[2:], "showsrc", "redis"], check=True, capture_output=True, text=True
    ).stdout
    versions = re.findall(rf"^Version: (\S*{re.escape(VERSION)}\S*)$", shown, re.M)
    if not versions:
        raise SystemExit(f"Debian's sources here have no redis {VERSION}: this needs Debian 12")
    subprocess.run(
        [*apt, "source", "--download-only", f"redis={versions[-1]}"], check=True, cwd=WORK
    )
    description = max(WORK.glob(f"redis_{VERSION}*.dsc"))
    shutil.rmtree(SOURCE, ignore_errors=True)
    subprocess.run(
        ["dpkg-source", "--extract", description.name, SOURCE.name],
        cwd=WORK, check=True, stdout=subprocess.DEVNULL,
    )


def deb_src_lines():
    """The machine's own package sources, as sources of source packages."""
    etc = pathlib.Path("/etc/apt")
    lines = []
    for path in [etc / "sources.list", *sorted(etc.glob("sources.list.d/*.list"))]:
        for line in path.read_text().splitlines() if path.exists() else []:
            if re.match(r"deb(-src)?\s.*debian", line):
                lines.append(re.sub(r"^deb(-src)?\s", "deb-src ", line))
    for path in sorted(etc.glob("sources.list.d/*.sources")):
        for stanza in path.read_text().split("\n\n"):
            fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.+)$", stanza, re.M))
            if "debian" not in fields.get("URIs", ""):
                continue
            signed = f"[signed-by={fields['Signed-By']}] " if "Signed-By" in fields else ""
            for uri in fields["URIs"].split():
                for suite in fields["Suites"].split():
                    lines.append(f"deb-src {signed}{uri} {suite} {fields['Components']}")
    return lines


def link_programs(server_binary):
    """The suite calls redis-cli and redis-server from its own src folder."""
    for name in ("redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb"):
        replace_link(SOURCE / "src" / name, shutil.which(name))
    replace_link(SOURCE / "src/redis-server", server_binary)


def replace_link(link, target):
    link.unlink(missing_ok=True)
    if target:
        link.symlink_to(pathlib.Path(target).resolve())


def full_name(unit):
    """The unit as the suite's own list has it."""
    return unit if unit in PERSISTENCE_UNITS else f"unit/{unit}"


def short_name(unit):
    """As the lists above have it: without `unit/`, but where that is a unit of files."""
    return unit if unit in PERSISTENCE_UNITS else unit.removeprefix("unit/")


class UnitRun:
    """What one run of one unit printed, taken apart."""

    def __init__(self, output):
        self.passed = []
        self.failures = []
        self.skips = []
        self.in_progress = None
        self.is_done = False
        self.exception = None
        entries = re.split(r"^(?=\[)", re.sub(r"\x1b\[[0-9;]*m", "", output), flags=re.M)
        for entry in entries:
            match = re.match(r"\[([^\]]*)\]: ?(.*)", entry, re.S)
            if match:
                self.take(match[1], match[2].strip())
            for name in re.findall(r"=> \(IN PROGRESS\) (.*)", entry):
                self.in_progress = name.strip()

    def take(self, kind, text):
        if kind == "ok":
            self.passed.append(re.sub(r" \(\d+ ms\)$", "", text))
        elif kind == "err":
            # What follows the last failure is the suite's own summary of all of them.
            text = text.split("\n                   The End")[0]
            first, _, rest = text.partition("\n")
            named = re.fullmatch(r"(.*) in tests/\S+\.tcl", first)
            said = (rest if named else text).strip()
            if named and WAKE_OF_AN_ERROR in said and self.last_is_outside():
                # An error within start_server is told where it came up, and once more where the
                # suite stumbles over a server that it does not remember: one failure, of this test.
                said = self.failures.pop()[1]
            self.failures.append((named[1] if named else f"{OUTSIDE} {first}", said))
        elif kind == "skip":
            self.skips.append((text, None))
        elif kind == "ignore":
            name, separator, why = text.rpartition(": Tag: ")
            self.skips.append((name, f"Tag: {why}") if separator else ("(a block)", text))
        elif kind == "exception":
            self.exception = text
        elif kind.endswith("done"):
            self.is_done = True

    def last_is_outside(self):
        return bool(self.failures) and self.failures[-1][0].startswith(OUTSIDE)

    def culprit(self):
        """The test to run the unit again without: it hung, or the server died in it."""
        if self.in_progress:
            return self.in_progress, f"no answer for {HANG_SECONDS} seconds"
        for name, said in self.failures:
            if SERVER_GONE.search(said) and not name.startswith(OUTSIDE):
                return name, f"the server was gone: {said}"
        return None


def run_once(unit, server, skips, is_spawned):
    """One process of the suite over one unit; everything it started is ended after."""
    tags = PERSISTENCE_TAGS if unit in PERSISTENCE_UNITS else TAGS
    command = [
        "tclsh", "tests/test_helper.tcl", "--tags", tags, "--clients", "1", "--durable",
        "--timeout", str(HANG_SECONDS), "--single", full_name(unit),
        # Its own, beside other runs; low enough that the cluster's port, 10000 above, is one too.
        "--baseport", str(12000 + free_port() % 20000), "--portcount", "200",
    ]
    if not is_spawned:
        command += ["--host", server.host, "--port", str(server.port), "--ignore-encoding"]
    for pattern in skips:
        command += ["--skiptest", pattern]
    process = subprocess.Popen(
        command, cwd=SOURCE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    )
    try:
        output = process.communicate(timeout=UNIT_SECONDS_MAX)[0]
    except subprocess.TimeoutExpired:
        end_session(process.pid)
        output = process.communicate()[0]
    end_session(process.pid)
    (WORK / "logs").mkdir(exist_ok=True)
    (WORK / "logs" / f"tcl-{unit.replace('/', '-')}.log").write_bytes(output)
    return UnitRun(output.decode(errors="replace"))


def end_session(session):
    """Ends what is left of one run: the suite's client, servers and load generators."""
    subprocess.run(["pkill", "-KILL", "-s", str(session)], check=False)


def run_unit(unit, server, skip_list, options, is_spawned=False):
    """Runs a unit until it comes to its end, without the tests that stopped it before."""
    culprits = {}
    started = time.monotonic()
    for _ in range(RERUNS_MAX):
        skips = [one.pattern for one in skip_list] + list(culprits)
        run = run_once(unit, server, skips, is_spawned)
        was_alive = is_spawned or (server.is_running() and server.answers())
        culprit = None if run.is_done and was_alive else run.culprit()
        if culprit is None and options.isolate and run.is_done:
            culprit = next((one for one in run.failures if not one[0].startswith("(")), None)
        if not was_alive:
            server.restart()
        if culprit is None:
            break
        culprits[culprit[0]] = culprit[1]
    group = Group(full_name(unit) + (" (spawned)" if is_spawned else ""))
    group.passed = len(run.passed)
    group.failures = [(name, said) for name, said in culprits.items()] + run.failures
    if not run.is_done:
        group.remark = "did not come to its end"
        said = run.exception or "stopped without a word"
        group.failures.append((f"{OUTSIDE} the unit stopped", said))
    for name, why in run.skips:
        if name not in culprits:
            group.skips.append((name, skip_reason(name, why, skip_list)))
    group.seconds = round(time.monotonic() - started, 1)
    print(
        f"{group.name:28} {group.passed:4} passed {len(group.failures):3} failed "
        f"{len(group.skips):3} skipped {group.seconds:6.1f} s {group.remark}", flush=True,
    )
    return group


def skip_reason(name, why, skip_list):
    if why is None:
        return reason_for(name, skip_list) or "skipped by name"
    return next((reason for tag, reason in TAG_REASONS.items() if tag in why), why)


def main():
    parser = argparse.ArgumentParser(description="Runs Redis 7.0's Tcl suite from outside.")
    parser.add_argument("units", nargs="*", metavar="UNIT", help="type/hash, say; default: all")
    parser.add_argument("--server", help="the server's binary; default FOREBAY_SERVER")
    parser.add_argument("--update", action="store_true", help="rewrite docs/compatibility.md")
    parser.add_argument("--isolate", action="store_true", help="look behind first failures")
    parser.add_argument("--spawn", action="store_true", help="add the units only run spawned")
    options = parser.parse_args()
    WORK.mkdir(exist_ok=True)
    get_source()
    skip_list = read_list(HERE / "tcl_skips.txt")
    units = [short_name(unit) for unit in options.units] or [*UNITS, *PERSISTENCE_UNITS]
    groups = []
    for unit in units:
        with Server(options.server) as server:
            link_programs(server.binary)
            is_spawned = unit in PERSISTENCE_UNITS
            groups.append(run_unit(unit, server, skip_list, options, is_spawned))
    for unit in SPAWNED_UNITS if options.spawn else []:
        groups.append(run_unit(unit, server, skip_list, options, is_spawned=True))
    report = Report(
        "tcl", server.name, server.is_forebay, FLOOR_PERCENT, groups,
        read_list(HERE / "tcl_failures.txt"),
    )
    if options.update and options.units:
        parser.error("--update wants a run of all units")
    return report.finish(options.update)


if __name__ == "__main__":
    sys.exit(main())
