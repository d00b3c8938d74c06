"""Edges with relations: what is kept of them, and what stays when a graph is cut."""

import pytest
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.graphs import Graph
from evergraph.graphs.relations import NodeTypes, Relations

# 0 cites 1, 0 writes 1, 2 cites 1
EDGES = torch.tensor([[0, 0, 2], [1, 1, 1]])
KINDS = torch.tensor([0, 1, 0])
NAMES = ("cites", "writes")


def relations_of(weights: Tensor | None = None) -> Relations:
    return Relations.of(EDGES, KINDS, NAMES, nodes=3, weights=weights)


def told(relations: Relations) -> set[tuple[int, int, str]]:
    ends, numbers = relations.edges()
    names = [relations.names[number] for number in numbers.tolist()]
    return set(zip(*ends.tolist(), names, strict=True))


def graph_of(edges: Tensor, relations: Relations, *, undirected: bool = True) -> Graph:
    nodes = relations.num_nodes
    graph = Graph.from_edges(
        edges,
        features=torch.arange(float(nodes))[:, None],
        labels=torch.zeros(nodes, dtype=torch.long),
        undirected=undirected,
    )
    return graph.with_relations(relations)


def test_both_ends_see_an_edge_and_tell_its_direction():
    relations = relations_of()
    assert relations.indptr.tolist() == [0, 2, 5, 6]
    assert relations.indices.tolist() == [1, 1, 0, 2, 0, 1]  # of 1: cited by 0 and 2, written by 0
    assert relations.kinds.tolist() == [1, 3, 0, 0, 2, 1]
    assert relations.kind_names() == ["cites>", "cites<", "writes>", "writes<"]
    assert told(relations) == {(0, 1, "cites"), (0, 1, "writes"), (2, 1, "cites")}


def test_doubles_count_once_the_last_weight_counts_and_0_is_none():
    edges = torch.tensor([[0, 0, 2, 1], [1, 1, 1, 1]])  # the last is a loop
    given = torch.tensor([2.0, 3.0, 0.0, 5.0])
    relations = Relations.of(edges, torch.zeros(4).long(), ("cites",), nodes=3, weights=given)
    assert told(relations) == {(0, 1, "cites")}
    assert relations.weights.tolist() == [3.0, 3.0]


def test_a_cut_graph_keeps_the_relations_of_its_edges():
    graph = graph_of(EDGES, relations_of())
    cut = graph.subgraph(torch.tensor([1, 0]))
    assert cut.relations is not None
    assert told(cut.relations) == {(1, 0, "cites"), (1, 0, "writes")}
    apart = graph.subgraph(torch.arange(3), groups=torch.tensor([0, 1, 1]))
    assert apart.relations is not None
    assert told(apart.relations) == {(2, 1, "cites")}


def test_directions_outlive_the_graph_that_had_them():
    chain = Graph.from_edges(
        torch.tensor([[0, 1], [1, 2]]), features=torch.eye(3), labels=torch.zeros(3).long()
    )
    both = chain.with_directions().to_undirected()
    assert both.undirected
    assert both.relations is not None
    assert told(both.relations) == {(0, 1, "edge"), (1, 2, "edge")}
    assert both.with_directions() is both


def test_types_go_where_their_nodes_go():
    types = NodeTypes(("paper", "author"), torch.tensor([0, 1, 0]).short())
    graph = graph_of(EDGES, relations_of()).with_types(types)
    cut = graph.subgraph(torch.tensor([1, 2]))
    assert cut.types.of(torch.arange(2)) == ["author", "paper"]
    with pytest.raises(DataError, match="types have 3 rows, but the graph has 2 nodes"):
        cut.with_types(types)


@pytest.mark.parametrize(
    ("numbers", "names", "sentence"),
    [
        ([0, 2, 0], NAMES, "numbers of 2 names, from 0 on, not 0 to 2"),
        ([0, 1], NAMES, r"shape \(2,\): expected one per edge"),
        ([0, 0, 0], ("a", "a"), "different names"),
    ],
)
def test_what_cannot_be_is_said(numbers, names, sentence):
    with pytest.raises(DataError, match=sentence):
        Relations.of(EDGES, torch.tensor(numbers), names, nodes=3)
