"""Two hops over a graph of papers100M's size that lies on one GPU, in half numbers.

python benchmarks/gpu_papers.py [--quick] [--out benchmarks/results]

Needs a CUDA device with 110 GB; with --quick any machine. The graph is drawn on the device itself:
as many nodes, entries and features as ogbn-papers100M has both ways, degrees as skewed, and
neighbours anywhere, which is harder on the cache than a real graph.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Options, Table, run

from evergraph.graphs import Smoother
from evergraph.graphs.csr import pointers_of
from evergraph.graphs.kernels.scaled_rows import choose_kernel
from evergraph.graphs.normalisation import scalings

NODES, ENTRIES, WIDTH = 111_059_956, 3_228_124_712, 128
AT_A_TIME = 1 << 27  # values drawn at once
SPREAD = 48_271  # a prime: nodes that are often met lie apart
LOOKED_AT = 200  # rows summed again by torch
ROUNDS = 3
HOPS = 2


def device() -> torch.device:
    """Return the GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def parts(count: int, step: int) -> Iterator[slice]:
    """Cut so many things into pieces."""
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def drawn_degrees(nodes: int, entries: int, generator: torch.Generator) -> Tensor:
    """Return degrees that add up to about so many, most small and a few in thousands.  int64"""
    drawn = torch.rand(nodes, device=generator.device, generator=generator).clamp_min_(1e-6)
    sizes = drawn.pow_(-0.6)  # a tail as of a power law with exponent 2.7
    return sizes.mul_(entries / sizes.sum(dtype=torch.float64).float()).round_().long()


def drawn_neighbours(nodes: int, entries: int, generator: torch.Generator) -> Tensor:
    """Return who is met along each entry, some far more often than others.  int32 [entries]"""
    found = torch.empty(entries, dtype=torch.int32, device=generator.device)
    for part in parts(entries, AT_A_TIME):
        size = part.stop - part.start
        drawn = torch.rand(
            size, dtype=torch.float64, device=generator.device, generator=generator
        ).square_()
        found[part] = drawn.mul_(nodes).long().mul_(SPREAD).remainder_(nodes).int()
    return found


def drawn_features(nodes: int, generator: torch.Generator) -> Tensor:
    """Return Gaussian features.  float16 [nodes, WIDTH]"""
    found = torch.empty(nodes, WIDTH, dtype=torch.float16, device=generator.device)
    for part in parts(nodes, AT_A_TIME // WIDTH):
        found[part].normal_(generator=generator)
    return found


def drawn_graph(scale: float, generator: torch.Generator) -> Smoother:
    """Return Â of a graph of a share of papers100M's size."""
    nodes = int(NODES * scale)
    degrees = drawn_degrees(nodes, int(ENTRIES * scale), generator)
    left, right = scalings(degrees + 1, "symmetric")
    indptr = pointers_of(degrees)
    entries = int(indptr[-1])
    indices = drawn_neighbours(nodes, entries, generator)
    kernel = choose_kernel(entries=entries, device=generator.device)
    return Smoother(indptr, indices, left, right, kernel=kernel)


def largest_difference(adjacency: Smoother, before: Tensor, after: Tensor) -> float:
    """Return how far rows of a hop lie from sums by torch, as a share of the row's length.

    Looked at: the longest row, the last ones, beyond 2^31 entries, and some between.
    """
    nodes = len(before)
    lengths = adjacency.indptr.diff()
    between = torch.arange(0, nodes, max(nodes // LOOKED_AT, 1)).tolist()
    worst = 0.0
    for row in {int(lengths.argmax()), nodes - 2, nodes - 1, *between}:
        start, stop = int(adjacency.indptr[row]), int(adjacency.indptr[row + 1])
        met = torch.cat([adjacency.indices[start:stop].long(), lengths.new_tensor([row])])
        gathered = before[met].float() * adjacency.right[met, None]
        expected = gathered.sum(0) * adjacency.left[row]
        apart = (after[row].float() - expected).norm() / expected.norm()
        worst = max(worst, float(apart))
    return worst


def seconds(adjacency: Smoother, features: Tensor, other: Tensor) -> float:
    """Return the seconds of two hops, there and back between two arrays."""
    _wait()
    start = time.perf_counter()
    adjacency.product(features, out=other)
    adjacency.product(other, out=features)
    _wait()
    return time.perf_counter() - start


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def tables(options: Options) -> list[Table]:
    """Draw the graph, check one hop, and time two."""
    generator = torch.Generator(device=device()).manual_seed(0)
    start = time.perf_counter()
    adjacency = drawn_graph(1e-4 if options.quick else 1.0, generator)
    features = drawn_features(len(adjacency.left), generator)
    _wait()
    print(f"drawn in {time.perf_counter() - start:.0f} s", file=sys.stderr)
    other = adjacency.product(features)
    apart = largest_difference(adjacency, features, other)
    taken = min(seconds(adjacency, features, other) for _ in range(ROUNDS))
    entries = len(adjacency.indices)
    peak = torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else float("nan")
    row = [
        f"{len(features):,}", f"{entries:,}", str(adjacency.indptr.dtype).removeprefix("torch."),
        adjacency.kernel, f"{taken:.3f}", f"{taken / HOPS / entries * 1e9:.3f}", f"{peak:.1f}",
        f"{apart:.1e}",
    ]  # fmt: skip
    columns = (
        "nodes", "entries", "row pointers", "kernel", "seconds", "seconds a hop and 10⁹ entries",
        "peak GB", "largest difference",
    )  # fmt: skip
    notes = (
        "seconds: the best of three; normalisation is done before.",
        f"largest difference: of some {LOOKED_AT} rows after one hop from sums by torch in "
        "float32, as a share of the row's length; the longest row and the last among them.",
    )
    title = f"Two hops of {WIDTH} features in float16, all on {device().type}"
    return [Table(title, columns, [row], notes)]


if __name__ == "__main__":
    run("gpu_papers", "papers100M's size on one GPU", tables)
