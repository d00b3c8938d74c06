"""Nodes stored with some of the graph around them."""

from __future__ import annotations

import pytest
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph
from evergraph.memory import Candidates, SubgraphMemory, isolated


def candidates_of(labels: list[int], *, sparse: bool = False) -> Candidates:
    nodes = len(labels)
    ring = torch.stack([torch.arange(nodes), torch.arange(nodes).roll(1)])
    features = torch.arange(4.0 * nodes).reshape(nodes, 4)
    graph = Graph.from_edges(
        ring,
        features=features.to_sparse_csr() if sparse else features,
        labels=torch.tensor(labels),
        undirected=True,
    )
    return Candidates(graph, torch.arange(nodes), torch.tensor(labels), features, hops=1)


def stored(memory: SubgraphMemory, labels: list[int], *, sparse: bool = False) -> None:
    sizes = {label: labels.count(label) for label in set(labels)}
    memory.store(
        candidates_of(labels, sparse=sparse), sizes, keep=isolated, generator=torch.Generator()
    )


@pytest.mark.parametrize("sparse", [False, True])
def test_tasks_are_kept_side_by_side(sparse: bool) -> None:
    memory = SubgraphMemory(budget=2)
    stored(memory, [0] * 5 + [1] * 5, sparse=sparse)
    stored(memory, [2] * 5 + [3], sparse=sparse)
    assert memory.labels_.tolist() == [0, 0, 1, 1, 2, 2, 3]
    assert memory.graph_ is not None
    assert memory.graph_.num_nodes == len(memory) == 7
    assert sorted(memory.centres_.tolist()) == list(range(7))


@pytest.mark.parametrize("sparse", [False, True])
def test_state_and_back(sparse: bool) -> None:
    memory, other = SubgraphMemory(budget=2), SubgraphMemory(budget=2)
    stored(memory, [0] * 5 + [1] * 5, sparse=sparse)
    other.restore(memory.state())
    stored(memory, [2] * 5, sparse=sparse)
    stored(other, [2] * 5, sparse=sparse)
    for name, value in memory.state().items():
        assert value.equal(other.state()[name]), name


def test_an_empty_memory_has_a_state_too() -> None:
    memory = SubgraphMemory(budget=0)
    stored(memory, [0] * 5)
    assert memory.graph_ is None
    assert memory.usage.floats == memory.usage.bytes == 0
    other = SubgraphMemory()
    other.restore(memory.state())
    assert other.graph_ is None


def test_a_fraction_is_of_the_class() -> None:
    memory = SubgraphMemory(budget=0.5)
    stored(memory, [0] * 6 + [1] * 2)
    assert torch.bincount(memory.labels_).tolist() == [3, 1]


def test_a_wrong_budget_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="budget must be"):
        SubgraphMemory(budget=-1)
