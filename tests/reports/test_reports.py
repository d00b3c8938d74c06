"""Collecting runs, and the tables of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from evergraph.core.errors import ResultsError
from evergraph.experiments.config import RunConfig
from evergraph.experiments.runner import run
from evergraph.reports import (
    COLUMNS,
    MEMORY_COLUMNS,
    collect,
    comparison,
    memory_comparison,
    write_report,
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for method, setting in (("tem", "class-il"), ("finetune", "class-il"), ("tem", "task-il")):
        values = {
            "dataset": {"name": "synthetic", "nodes": 240, "classes": 4, "features": 8},
            "method": method,
            "stream": {"setting": setting},
            "memory": {"budget": 5},
            "training": {"epochs": 2},
            "device": "cpu",
        }
        run(RunConfig.of(values), out=folder / f"{method}-{setting}")
    return folder


def test_a_row_says_what_the_result_says(runs: Path) -> None:
    finished = collect(runs)
    assert {f.folder.name for f in finished} == {"tem-class-il", "finetune-class-il", "tem-task-il"}
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in comparison(finished)]
    first = finished[0].result
    mean = 100 * first["average_accuracy"]["global"]["balanced"]["mean"]
    assert rows[0]["AA global"] == f"{mean:.1f} ± 0.0"
    assert rows[0]["method"] == finished[0].method
    without = next(row for row in rows if row["method"] == "finetune")
    assert (without["memory"], without["covered"]) == ("-", "-")


def test_the_memory_table_counts_floats_edges_and_bytes(runs: Path) -> None:
    finished = collect(runs)
    rows = [dict(zip(MEMORY_COLUMNS, row, strict=True)) for row in memory_comparison(finished)]
    for found, row in zip(finished, rows, strict=True):
        kept = found.result["memory"]
        if found.method == "finetune":
            assert {row[part] for part in MEMORY_COLUMNS[3:]} == {"-"}
        else:
            assert kept["floats"] == kept["samples"] == 4 * 5 * 8  # classes, budget, features
            assert row["floats"] == row["samples"] == "160"
            assert row["bytes"] == f"{kept['bytes'] / 1e3:.1f} kB"


def test_real_results_and_a_single_one_make_a_report(runs: Path) -> None:
    for folder in (runs, runs / "tem-task-il"):
        page = write_report(collect(folder), folder)
        assert page == folder / "report.html"
        assert page.read_text("utf-8").count("<figure>") == len(
            list((folder / "report" / "figures").glob("*.svg"))
        )


def test_folders_without_runs_and_broken_results_are_said(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="holds no finished run"):
        collect(tmp_path)
    for content, message in (("{", "not a result"), ("[]", "no 'average_accuracy'")):
        (tmp_path / "result.json").write_text(content)
        with pytest.raises(ResultsError, match=message):
            collect(tmp_path)
