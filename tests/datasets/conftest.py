"""Small graphs, and publishers' raw files to hold them."""

import importlib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from evergraph.graphs import Graph

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is absent: real graphs are not shipped")
    return SHARED


@pytest.fixture
def tiny() -> Graph:
    """0 -> 1, 0 -> 2, 3 -> 2; node 3 has no class."""
    return Graph.from_edges(
        torch.tensor([[0, 0, 3], [1, 2, 2]]),
        features=torch.tensor([[1.0, 0.0], [0.0, 2.5], [0.0, 0.0], [-3.0, 4.0]]),
        labels=torch.tensor([1, 0, 1, -1]),
        time=torch.tensor([2001, 2002, 2003, 2004]),
    )


@pytest.fixture(scope="session")
def assert_same() -> Callable[[Graph, Graph], None]:
    def check(found: Graph, expected: Graph) -> None:
        assert torch.equal(found.indptr, expected.indptr)
        assert torch.equal(found.indices, expected.indices)
        assert torch.equal(found.labels, expected.labels)
        assert found.features.layout == expected.features.layout
        assert torch.equal(found.features.to_dense(), expected.features.to_dense())
        assert (found.time is None) == (expected.time is None)
        assert expected.time is None or torch.equal(found.time, expected.time)
        assert (found.weights is None) == (expected.weights is None)
        assert expected.weights is None or torch.equal(found.weights, expected.weights)
        for name in ("targets", "types", "relations"):
            mine, other = getattr(found, name), getattr(expected, name)
            assert (mine is None) == (other is None), name
            assert other is None or _fields(mine) == _fields(other)

    return check


def _fields(record: Any) -> dict[str, Any]:
    """Return what a record holds, arrays as bytes, so that NaN equals NaN."""
    return {
        each.name: (value.dtype, value.shape, value.numpy().tobytes())
        if isinstance(value := getattr(record, each.name), torch.Tensor)
        else value
        for each in fields(record)
    }


@pytest.fixture
def set_facts(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace the catalogue by facts about tiny files."""
    # By name in sys.modules: the package may export a function called catalogue as well.
    modules = [
        importlib.import_module(f"evergraph.datasets.{name}")
        for name in ("base", "published", "loading")
    ]

    def replace(**facts: Any) -> None:
        for module in modules:
            monkeypatch.setattr(module, "catalogue", lambda: facts)

    return replace


@pytest.fixture
def write_gnpz() -> Callable[[Path], None]:
    """Write 0 -> 1, 1 -> 2, 2 -> 2 with word counts, as graph2gauss and gnn-benchmark do."""

    def write(path: Path, *, width: int = 3) -> None:
        adjacency = scipy.sparse.csr_matrix(
            (np.ones(3, np.float32), ([0, 1, 2], [1, 2, 2])), shape=(3, 3)
        )
        words = scipy.sparse.csr_matrix(
            (np.array([2.0, 1.0], np.float32), ([0, 2], [1, 0])), shape=(3, width)
        )
        parts = {
            f"{name}_{part}": np.asarray(getattr(matrix, part))
            for name, matrix in (("adj", adjacency), ("attr", words))
            for part in ("data", "indices", "indptr", "shape")
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, labels=np.array([0, 1, 1]), **parts)

    return write
