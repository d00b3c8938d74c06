"""Graphs and streams that several tests learn from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from evergraph.core import plugins
from evergraph.core.ray_engine import RayEngine
from evergraph.datasets import datasets, load
from evergraph.graphs import Graph
from evergraph.memory import samplers
from evergraph.methods import methods
from evergraph.nn import backbones
from evergraph.topology import topologies

SHARED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def real() -> Callable[[str], Path]:
    """Return the path of one of the real graphs by name, or skip where they are not at hand."""

    def path_of(name: str) -> Path:
        path = SHARED / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"the real graph {path} is not at hand")
        return path

    return path_of


@pytest.fixture
def own_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test register parts of its own, which are gone when it is over, and import plugins."""
    for resolver in (datasets, samplers, methods, backbones, topologies):
        monkeypatch.setattr(resolver, "_classes", dict(resolver._classes))
        monkeypatch.setattr(resolver, "_aliases", dict(resolver._aliases))
    monkeypatch.setattr(plugins, "_files", {})
    monkeypatch.setattr(plugins, "_installed_loaded", False)
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture(scope="session")
def small_graph() -> Graph:
    """Six classes, three tasks; easy enough to learn in a second."""
    return load("synthetic", nodes=360, classes=6, features=16, noise=0.4, seed=1)


@pytest.fixture(scope="session")
def ray_engine() -> Iterator[RayEngine]:
    """Two Ray workers on this machine, started once: that takes seconds."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'evergraph[cluster]'")
    with RayEngine(workers=2, store=200_000_000) as engine:
        yield engine
