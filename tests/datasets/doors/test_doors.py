"""Graphs of other libraries, wherever a graph is taken."""

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

import evergraph as eg
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.datasets.adapters import as_graph, named_graph
from evergraph.graphs import Graph
from pyg import pyg_data

FEATURES = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0], [3.0, 1.0]])
LABELS = ["b", "a", None, "b"]
PAIRS = [(0, 1), (1, 2), (3, 1)]
WEIGHTS = [2.0, 0.5, 1.0]
NAMES = ["w", "x", "y", "z"]


@pytest.fixture
def plain() -> Graph:
    """0 -> 1 -> 2 and 3 -> 1 with weights; of classes 1, 0, none, 1."""
    return Graph.from_edges(
        torch.tensor(PAIRS).t(),
        features=FEATURES,
        labels=torch.tensor([1, 0, -1, 1]),
        weights=torch.tensor(WEIGHTS),
    )


def _networkx() -> nx.DiGraph:
    graph = nx.DiGraph()
    for name, row, label in zip(NAMES, FEATURES.tolist(), LABELS, strict=True):
        graph.add_node(name, x=row, **({} if label is None else {"label": label}))
    for (source, target), weight in zip(PAIRS, WEIGHTS, strict=True):
        graph.add_edge(NAMES[source], NAMES[target], weight=weight)
    return graph


def _scipy() -> tuple[Any, Any, Any]:
    rows, columns = zip(*PAIRS, strict=True)
    adjacency = scipy.sparse.coo_matrix((WEIGHTS, (rows, columns)), shape=(4, 4))
    return adjacency, FEATURES.numpy(), LABELS


def _pandas() -> tuple[pd.DataFrame, pd.DataFrame]:
    nodes = pd.DataFrame({"id": NAMES, "label": LABELS, "f": FEATURES[:, 0], "g": FEATURES[:, 1]})
    ends = [[NAMES[end] for end in side] for side in zip(*PAIRS, strict=True)]
    return nodes, pd.DataFrame({"source": ends[0], "target": ends[1], "weight": WEIGHTS})


def _arrow() -> tuple[pa.Table, pa.Table]:
    nodes, edges = _pandas()
    return pa.Table.from_pandas(nodes), pa.Table.from_pandas(edges)


def _pyg() -> Any:
    derived = type("Derived", (type(pyg_data()),), {})  # a user's own
    return derived(
        x=FEATURES,
        edge_index=torch.tensor(PAIRS).t(),
        y=torch.tensor([1, 0, -1, 1]),
        edge_weight=torch.tensor(WEIGHTS),
    )


def _raw(make: Any) -> dict[str, Any]:
    """Tables are scaled unless told otherwise; what else holds a graph never is."""
    return {"columns": {"*": "raw"}} if make in (_pandas, _arrow) else {}


DOORS = pytest.mark.parametrize("make", [_networkx, _scipy, _pandas, _arrow, _pyg])


@DOORS
def test_every_door_leads_to_the_same_graph(make, plain, assert_same):
    assert_same(as_graph(make(), **_raw(make)), plain)
    assert_same(eg.load(make(), undirected=False, **_raw(make)), plain)
    assert_same(eg.load(make(), **_raw(make)), plain.to_undirected())
    sgc = eg.topologies.SGC(hops=1)
    assert sgc.encode(make()).equal(sgc.encode(as_graph(make())))
    if make is not _pyg:  # names are kept
        named = named_graph(make())
        assert list(named.classes or ()) == ["a", "b"]
        assert list(named.ids or ()) == ([] if make is _scipy else NAMES)


@DOORS
def test_a_learner_takes_them_in(make, plain):
    source = make()
    model = eg.ContinualNodeClassifier(width=16, **_raw(make)).partial_fit(source)
    if make is not _pyg:
        assert model.classes_.tolist() == ["b", "a"]  # in order of arrival
    ids = NAMES if make in (_networkx, _pandas, _arrow) else list(range(4))
    numbered = eg.ContinualNodeClassifier(width=16).partial_fit(plain)
    torch.testing.assert_close(
        torch.from_numpy(model.embed(ids)), torch.from_numpy(numbered.embed(range(4)))
    )


def test_an_undirected_networkx_graph_by_hand(caplog):
    source = nx.Graph()
    source.add_nodes_from(
        [(("a", 1), {"y": 1, "p": 1, "q": 2.5, "colour": "red"}), ("b", {"p": 3, "q": 4})]
    )
    source.add_edge(("a", 1), "b", since=1999)
    graph = as_graph(source, features=["p", "q"])
    assert graph.features.tolist() == [[1.0, 2.5], [3.0, 4.0]]
    assert (graph.labels.tolist(), graph.undirected, graph.weights) == ([1, -1], True, None)
    assert graph.indices.tolist() == [1, 0]
    assert [record.getMessage() for record in caplog.records] == [
        "NetworkX graph: attribute 'colour' is ignored: only p, q, y and time of nodes are used",
        "NetworkX graph: attribute 'since' is ignored: only weight of edges is used",
    ]


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.dictionaries(
                st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)),
                st.sampled_from([0.0, 0.5, 1.0, 3.0]),
                max_size=8,
            ),
        )
    )
)
def test_networkx_and_scipy_agree(drawn):
    nodes, edges = drawn
    source = nx.DiGraph()
    source.add_nodes_from(range(nodes))
    source.add_weighted_edges_from((a, b, weight) for (a, b), weight in edges.items())
    dense = np.zeros((nodes, nodes))
    for place, weight in edges.items():
        dense[place] = weight
    one, other = as_graph(source), as_graph(scipy.sparse.csr_array(dense))
    assert one.indptr.equal(other.indptr)
    assert one.indices.equal(other.indices)
    weights = [torch.ones(g.num_edges) if g.weights is None else g.weights for g in (one, other)]
    assert weights[0].equal(weights[1])


def test_a_stream_and_a_run_of_a_networkx_graph():
    graph = eg.load("synthetic", nodes=60, classes=4, features=8, noise=0.2)
    source = nx.Graph()
    source.add_nodes_from(
        (node, {"x": row, "y": label})
        for node, (row, label) in enumerate(
            zip(graph.features.tolist(), graph.labels.tolist(), strict=True)
        )
    )
    source.add_edges_from(zip(graph.edge_rows().tolist(), graph.indices.tolist(), strict=True))
    same = eg.GraphStream(source)
    assert same.open(0).graph.indices.equal(eg.GraphStream(graph).open(0).graph.indices)
    quick = {"epochs": 1, "device": "cpu", "progress": False}
    rows = [eg.run(held, "finetune", **quick).seeds[0].rows for held in (source, graph)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("source", "options", "error", "said"),
    [
        ([1, 2], {}, ConfigurationError, "a graph must be a Graph, .* not list"),
        (pd.DataFrame({"id": [1]}), {}, ConfigurationError, "DataFrame of nodes needs edges"),
        (nx.Graph(), {"edges": []}, ConfigurationError, "Graph accepts only features and labels"),
        (
            scipy.sparse.csr_array((2, 3)),
            {},
            DataError,
            r"shape \(2, 3\): expected \[nodes, nodes\]",
        ),
        (scipy.sparse.csr_array((2, 2)), {"labels": [1]}, DataError, "not 1 for 2 nodes"),
        (nx.path_graph(2), {"features": "x"}, DataError, "node 0 has no attribute 'x'"),
        (nx.path_graph(2), {"labels": "kind"}, DataError, "no node has 'kind'"),
        (
            (
                pd.DataFrame({"id": ["a"], "f": [1]}),
                pd.DataFrame({"source": ["a"], "target": ["b"]}),
            ),
            {},
            DataError,
            "edges: row 1 has target 'b': expected the id of a node",
        ),
    ],
)
def test_mistakes_are_one_sentence(source, options, error, said):
    with pytest.raises(error, match=said):
        as_graph(source, **options)


def test_a_polars_frame_is_asked_for_its_arrow_table(plain, assert_same):
    """Polars is not needed to test how it is asked: a stand-in with its module and name."""

    def held(table):
        kind = type(
            "DataFrame", (), {"to_arrow": lambda self: table, "__module__": "polars.dataframe"}
        )
        return kind()

    nodes, edges = _arrow()
    views = nodes.set_column(0, "id", nodes["id"].cast(pa.string_view()))
    assert_same(as_graph((held(views), held(edges)), columns={"*": "raw"}), plain)
