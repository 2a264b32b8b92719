"""The runners' own logic: what they read out of the suites' output, and their lists of reasons."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import outcome  # noqa: E402 (found by the line above)
import tcl  # noqa: E402

OUTPUT = """\
Starting test server at port 21079
[ready]: 28419
Testing unit/x
[\x1b[0;32mok\x1b[0m]: plain one (3 ms)
[ok]: with (parentheses) in it (12 ms)
[skip]: left out by name
[ignore]: needs much: Tag: needs:debug denied
[ignore]: Not supported on external server
[err]: fails here in tests/unit/x.tcl
Expected '1' to equal '2'
and a second line
[err]: no such key
    while executing
[1/1 done]: unit/x (1 seconds)

                   The End

!!! WARNING The following tests failed:

*** [err]: fails here in tests/unit/x.tcl
Cleanup: may take some time... OK
"""


def test_output_is_taken_apart():
    run = tcl.UnitRun(OUTPUT)
    assert run.passed == ["plain one", "with (parentheses) in it"]
    assert run.skips == [
        ("left out by name", None),
        ("needs much", "Tag: needs:debug denied"),
        ("(a block)", "Not supported on external server"),
    ]
    assert run.failures[0] == ("fails here", "Expected '1' to equal '2'\nand a second line")
    assert run.failures[1][0] == "(outside a test) no such key"
    assert len(run.failures) == 2
    assert run.is_done
    assert run.culprit() is None


def test_an_error_within_start_server_is_one_failure_of_its_test():
    run = tcl.UnitRun(
        "[err]: ta format\nERR Bad data format\n    while executing\n"
        "[err]: takes damage in tests/unit/x.tcl\n"
        "not known in dictionary\nkey \"pid\" not known in dictionary\n[1/1 done]: unit/x\n"
    )
    assert [name for name, _ in run.failures] == ["takes damage"]
    assert "Bad data format" in run.failures[0][1]


def test_what_stopped_a_unit_is_named():
    hung = tcl.UnitRun(
        "[ok]: one (1 ms)\n[TIMEOUT]: clients state report follows.\n"
        "sock55d => (IN PROGRESS) waits for ever\nKilling still running Redis server 1\n"
    )
    assert not hung.is_done
    assert hung.culprit()[0] == "waits for ever"
    dead = tcl.UnitRun(
        "[ok]: one (1 ms)\n[err]: kills it in tests/unit/x.tcl\nI/O error reading reply\n"
        "[exception]: Executing test client: couldn't open socket: connection refused.\n"
    )
    assert dead.culprit()[0] == "kills it"
    assert dead.exception.startswith("Executing test client")


def test_lists_with_reasons(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("# a comment\n[first reason]\nan exact name\n\n[second]\n/^begins (with|as)\n/^whole$/\n")
    listed = outcome.read_list(path)
    assert outcome.reason_for("an exact name", listed) == "first reason"
    assert outcome.reason_for("an exact name, and more", listed) is None
    assert outcome.reason_for("begins as this", listed) == "second"
    assert outcome.reason_for("whole", listed) == "second", "a pattern may end with a slash, too"
    assert outcome.reason_for("whole or not", listed) is None
    assert outcome.read_list(tmp_path / "none.txt") == []


def test_a_report_fails_below_the_floor_and_without_reasons(tmp_path, monkeypatch):
    monkeypatch.setattr(outcome, "WORK", tmp_path)

    def code(passed, failures, floor):
        group = outcome.Group("unit/x", passed, failures)
        known = [outcome.Listed("known", "its reason")]
        return outcome.Report("tcl", "Forebay", True, floor, [group], known).finish(False)

    assert code(99, [("known", "said")], 97.0) == 0
    assert code(99, [("unknown", "said")], 97.0) == 1
    assert code(90, [("known", "said")] * 10, 97.0) == 1
    assert code(0, [], 97.0) == 1
