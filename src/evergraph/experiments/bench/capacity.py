"""How many runs a machine carries at once, and how many threads each may use."""

from __future__ import annotations

import os

BYTES_A_WORKER = 1_500_000_000
WORKERS_A_GPU = 4


def cpu_count() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_workers(device: str) -> int:
    """Return how many workers suit this machine.

    One a processor, as long as ``BYTES_A_WORKER`` of memory are free for each; where they share a
    GPU, ``WORKERS_A_GPU`` at most.

    >>> default_workers("cpu") >= 1
    True
    """
    import psutil

    room = int(psutil.virtual_memory().available // BYTES_A_WORKER)
    most = WORKERS_A_GPU if _on_gpu(device) else cpu_count()
    return max(1, min(cpu_count(), room, most))


def threads_of(workers: int) -> int:
    """Return how many threads each of so many workers gets.

    It follows from the number of workers alone, not from how much is left to do: sums may depend
    on the number of threads, and a resumed run must come to the same bits.

    >>> threads_of(10**6)
    1
    """
    return max(1, cpu_count() // workers)


def _on_gpu(device: str) -> bool:
    from evergraph.core.device import choose_device

    return choose_device(device).type == "cuda"
