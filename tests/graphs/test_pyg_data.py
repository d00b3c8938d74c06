"""To PyG and back: Data, and HeteroData as one graph with types and relations."""

from typing import Any

import pytest
import torch
from hypothesis import given

from evergraph.core.errors import DataError
from evergraph.graphs import Graph
from graphs_to_draw import edge_index
from pyg import pyg_data, pyg_hetero
from six_nodes import NODES, graph_of, matrix_of, pairs


@given(pairs=pairs)
def test_a_graph_comes_back_from_pyg_as_it_went(pairs):
    graph = graph_of(pairs, time=torch.arange(NODES))
    data = graph.to_data()
    seen = {(int(s), int(t)) for s, t in data.edge_index.T}
    assert seen == {(s, t) for s, t in pairs if s != t}  # (source, target), as PyG has it
    back = Graph.from_data(data)
    assert matrix_of(back).equal(matrix_of(graph))
    assert back.features.equal(graph.features)
    assert back.labels.equal(graph.labels)
    assert back.time.equal(torch.arange(NODES))


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_sparse_features_come_from_pyg_as_csr_and_go_back(layout):
    dense = torch.tensor([[0.0, 2.0], [0.0, 0.0], [1.0, 0.0]])
    x = dense.to_sparse_coo() if layout == "coo" else dense.to_sparse_csr()
    graph = Graph.from_data(
        pyg_data(x=x, edge_index=edge_index([(0, 1)]), y=torch.tensor([0, 1, 1]))
    )
    assert graph.features.layout == torch.sparse_csr
    assert graph.features.to_dense().equal(dense)
    back = Graph.from_data(graph.to_data())
    assert back.features.layout == torch.sparse_csr
    assert back.features.to_dense().equal(dense)
    assert back.time is None


def test_pyg_columns_of_labels_and_years_are_flattened():
    data = pyg_data(
        x=torch.eye(2),
        edge_index=edge_index([(0, 1)]),
        y=torch.tensor([[1], [0]]),
        node_year=torch.tensor([[2013], [2017]]),
    )
    graph = Graph.from_data(data, undirected=True)
    assert graph.labels.tolist() == [1, 0]
    assert graph.time.tolist() == [2013, 2017]
    assert graph.num_edges == 2


@pytest.mark.parametrize("missing", ["x", "edge_index", "y"])
def test_a_pyg_object_without_a_part_is_refused(missing):
    parts = {"x": torch.eye(2), "edge_index": edge_index([(0, 1)]), "y": torch.tensor([0, 1])}
    del parts[missing]
    with pytest.raises(DataError, match=f"the Data object has no '{missing}'"):
        Graph.from_data(pyg_data(**parts))


def test_what_a_data_object_holds_beside_is_said(caplog):
    data = pyg_data(
        x=torch.ones(2, 1),
        edge_index=edge_index([(0, 1)]),
        y=torch.tensor([0, 1]),
        time=torch.tensor([5, 6]),
    )
    assert Graph.from_data(data).time is not None
    assert not caplog.records
    data.edge_weight, data.train_mask = torch.ones(1), torch.tensor([True, False])
    Graph.from_data(data)
    assert [record.getMessage() for record in caplog.records] == [
        "Data: attribute 'train_mask' is ignored: only x, edge_index, edge_weight, y and time are "
        "used"
    ]


def test_a_matrix_y_is_read_as_targets():
    data = pyg_data(x=torch.ones(2, 1), edge_index=edge_index([(0, 1)]), y=torch.zeros(2, 3).long())
    labels = Graph.from_data(data).targets
    assert (labels.kind, len(labels.names)) == ("labels", 3)
    data.y = torch.tensor([[0.5], [float("nan")]])
    graph = Graph.from_data(data)
    assert graph.targets.kind == "numbers"
    assert graph.to_data().y[0].item() == 0.5


def test_integers_that_are_no_labels_are_refused():
    data = pyg_data(x=torch.ones(2, 1), edge_index=edge_index([(0, 1)]), y=torch.full((2, 3), 2))
    with pytest.raises(DataError, match=r"node 0 has 2\.0 for target 't0': expected 0 or 1"):
        Graph.from_data(data)


def papers(*, derived: bool = False) -> Any:
    data = pyg_hetero()
    if derived:  # by a user
        data = type("OwnData", (type(data),), {})()
    data["paper"].x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    data["paper"].y = torch.tensor([0, 1, 0])
    data["author"].num_nodes = 2
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 0, 1], [0, 1, 2]])
    data["author", "writes", "paper"].edge_weight = torch.tensor([1.0, 2.0, 1.0])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[2], [0]])
    return data


def test_nodes_are_numbered_type_after_type():
    graph = Graph.from_data(papers())
    assert graph.labels.tolist() == [0, 1, 0, -1, -1]
    assert graph.features[3:].count_nonzero() == 0
    assert graph.types.of(torch.arange(5)) == ["paper"] * 3 + ["author"] * 2
    assert graph.neighbours(1).tolist() == [3]
    ends, numbers = graph.relations.edges()
    told = sorted(zip(*ends.tolist(), numbers.tolist(), strict=True))
    assert told == [(2, 0, 1), (3, 0, 0), (3, 1, 0), (4, 2, 0)]


def test_there_and_back():
    graph = Graph.from_data(papers(derived=True))
    data = graph.to_hetero()
    wanted = papers()
    assert data["paper"].x.equal(wanted["paper"].x)
    assert data["paper"].y.equal(wanted["paper"].y)
    assert "y" not in data["author"]
    for kind in wanted.edge_types:
        assert data[kind].edge_index.equal(wanted[kind].edge_index)
    weights = data["author", "writes", "paper"].edge_weight
    assert weights.tolist() == [1.0, 2.0, 1.0]


def test_equal_widths_share_columns_others_have_their_own_and_equal_names_their_ends():
    data = papers()
    data["author"].x = torch.tensor([[5.0, 6.0], [7.0, 8.0]])
    assert Graph.from_data(data).features.tolist() == [[1, 0], [0, 1], [1, 1], [5, 6], [7, 8]]
    data["author"].x = torch.tensor([[5.0], [6.0]])
    data["author", "cites", "author"].edge_index = torch.tensor([[0], [1]])
    graph = Graph.from_data(data)
    assert graph.features.tolist() == [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 5], [0, 0, 6]]
    assert graph.relations.names == ("writes", "paper__cites__paper", "author__cites__author")


def test_which_type_is_classified_must_be_known():
    data = papers()
    data["author"].y = torch.tensor([1, 0])
    with pytest.raises(DataError, match="one node type must have classes 'y', not 'paper', 'aut"):
        Graph.from_data(data)
    assert Graph.from_data(data, target="author").labels.tolist() == [-1, -1, -1, 1, 0]
    with pytest.raises(DataError, match="one of paper, author, not 'venue'"):
        Graph.from_data(data, target="venue")


def test_a_plain_graph_has_one_type_and_one_relation():
    chain = Graph.from_edges(
        torch.tensor([[0], [1]]), features=torch.eye(2), labels=torch.tensor([0, 1])
    )
    data = chain.to_hetero()
    assert data["node", "edge", "node"].edge_index.tolist() == [[0], [1]]
    assert data["node"].y.tolist() == [0, 1]


def test_a_plain_graph_keeps_its_weights():
    ends = torch.tensor([[0, 2, 1], [1, 1, 0]])
    weights = torch.tensor([0.5, 2.0, 3.0])
    graph = Graph.from_edges(
        ends, features=torch.eye(3), labels=torch.tensor([0, 1, 0]), weights=weights
    )
    edges = graph.to_hetero()["node", "edge", "node"]
    said = zip(*edges.edge_index.tolist(), edges.edge_weight.tolist(), strict=True)
    assert set(said) == {(0, 1, 0.5), (2, 1, 2.0), (1, 0, 3.0)}
