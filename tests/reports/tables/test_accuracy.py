"""Tables of accuracy: what every run tells, and what some do."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evergraph.evaluation.yardstick import spread
from evergraph.reports import collect, write_report
from evergraph.reports.gallery import Gallery
from evergraph.reports.page.sections import sections_of
from evergraph.reports.report import tables_of
from evergraph.reports.runs import Finished, grouped
from evergraph.reports.tables.accuracy import headlines, labels_shown
from evergraph.reports.tables.record import Table, csv_text, html_table


@pytest.mark.parametrize(("known", "said"), [("global", False), ("everywhere", True)])
def test_labels_in_local_test_graphs_are_said(known: str, said: bool) -> None:
    run = Finished(Path("a"), {"config": {"stream": {"known_labels": known}}})
    older = Finished(Path("b"), {"config": {"stream": {}}})
    assert ("show labels of training nodes" in labels_shown([older, run])) is said


WriteRun = Callable[..., Path]


def under(folder: Path, protocol: str, testing: str, averaging: str, accuracy: float) -> None:
    """Let a stored run be one under a protocol, with this as its headline."""
    path = folder / "result.json"
    result = json.loads(path.read_text())
    result |= {"protocol": protocol, "headline": {"testing": testing, "averaging": averaging}}
    result["average_accuracy"][testing][averaging] = spread([accuracy, accuracy])
    path.write_text(json.dumps(result))


def test_runs_under_a_protocol_stand_apart_with_their_own_number(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run(tmp_path, "tem", [0.9, 0.8])
    under(write_run(tmp_path, "tem-puma", [0.9, 0.8]), "puma", "local", "plain", 0.61)
    under(write_run(tmp_path, "tem-llm", [0.9, 0.8]), "llm4gcl", "global", "plain", 0.47)
    runs = collect(tmp_path)
    groups = grouped(runs, tmp_path)
    assert [group.setting for group in groups] == [
        "class-il", "class-il, protocol llm4gcl", "class-il, protocol puma"
    ]  # fmt: skip
    table = tables_of(groups)["headline"]
    assert [row[3:5] for row in table.texts] == [
        ["global, plain", "47.0 ± 0.0"], ["local, plain", "61.0 ± 0.0"]
    ]  # fmt: skip
    assert next(iter(tables_of(groups))) == "headline"
    told = headlines(runs)
    assert told is not None
    assert len(told.rows) == 2
    undrawn = Gallery((), (), (), (), (), ((),) * len(groups), ())
    headings = [s.heading for s in sections_of(groups, tables_of(groups), undrawn)]
    assert headings.index("By protocol") < headings.index("Summary")


def test_without_a_protocol_there_is_no_such_table(write_run: WriteRun, tmp_path: Path) -> None:
    write_run(tmp_path, "tem", [0.9, 0.8])
    assert headlines(collect(tmp_path)) is None
    assert "headline" not in tables_of(grouped(collect(tmp_path), tmp_path))


def tell(run: Path, **values: Any) -> None:
    path = run / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def each_way(value: Any) -> dict[str, Any]:
    return {"local": value, "global": value}


def measured(tmp_path: Path, write_run: Callable[..., Path]) -> Path:
    write_run(tmp_path, "old", [0.5])
    tell(
        write_run(tmp_path, "new", [0.75]),
        area_under_curve=each_way({"balanced": {"mean": 0.875, "std": 0.125}}),
        measures={
            "local": {"calibration_error": {"mean": 0.0625, "std": None}, "forward_transfer": None},
            "global": {"calibration_error": {"mean": 0.25, "std": 0.0}, "forward_transfer": None},
        },
    )
    return tmp_path


def table_of(folder: Path) -> Table:
    return tables_of(grouped(collect(folder), folder))["beyond"]


def test_a_column_for_each_measure_that_any_run_has(
    tmp_path: Path, write_run: Callable[..., Path]
) -> None:
    table = table_of(measured(tmp_path, write_run))
    names = [column.name for column in table.columns[3:]]
    assert names == ["AAA local", "ECE local", "AAA global", "ECE global"]
    assert [cell.text for cell in table.rows[0][3:]] == [
        "87.5 ± 12.5", "6.2", "87.5 ± 12.5", "25.0 ± 0.0",
    ]  # fmt: skip
    assert [cell.text for cell in table.rows[1][3:]] == [
        "50.0 ± 0.0", "-", "50.0 ± 0.0", "-",
    ]  # fmt: skip  # of its rows


def test_what_is_missing_is_empty_in_csv_and_sorts_in_html(
    tmp_path: Path, write_run: Callable[..., Path]
) -> None:
    table = table_of(measured(tmp_path, write_run))
    new, old = csv.DictReader(io.StringIO(csv_text(table)))
    assert (new["ECE global mean"], new["ECE global std"]) == ("0.25", "0.0")
    assert (old["AAA local mean"], old["ECE local mean"]) == ("0.5", "")
    assert html_table(table).count('data-value="-Infinity">-</td>') == 2


def test_the_page_has_the_section(tmp_path: Path, write_run: Callable[..., Path]) -> None:
    folder = measured(tmp_path, write_run)
    page = write_report(collect(folder), folder).read_text("utf-8")
    assert '<section id="beyond">' in page
    assert (folder / "report" / "tables" / "beyond.csv").exists()
