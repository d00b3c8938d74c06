"""Small bodies that would grow: what reading them allocates is bounded by what was sent.

The bodies are those that ``benchmarks/attacks.py`` sends.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evergraph.core.errors import EvergraphError
from evergraph.server.arrow import delta_from_arrow

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
KEPT: list[Any] = []  # a pool must live as long as what was allocated from it
MOST = 100_000_000  # bytes that reading a body of less than a megabyte may allocate


@pytest.fixture
def pool() -> Iterator[Any]:
    """Arrow's memory, counted from here on."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    KEPT.append((before, counted))
    pa.set_memory_pool(counted)
    yield counted
    pa.set_memory_pool(before)


def bodies(name: str, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
    prepared = importlib.import_module("benchmarks.attack_bodies").BODIES[name](100, 1_000)
    return [body for _, _, body in prepared.requests]


@pytest.mark.parametrize("name", ["dictionary bombs", "nested Arrow", "truncated Arrow"])
def test_a_small_body_stays_small(name: str, pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for body in bodies(name, monkeypatch):
        held = pool.bytes_allocated()
        with pytest.raises(EvergraphError) as refused:
            delta_from_arrow(body)
        assert len(str(refused.value)) < 1_000  # it does not echo what it was sent
        grown = pool.max_memory() - held
        assert grown < MOST, f"{len(body):,} bytes took {grown:,}: {str(refused.value)[:100]}"
