"""Weights of edges in every format: there and back, and what is said of wrong ones."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from evergraph.core.errors import DataError
from evergraph.datasets import load
from evergraph.datasets.arrays import read_npz, read_pt, write_npz
from evergraph.datasets.importing.importing import import_graph
from evergraph.datasets.joined import join
from evergraph.datasets.table_folder import read_table_folder
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import FACTS, open_graph_folder
from tables_to_import import tables

NODES = "id,label,f\na,0,1\nb,1,2\nc,0,3\n"


@pytest.fixture
def heavy(tiny: Graph) -> Graph:
    return replace(tiny, weights=torch.tensor([0.5, 2.0, 3.25]))


def test_npz_round_trip(tmp_path, heavy, tiny, assert_same, call):
    path, ends = tmp_path / "g.npz", np.array([[0, 1], [1, 0]])
    write_npz(heavy, path)
    assert_same(read_npz(path), heavy)
    assert json.loads(call("info", str(path), "--json")[0])["edge_weights"] == "0.5 to 3.25"
    joined = join([tiny, heavy]).weights
    assert joined.tolist() == [1, 1, 1, 0.5, 2.0, 3.25]
    np.savez(path, edge_index=ends, y=np.zeros(2, np.int64), edge_weight=np.array([2, 0]))
    found = read_npz(path)  # whole numbers do as well
    assert (found.indices.tolist(), found.weights.tolist()) == ([0], [2.0])
    np.savez(path, edge_index=ends, y=np.zeros(2, np.int64), edge_weight=np.array([2, -1]))
    with pytest.raises(DataError, match=r"g\.npz: edge 1 has weight -1: expected 0, for no edge"):
        read_npz(path)


def test_pt_there_and_back(tmp_path, heavy, assert_same):
    torch.save(heavy.to_data(), tmp_path / "g.pt")
    assert_same(read_pt(tmp_path / "g.pt"), heavy)
    one = {"edge_index": torch.tensor([[0], [1]]), "y": torch.zeros(2).long()}
    torch.save(one | {"edge_attr": torch.tensor([[7]])}, tmp_path / "one.pt")
    found = read_pt(tmp_path / "one.pt")
    assert found.weights.tolist() == [7.0]


def test_tables_and_imports_by_hand(tmp_path, assert_same):
    # a-b comes twice: the last counts. b-c is listed both ways, each with its own. c-a weighs 0.
    edges = "source,weight,target\na,1,b\nb,3,c\nc,4,b\na,2,b\nc,0,a\nb,9,b\n"
    paths = tables(tmp_path, NODES, edges)
    directed = read_table_folder(tmp_path)
    assert directed.indices.tolist() == [0, 2, 1]  # into b, into b, into c
    assert directed.weights.tolist() == [2.0, 4.0, 3.0]
    both = load(tmp_path)
    assert both.indices.tolist() == [1, 0, 2, 1]
    assert both.weights.tolist() == [2.0, 2.0, 4.0, 3.0]
    report = import_graph(*paths, tmp_path / "g")
    # of 6 edges one is a loop and 2 are left: 2 were listed before, 1 weighs nothing
    assert (report.edges, report.loops, report.doubles, report.entries) == (6, 1, 3, 4)
    assert_same(open_graph_folder(tmp_path / "g", verify=True), both)
    assert json.loads((tmp_path / "g" / FACTS).read_text())["format"] == 2


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            "a,b,1\nb,c,-2\n",
            "row 2 has -2 in column 'weight': expected 0, for no edge, or a number",
        ),
        ("a,b,1\nb,c,\n", "row 2 has no value in column 'weight': expected one"),
        ("a,b,1\nb,c,inf\n", "row 2 has inf in column 'weight': expected 0, for no edge"),
        ("a,b,heavy\n", "row 1 has 'heavy' in column 'weight': expected a number"),
    ],
)
def test_wrong_weights_are_named(tmp_path, rows, said):
    paths = tables(tmp_path, NODES, f"source,target,weight\n{rows}")
    with pytest.raises(DataError, match=rf"edges\.csv: {said}"):
        read_table_folder(tmp_path)
    with pytest.raises(DataError, match=rf"edges\.csv: {said}"):
        import_graph(*paths, tmp_path / "g")
