"""The graph record against dense matrices written out from the list of edges; what is no graph."""

import re
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.csr import take_rows
from evergraph.graphs.validation import check_features
from graphs_to_draw import edge_index, few_each
from graphs_to_draw import graph_of as drawn_graph
from graphs_to_draw import matrix_of as drawn_matrix
from pyg import pyg_data
from six_nodes import NODES, graph_of, matrix_of, pairs

node_lists = st.permutations(range(NODES)).flatmap(
    lambda order: st.integers(0, NODES).map(lambda size: order[:size])
)


def is_sound(graph: Graph) -> bool:
    """int32, one row a node, neighbours ascending."""
    rows = [graph.neighbours(node).tolist() for node in range(graph.num_nodes)]
    return (
        graph.indptr.dtype == graph.indices.dtype == torch.int32
        and int(graph.indptr[0]) == 0
        and int(graph.indptr[-1]) == len(graph.indices)
        and all(row == sorted(set(row)) for row in rows)
    )


def test_an_edge_is_stored_in_the_row_of_its_target():
    graph = graph_of([(0, 1), (2, 1), (1, 3)])
    assert graph.indptr.tolist() == [0, 0, 2, 2, 3, 3, 3]
    assert graph.indices.tolist() == [0, 2, 1]
    assert graph.neighbours(1).tolist() == [0, 2]
    assert graph.neighbours(0).tolist() == []
    assert graph.degrees.tolist() == [0, 2, 0, 1, 0, 0]
    assert graph.edge_rows().tolist() == [1, 1, 3]
    lonely = graph_of([])
    assert (lonely.num_edges, lonely.indptr.tolist()) == (0, [0] * (NODES + 1))
    assert lonely.to_undirected().num_edges == 0
    empty = Graph.from_edges(edge_index([]), features=torch.empty(0, 2), labels=torch.arange(0))
    assert (empty.num_nodes, empty.num_edges, empty.num_classes) == (0, 0, 0)


def test_types_and_layouts_are_brought_to_the_ones_promised():
    graph = Graph.from_edges(
        torch.tensor([[0], [1]], dtype=torch.int32),
        features=torch.tensor([[1], [2]]),
        labels=torch.tensor([0, 1], dtype=torch.int32),
        time=torch.tensor([5, 6], dtype=torch.int32),
    )
    assert graph.features.dtype == torch.float32
    assert graph.labels.dtype == torch.int64
    assert graph.time.dtype == torch.int64
    eye = torch.eye(3).to_sparse_coo()
    graph = Graph.from_edges(edge_index([(0, 1)]), features=eye, labels=torch.tensor([0, 1, 0]))
    assert graph.features.layout == torch.sparse_csr
    assert graph.subgraph(torch.tensor([2])).features.to_dense().equal(torch.eye(3)[2:])


@pytest.mark.parametrize("undirected", [False, True])
@few_each
@given(pairs=pairs)
def test_from_edges_equals_the_dense_matrix(undirected, pairs):
    graph = graph_of(pairs, undirected=undirected)
    assert is_sound(graph)
    assert matrix_of(graph).equal(drawn_matrix(pairs, undirected=undirected))


@pytest.mark.parametrize("sparse", [False, True])
@few_each
@given(pairs=pairs, nodes=node_lists)
def test_a_subgraph_is_a_slice_of_the_matrix(sparse, pairs, nodes):
    whole = graph_of(pairs, time=torch.arange(NODES) + 100)
    if sparse:
        whole = Graph(
            whole.indptr, whole.indices, whole.features.to_sparse_csr(), whole.labels, whole.time
        )
    chosen = torch.tensor(nodes, dtype=torch.int64)
    part = whole.subgraph(chosen)
    assert is_sound(part)
    assert matrix_of(part).equal(drawn_matrix(pairs)[chosen][:, chosen])
    features = part.features.to_dense() if sparse else part.features
    assert features.equal(torch.arange(2.0 * NODES).reshape(NODES, 2)[chosen])
    assert part.labels.equal(whole.labels[chosen])
    assert part.time.tolist() == [100 + node for node in nodes]


def test_a_cut_is_not_known_to_be_undirected():
    """0 - 1 - 2 without 0 -> 1; edges between groups go both ways, and so does what is left."""
    whole = drawn_graph([(0, 1), (1, 2)], 3)
    everyone = torch.arange(3)
    cut = whole.subgraph(everyone, keep=torch.tensor([False, True, True, True]))
    assert cut.num_edges == 3
    assert not cut.undirected
    assert whole.subgraph(everyone).undirected
    assert whole.subgraph(everyone, groups=torch.tensor([0, 1, 1])).undirected


@given(
    values=st.lists(st.sampled_from([0.0, 0.0, 1.0, -2.5]), min_size=12, max_size=12),
    rows=st.lists(st.integers(0, 3), max_size=7),
)
def test_rows_of_a_csr_matrix_are_those_of_a_dense_one(values, rows):
    dense = torch.tensor(values).reshape(4, 3)
    wanted = torch.tensor(rows, dtype=torch.int64)
    taken = take_rows(dense.to_sparse_csr(), wanted)
    assert taken.layout == torch.sparse_csr
    assert taken.shape == (len(rows), 3)
    assert taken.to_dense().equal(dense[wanted])
    assert take_rows(dense, wanted).equal(dense[wanted])


def test_labels_can_be_replaced_and_hidden_without_touching_the_graph():
    graph = graph_of([(0, 1)], time=torch.arange(NODES))
    hidden = graph.without_labels()
    assert hidden.labels.tolist() == [UNLABELLED] * NODES
    assert hidden.num_classes == 0
    assert graph.labels.tolist() == [0, 1, 2, 0, 1, UNLABELLED]
    other = graph.with_labels(torch.arange(NODES))
    assert other.labels.tolist() == list(range(NODES))
    for changed in (hidden, other):
        assert matrix_of(changed).equal(matrix_of(graph))
        assert changed.features.equal(graph.features)
        assert changed.time is graph.time


def test_what_is_changed_of_a_graph_with_labels_shown_is_changed_of_its_structure():
    """Embeddings are cached for the structure: it must not be that of the graph before."""
    edges = torch.tensor([[0, 1], [1, 2]])
    graph = Graph.from_edges(edges, features=torch.eye(3), labels=torch.zeros(3, dtype=torch.long))
    shown = graph.showing(torch.tensor([0, -1, -1]))
    assert shown.structure is graph
    directed = shown.with_directions()
    assert directed.structure.relations is not None
    assert directed.with_relations(None).without_labels().relations is None
    assert shown.with_features(2 * torch.eye(3)).structure.features[0, 0] == 2


def test_a_graph_moves_with_everything_it_has():
    graph = graph_of([(0, 1)], time=torch.arange(NODES))
    assert graph.to("cpu") is graph
    moved = graph.to("meta")
    tensors = (moved.indptr, moved.indices, moved.features, moved.labels, moved.time)
    assert all(tensor is not None and tensor.device.type == "meta" for tensor in tensors)


def test_inputs_come_back_unchanged():
    edges = edge_index([(3, 1), (0, 1), (0, 1), (2, 2)])
    features, labels, time = torch.rand(4, 2), torch.tensor([1, 0, 2, -1]), torch.arange(4)
    inputs = (edges, features, labels, time)
    before = [tensor.clone() for tensor in inputs]
    graph = Graph.from_edges(edges, features=features, labels=labels, time=time, undirected=True)
    parts = [tensor.clone() for tensor in (graph.indptr, graph.indices)]
    chosen = torch.tensor([3, 0, 1])
    graph.subgraph(chosen)
    graph.to_undirected()
    graph.without_labels()
    graph.to_data()
    assert chosen.tolist() == [3, 0, 1]
    assert all(a.equal(b) for a, b in zip(inputs, before, strict=True))
    assert all(a.equal(b) for a, b in zip((graph.indptr, graph.indices), parts, strict=True))


EDGE, EYE, LABELS = edge_index([(0, 1)]), torch.eye(2), torch.tensor([0, 1])
NAN = torch.tensor([[1.0, 0.0], [0.0, float("nan")]])
NOT_FINITE = "features hold NaN or infinity, first in"


def graph_with(make: Callable[..., Graph] = Graph.from_edges, **changed: Tensor) -> Graph:
    return make(**{"edge_index": EDGE, "features": EYE, "labels": LABELS} | changed)


@pytest.mark.parametrize(
    ("message", "changed"),
    [
        ("edge 1 joins 1 and 2, but nodes are", {"edge_index": edge_index([(0, 1), (1, 2)])}),
        (
            "edge 0 joins 2 and 0, but nodes are numbered 0 to 1",
            {"edge_index": edge_index([(2, 0)])},
        ),
        ("edge 0 joins -1 and 0, but nodes are", {"edge_index": edge_index([(-1, 0), (5, 5)])}),
        ("edge_index has shape (1, 2): expected [2, edges]", {"edge_index": torch.zeros(1, 2)}),
        ("edge_index has shape (4,): expected [2, edges]", {"edge_index": torch.zeros(4)}),
        ("edge_index holds torch.float32: expected integers", {"edge_index": EDGE.float()}),
        ("features have shape (3, 3): expected [2, dims]", {"features": torch.eye(3)}),
        ("features have shape (2,): expected [2, dims]", {"features": torch.ones(2)}),
        (f"{NOT_FINITE} row 1", {"features": NAN}),
        (f"{NOT_FINITE} row 0", {"features": torch.inf * EYE[:, :1]}),
        (f"{NOT_FINITE} stored value 1", {"features": NAN.to_sparse_csr()}),
        ("features hold NaN or infinity", {"features": EYE.double() * 1e300}),  # in float32
        ("labels have shape (2, 1), but the graph has 2 nodes", {"labels": LABELS[:, None]}),
        ("node 1 has label -2", {"labels": torch.tensor([0, -2])}),
        ("labels hold torch.float32", {"labels": LABELS.float()}),
        ("time has shape (3,), but the graph has 2 nodes", {"time": torch.arange(3)}),
    ],
)
def test_what_is_not_a_graph_is_refused_with_the_reason(message, changed):
    with pytest.raises(DataError, match=re.escape(message)):
        graph_with(**changed)


def test_a_record_whose_features_have_other_rows_is_refused():
    with pytest.raises(DataError, match="features have 3 rows, but the graph has 6 nodes"):
        Graph(torch.zeros(7).int(), torch.zeros(0).int(), torch.eye(3), torch.zeros(6).long())


def test_finite_features_whose_sum_is_not_are_taken():
    check_features(torch.full((2, 1), 1e308, dtype=torch.float64), 2)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"time": torch.tensor([1.0, float("nan")])}, "time holds torch.float32: expected integ"),
        ({"time": torch.tensor([1.5, 2.0])}, "time holds torch.float32: expected integers"),
        ({"time": torch.tensor([True, False])}, "time holds torch.bool: expected integers"),
        ({"features": EYE * 1j}, "features hold torch.complex64: expected real numbers"),
        ({"features": (EYE * 1j).to_sparse()}, "features hold torch.complex64: expected real"),
        ({"edge_index": torch.ones(2, 3).bool()}, "edge_index holds torch.bool: expected integers"),
        ({"edge_index": torch.ones(2, 3) * 1j}, "edge_index holds torch.complex64: expected int"),
    ],
)
def test_kinds_of_numbers_that_are_refused(changed, said):
    def from_data(features, labels, **parts):
        return Graph.from_data(pyg_data(x=features, y=labels, **parts))

    for make in (Graph.from_edges, from_data):
        with pytest.raises(DataError, match=said):
            graph_with(make, **changed)
