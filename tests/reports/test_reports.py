"""Tables and pictures of finished runs."""

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
    plot_learning_curves,
)
from evergraph.reports.plots import _names


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


def test_what_runs_share_is_said_once(runs: Path) -> None:
    finished = collect(runs)
    assert _names(finished)[0] == ""
    alike = [f for f in finished if f.task == "synthetic, class-il"]
    assert _names(alike) == ("synthetic, class-il", [f.method for f in alike])


def test_one_run_can_be_drawn_too(runs: Path, tmp_path: Path) -> None:
    plot_learning_curves(collect(runs / "tem-task-il"), tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_folders_without_runs_and_broken_results_are_said(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="holds no finished run"):
        collect(tmp_path)
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(ResultsError, match="not a result"):
        collect(tmp_path)
