"""Graphs and streams that several tests learn from."""

from __future__ import annotations

from pathlib import Path

import pytest

from evergraph.datasets import load
from evergraph.graphs import Graph

SHARED = Path(__file__).parents[2] / "shared" / "data"


def shared_graph(name: str, *, undirected: bool = True) -> Graph:
    """Load one of the real graphs, or skip where they are not at hand."""
    path = SHARED / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"the real graph {path} is not at hand")
    return load(path, undirected=undirected)


@pytest.fixture(scope="session")
def small_graph() -> Graph:
    """Six classes, three tasks; easy enough to learn in a second."""
    return load("synthetic", nodes=360, classes=6, features=16, noise=0.4, seed=1)
