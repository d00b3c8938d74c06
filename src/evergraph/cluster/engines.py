"""Engines by name."""

from __future__ import annotations

from evergraph.cluster.ray_engine import RayEngine
from evergraph.core.engine import Engine, LocalEngine, check_engine

# Share of a memory limit for Ray's object store on this machine.
STORE_SHARE = 0.3


def make_engine(
    name: str = "local",
    *,
    address: str | None = None,
    workers: int | None = None,
    threads: int | None = None,
    memory: int | None = None,
) -> Engine:
    """Return the engine called ``name``.

    address, workers, threads: see ``RayEngine``; memory: limit on this machine, in bytes, of which
    Ray's object store gets a share if Ray is started here.

    >>> make_engine("local").workers
    1
    """
    check_engine(name, address, threads)
    if name == "local":
        return LocalEngine()

    store = None if memory is None else _store(memory)
    return RayEngine(address, workers, threads=threads, store=store)


def _store(memory: int) -> int:
    return max(int(STORE_SHARE * memory), 80_000_000)  # Ray's minimum
