"""Engines by name."""

from __future__ import annotations

from evergraph.cluster.ray_engine import RayEngine
from evergraph.core.engine import Engine, LocalEngine, check_engine

# Share of a memory limit for Ray's object store on this machine.
STORE_SHARE = 0.3
RAYS_LEAST = 80_000_000  # bytes of an object store


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
    store = None if memory is None else max(int(STORE_SHARE * memory), RAYS_LEAST)
    return RayEngine(address, workers, threads=threads, store=store)
