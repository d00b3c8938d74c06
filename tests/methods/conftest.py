"""Learners on graphs that one can draw."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.methods import BackboneLearner, methods
from evergraph.training import Trainer

Make = Callable[..., Any]


@pytest.fixture
def make() -> Make:
    """Return a maker of learners that train a few full-batch epochs on the CPU."""

    def maker(name: str, *, epochs: int = 5, lr: float = 0.01, **options: Any) -> BackboneLearner:
        trainer = Trainer(epochs=epochs, lr=lr, weight_decay=0.0, batch_size=None, device="cpu")
        return methods.make(name, trainer=trainer, generator=seeded(0, "learner"), **options)

    return maker


@pytest.fixture
def two_pairs() -> Graph:
    """Four classes of four nodes in a ring each; two tasks of two classes."""
    rings = [[4 * c + i, 4 * c + (i + 1) % 4] for c in range(4) for i in range(4)]
    labels = torch.arange(16) // 4
    features = torch.eye(4)[labels] + 0.1 * torch.rand(16, 4, generator=seeded(0, "features"))
    edges = torch.tensor(rings).t()
    return Graph.from_edges(edges, features=features, labels=labels, undirected=True)
