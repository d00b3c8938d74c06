"""Tables of accuracy: what every run tells, and what some do."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from evergraph.evaluation.evaluator import spread
from evergraph.reports.report import sections_of, tables_of
from evergraph.reports.run_tables import headline_table, labels_shown
from evergraph.reports.runs import Finished, collect, grouped, groups_of_one
from evergraph.reports.tables import csv_text, html_table


@pytest.mark.parametrize(("known", "said"), [("global", False), ("everywhere", True)])
def test_labels_in_local_test_graphs_are_said(known, said):
    run = Finished(Path("a"), {"config": {"stream": {"known_labels": known}}})
    older = Finished(Path("b"), {"config": {"stream": {}}})
    assert ("show labels of training nodes" in labels_shown([older, run])) is said


WAYS = ("local", "global")


def under(protocol: str, testing: str, averaging: str, accuracy: float) -> dict[str, Any]:
    """Values of a run under a protocol, with this as its headline."""
    found = {way: {a: spread([0.85, 0.85]) for a in ("balanced", "plain")} for way in WAYS}
    found[testing][averaging] = spread([accuracy, accuracy])
    headline = {"testing": testing, "averaging": averaging}
    return {"protocol": protocol, "headline": headline, "average_accuracy": found}


def test_runs_under_a_protocol_stand_apart_with_their_own_number(write_run, change, tmp_path):
    write_run(tmp_path, "tem", [0.9, 0.8])
    assert headline_table(groups_of_one(collect(tmp_path))) is None
    assert "headline" not in tables_of(grouped(collect(tmp_path), tmp_path))
    for name, *told in (("puma", "local", "plain", 0.61), ("llm4gcl", "global", "plain", 0.47)):
        change(write_run(tmp_path, f"tem-{name}", [0.9, 0.8]), **under(name, *told))
    runs = collect(tmp_path)
    groups = grouped(runs, tmp_path)
    assert [group.setting for group in groups] == [
        "class-il",
        "class-il, protocol llm4gcl",
        "class-il, protocol puma",
    ]
    table = tables_of(groups)["headline"]
    assert [row[3:5] for row in table.texts] == [
        ["global, plain", "47.0 ± 0.0"],
        ["local, plain", "61.0 ± 0.0"],
    ]
    assert next(iter(tables_of(groups))) == "headline"
    told = headline_table(groups_of_one(runs))
    assert len(told.rows) == 2
    headings = [s.heading for s in sections_of(groups, tables_of(groups), {})]
    assert headings.index("By protocol") < headings.index("Summary")


def test_a_column_for_each_measure_that_any_run_has(tmp_path, write_run, change):
    write_run(tmp_path, "old", [0.5])
    change(
        write_run(tmp_path, "new", [0.75]),
        anytime_accuracy={way: {"balanced": {"mean": 0.875, "std": 0.125}} for way in WAYS},
        measures={
            "local": {"calibration_error": {"mean": 0.0625, "std": None}, "forward_transfer": None},
            "global": {"calibration_error": {"mean": 0.25, "std": 0.0}, "forward_transfer": None},
        },
    )
    table = tables_of(grouped(collect(tmp_path), tmp_path))["beyond"]
    names = [column.name for column in table.columns[3:]]
    assert names == ["AAA local", "ECE local", "AAA global", "ECE global"]
    assert [[cell.text for cell in row[3:]] for row in table.rows] == [
        ["87.5 ± 12.5", "6.2", "87.5 ± 12.5", "25.0 ± 0.0"],
        ["50.0 ± 0.0", "-", "50.0 ± 0.0", "-"],
    ]
    # What is missing is empty in CSV and sorts in HTML.
    new, old = csv.DictReader(io.StringIO(csv_text(table)))
    assert (new["ECE global mean"], new["ECE global std"]) == ("0.25", "0.0")
    assert (old["AAA local mean"], old["ECE local mean"]) == ("0.5", "")
    assert html_table(table).count('data-value="-Infinity">-</td>') == 2
