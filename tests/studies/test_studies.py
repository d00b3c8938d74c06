"""The paper's tables and figures, made again in small."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from evergraph.core.errors import ResultsError
from evergraph.datasets import load
from evergraph.experiments.bench.benchmark import Row
from evergraph.experiments.bench.jobs import BenchConfig, expand
from evergraph.experiments.presets import presets, published, read_preset
from evergraph.experiments.runner import run
from evergraph.graphs import Graph, reach
from evergraph.reports.tables import Cell
from evergraph.streams import GraphStream
from evergraph.studies import Options, Sheet, studies, table2
from evergraph.studies.base import facts, papers_name, write_study
from evergraph.studies.comparison import METHODS
from evergraph.studies.datasets import consumption
from evergraph.studies.table2 import coverage_of
from evergraph.studies.theorem import pseudo_training


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A graph of four classes in a file."""
    graph = load("synthetic", nodes=120, classes=4, features=8, noise=0.5, seed=3)
    path = tmp_path_factory.mktemp("data") / "small.npz"
    edges = torch.stack([graph.indices.long(), graph.edge_rows()]).numpy()
    np.savez(path, edge_index=edges, x=graph.features.numpy(), y=graph.labels.numpy())
    return str(path)


def run_here(config: BenchConfig, folder: Path) -> list[Row]:
    """Run a benchmark in this process, once: what is there is read."""
    rows = []
    for job in expand(config, out=folder):
        values = job.config.to_dict() | {"device": "cpu"}
        values["training"]["epochs"] = min(values["training"]["epochs"], 2)
        result = run(type(job.config).of(values), out=job.folder, resume=True).to_dict()
        rows.append(Row(job, result, None))
    return rows


def options(out: Path, *datasets: str) -> Options:
    return Options(out=out, bench=run_here, datasets=datasets, quick=True)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where studies of the small graph go: figures and tables share their runs, learned once."""
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def table3(small: str, out: Path) -> Sheet:
    return sheet_of("table3", out, small)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", [name for name in studies.names() if name != "paper"])
def test_every_study_makes_its_sheets_and_keeps_them(name, small, out):
    # Study paper is tables 3 and 5 once more: tests/cli/test_reproduce_paper.py.
    sheets = studies.make(name).run(options(out, small))
    assert sheets
    for sheet in sheets:
        assert sheet.picture is not None or sheet.rows
        assert all(len(row) == len(sheet.columns) for row in sheet.rows)
    page = write_study(name, sheets, out)
    text = page.read_text()
    for sheet in sheets:
        assert f"## {sheet.title}" in text
        ending = ".svg" if sheet.picture is not None else ".csv"
        assert (page.parent / f"{sheet.name}{ending}").stat().st_size > 50
    if any(sheet.rows for sheet in sheets):
        again = studies.make(name).run(options(out, small))
        assert [sheet.rows for sheet in again] == [sheet.rows for sheet in sheets]


def sheet_of(name: str, out: Path, *datasets: str) -> Sheet:
    return studies.make(name).run(options(out, *datasets))[0]


def test_table3_holds_every_method_and_what_its_results_say(table3, out):
    assert [row[0] for row in table3.rows] == list(METHODS.values())
    path = out / "table3" / "small" / "small" / "class-il" / "ssm" / "result.json"
    found = json.loads(path.read_text())["average_accuracy"]["local"]["balanced"]["mean"]
    row = next(row for row in table3.rows if row[0] == "SSM")
    assert isinstance(row[1], Cell)
    assert row[1].text == f"{100 * found:.1f}"  # one seed: no deviation
    assert row[4] == row[5] == "-"  # the paper knows no such dataset: nothing of its is filled in
    assert any("small" in note and "stands in" in note for note in table3.notes)
    assert any("not to be quoted" in note for note in table3.notes)
    # The best is bold and the second underlined, upper bounds aside.
    ranks = {row[0].text: row[1].rank for row in table3.table.rows}
    assert sorted(ranks.values())[-1] == 2
    assert 1 in ranks.values()
    assert ranks["Joint"] == ranks["Joint, PDGNN's backbone"] == 0


def test_table4_by_hand():
    """A ring of 24 nodes, 4 classes in a row: within a task of 12, two hops reach 5 nodes."""
    ring = torch.stack([torch.arange(24), torch.arange(24).roll(1)])
    graph = Graph.from_edges(
        ring, features=torch.eye(24), labels=torch.arange(24) // 6, undirected=True
    )
    stream = GraphStream(graph)
    whole = 0.0
    for index in range(len(stream)):
        task = stream.open(index)
        sizes = torch.tensor([len(r) for r in reach(task.graph, task.train, hops=2)])
        whole += float(sizes.sum())  # a budget of 100 keeps all training nodes
    kept = {design: floats for design, _, floats, _ in consumption(graph, None)}
    assert kept["full subnetworks"] == pytest.approx(24 * whole)
    assert kept["PDGNNs-TEM"] == kept["ER-GNN"] == 24 * sum(len(s.train) for s in stream.splits)
    assert kept["full subnetworks"] <= 24 * 5 * sum(len(s.train) for s in stream.splits)


def test_coverage_of_everything_is_one(small):
    stream = GraphStream(load(small))
    assert coverage_of(stream, "uniform", 0.99, seed=0) > 0.95
    assert coverage_of(stream, "uniform", 0.01, seed=0) < coverage_of(
        stream, "greedy-coverage", 0.01, seed=0
    )


def test_replaying_an_embedding_raises_its_own_class_near_it(small):
    effects = pseudo_training(load(small), 20, seed=0)
    assert effects
    mean = sum(effect.same_inside for effect in effects if not math.isnan(effect.same_inside))
    assert mean > 0
    assert all(0 <= effect.homophily <= 1 for effect in effects)


def test_papers_numbers_are_where_the_paper_has_them():
    assert published("paper/table3/corafull-tem")["average_accuracy"] == {"mean": 81.9, "std": 0.1}
    assert published("paper/table5/products-sem")["average_forgetting"]["mean"] == -1.8
    assert published("paper/table2/coverage-1")["coverage_ratio"]["mean"] == 22.5
    assert facts()["memory"]["reddit"]["full-subgraph"] == 2184957
    cells = [name for name in presets() if published(name)]
    assert len(cells) == 2 * 11 * 4 + 15
    # A preset may extend another.
    values = read_preset("paper/table3/arxiv-tem")
    assert values["training"]["epochs"] == 200
    assert values["dataset"] == "arxiv"
    assert "published" not in values


@pytest.mark.parametrize(
    ("path", "name"),
    [("x/cora_full_structure.npz", "corafull"), ("reddit", "reddit"), ("a/computers.npz", None)],
)
def test_the_papers_datasets_are_known_by_name_or_file(path, name):
    assert papers_name(path) == name


@pytest.mark.parametrize(
    ("name", "column", "homophily"),
    [
        # The paper keeps Arxiv directed and takes CoraFull as published, symmetric.
        pytest.param("ogbn_arxiv_structure", 1, "0.655", marks=pytest.mark.slow),
        ("cora_full_structure", 2, "0.567"),
    ],
)
def test_real_graphs_match_the_paper(name, column, homophily, real, tmp_path):
    path = str(real(name))
    assert sheet_of("homophily", tmp_path, path).rows[0][column] == homophily
    ratios = {row[0]: float(str(row[3])) for row in sheet_of("table4", tmp_path, path).rows}
    for design in ("ER-GNN", "PDGNNs-TEM", "GEM, a gradient a memory"):
        assert ratios[design] == pytest.approx(1.0, abs=0.155), design


@pytest.mark.parametrize("name", ["table3", "fig6"])
def test_a_graph_without_features_is_a_row_that_says_so(name, tmp_path):
    path = tmp_path / "bare.npz"
    np.savez(path, edge_index=np.zeros((2, 0), np.int32), y=np.arange(40, dtype=np.int16) % 4)
    (sheet,) = studies.make(name).run(options(tmp_path, str(path)))
    assert "no features to learn from" in str(sheet.rows[0][1])


def test_a_deviation_is_told_only_where_it_was_measured(small, tmp_path, monkeypatch):
    """One seed has none; of several the results keep only the mean of the coverage."""
    monkeypatch.setattr(table2, "RATIOS", {"1": 0.01})
    monkeypatch.setattr(table2, "SAMPLERS", ("uniform", "coverage"))
    two = replace(options(tmp_path, small), quick=False, seeds=(0, 1))
    accuracy, coverage = studies.make("table2").run(two)
    single = studies.make("table2").run(options(tmp_path / "one", small))
    assert all("±" in row[1].text for row in accuracy.table.rows)
    for sheet in (coverage, *single):
        assert not any("±" in cell.text for row in sheet.table.rows for cell in row)


@pytest.mark.parametrize("name", studies.names())
def test_a_missing_or_tiny_graph_is_a_row_that_says_so(name, tmp_path):
    sheets = studies.make(name).run(options(tmp_path, "/nowhere/graph.npz"))
    cells = [cell for sheet in sheets for row in sheet.rows for cell in row]
    assert any("/nowhere/graph.npz" in str(cell) for cell in cells)
    if name == "homophily":  # which three nodes have
        return
    path = tmp_path / "tiny.npz"
    edges, labels = np.array([[0, 1], [1, 2]], np.int32), np.array([0, 0, 1], np.int16)
    np.savez(path, edge_index=edges, y=labels, x=np.eye(3, dtype=np.float32))
    sheets = studies.make(name).run(options(tmp_path, str(path)))
    page = write_study(name, sheets, tmp_path)
    assert "class" in page.read_text()
    assert not any(sheet.picture for sheet in sheets)


@pytest.mark.parametrize(("study", "file"), [("table2", "*-0.json"), ("fig6", "*.json")])
def test_damaged_results_are_reported(study, file, small, tmp_path):
    path = Path(small)
    if study == "table2":  # coverage is kept in files of its own where there are no features
        with np.load(small) as arrays:
            path = tmp_path / "bare.npz"
            np.savez(path, edge_index=arrays["edge_index"], y=arrays["y"])
    out = tmp_path / "out"
    if study == "fig6":  # panels are kept by method: one is enough to be damaged
        (out / "fig6").mkdir(parents=True)
        (out / "fig6" / "small-finetune.json").touch()
    else:
        studies.make(study).run(options(out, str(path)))
    next((out / study).rglob(file)).write_text("{")
    with pytest.raises(ResultsError, match="remove it to make its values again"):
        studies.make(study).run(options(out, str(path)))
