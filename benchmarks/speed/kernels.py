"""One hop and two, by every kernel: which ones pay.

python benchmarks/speed/kernels.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import scipy.sparse
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import benchmarks.speed.twin_graphs  # noqa: F401 (registers products-twin and its siblings)
from benchmarks.graphs import CASES, synthetic
from benchmarks.measure import Options, Table, interleaved, ms, run, times

import evergraph
from evergraph.core.mapped import in_memory
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, normalised, smoother, walk
from evergraph.graphs.kernels.scaled_rows import NUMBA_PAYS_FROM, ROW_TYPES, Kernel, empty_rows

HOPS = 2
AGREE = 1e-4
BASE = "torch CSR"
LARGE = "torch CSR, large pages"
NUMBA = "numba"
MKL = "MKL"
NAMES = (BASE, LARGE, MKL, NUMBA)
TWIN = "products-twin"
WIDTHS = {
    "arxiv structure": (8, 32, 128, 256),
    "wordnet": (16, 256),
    "computers": (128, 767),
    "synthetic-300000": (64, 128),
    "coauthor-cs": (128,),
    TWIN: (32, 100),
}
# Where rows in half numbers are measured: a twin's name is followed by its scale.
HELD = {
    "arxiv structure": (32, 128, 256, 602),
    f"{TWIN} 0.1": (32, 100, 128, 256, 602),
    f"{TWIN} 0.3": (32, 100, 128, 256),
}
QUICK: dict[str, tuple[int, ...]] = {"synthetic-5000": (16, 64), "computers": (128,)}
EDGE = (500, 5_000, 20_000, 50_000, 100_000, 200_000)

WRITTEN = (
    "What is chosen is in bold. Both kinds of torch CSR write Â out first, which counts here; "
    "numba need not."
)

Contender = Callable[[], Tensor]


@dataclass(frozen=True)
class Row:
    """One graph at one width: every contender's best seconds."""

    graph: str
    width: int
    chosen: str
    seconds: dict[str, float]

    def ratio(self, name: str) -> str:
        """Return how many times as fast as the base a contender is; the chosen one in bold."""
        if name not in self.seconds:
            return "-"
        text = times(self.seconds[BASE] / self.seconds[name])
        return f"**{text}**" if name == self.chosen else text


def load(name: str) -> Graph | None:
    """Return a graph in memory, or None where its file is absent."""
    twin, _, scale = name.partition(" ")
    if twin == TWIN:
        graph = evergraph.load(TWIN, scale=float(scale or 1))
        arrays = (in_memory(graph.indptr), in_memory(graph.indices))
        return Graph(*arrays, torch.ones(graph.num_nodes, 1), graph.labels, undirected=True)
    case = CASES[name]
    return None if case.missing else case.load()


def random_features(graph: Graph, width: int) -> Tensor:
    """Draw dense features, on the small pages that torch takes."""
    return torch.randn(graph.num_nodes, width, generator=seeded(0, "features"))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch, and so every kernel, use so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def by_torch(matrix: Tensor, features: Tensor, *, large: bool) -> Tensor:
    """Return the product with Â written out, in new memory from torch or from ``empty_rows``."""
    out = empty_rows(len(features), like=features) if large else torch.empty_like(features)
    return torch.addmm(out, matrix, features, beta=0, out=out)


def by_mkl(matrix: Tensor, features: Tensor) -> Contender | None:
    """Return the product by the full MKL, if it is installed."""
    found = sorted(Path(sys.prefix, "lib").glob("libmkl_rt.so*"))
    if found:
        os.environ.setdefault("MKL_RT", str(found[0]))
    try:
        from sparse_dot_mkl import dot_product_mkl, mkl_set_num_threads_local
    except (ImportError, OSError):
        return None
    parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    csr = scipy.sparse.csr_matrix(tuple(p.numpy() for p in parts), shape=tuple(matrix.shape))

    def multiply() -> Tensor:
        mkl_set_num_threads_local(torch.get_num_threads())
        out = empty_rows(len(features), like=features)
        dot_product_mkl(csr, features.numpy(), out=out.numpy(), out_scalar=0.0)
        return out

    return multiply


def contenders(graph: Graph, width: int) -> dict[str, Contender]:
    """Return one hop by every kernel that is installed, Â at hand for those that need it."""
    matrix, features = normalised(graph), random_features(graph, width)
    found: dict[str, Contender] = {
        BASE: partial(by_torch, matrix, features, large=False),
        LARGE: partial(by_torch, matrix, features, large=True),
    }
    mkl = by_mkl(matrix, features)
    if mkl is not None:
        found[MKL] = mkl
    found[NUMBA] = partial(smoother(graph, kernel="numba").product, features)
    check(found)
    return found


def check(found: dict[str, Contender]) -> None:
    """Raise unless all contenders agree; what they compile or start is then done, too."""
    expected = found[BASE]()
    for name, contender in found.items():
        difference = float((contender() - expected).abs().max())
        if not difference <= AGREE:
            raise ValueError(f"{name} differs from {BASE} by {difference}, more than {AGREE}")


def choice(graph: Graph) -> str:
    """Return the contender that the library would take."""
    return NUMBA if smoother(graph).kernel == "numba" else LARGE


def hop_rows(widths: dict[str, tuple[int, ...]], *, rounds: int, count: int) -> list[Row]:
    """Measure one hop on every graph at every width, on so many threads."""
    rows = []
    for name, wanted in widths.items():
        graph = load(name)
        for width in wanted if graph is not None else ():
            assert graph is not None
            with threads(count):
                seconds = interleaved(contenders(graph, width), rounds=rounds, limit=30.0)
            rows.append(Row(name, width, choice(graph), seconds))
            print(rows[-1], file=sys.stderr)
    return rows


def hop_table(rows: Iterable[Row], count: int) -> Table:
    """Return how much faster than torch CSR each kernel is."""
    cells = [
        [row.graph, str(row.width), ms(row.seconds[BASE]), *(row.ratio(name) for name in NAMES[1:])]
        for row in rows
    ]
    return Table(
        f"One hop, {count} threads: times as fast as {BASE} (best round; contenders take turns)",
        ("graph", "width", f"{BASE} (ms)", *NAMES[1:]),
        cells,
        (
            f"In bold what is chosen: numba from {NUMBA_PAYS_FROM:,} entries on, self-loops counted.",
            f"{BASE}: Â written out before the clock starts, the product into new memory of torch's. "
            "large pages: the same into memory from `empty_rows`, as MKL and numba do. numba needs no Â.",
            "- : not installed.",
        ),
    )


def two_hops(graph: Graph, features: Tensor, kernel: Kernel) -> Tensor:
    """Return Â² X from the graph alone, as ``SGC.encode`` does."""
    *_, last = walk(smoother(graph, kernel=kernel), features, hops=HOPS)
    return last


def before(graph: Graph, features: Tensor) -> Tensor:
    """Return the same as it was done before there was a choice."""
    matrix = normalised(graph)
    for _ in range(HOPS):
        features = by_torch(matrix, features, large=False)
    return features


def encode_row(name: str, graph: Graph, width: int, *, rounds: int) -> Row:
    """Measure two hops, with all that comes before them."""
    features = random_features(graph, width)
    found: dict[str, Contender] = {
        BASE: partial(before, graph, features),
        LARGE: partial(two_hops, graph, features, "torch"),
    }
    found[NUMBA] = partial(two_hops, graph, features, "numba")
    check(found)
    return Row(name, width, choice(graph), interleaved(found, rounds=rounds, limit=30.0))


def encode_table(rows: Iterable[tuple[Graph, Row]], title: str, *notes: str) -> Table:
    """Return how much faster two hops are, Â included where one is written out."""
    cells = [
        [
            row.graph,
            f"{graph.num_edges + graph.num_nodes:,}",
            str(row.width),
            ms(row.seconds[BASE]),
            row.ratio(LARGE),
            row.ratio(NUMBA),
        ]
        for graph, row in rows
    ]
    return Table(
        f"{title}: times as fast as {BASE} ({torch.get_num_threads()} threads)",
        ("graph", "entries", "width", f"{BASE} (ms)", LARGE, NUMBA),
        cells,
        notes,
    )


def edge_table(*, rounds: int, sizes: Iterable[int]) -> Table:
    """Return two hops on graphs around the size from which numba is chosen."""
    rows = []
    for nodes in sizes:
        graph = synthetic(nodes, mean_degree=10.0)
        rows.append((graph, encode_row(f"synthetic-{nodes}", graph, 128, rounds=rounds)))
    return encode_table(rows, "Two hops around the edge")


def held_row(name: str, graph: Graph, width: int, *, rounds: int) -> list[str]:
    """Measure one hop by numba with every kind of rows, beside how fast memory is copied."""
    features = random_features(graph, width)
    found: dict[str, Callable[[], object]] = {}
    for held in ROW_TYPES:
        operator = smoother(graph, kernel="numba", held=held)
        operator.product(features)  # what is compiled is compiled then
        found[held] = partial(operator.product, features)
    copied = empty_rows(len(features), like=features)
    found["copy"] = partial(copied.copy_, features)
    taken = interleaved(found, rounds=rounds, limit=30.0, clock=time.process_time)
    gathered = 4 * width * (graph.num_edges + graph.num_nodes)
    return [
        name,
        str(width),
        ms(taken["float32"]),
        times(taken["float32"] / taken["float16"]),
        times(taken["float32"] / taken["bfloat16"]),
        f"{gathered / taken['float32'] / 1e9:.1f}",
        f"{2 * features.nbytes / taken['copy'] / 1e9:.1f}",
    ]


def held_table(widths: dict[str, tuple[int, ...]], *, rounds: int) -> Table:
    """Return whether rows in half numbers are summed faster."""
    rows = []
    for name, wanted in widths.items():
        graph = load(name)
        if graph is not None:
            rows += [held_row(name, graph, width, rounds=rounds) for width in wanted]
    return Table(
        f"Rows in half numbers: one hop by numba, CPU seconds of {torch.get_num_threads()} threads",
        (
            "graph",
            "width",
            "float32 (ms)",
            "float16",
            "bfloat16",
            "float32 gathers (GB/s)",
            "copy (GB/s)",
        ),
        rows,
        (
            "float16, bfloat16: times as fast; rounding the rows first is counted.",
            "gathers: bytes of neighbours' rows in a second of one core, caches included; copy: bytes "
            "read and written in a second when features are copied in their order.",
        ),
    )


def tables(options: Options) -> list[Table]:
    """Measure everything."""
    widths, rounds = (QUICK, 3) if options.quick else (WIDTHS, 9)
    counts = sorted({torch.get_num_threads(), 1}, reverse=True)
    found = [hop_table(hop_rows(widths, rounds=rounds, count=count), count) for count in counts]
    rows = []
    for name, wanted in widths.items():
        graph = load(name)
        for width in wanted if graph is not None else ():
            assert graph is not None
            rows.append((graph, encode_row(name, graph, width, rounds=rounds)))
    found.append(encode_table(rows, "Two hops from the graph alone", WRITTEN))
    found.append(edge_table(rounds=rounds, sizes=EDGE[:2] if options.quick else EDGE))
    found.append(held_table(QUICK if options.quick else HELD, rounds=rounds))
    return found


if __name__ == "__main__":
    run("kernels", "Kernels: one hop and two", tables)
