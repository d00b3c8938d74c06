"""Tasks by anchored prototypes, and embeddings modulated as a task has learned to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.methods import TAAM
from evergraph.nn import Modulated
from evergraph.nn.modulated import ModulatedHead
from evergraph.streams import GraphStream

NO_EDGES = torch.empty(2, 0, dtype=torch.long)


def learned(make: Any, graph: Graph, **backbone: Any) -> TAAM:
    options: dict[str, Any] = {
        "hidden": (3,),
        "dropout": 0.0,
        "pairs": 2,
        "rank": 2,
        "task_dims": 3,
    } | backbone
    learner: TAAM = make("taam", epochs=80, lr=0.05, backbone=Modulated(**options))
    for task in GraphStream(graph):
        learner.fit_task(task)
    return learner


def pair_of(first: float, second: float) -> Graph:
    return Graph.from_edges(
        torch.tensor([[0], [1]]),
        features=torch.tensor([[first], [second]]),
        labels=torch.zeros(2).long(),
        undirected=True,
    )


def test_the_prototype_of_a_pair_by_hand(make: Any) -> None:
    learner = make("taam", steps=2, anchor=0.5)
    # Â averages 1 and 3 to 2. Z_1 = 1.5, 2.5, whose mean is 2 again; Z_2 = 1.5, 2.5.
    assert learner.profile(pair_of(1, 3), torch.tensor([0])).tolist() == pytest.approx([1.5])
    assert learner.profile(pair_of(1, 3), torch.tensor([0, 1])).tolist() == pytest.approx([2.0])
    learner.profiles_ = torch.tensor([[1.0], [-2.0]])
    found = learner.likeness(pair_of(1, 3), torch.tensor([0, 1]))
    torch.testing.assert_close(found, torch.tensor([[1.5, -3.0], [2.5, -5.0]]))


@given(st.integers(0, 1000), st.integers(0, 3), st.floats(0.0, 1.0))
def test_likeness_is_the_product_with_what_a_node_is_propagated_to(
    seed: int, steps: int, anchor: float
) -> None:
    generator = seeded(seed, "graph")
    graph = Graph.from_edges(
        torch.randint(7, (2, 12), generator=generator),
        features=torch.randn(7, 4, generator=generator),
        labels=torch.zeros(7).long(),
    )
    learner = TAAM(steps=steps, anchor=anchor, generator=seeded(0))
    learner.profiles_ = torch.randn(3, 4, generator=generator)
    nodes = torch.arange(7)
    alone = torch.stack([learner.profile(graph, node[None]) for node in nodes])
    found = learner.likeness(graph, nodes)
    torch.testing.assert_close(found, alone @ learner.profiles_.t(), atol=1e-5, rtol=1e-4)


def test_a_modulation_by_hand() -> None:
    head = ModulatedHead(2, pairs=2, rank=1, task_dims=1, hidden=(), generator=seeded(0))
    with torch.no_grad():
        head.task.fill_(2.0)
        head.factors.weight.copy_(torch.tensor([[1.0], [0.5]]))  # A t = 2 and 1
        head.directions.copy_(torch.tensor([[1.0, 0.0, 0.0, 3.0]]))  # scales, then shifts
        head.attention.weight.copy_(torch.tensor([[0.0, 0.0], [0.0, torch.tensor(3.0).log()]]))
        # e = (1, 1): a = (1, 3) / 4, so 2 · 1/4 + 1 · 3/4 = 5/4 of U: γ = (5/4, 0), β = (0, 15/4).
        found = head.modulated(torch.tensor([[1.0, 1.0]]))
    torch.testing.assert_close(found, torch.tensor([[9 / 4, 1 + 15 / 4]]))


def test_modulation_is_trained_and_matters(make: Any, two_pairs: Graph) -> None:
    learner = learned(make, two_pairs)
    for head in learner.heads_:
        assert dict(head.named_parameters())["directions"].abs().max() > 0.1  # starts near 0
    nodes = torch.arange(16)
    before = learner.logits(two_pairs, nodes)
    with torch.no_grad():
        for head in learner.heads_:
            dict(head.named_parameters())["directions"].zero_()
    assert not before.allclose(learner.logits(two_pairs, nodes), atol=1e-2)


def test_a_node_chooses_among_modulations(make: Any) -> None:
    # Classes told apart by whether two features agree: no linear classifier can, modulated or not,
    # unless nodes are modulated each in its own way.
    corners = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    labels = torch.tensor([0, 0, 1, 1]).repeat(20)
    graph = Graph.from_edges(NO_EDGES, features=corners.repeat(20, 1), labels=labels)

    def accuracy(pairs: int) -> float:
        learner = learned(make, graph, hidden=(), pairs=pairs)
        found = learner.predict(graph, torch.arange(80))
        return float((found == labels).float().mean())

    assert accuracy(1) < 0.8
    assert accuracy(4) > 0.95
