#!/usr/bin/env python3
"""Runs redis-py's own test suite against the server, in both protocols, and counts what holds.

    tests/conformance/redis_py.py [--server PATH] [--update] [--protocol 2|3] [FILE...]

The suite is the tests folder of redis-py's source package from PyPI, fetched at run time into
.conformance/; nothing of it is committed. Each test file runs in a process of its own against a
fresh server, on port 6379 where that is free, because some tests insist on it.

Files and tests outside of what Forebay promises, or that never reach a server, are left out: by
redis_py_skips.txt, with a reason each. The selection is made by redis_py_selection.py, a plugin
that runs inside pytest.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree

from outcome import HERE, WORK, Group, Report, read_list, reason_for
from server import Server, free_port

VERSION = "6.4.0"
SOURCE = WORK / f"redis-{VERSION}"
VENV = WORK / "redis-py-venv"
# What the suite itself imports. It runs on the redis package that it brings along; the installed
# one is there for its version alone, which the client sends as lib-ver.
PACKAGES = [
    "pytest>=8,<9", "pytest-asyncio>=1,<2", "pytest-timeout>=2,<3", "mock", "packaging", "PyJWT",
    f"redis=={VERSION}",
]
MARKERS = "not onlycluster and not redismod and not ssl and not cp_integration and not replica"
FLOOR_PERCENT = 98.0
TEST_SECONDS_MAX = 60
FILE_SECONDS_MAX = 900
USUAL_PORT = 6379


def get_suite():
    """Fetches the suite and the packages it needs, where they are not there yet."""
    python = VENV / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    quiet_pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*quiet_pip, "install", *PACKAGES], check=True)
    if not (SOURCE / "tests/conftest.py").exists():
        subprocess.run(
            [*quiet_pip, "download", "--no-deps", "--no-binary", ":all:", f"redis=={VERSION}"],
            cwd=WORK, check=True,
        )
        shutil.rmtree(SOURCE, ignore_errors=True)
        with tarfile.open(WORK / f"redis-{VERSION}.tar.gz") as archive:
            archive.extractall(WORK)
    return python


def usual_port_or_free():
    """6379 where nothing listens there: some tests name it instead of --redis-url."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", USUAL_PORT))
        except OSError:
            print(f"port {USUAL_PORT} is taken: the tests that insist on it will fail")
            return free_port()
    return USUAL_PORT


def run_file(file, protocol, python, options):
    """Runs one test file in one protocol and reads pytest's own report of it."""
    report_path = WORK / "logs" / "redis-py.xml"
    report_path.parent.mkdir(exist_ok=True)
    report_path.unlink(missing_ok=True)
    group = Group(f"{file} RESP{protocol}")
    started = time.monotonic()
    server = Server(options.server, {"enable-debug-command": "yes"})
    server.port = usual_port_or_free()
    with server:
        command = [
            python, "-m", "pytest", file, "-q", "-m", MARKERS,
            "--redis-url", f"redis://{server.host}:{server.port}/0", "--protocol", str(protocol),
            "-p", "no:cacheprovider", "-p", "redis_py_selection",
            "-o", "addopts=", "-o", "filterwarnings=ignore",
            "--timeout", str(TEST_SECONDS_MAX), "--junitxml", str(report_path),
        ]
        environment = os.environ | {"PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
        log_path = WORK / "logs" / f"redis-py-{file.replace('/', '-')}-{protocol}.log"
        with open(log_path, "wb") as log:
            try:
                subprocess.run(
                    command, cwd=SOURCE, env=environment, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log, timeout=FILE_SECONDS_MAX,
                )
            except subprocess.TimeoutExpired:
                group.failures.append((file, f"no end after {FILE_SECONDS_MAX} s"))
        if not server.is_running():
            group.remark = "the server died"
            group.failures.append((file, server.log_path.read_text(errors="replace")[-500:]))
    if report_path.exists():
        take_cases(group, report_path)
    else:
        group.failures.append((file, f"pytest gave no report: {log_path.read_text()[-500:]}"))
    group.seconds = round(time.monotonic() - started, 1)
    return group


def take_cases(group, report_path):
    """Adds the cases of one JUnit report to a group."""
    for case in xml.etree.ElementTree.parse(report_path).getroot().iter("testcase"):
        classes = case.get("classname", "").removeprefix("tests.").split(".")
        name = "::".join([*classes[-1:], case.get("name")])
        verdicts = {child.tag: child for child in case}
        bad = verdicts.get("failure", verdicts.get("error"))
        if bad is not None:
            said = (bad.get("message") or bad.text or "").splitlines()
            group.failures.append((name, " ".join(said)[:300]))
        elif "skipped" in verdicts:
            group.skips.append((name, verdicts["skipped"].get("message") or "by the suite"))
        else:
            group.passed += 1


def main():
    parser = argparse.ArgumentParser(description="Runs redis-py's own suite, both protocols.")
    parser.add_argument("files", nargs="*", metavar="FILE", help="tests/test_pubsub.py, say")
    parser.add_argument("--server", help="the server's binary; default FOREBAY_SERVER")
    parser.add_argument("--update", action="store_true", help="rewrite docs/compatibility.md")
    parser.add_argument("--protocol", type=int, choices=(2, 3), help="default: both")
    options = parser.parse_args()
    if options.update and (options.files or options.protocol):
        parser.error("--update wants a run of all files in both protocols")
    WORK.mkdir(exist_ok=True)
    python = get_suite()
    skip_list = read_list(HERE / "redis_py_skips.txt")
    found = sorted(str(path.relative_to(SOURCE)) for path in SOURCE.glob("tests/**/test_*.py"))
    left_out = Group("whole files")
    groups = []
    for file in options.files or found:
        reason = reason_for(file, skip_list)
        if reason:
            left_out.skips.append((file, reason))
            continue
        for protocol in [options.protocol] if options.protocol else [2, 3]:
            group = run_file(file, protocol, python, options)
            groups.append(group)
            print(
                f"{group.name:52} {group.passed:4} passed {len(group.failures):3} failed "
                f"{len(group.skips):3} skipped {group.seconds:6.1f} s {group.remark}", flush=True,
            )
    server = Server(options.server)
    server.remove_folder()
    report = Report(
        "redis-py", server.name, server.is_forebay, FLOOR_PERCENT, [*groups, left_out],
        read_list(HERE / "redis_py_failures.txt"),
    )
    return report.finish(options.update)


if __name__ == "__main__":
    sys.exit(main())
