"""What a process, its files and Ray cost before any work is done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from evergraph.core.errors import ResourceError
from evergraph.core.extras import installed

FILE_BYTES = 1 << 28
PUT_BYTES = 1 << 27
# A run of next to nothing, with all that is loaded on the way: its bytes and its seconds.
_CHILD = """
import json, tempfile, time
import psutil, torch
from evergraph.core.mapped import give_memory_back
from evergraph.datasets import load
from evergraph.experiments.runner import run
from evergraph.graphs.kernels import numba_works
from evergraph.graphs import smoother
torch.set_num_threads(1)
graph = load("synthetic", nodes=200, classes=4, features=8)
smoother(graph, kernel="numba" if numba_works() else "torch").product(graph.features)
narrow = {"name": "random-features", "width": 16}
with tempfile.TemporaryDirectory() as out:
    run(graph, "analytic", backbone=narrow, device="cpu", progress=False, out=out + "/run")
begun = time.process_time()
give_memory_back()
print(json.dumps([psutil.Process().memory_info().rss, begun]))
"""


def process_cost() -> tuple[float, float]:
    """Return the bytes of a process that has run next to nothing, and the seconds it starts in."""
    done = subprocess.run([sys.executable, "-c", _CHILD], capture_output=True, text=True)
    if done.returncode:
        line = (done.stderr.strip() or "no reason").splitlines()[-1]
        raise ResourceError(f"a process to measure could not be started: {line}")
    size, seconds = json.loads(done.stdout.splitlines()[-1])
    return float(size), float(seconds)


def exam_cost() -> float:
    """Return the seconds of a set of test nodes that is next to empty."""
    from evergraph.datasets import load
    from evergraph.experiments.runner import run

    graph = load("synthetic", nodes=400, classes=20, features=8)
    start = time.process_time()
    narrow = {"name": "random-features", "width": 16}
    run(graph, "analytic", backbone=narrow, device="cpu", progress=False, keep=False)
    tasks = 10
    return (time.process_time() - start) / (tasks * (tasks + 3) / 2)


def written_array(folder: Path, shape: tuple[int, int]) -> Path:
    """Write an array of zeros that is there in full; return where."""
    path = folder / "rows.npy"
    np.save(path, np.ones(shape, np.float32))
    return path


def file_rates(folder: Path) -> tuple[float, float, float]:
    """Return GB a second: written to the system's cache, to the disk, and read from the disk."""
    path, block = folder / "block", memoryview(bytes(1 << 24))
    start = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(FILE_BYTES // len(block)):
            file.write(block)
        cached = time.perf_counter() - start
        os.fsync(file.fileno())
        written = time.perf_counter() - start
    with path.open("rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        start = time.perf_counter()
        while file.read(1 << 24):
            pass
        read = time.perf_counter() - start
    path.unlink()
    return (
        FILE_BYTES / cached / 1e9,
        FILE_BYTES / written / 1e9,
        FILE_BYTES / max(read, 1e-9) / 1e9,
    )


def ray_costs() -> tuple[float, float, float]:
    """Return Ray's start and an empty piece in seconds, and GB a second into its store.

    Zeros where Ray is not installed: a plan then takes those that came with the installation.
    """
    if not installed("ray"):
        return 0.0, 0.0, 0.0
    from evergraph.core.ray_engine import RayEngine

    start = time.perf_counter()
    with RayEngine(workers=1, store=4 * PUT_BYTES) as engine:
        list(engine.map(abs, [0]))
        begun = time.perf_counter()
        list(engine.map(abs, list(range(50))))
        pieces = time.perf_counter()
        engine.ray.put(torch.ones(PUT_BYTES // 4).numpy())
        stored = time.perf_counter()
    return begun - start, (pieces - begun) / 50, PUT_BYTES / (stored - pieces) / 1e9
