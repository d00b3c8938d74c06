"""The 2-hop SGC embedding of a whole graph: ours, PyG's, and the two bare products.

python benchmarks/speed/embedding.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.graphs import CASES, Case, layout, present
from benchmarks.measure import (
    Options,
    Table,
    extra_peak,
    in_own_process,
    interleaved,
    megabytes,
    ms,
    run,
    share,
    times,
)

from evergraph.graphs import Graph, normalised, smoother
from evergraph.graphs.csr import densify
from evergraph.topology import SGC

HOPS = 2
AGREE = 1e-4
# PyG's messages, weighed and not: two floats for every entry and feature. Beyond this, no run.
MESSAGE_LIMIT = 8e9
FULL = ("arxiv", "wordnet", "synthetic-300000", "computers", "coauthor-cs", "corafull")
QUICK = ("synthetic-5000", "computers")

Contender = Callable[[], Tensor]


def ours(graph: Graph) -> Contender:
    """Return what the library does, normalisation included."""
    encoder = SGC(hops=HOPS)
    return lambda: encoder.encode(graph)


def floor(graph: Graph) -> Contender:
    """Return the products alone: Â is there, features are dense, indices int32."""
    adjacency, features = normalised(graph), densify(graph.features)
    return lambda: adjacency @ (adjacency @ features)


def normalisation(graph: Graph) -> Contender:
    """Return what comes before the products in ours: Â, where it is written out at all."""

    def prepare() -> Tensor:
        operator = smoother(graph)
        return operator.matrix if operator.kernel == "torch" else operator.left

    return prepare


def pyg_scatter(graph: Graph) -> Contender:
    """Return SGConv over an edge list: a message for every edge, scattered into sums."""
    edge_index = torch.stack([graph.indices.long(), graph.edge_rows()])
    return _sgconv(graph, edge_index)


def pyg_csr(graph: Graph) -> Contender:
    """Return SGConv over a ``torch.sparse_csr`` adjacency, which PyG keeps in int64."""
    ones = torch.ones(graph.num_edges)
    shape = (graph.num_nodes, graph.num_nodes)
    adjacency = torch.sparse_csr_tensor(graph.indptr.long(), graph.indices.long(), ones, size=shape)
    return _sgconv(graph, adjacency)


def _sgconv(graph: Graph, adjacency: Tensor) -> Contender:
    from torch_geometric.nn import SGConv

    features = densify(graph.features)
    layer = SGConv(graph.num_features, 1, K=HOPS)
    layer.lin = torch.nn.Identity()  # the propagation only: no weight

    def embed() -> Tensor:
        with torch.no_grad():
            embeddings: Tensor = layer(features, adjacency)
        return embeddings

    return embed


MAKERS: dict[str, Callable[[Graph], Contender]] = {
    "ours": ours,
    "floor": floor,
    "PyG scatter": pyg_scatter,
    "PyG CSR": pyg_csr,
}


@dataclass(frozen=True)
class Row:
    """One graph's figures; a contender that could not run is absent."""

    case: Case
    graph: Graph
    seconds: dict[str, float]
    difference: float


def runnable(graph: Graph) -> list[str]:
    """Return the contenders that fit in memory."""
    messages = 2 * 4 * (graph.num_edges + graph.num_nodes) * graph.num_features
    return [name for name in MAKERS if name != "PyG scatter" or messages <= MESSAGE_LIMIT]


def measure(case: Case, *, rounds: int) -> Row:
    """Check that all contenders agree on one graph, then let them take turns."""
    graph = case.load()
    contenders = {name: MAKERS[name](graph) for name in runnable(graph)}
    difference = disagreement(contenders)
    timed = {**contenders, "normalisation": normalisation(graph)}
    return Row(case, graph, interleaved(timed, rounds=rounds, limit=30.0), difference)


def disagreement(contenders: dict[str, Contender]) -> float:
    """Return the largest difference between any contender and the floor; raise if it is large."""
    expected = contenders["floor"]()
    worst = 0.0
    for name, contender in contenders.items():
        difference = float((contender() - expected).abs().max())
        if difference > AGREE:
            raise ValueError(f"{name} differs from the floor by {difference}, more than {AGREE}")
        worst = max(worst, difference)
    return worst


def measure_alone(case: Case, *, rounds: int) -> Row:
    """Measure ours and the floor on one thread, where no barrier waits for a busy neighbour."""
    threads = torch.get_num_threads()
    graph = case.load()
    torch.set_num_threads(1)
    try:
        timed = {"ours": ours(graph), "floor": floor(graph), "normalisation": normalisation(graph)}
        return Row(case, graph, interleaved(timed, rounds=rounds), 0.0)
    finally:
        torch.set_num_threads(threads)


def peak(name: str, contender: str) -> int:
    """Return a contender's extra memory on a graph; to be called in a process of its own."""
    MAKERS[contender](CASES["synthetic-500"].load())()  # thread pools and libraries come first
    return extra_peak(MAKERS[contender](CASES[name].load()))


def time_table(rows: Iterable[Row], notes: Sequence[str] = ()) -> Table:
    """Return milliseconds and ratios."""
    return Table(
        f"Time, {torch.get_num_threads()} threads (ms, best round; contenders take turns)",
        (
            "graph",
            "nodes",
            "entries",
            "features",
            *MAKERS,
            "ours / floor",
            "normalisation in ours",
            "PyG scatter / ours",
            "PyG CSR / ours",
            "largest difference",
        ),
        [_time_cells(row) for row in rows],
        (
            "floor: `A @ (A @ X)`, A already normalised, X already dense, int32 indices. "
            "Targets: ours / floor at most 1.15 where features are dense, PyG scatter / ours at least "
            "8 on arxiv.",
            "Where features are CSR, ours starts from CSR and the floor from the dense copy.",
            f"- : PyG's messages would take more than {MESSAGE_LIMIT / 1e9:.0f} GB.",
            *notes,
        ),
    )


def _time_cells(row: Row) -> list[str]:
    seconds, own = row.seconds, row.seconds["ours"]
    return [
        row.case.name,
        f"{row.graph.num_nodes:,}",
        f"{row.graph.num_edges:,}",
        f"{row.case.features}, {layout(row.graph.features)}",
        *(ms(seconds[name]) if name in seconds else "-" for name in MAKERS),
        times(own / seconds["floor"]),
        share(seconds["normalisation"], own),
        *(_over(seconds.get(name), own) for name in ("PyG scatter", "PyG CSR")),
        f"{row.difference:.0e}",
    ]


def _over(other: float | None, own: float) -> str:
    return "-" if other is None else times(other / own)


def alone_table(rows: Iterable[Row]) -> Table:
    """Return the figures of one thread."""
    cells = [
        [
            row.case.name,
            *(ms(row.seconds[name]) for name in ("ours", "floor", "normalisation")),
            times(row.seconds["ours"] / row.seconds["floor"]),
        ]
        for row in rows
    ]
    return Table(
        "Time, one thread (ms, best round)",
        ("graph", "ours", "floor", "normalisation", "ours / floor"),
        cells,
        ("One thread never waits at a barrier, so a busy neighbour disturbs these ratios less.",),
    )


def memory_table(graphs: Iterable[tuple[str, Graph]]) -> Table:
    """Return peak memory beyond what was there before, each contender in its own process."""
    rows = []
    for name, graph in graphs:
        peaks = {c: in_own_process(peak, name, c) for c in runnable(graph)}
        rows.append(
            [
                name,
                *(megabytes(peaks[c]) if c in peaks else "-" for c in MAKERS),
                times(peaks["ours"] / peaks["floor"]),
                *(_over(peaks.get(c), peaks["ours"]) for c in ("PyG scatter", "PyG CSR")),
            ]
        )
    return Table(
        "Peak resident memory beyond graph and inputs (MB, a process each)",
        ("graph", *MAKERS, "ours / floor", "PyG scatter / ours", "PyG CSR / ours"),
        rows,
        (
            "The result counts. Â counts for ours and PyG, who make it, not for the floor; the dense "
            "copy of CSR features counts for ours only.",
        ),
    )


def tables(options: Options) -> list[Table]:
    """Measure everything."""
    cases, reasons = present(QUICK if options.quick else FULL)
    rounds = 3 if options.quick else 5
    rows = [measure(case, rounds=rounds) for case in cases]
    alone = [measure_alone(case, rounds=rounds) for case in cases]
    remembered = rows[:1] if options.quick else rows
    return [
        time_table(rows, reasons),
        alone_table(alone),
        memory_table((row.case.name, row.graph) for row in remembered),
    ]


if __name__ == "__main__":
    run("embedding", "2-hop SGC embedding", tables)
