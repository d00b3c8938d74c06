"""Targets: several labels a node, or numbers."""

from pathlib import Path

import numpy as np
import pytest
import torch

from evergraph.core.errors import DataError
from evergraph.datasets import load
from evergraph.datasets.arrays import write_npz
from evergraph.graphs import UNLABELLED, Graph, Targets
from evergraph.graphs.disjoint import disjoint_union

NAN = float("nan")
EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])


def triangle(targets: Targets) -> Graph:
    return Graph.from_edges(EDGES, features=torch.eye(3), targets=targets)


LABELS = Targets(torch.tensor([[1.0, 0.0], [NAN, 1.0], [0.0, 0.0]]), "labels", ("a", "b"))


def test_targets_go_wherever_their_graph_goes():
    graph = triangle(LABELS)
    assert repr(graph) == "Graph(nodes=3, edges=3, features=3, labels=2)"
    assert graph.labels.tolist() == [UNLABELLED] * 3
    part = graph.subgraph(torch.tensor([2, 0]))
    assert part.targets.values.tolist() == [[0.0, 0.0], [1.0, 0.0]]
    for same in (graph.to_undirected(), graph.in_memory(), graph.with_features(torch.ones(3, 1))):
        assert same.targets.names == ("a", "b")
    both = disjoint_union([graph, graph]).targets
    assert both.known.sum() == 10
    assert graph.without_labels().targets is None
    numbers = triangle(Targets(torch.ones(3, 2), "numbers", ("a", "b")))
    with pytest.raises(DataError, match="the same targets, or none has any"):
        disjoint_union([graph, numbers])


@pytest.mark.parametrize(
    ("values", "kind", "names", "said"),
    [
        (torch.tensor([[2.0]]), "labels", (), "node 0 has 2.0 for target 't0': expected 0 or 1"),
        (torch.tensor([[1.0], [torch.inf]]), "numbers", ("h",), "node 1 has inf for target 'h'"),
        (torch.ones(3), "numbers", (), r"targets have shape \[3\]"),
        (torch.ones(1, 2), "numbers", ("h",), "2 columns and 1 names"),
    ],
)
def test_what_cannot_be_a_target_is_refused(values, kind, names, said):
    with pytest.raises(DataError, match=said):
        Targets(values, kind, names)


def test_a_graph_has_labels_or_targets():
    with pytest.raises(DataError, match="either labels or targets, not both"):
        Graph.from_edges(
            EDGES, features=torch.eye(3), labels=torch.tensor([0, 1, 0]), targets=LABELS
        )
    with pytest.raises(DataError, match="either labels or targets, not neither"):
        Graph.from_edges(EDGES, features=torch.eye(3))
    with pytest.raises(DataError, match="targets have 3 rows, but the graph has 4 nodes"):
        Graph.from_edges(
            EDGES, features=torch.eye(4), labels=torch.full((4,), UNLABELLED), targets=LABELS
        )


def test_npz_gives_back_what_was_written(tmp_path):
    write_npz(triangle(LABELS), tmp_path / "several.npz")
    again = load(tmp_path / "several.npz").targets
    assert (again.kind, again.names) == ("labels", ("a", "b"))
    assert torch.equal(again.known, LABELS.known)
    np.savez(tmp_path / "one.npz", edge_index=EDGES, x=np.eye(3), y=np.array([0.5, np.nan, 2.0]))
    numbers = load(tmp_path / "one.npz").targets
    assert (numbers.kind, numbers.names) == ("numbers", ("t0",))


def table(folder: Path, nodes: str) -> Graph:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text("source,target\nu,v\nv,w\n")
    return load(folder)


TABLES = {
    "id,age,labels\nu,1,art;law\nv,2,;\nw,3,\n": (
        "labels",
        ("art", "law"),
        "[[1.0, 1.0], [0.0, 0.0], [nan, nan]]",
    ),
    "id,age,target\nu,1,0.5\nv,2,\nw,3,7\n": ("numbers", ("target",), "[[0.5], [nan], [7.0]]"),
    "id,age,target_a,target_b\nu,1,0.5,1\nv,2,,2\nw,3,7,3\n": (
        "numbers",
        ("a", "b"),
        "[[0.5, 1.0], [nan, 2.0], [7.0, 3.0]]",
    ),
}


@pytest.mark.parametrize("nodes", TABLES)
def test_tables_hold_several_labels_or_numbers_a_node(tmp_path, nodes):
    graph = table(tmp_path, nodes)
    assert graph.num_features == 1
    found = graph.targets
    assert (found.kind, found.names, str(found.values.tolist())) == TABLES[nodes]


def test_lists_of_labels_in_parquet(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = {"id": [1, 2, 3], "x": [1.0, 2.0, 3.0], "labels": [["b", "a"], [], None]}
    pq.write_table(pa.table(rows), tmp_path / "nodes.parquet")
    (tmp_path / "edges.csv").write_text("source,target\n1,2\n")
    targets = load(tmp_path).targets
    assert targets.names == ("a", "b")
    assert str(targets.values.tolist()) == "[[1.0, 1.0], [0.0, 0.0], [nan, nan]]"


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ("id,labels,target\nu,a,1\nv,b,2\nw,c,3\n", "several labels per node or numbers, not both"),
        ("id,target\nu,a\nv,b\nw,c\n", "column 'target' holds string: expected numbers"),
        ("id,age\nu,1\nv,2\nw,3\n", "has no column 'label'"),
    ],
)
def test_tables_that_say_too_much_or_too_little(tmp_path, nodes, said):
    with pytest.raises(DataError, match=said):
        table(tmp_path, nodes)
