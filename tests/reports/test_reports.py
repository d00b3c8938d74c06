"""Collecting runs, which of them stand side by side, and the tables of the command line."""

from pathlib import Path

import pytest

from evergraph.core.errors import ResultsError
from evergraph.experiments.config import RunConfig
from evergraph.experiments.runner import run
from evergraph.reports.report import write_report
from evergraph.reports.run_tables import comparison, costs_table
from evergraph.reports.runs import collect, grouped, groups_of_one
from evergraph.reports.tables import Cell, ranked


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    dataset = {"name": "synthetic", "nodes": 120, "classes": 4, "features": 8}
    for method, setting in (("tem", "class-il"), ("finetune", "class-il"), ("joint", "task-il")):
        values = {"method": method, "dataset": dataset, "stream": {"setting": setting}}
        values |= {"backbone": "pdgnn", "memory": {"budget": 5}, "training": {"epochs": 1}}
        run(RunConfig.of(values | {"device": "cpu"}), out=folder / f"{method}-{setting}")
    return folder


def test_a_row_says_what_the_result_says(runs):
    finished = collect(runs)
    assert {f.folder.name for f in finished} == {
        "tem-class-il",
        "finetune-class-il",
        "joint-task-il",
    }
    table = comparison(finished)
    rows = [dict(zip(table.headings, row, strict=True)) for row in table.texts]
    first = finished[0].result
    mean = 100 * first["average_accuracy"]["global"]["balanced"]["mean"]
    assert rows[0]["AA global"] == f"{mean:.1f}"  # a single seed has no deviation
    assert rows[0]["method"] == finished[0].method
    assert [(row["memory"], row["covered"]) for row in rows[1:]] == [("-", "-"), ("all data", "-")]
    # The table of costs counts floats, edges and all.
    table = costs_table(groups_of_one(finished))
    tem, finetune, joint = (dict(zip(table.headings, row, strict=True)) for row in table.texts)
    kept = first["memory"]
    assert kept["floats"] == kept["samples"] == 4 * 5 * 8  # classes, budget, features
    assert tem["floats"] == tem["samples"] == "160"
    assert tem["size"] == f"{kept['bytes'] / 1e3:.1f} kB"
    assert {finetune[part] for part in table.headings[3:9]} == {"-"}
    assert joint["size"] == "all data"


@pytest.mark.usefixtures("undrawn")
def test_real_results_and_a_single_one_make_a_report(runs):
    for folder in (runs, runs / "joint-task-il"):
        page = write_report(collect(folder), folder)
        assert page == folder / "report.html"
        assert page.read_text("utf-8").count("<figure>") == len(
            list((folder / "report" / "figures").glob("*.svg"))
        )


def test_a_method_that_receives_everything_again_keeps_all_data(tmp_path, write_run, change):
    for method, again in (("joint", True), ("finetune", False)):
        change(write_run(tmp_path, method, [0.5], kept=0), cumulative=again)
    rows = comparison(collect(tmp_path)).texts
    assert {row[0]: row[-3] for row in rows} == {"joint": "all data", "finetune": "-"}


def test_folders_without_results_are_said(tmp_path):
    with pytest.raises(ResultsError, match="holds no finished run"):
        collect(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="file is a file, not a results folder"):
        collect(tmp_path / "file")
    (tmp_path / "half" / "seed-0").mkdir(parents=True)
    (tmp_path / "half" / "seed-0" / "progress.json").write_text("{}")
    with pytest.raises(ResultsError, match=r"no finished run \(1 unfinished: --resume continues"):
        collect(tmp_path / "half")
    for content, message in (("{", "cannot be read"), ("{}", "has no 'metric'")):
        (tmp_path / "result.json").write_text(content)
        with pytest.raises(ResultsError, match=message):
            collect(tmp_path)
    (tmp_path / "odd" / "result.json").mkdir(parents=True)
    with pytest.raises(ResultsError, match="cannot be read"):
        collect(tmp_path / "odd")


def test_runs_are_grouped_and_the_best_stands_first(bench):
    groups = grouped(collect(bench), bench)
    assert [group.title for group in groups] == [
        "other_&_graph, class-il",
        "rings, class-il",
        "rings, task-il",
    ]
    assert [entry.name for entry in groups[1].entries] == ["a<b>&\"'$x", "plain", "nine"]
    slugs = [entry.slug for entry in groups[1].entries]
    assert slugs == ["a-b-x", "plain", "nine"]
    assert grouped(collect(bench)[::-1], bench) == groups


def test_runs_of_one_method_are_told_apart_by_their_folders(tmp_path, write_run):
    for name in ("first", "second"):
        write_run(tmp_path, name, [0.5]).rename(tmp_path / name)
    (group,) = grouped(collect(tmp_path), tmp_path)
    assert [entry.name for entry in group.entries] == ["tem (first)", "tem (second)"]


def test_runs_of_other_streams_stand_apart_and_say_so(tmp_path, write_run):
    write_run(tmp_path, "first", [0.5])  # as the first version wrote it
    write_run(tmp_path, "usual", [0.5], by="class", edges="within")
    write_run(tmp_path, "all", [0.5], by="class", edges="all")
    write_run(tmp_path, "years", [0.5], by="time", edges="within")
    write_run(tmp_path, "both", [0.5], by="blurred", edges="all")
    runs = collect(tmp_path)
    groups = grouped(runs, tmp_path)
    assert {group.title: [entry.name for entry in group.entries] for group in groups} == {
        "rings, class-il": ["first", "usual"],
        "rings, class-il, all edges": ["all"],
        "rings, class-il, blurred, all edges": ["both"],
        "rings, class-il, by time": ["years"],
    }
    assert len({group.slug for group in groups}) == 4
    assert {row[0]: row[2] for row in comparison(runs).texts}["years"] == "class-il, by time"


def test_equals_share_a_rank_and_one_alone_has_none():
    cells = [Cell("", (value,)) for value in (-0.5, -0.1, -0.1)]
    assert [cell.rank for cell in ranked(cells)] == [2, 1, 1]
    assert [cell.rank for cell in ranked(cells[:1])] == [0]
    assert [cell.rank for cell in ranked(cells[1:])] == [0, 0]
