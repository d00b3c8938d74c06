"""A network never trained, and discriminants from batches however small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.graphs import Graph
from evergraph.methods import OCGL
from evergraph.nn import UntrainedGCN
from evergraph.streams import GraphStream, Task
from evergraph.topology import Reservoir
from evergraph.training import Trainer


def learner_of(**backbone: Any) -> OCGL:
    return OCGL(
        backbone=UntrainedGCN(**({"dims": 6} | backbone)),
        trainer=Trainer(device="cpu"),
        generator=seeded(0, "learner"),
    )


def task_of(seed: int, nodes: int = 60) -> Task:
    """All of a small graph in one task."""
    graph = load("synthetic", nodes=nodes, classes=3, features=5, seed=seed)
    return GraphStream(graph, classes_per_task=3).open(0)


def only(task: Task, keep: Tensor) -> Task:
    return replace(task, train=task.train[keep], train_labels=task.train_labels[keep])


def test_the_network_on_a_pair_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Graph.from_edges(
        torch.tensor([[0], [1]]),
        features=torch.tensor([[1.0], [3.0]]),
        labels=torch.tensor([0, 1]),
        undirected=True,
    )
    two = torch.tensor([[2.0]])
    monkeypatch.setattr(Reservoir, "weights", lambda *given: (torch.full((1, 1), 99.0), two))
    model = UntrainedGCN(hops=2, dims=1, scaling="none")
    first = torch.tensor(4.0).tanh()  # Â averages the two: 2 · (1 + 3) / 2
    second = (2 * first).tanh()
    expected = torch.stack([first, second]).expand(2, 2)
    torch.testing.assert_close(model.prepare(pair), expected)


@settings(max_examples=8)
@given(seed=st.integers(0, 1000), size=st.integers(1, 20), data=st.randoms())
def test_neither_batches_nor_their_order_matter(seed: int, size: int, data: Any) -> None:
    task = task_of(seed)
    places = [*range(len(task.train))]
    data.shuffle(places)
    whole, batched = learner_of(), learner_of()
    whole.fit_task(task)
    for batch in torch.tensor(places).split(size):
        batched.fit_task(only(task, batch))
    assert batched.usage == whole.usage
    nodes = torch.arange(task.graph.num_nodes)
    ours, theirs = (one.predict_proba(task.graph, nodes) for one in (batched, whole))
    torch.testing.assert_close(ours, theirs, atol=5e-3, rtol=5e-3)
