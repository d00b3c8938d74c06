"""Printing: whatever the terminal, it does not fail, and pages are written before it."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from evergraph.cli import output, results_commands
from evergraph.cli.app import main
from evergraph.cli.graph_commands import KINDS
from evergraph.cli.output import never_fail, print_table, say
from evergraph.core import packages
from evergraph.core.errors import ResultsError
from forked import begun
from written_runs import result_of, write


def stdout_in(encoding: str, monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    """Write stdout in an encoding, as ``PYTHONIOENCODING`` does; return what is written."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding, errors="strict", write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("COLUMNS", "160")
    return written


def test_a_table_on_an_ascii_terminal_is_drawn_in_ascii(monkeypatch):
    written = stdout_in("ascii", monkeypatch)
    never_fail()
    print_table(
        ["method", "AA"], [["tem", "66.8 ± 0.4"], ["joint", "all data"]], "mean ± deviation"
    )
    say("naïve café …")
    lines = written.getvalue().decode("ascii").splitlines()
    assert lines[0].rstrip() == "mean ? deviation"
    assert "| tem    | 66.8 ? 0.4 |" in lines
    assert "| joint  |   all data |" in lines  # numbers and their like stand right
    assert len({len(line) for line in lines[1:-1]}) == 1
    assert lines[-1] == "na?ve caf? ?"


def test_other_encodings_keep_what_they_can_write(monkeypatch):
    written = stdout_in("latin-1", monkeypatch)
    never_fail()
    say("66.8 ± 0.4 …")
    assert written.getvalue().decode("latin-1") == "66.8 ± 0.4 ?\n"


@pytest.mark.usefixtures("undrawn")
def test_a_report_on_an_ascii_terminal(tmp_path, monkeypatch):
    write(tmp_path / "runs" / "tem", result_of([0.5]))
    monkeypatch.setattr(sys, "argv", ["evergraph", "report", str(tmp_path / "runs")])
    written = stdout_in("ascii", monkeypatch)
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert "50.0 ? 0.0" in written.getvalue().decode("ascii")
    assert (tmp_path / "runs" / "report.html").exists()


@pytest.mark.usefixtures("undrawn")
def test_a_report_is_written_before_anything_is_printed(call, tmp_path, monkeypatch):
    fail = Mock(side_effect=OSError(28, "No space left on device"))
    write(tmp_path / "runs" / "tem", result_of([0.5]))
    monkeypatch.setattr(results_commands, "show_table", fail)
    _, err = call("report", "runs", expect=2)
    assert err == "error: No space left on device\n"
    assert (tmp_path / "runs" / "report.html").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_stdout_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["evergraph", "list", "benches"])
    with Path("/dev/full").open("w") as full, (tmp_path / "err").open("w") as err:
        child = begun(main, out=full.fileno(), err=err.fileno())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert (tmp_path / "err").read_text() == "error: No space left on device\n"


def test_what_a_report_lacks_is_said_before_it_is_drawn(call, tmp_path, monkeypatch):
    from evergraph.reports import report

    write(tmp_path / "runs" / "tem", result_of([0.5]))
    monkeypatch.setattr(report, "write_report", None)  # drawing would fail in another way
    with monkeypatch.context() as patch:
        patch.setattr(packages, "find_spec", lambda name: None)
        _, err = call("report", "runs", expect=2)
    assert err == (
        "error: evergraph report needs the package matplotlib, which is missing: "
        "pip install 'evergraph[report]'\n"
    )

    def refuse(folder):
        raise ResultsError(f"{folder} cannot be written: Read-only file system")

    monkeypatch.setattr(results_commands, "check_writable", refuse)
    _, err = call("report", "runs", expect=2)
    assert err == "error: runs cannot be written: Read-only file system\n"


def test_json_is_plain_on_any_terminal(monkeypatch):
    written = stdout_in("ascii", monkeypatch)
    output.print_json({"name": "café ±"})
    assert json.loads(written.getvalue()) == {"name": "café ±"}


LONG = ("analytic-with-a-long-name", "wordnet-relations")


@pytest.fixture
def narrow(call: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command whose output is piped, 80 columns wide, and see that it keeps to them."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str) -> str:
        out = call(*arguments)[0]
        assert max(map(len, out.splitlines())) <= 80
        assert "…" not in out
        return out

    return run


def test_lists_are_readable_in_80_columns(narrow, call):
    for kind in KINDS:
        out = narrow("list", kind)
        for name in json.loads(call("list", kind, "--json")[0])[kind]:
            assert f"│ {name} " in out


@pytest.mark.usefixtures("undrawn")
def test_reports_are_readable_in_80_columns(narrow, tmp_path):
    for method, dataset in (("tem", "rings"), LONG):
        folder = tmp_path / "runs" / dataset / "class-il" / method
        write(folder, result_of([0.5], dataset=dataset))
    lines = narrow("report", "runs").splitlines()
    assert any(line.startswith(f"│ {LONG[0]} │ {LONG[1]} │ class-il │") for line in lines)
    (heading,) = [line for line in lines if "AA local" in line]
    assert [word.strip() for word in heading.split("┃")[1:4]] == ["method", "dataset", "setting"]
    assert any("AF global" in line for line in lines)


def test_without_a_width_tables_are_wide_enough(call, monkeypatch):
    monkeypatch.delenv("COLUMNS")
    out, _ = call("list", "datasets")
    (line,) = [line for line in out.splitlines() if line.startswith("│ synthetic ")]
    assert "A random graph with adjustable size, degrees, homophily and feature noise" in line


@pytest.mark.parametrize("width", [20, 64])
def test_no_letter_is_lost_however_narrow_it_is(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [["name-of-a-thing", "1,234.5", "17.0 ± 2.0", "some words on it"]] * 2
    print_table(["name", "how many of them", "AA", "what it is"], rows)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    shown = sorted("".join(line for line in lines if line.startswith("│")))
    for letter in set("".join(rows[0])) - {" "}:
        assert shown.count(letter) >= 2 * "".join(rows[0]).count(letter)
