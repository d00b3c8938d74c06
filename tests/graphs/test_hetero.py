"""PyG's HeteroData: one graph with types and relations, and back."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from evergraph.core.errors import DataError
from evergraph.graphs import Graph

pytest.importorskip("torch_geometric")
from torch_geometric.data import HeteroData


class OwnData(HeteroData):
    """What a user derived."""


def papers(kind: type = HeteroData) -> Any:
    data: Any = kind()
    data["paper"].x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    data["paper"].y = torch.tensor([0, 1, 0])
    data["author"].num_nodes = 2
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 0, 1], [0, 1, 2]])
    data["author", "writes", "paper"].edge_weight = torch.tensor([1.0, 2.0, 1.0])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[2], [0]])
    return data


def test_nodes_are_numbered_type_after_type() -> None:
    graph = Graph.from_data(papers())
    assert graph.labels.tolist() == [0, 1, 0, -1, -1]
    assert graph.features[3:].count_nonzero() == 0
    assert graph.types is not None
    assert graph.types.of(torch.arange(5)) == ["paper"] * 3 + ["author"] * 2
    assert graph.neighbours(1).tolist() == [3]
    assert graph.relations is not None
    ends, numbers = graph.relations.edges()
    told = sorted(zip(*ends.tolist(), numbers.tolist(), strict=True))
    assert told == [(2, 0, 1), (3, 0, 0), (3, 1, 0), (4, 2, 0)]


def test_there_and_back() -> None:
    graph = Graph.from_data(papers(OwnData))
    data: Any = graph.to_hetero()
    wanted = papers()
    assert data["paper"].x.equal(wanted["paper"].x)
    assert data["paper"].y.equal(wanted["paper"].y)
    assert "y" not in data["author"]
    for kind in wanted.edge_types:
        assert data[kind].edge_index.equal(wanted[kind].edge_index)
    weights = data["author", "writes", "paper"].edge_weight
    assert weights.tolist() == [1.0, 2.0, 1.0]


def test_other_widths_have_columns_of_their_own_and_equal_names_their_ends() -> None:
    data = papers()
    data["author"].x = torch.tensor([[5.0], [6.0]])
    data["author", "cites", "author"].edge_index = torch.tensor([[0], [1]])
    graph = Graph.from_data(data)
    assert graph.features.tolist() == [
        [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 5], [0, 0, 6],
    ]  # fmt: skip
    assert graph.relations is not None
    assert graph.relations.names == ("writes", "paper__cites__paper", "author__cites__author")


def test_which_type_is_classified_must_be_known() -> None:
    data = papers()
    data["author"].y = torch.tensor([1, 0])
    with pytest.raises(DataError, match="one node type must have classes 'y', not 'paper', 'aut"):
        Graph.from_data(data)
    assert Graph.from_data(data, target="author").labels.tolist() == [-1, -1, -1, 1, 0]
    with pytest.raises(DataError, match="one of paper, author, not 'venue'"):
        Graph.from_data(data, target="venue")


def test_a_plain_graph_has_one_type_and_one_relation() -> None:
    chain = Graph.from_edges(
        torch.tensor([[0], [1]]), features=torch.eye(2), labels=torch.tensor([0, 1])
    )
    data: Any = chain.to_hetero()
    assert data["node", "edge", "node"].edge_index.tolist() == [[0], [1]]
    assert data["node"].y.tolist() == [0, 1]
