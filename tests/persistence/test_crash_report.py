"""What the log tells of a crash: the report is there, whole, and the process ends by the signal."""

import pathlib
import signal
import sys

import pytest
import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
from server import Server  # noqa: E402 (found by the line above)


def crash(how, options=None):
    """Crashes a server; its exit code and its log."""
    with Server(options={"enable-debug-command": "yes"} | (options or {})) as server:
        if isinstance(how, signal.Signals):
            server.process.send_signal(how)
        else:
            with redis.Redis(server.host, server.port) as client:
                with pytest.raises(redis.ConnectionError):
                    client.execute_command("DEBUG", how)
        return server.process.wait(timeout=20), server.log_path.read_text()


@pytest.mark.parametrize(
    ("how", "ends_by"),
    [
        ("SEGFAULT", signal.SIGSEGV),
        ("PANIC", signal.SIGABRT),
        (signal.SIGABRT, signal.SIGABRT),
        (signal.SIGBUS, signal.SIGBUS),
        (signal.SIGFPE, signal.SIGFPE),
        (signal.SIGILL, signal.SIGILL),
    ],
)
def test_a_crash_is_reported(how, ends_by):
    code, log = crash(how)
    assert code == -ends_by
    lines = log.splitlines()
    begin = next(index for index, line in enumerate(lines) if "BUG REPORT START" in line)
    end = next(index for index, line in enumerate(lines) if "BUG REPORT END" in line)
    report = lines[begin:end]
    assert any(f"crashed by signal: {int(ends_by)}," in line for line in report)
    trace = report.index("------ STACK TRACE ------")
    command = report.index("------ CURRENT COMMAND ------")
    assert sum("(+0x" in line for line in report[trace:command]) >= 3
    is_command = isinstance(how, str)
    assert any(line.startswith("command: debug, words: 2,") for line in report) == is_command
    assert any(line.startswith("process_id:") for line in report)
    assert ("=== ASSERTION FAILED ===" in lines[:begin]) == (how == "PANIC")


def test_the_report_can_be_turned_off():
    code, log = crash("SEGFAULT", {"crash-log-enabled": "no"})
    assert code == -signal.SIGSEGV
    assert "BUG REPORT" not in log
