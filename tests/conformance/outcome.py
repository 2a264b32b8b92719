"""What both outside suites' runners share: lists with reasons, counts, and the report.

A list with reasons is a text file: `[reason]` opens a section, every other line names one test, or
starts with `/` and is a regular expression searched for in test names, up to the end of the line or
to a last `/`. `#` opens a comment.

The report goes to .conformance/SUITE.json and, with --update, into docs/compatibility.md, between
`<!-- SUITE begin -->` and `<!-- SUITE end -->`. Runs against another server than Forebay are the
baseline and have a section of their own, SUITE-baseline.
"""

import dataclasses
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / ".conformance"
COMPATIBILITY = ROOT / "docs/compatibility.md"
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tests/harness"))


@dataclasses.dataclass(frozen=True)
class Listed:
    """One line of a list with reasons."""

    pattern: str
    reason: str

    def matches(self, name):
        if self.pattern.startswith("/"):
            return re.search(self.pattern[1:].removesuffix("/"), name) is not None
        return self.pattern == name


def read_list(path):
    """Reads a list with reasons; a file that is not there is an empty list."""
    listed, reason = [], None
    for line in path.read_text().splitlines() if path.exists() else []:
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("[") and line.endswith("]"):
            reason = line[1:-1]
        elif reason is None:
            raise SystemExit(f"{path}: '{line}' stands before the first [reason]")
        else:
            listed.append(Listed(line, reason))
    return listed


def reason_for(name, listed):
    return next((one.reason for one in listed if one.matches(name)), None)


@dataclasses.dataclass
class Group:
    """One row of the report: a Tcl unit, or a test file in one protocol."""

    name: str
    passed: int = 0
    failures: list = dataclasses.field(default_factory=list)  # (test, what it said)
    skips: list = dataclasses.field(default_factory=list)  # (test, reason)
    seconds: float = 0.0
    remark: str = ""


@dataclasses.dataclass
class Report:
    """One run of one suite."""

    suite: str
    server: str
    is_forebay: bool
    floor_percent: float
    groups: list
    known_failures: list

    @property
    def passed(self):
        return sum(group.passed for group in self.groups)

    @property
    def failures(self):
        return [(group.name, *failure) for group in self.groups for failure in group.failures]

    @property
    def skips(self):
        return [(group.name, *skip) for group in self.groups for skip in group.skips]

    @property
    def percent(self):
        run = self.passed + len(self.failures)
        return 100.0 * self.passed / run if run else 0.0

    def unexplained(self):
        return [one for one in self.failures if not reason_for(one[1], self.known_failures)]

    def summary(self):
        return (
            f"{self.suite}: {self.passed} passed, {len(self.failures)} failed, "
            f"{len(self.skips)} skipped ({self.percent:.2f} % of those that ran)"
        )

    def finish(self, update):
        """Writes and prints the report; gives the exit code."""
        self.write_json()
        if update:
            self.update_document()
        for group, test, said in self.failures:
            print(f"FAILED {group}: {test}\n    {said[:600]}")
        for group, test, _ in self.unexplained() if self.is_forebay else []:
            print(f"no reason is given in tests/conformance for: {group}: {test}")
        print(self.summary())
        if self.percent < self.floor_percent:
            print(f"below the floor of {self.floor_percent} %")
            return 1
        return 1 if self.is_forebay and self.unexplained() else 0

    def write_json(self):
        WORK.mkdir(exist_ok=True)
        name = self.suite if self.is_forebay else f"{self.suite}-baseline"
        document = {
            "suite": self.suite, "server": self.server, "passed": self.passed,
            "failed": len(self.failures), "skipped": len(self.skips),
            "groups": [dataclasses.asdict(group) for group in self.groups],
        }
        (WORK / f"{name}.json").write_text(json.dumps(document, indent=1, ensure_ascii=False))

    def update_document(self):
        section = self.suite if self.is_forebay else f"{self.suite}-baseline"
        text = COMPATIBILITY.read_text()
        begin, end = f"<!-- {section} begin -->", f"<!-- {section} end -->"
        if begin not in text or end not in text:
            raise SystemExit(f"{COMPATIBILITY} has no section {section}")
        before, rest = text.split(begin, 1)
        after = rest.split(end, 1)[1]
        body = self.markdown() if self.is_forebay else self.baseline_markdown()
        COMPATIBILITY.write_text(f"{before}{begin}\n{body}{end}{after}")

    def baseline_markdown(self):
        lines = [f"{self.server}: {self.summary().split(': ', 1)[1]}.", ""]
        lines += [f"- fails there too: {group}: {test}" for group, test, _ in self.failures]
        return "\n".join(lines) + "\n"

    def markdown(self):
        lines = [
            f"{self.server}: {self.summary().split(': ', 1)[1]}.", "",
            "| group | passed | failed | skipped |", "|---|---:|---:|---:|",
        ]
        for group in self.groups:
            remark = f" ({group.remark})" if group.remark else ""
            lines.append(
                f"| {group.name}{remark} | {group.passed} | {len(group.failures)} "
                f"| {len(group.skips)} |"
            )
        lines += ["", "Failures:", ""]
        for group, test, _ in self.failures:
            reason = reason_for(test, self.known_failures) or "not explained yet"
            lines.append(f"- {group}: {escape(test)}: {reason}")
        if not self.failures:
            lines.append("- none")
        lines += ["", "Skipped, by reason:", ""]
        counts = {}
        for _, _, reason in self.skips:
            counts[reason] = counts.get(reason, 0) + 1
        for reason, count in sorted(counts.items(), key=lambda item: -item[1]):
            lines.append(f"- {count}: {escape(reason)}")
        return "\n".join(lines) + "\n"


def escape(text):
    """Plain text for Markdown, on one line."""
    return re.sub(r"([*_<>|`\[\]])", r"\\\1", " ".join(text.split()))
