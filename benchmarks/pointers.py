"""Row pointers of 64 bits: what they cost where they are needed, and that nobody else pays.

python benchmarks/pointers.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import (
    Options,
    Table,
    extra_peak,
    in_own_process,
    interleaved,
    megabytes,
    ms,
    run,
    times,
)

from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, csr, estimate_reach_sizes, normalised, reach_sizes, smoother
from evergraph.graphs.kernels import scaled_rows
from evergraph.graphs.operator import SparseOperator
from evergraph.graphs.reach import reach as search

ROOT = Path(__file__).resolve().parents[1]
# The last commit whose pointers were of 32 bits, whatever the graph.
BEFORE = "c34d5da~"
SIZE = (500_000, 5_000_000)  # nodes, and pairs; twice as many entries
QUICK = (20_000, 100_000)
TINY = (200, 1_000)
WIDTH, ASKED = 32, 2_000
BITS = ("32 bits", "64 bits")
ROUNDS = 5


def pairs_of(size: tuple[int, int]) -> Tensor:
    """Draw pairs of nodes.  int64 [2, pairs]"""
    return torch.randint(size[0], (2, size[1]), generator=seeded(0, "pairs"))


def built(size: tuple[int, int], pairs: Tensor) -> Graph:
    """Return their graph."""
    features = torch.ones(size[0], WIDTH)
    labels = torch.zeros(size[0], dtype=torch.int64)
    return Graph.from_edges(pairs, features=features, labels=labels, undirected=True)


def two_hops(graph: Graph) -> Tensor:
    """Return Â² X by the kernel that is chosen for the graph."""
    matrix = smoother(graph)
    return matrix.product(matrix.product(graph.features))


def some(graph: Graph) -> Tensor:
    """Return nodes to ask about."""
    return torch.arange(0, graph.num_nodes, max(graph.num_nodes // ASKED, 1))


WORK: dict[str, Callable[[Graph], Tensor]] = {
    "two hops": two_hops,
    "Â written out": lambda graph: normalised(graph).values(),
    "its transpose": lambda graph: SparseOperator.of(normalised(graph)).order,
    "exact reach of 2,000": lambda graph: reach_sizes(graph, some(graph), hops=2, method="exact"),
    "estimated reach": lambda graph: estimate_reach_sizes(graph, some(graph), hops=2, registers=64),
    "subgraph of half": lambda graph: graph.subgraph(torch.arange(0, graph.num_nodes, 2)).indices,
}
BUILDING = "from_edges"


@contextmanager
def counting(bits: str) -> Iterator[None]:
    """Have all entries counted in 64 bits, as if there were too many for 32."""
    before = csr.MOST_INT32
    csr.MOST_INT32 = before if bits == BITS[0] else 0
    try:
        yield
    finally:
        csr.MOST_INT32 = before


def contenders(graph: Graph, pairs: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Return all work on one graph, ready to be done."""
    found = {name: partial(work, graph) for name, work in WORK.items()}
    size = graph.num_nodes, pairs.shape[1]
    return found | {BUILDING: lambda: built(size, pairs).indices}


def in_bits(graph: Graph, pairs: Tensor, bits: str) -> dict[str, Callable[[], Tensor]]:
    """Return the same, each with pointers of so many bits."""

    def counted(work: Callable[[], Tensor]) -> Tensor:
        with counting(bits):
            return work()

    with counting(bits):
        indptr = graph.indptr.to(csr.pointer_type(graph.num_edges))
    work = contenders(replace(graph, indptr=indptr), pairs)
    return {name: partial(counted, each) for name, each in work.items()}


@contextmanager
def compiling() -> Iterator[None]:
    """Have even a small graph's work done by compiled code."""
    before = scaled_rows.NUMBA_PAYS_FROM, search.SEARCH_PAYS_FROM
    scaled_rows.NUMBA_PAYS_FROM, search.SEARCH_PAYS_FROM = 0, 0
    try:
        yield
    finally:
        scaled_rows.NUMBA_PAYS_FROM, search.SEARCH_PAYS_FROM = before


def peak(size: tuple[int, int], file: Path, name: str, bits: str) -> int:
    """Return the bytes that some work takes beyond the graph, which lies in a file.

    Code is compiled before, on a small graph, and the graph is read: what building it or working
    on it leaves behind would count as held.
    """
    small = pairs_of(TINY)
    with compiling():
        in_bits(built(TINY, small), small, bits)[name]()
    with np.load(file) as arrays:
        indptr, indices = (torch.from_numpy(arrays[key]) for key in ("indptr", "indices"))
    labels = torch.zeros(size[0], dtype=torch.int64)
    graph = Graph(indptr, indices, torch.ones(size[0], WIDTH), labels, undirected=True)
    pairs = pairs_of(size) if name == BUILDING else small
    return extra_peak(in_bits(graph, pairs, bits)[name])


def peaks(size: tuple[int, int], graph: Graph) -> dict[str, dict[str, int]]:
    """Return the same of all work, each in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "graph.npz")
        np.savez(file, indptr=graph.indptr.numpy(), indices=graph.indices.numpy())
        return {
            name: {bits: in_own_process(peak, size, file, name, bits) for bits in BITS}
            for name in (*WORK, BUILDING)
        }


def cost_table(size: tuple[int, int], *, rounds: int) -> Table:
    """Return seconds of computing and bytes with pointers of either kind."""
    pairs = pairs_of(size)
    graph = built(size, pairs)
    both = {bits: in_bits(graph, pairs, bits) for bits in BITS}
    sizes = peaks(size, graph)
    rows = []
    for name in both[BITS[0]]:
        work = {bits: both[bits][name] for bits in BITS}
        check(name, {bits: each() for bits, each in work.items()})
        seconds = interleaved(work, rounds=rounds, clock=time.process_time)
        rows.append([name, *_compared(seconds, ms), *_compared(sizes[name], megabytes)])
    columns = ["work", *BITS, "ratio", *(f"{bits}, MB" for bits in BITS), "ratio"]
    entries = graph.num_edges
    stored = [4 * entries + width * size[0] for width in (4, 8)]
    return Table(
        f"32 and 64 bits, {size[0]:,} nodes and {entries:,} entries",
        columns,
        rows,
        [
            "Milliseconds of computing on all threads, least of some rounds; MB beyond the graph.",
            f"The adjacency itself takes {megabytes(stored[0])} and {megabytes(stored[1])} MB: node"
            " numbers stay of 32 bits.",
        ],
    )


def check(name: str, found: Mapping[str, Tensor]) -> None:
    """Raise unless both kinds give the same bits."""
    one, other = found.values()
    if not one.equal(other):
        raise ValueError(f"{name} differs between {' and '.join(found)}")


def _compared(found: Mapping[str, float], shown: Callable[[float], str]) -> list[str]:
    one, other = found.values()
    return [shown(one), shown(other), times(other / one) if one else "-"]


def timed(nodes: int, pairs: int, rounds: int) -> dict[str, float]:
    """Return the seconds of computing that all work takes with the library that is imported."""
    found: dict[str, float] = {}
    drawn = pairs_of((nodes, pairs))
    for name, work in contenders(built((nodes, pairs), drawn), drawn).items():
        work()  # numba compiles
        found[name] = min(
            interleaved({name: work}, rounds=rounds, clock=time.process_time).values()
        )
    return found


def with_source(folder: Path, size: tuple[int, int], rounds: int) -> dict[str, float]:
    """Return the same of the library in a folder, in a process of its own."""
    code = f"import benchmarks.pointers as b, json; print(json.dumps(b.timed(*{size}, {rounds})))"
    paths = os.pathsep.join([str(folder), str(ROOT)])
    given = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=given, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def before_table(size: tuple[int, int], *, rounds: int, turns: int) -> Table:
    """Return seconds of computing now and with the library as it was before, in turns."""
    title = "Below 2^31 entries: before there were pointers of 64 bits, and now"
    archive = subprocess.run(
        ["git", "archive", BEFORE, "src"], cwd=ROOT, check=False, capture_output=True
    )
    if archive.returncode:
        return Table(title, ["work"], [], [f"skipped: {BEFORE} is not in this repository"])
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as held:
            held.extractall(place, filter="data")
        sources = {"before": Path(place, "src"), "now": ROOT / "src"}
        found: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
        for turn in range(turns):
            for name in sorted(sources, reverse=turn % 2 == 1):
                found[name].append(with_source(sources[name], size, rounds))
    least = {
        source: {name: min(each[name] for each in taken) for name in taken[0]}
        for source, taken in found.items()
    }
    rows = [
        [name, *_compared({source: least[source][name] for source in sources}, ms)]
        for name in least["now"]
    ]
    kind = str(built(size, pairs_of(size)).indptr.dtype).removeprefix("torch.")
    notes = [f"Pointers of this graph are {kind} now; before is commit {BEFORE}."]
    return Table(title, ["work", "before", "now", "ratio"], rows, notes)


def main(options: Options) -> list[Table]:
    """Measure both."""
    size, rounds = (QUICK, 2) if options.quick else (SIZE, ROUNDS)
    return [
        cost_table(size, rounds=rounds),
        before_table(size, rounds=rounds, turns=1 if options.quick else 2),
    ]


if __name__ == "__main__":
    run("pointers", "Row pointers of 32 and of 64 bits", main)
