"""Measures beside accuracy, where runs have them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evergraph.reports import collect, write_report
from evergraph.reports.report import tables_of
from evergraph.reports.runs import grouped
from evergraph.reports.tables.record import Table, csv_text, html_table


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
