"""Updates of a graph that is there: how many a second, alone, with learning, and on the disk.

The protocol of RIPPLE (Naman and Simmhan, 2025): the graph is loaded but for a tenth of its edges;
then batches of 1, 10, 100 and 1,000 updates come, a third of them edges that were left out, a third
edges that go, a third nodes with other features.

python benchmarks/speed/updates.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import benchmarks.speed.twin_graphs  # noqa: F401 (registers products-twin and its siblings)
from benchmarks.graphs import DATA, from_file, synthetic
from benchmarks.measure import Options, Table, ms, run, times

import evergraph
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, smoother
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.graph.live_embeddings import LiveEmbeddings
from evergraph.online.learner import OnlineLearner
from evergraph.topology import SGC, EmbeddingCache

ARXIV = DATA / "ogbn_arxiv_structure.npz"
PUBLISHED = {"arxiv": 56_000, "products": 7_600}  # updates a second, RIPPLE++, batches of 1,000
HELD = 0.1  # share of the edges that are left out at first
SIZES = (1, 10, 100, 1_000)
ROUNDS = {1: 60, 10: 40, 100: 30, 1_000: 15}  # batches of each size, after one that is not timed
SLOW = {1: 4, 10: 4, 100: 4, 1_000: 3}  # for what takes seconds a batch
CLASSES, LABELLED = 40, 0.1
AGREE = 2e-5  # hubs of 13,000 neighbours: a sum of float32 from scratch is itself off by 5e-6
TWIN = 0.2  # of Products' nodes: to load all of its 124 million entries at once takes over 10 GB


@dataclass(frozen=True)
class Case:
    """A graph of the table.

    Attributes:
        name: how the table calls it.
        load: returns it.
        features: how wide the random features are.
        learning: whether learners are measured on it as well.
    """

    name: str
    load: Callable[[], Graph]
    features: int = 128
    learning: bool = False


def cases(*, quick: bool) -> list[Case]:
    """Return the graphs of a run."""
    if quick:
        return [Case("synthetic", lambda: synthetic(1_500), 16, learning=True)]
    found = [
        Case("arxiv, directed", lambda: from_file(ARXIV, undirected=False), learning=True),
        Case("arxiv, both ways", lambda: from_file(ARXIV)),
        Case(f"products twin x {TWIN:g}", lambda: evergraph.load("products-twin", scale=TWIN), 100),
    ]
    return [case for case in found if "arxiv" not in case.name or ARXIV.exists()]


@dataclass(frozen=True, eq=False)
class Batch:
    """Updates that are applied together.

    Attributes:
        added, cut: sources and targets.  int64 [2, n]
        nodes, features: whose features are others.  int64 [n], float32 [n, d]
    """

    added: Tensor
    cut: Tensor
    nodes: Tensor
    features: Tensor

    def __len__(self) -> int:
        return self.added.shape[1] + self.cut.shape[1] + len(self.nodes)

    def delta(self) -> Delta:
        """Return it as a learner takes it."""
        return Delta(
            edges=list(zip(*self.added.tolist(), strict=True)),
            removed_edges=list(zip(*self.cut.tolist(), strict=True)),
            updated=self.nodes.tolist(),
            updated_features=self.features,
        )


class Stream:
    """A graph without a tenth of its edges, and batches of updates; none comes twice."""

    def __init__(self, graph: Graph, *, features: int) -> None:
        self.generator = seeded(0, "updates", graph.num_nodes)
        self.undirected, self.nodes = graph.undirected, graph.num_nodes
        self.width = features
        owners = torch.repeat_interleave(torch.arange(self.nodes), graph.indptr.diff().long())
        ends = torch.stack([graph.indices.long(), owners])
        ends = ends[:, ends[0] < ends[1]] if graph.undirected else ends[:, ends[0] != ends[1]]
        self._ends = ends[:, torch.randperm(ends.shape[1], generator=self.generator)]
        self._held = int(HELD * ends.shape[1])  # the next one to come
        self._loaded = self._held  # the next one to go
        self._turn = 0
        self.features = torch.randn(self.nodes, features, generator=self.generator)

    @property
    def loaded(self) -> Tensor:
        """The edges that are there at first.  int64 [2, edges]"""
        return self._ends[:, int(HELD * self._ends.shape[1]) :]

    def batch(self, size: int) -> Batch:
        """Draw one; of a single update each kind takes turns."""
        self._turn += 1
        thirds = [(size + (self._turn + k) % 3) // 3 for k in range(3)]
        added = self._ends[:, self._held - thirds[0] : self._held]
        cut = self._ends[:, self._loaded : self._loaded + thirds[1]]
        self._held -= thirds[0]
        self._loaded += thirds[1]
        nodes = torch.randperm(self.nodes, generator=self.generator)[: thirds[2]].sort().values
        return Batch(
            added, cut, nodes, torch.randn(len(nodes), self.width, generator=self.generator)
        )


class Engine:
    """Embeddings alone, that follow the graph."""

    name = "engine"

    def __init__(self, stream: Stream, topology: SGC) -> None:
        self.graph = GrowingGraph(num_features=stream.width, undirected=stream.undirected)
        self.live = LiveEmbeddings(topology, self.graph, scaling="none")
        self.live.update(self.graph.add(stream.features, stream.loaded))
        self.moved = 0

    def apply(self, batch: Batch) -> None:
        """Follow a batch."""
        change = self.graph.add(batch.features[:0], batch.added)
        change = change.then(self.graph.disconnect(batch.cut))
        change = change.then(self.graph.renew(batch.nodes, batch.features))
        self.moved = len(self.live.update(change))

    def off(self) -> float:
        """Return how far embeddings are from those from scratch, or raise if that is too far."""
        graph, positions = self.graph.to_graph()
        whole, fresh = smoother(graph), graph.features
        for _ in range(self.live.topology.hops):
            fresh = whole.product(fresh)
        found = float((self.live.of(positions) - fresh).abs().max())
        if not found <= AGREE:
            raise ValueError(f"embeddings differ from those from scratch by {found}")
        return found


class Whole:
    """The graph encoded from scratch after every batch; that it is there as CSR costs nothing."""

    name = "all anew"

    def __init__(self, stream: Stream, topology: SGC) -> None:
        graph = GrowingGraph(num_features=stream.width, undirected=stream.undirected)
        graph.add(stream.features, stream.loaded)
        self.graph, _ = graph.to_graph()
        self.cache = EmbeddingCache(topology, scaling="none")
        self.moved = self.graph.num_nodes

    def apply(self, batch: Batch) -> None:
        """Encode everything; which edges there are makes no difference to how long it takes."""
        self.cache.encode(self.graph)


class Learning:
    """A learner with the default head, in memory."""

    name = "engine and learning"

    def __init__(self, stream: Stream, topology: SGC) -> None:
        self.learner = OnlineLearner(undirected=stream.undirected)
        self._take = self._opened()
        generator = seeded(0, "classes")
        classes = torch.randint(CLASSES, (stream.nodes,), generator=generator).tolist()
        known = (torch.rand(stream.nodes, generator=generator) < LABELLED).tolist()
        labels = [c if k else None for c, k in zip(classes, known, strict=True)]
        first = Delta(
            nodes=range(stream.nodes),
            features=stream.features,
            labels=labels,
            edges=list(zip(*stream.loaded.tolist(), strict=True)),
        )
        self._take(first)
        self.moved = 0

    def _opened(self) -> Callable[[Delta], Any]:
        return self.learner.apply

    def apply(self, batch: Batch) -> None:
        """Follow a batch."""
        self.moved = self._take(batch.delta()).recomputed


class Durable(Learning):
    """The same in a folder: a batch is on the disk when it is answered."""

    name = "engine, learning and disk"

    def _opened(self) -> Callable[[Delta], Any]:
        self.place = tempfile.TemporaryDirectory()
        threads = torch.get_num_threads()
        self.folder = LearnerFolder.open(
            self.place.name, make=lambda: self.learner, threads=threads
        )
        return self.folder.submit

    def __init__(self, stream: Stream, topology: SGC) -> None:
        super().__init__(stream, topology)
        self.folder.compact()  # the snapshot that follows so large a delta


@dataclass(frozen=True)
class Row:
    """Figures of one contender at one size of batches."""

    case: str
    hops: int
    contender: str
    size: int
    moved: float
    rate: float  # updates a second, on the wall
    cpu: float  # seconds of all cores for a thousand updates
    median: float
    tail: float


def measured(
    case: str, contender: Any, stream: Stream, size: int, rounds: int, *, hops: int
) -> Row:
    """Return what batches of one size cost."""
    taken, spent, moved = [], [], []
    for turn in range(rounds + 1):
        batch = stream.batch(size)
        wall, cpu = time.perf_counter(), time.process_time()
        contender.apply(batch)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        if turn:
            taken.append(wall)
            spent.append(cpu)
            moved.append(contender.moved)
    updates = size * rounds
    tail = float(np.quantile(taken, 0.95))
    row = Row(
        case,
        hops,
        contender.name,
        size,
        statistics.median(moved),
        updates / sum(taken),
        1000 * sum(spent) / updates,
        statistics.median(taken),
        tail,
    )
    print(row, file=sys.stderr)
    return row


def rows_of(case: Case, *, quick: bool) -> Iterator[Row]:
    """Measure every contender on one graph."""
    graph = case.load()
    contenders: list[tuple[type, bool]] = [(Engine, False), (Whole, True)]
    if case.learning:
        contenders += [(Learning, True), (Durable, True)]
    for hops in (2, 3):
        for kind, slow in contenders:
            if hops == 3 and issubclass(kind, Learning):
                continue  # the default head says how far embeddings look
            stream = Stream(graph, features=case.features)
            contender = kind(stream, SGC(hops=hops))
            for size in SIZES[:3] if quick else SIZES:
                rounds = 2 if quick else (SLOW if slow else ROUNDS)[size]
                yield measured(case.name, contender, stream, size, rounds, hops=hops)
            if isinstance(contender, Engine):
                print(f"off by {contender.off():.2g}", file=sys.stderr)


def table(rows: Sequence[Row]) -> Table:
    """Return all figures."""
    best = {(row.case, row.hops, row.size): row for row in rows if row.contender == Engine.name}
    cells = [
        [
            f"{row.case}, {row.hops} hops, {row.contender}",
            f"{row.size:,}",
            f"{row.moved:,.0f}",
            f"{row.rate:,.0f}",
            f"{row.cpu:.3f}",
            ms(row.median),
            ms(row.tail),
            times(row.cpu / best[row.case, row.hops, row.size].cpu),
        ]
        for row in rows
    ]
    published = ", ".join(f"{rate:,} ({name})" for name, rate in PUBLISHED.items())
    return Table(
        "Batches of updates: edges that come, edges that go, other features, a third each",
        (
            "graph, what follows it",
            "updates a batch",
            "embeddings moved",
            "updates a second",
            "CPU s a 1,000 updates",
            "median ms",
            "p95 ms",
            "CPU against the engine",
        ),
        cells,
        (
            "engine: graph and SGC embeddings, exact, without scaling. Learning: the default head on "
            f"its own topology, {CLASSES} random classes, {LABELLED:.0%} of the nodes labelled; its "
            "recounting of moved nodes is the larger part. Disk: every batch is safe when answered.",
            "all anew: encoding the whole graph, ready as CSR.",
            f"RIPPLE++ reports {published} at batches of 1,000 with sums and means, where an edge "
            "changes nobody's weight but its target's; with symmetric normalisation it changes that "
            "of the target in all that gather from it.",
        ),
    )


def tables(options: Options) -> list[Table]:
    """Return the tables of one run."""
    found = cases(quick=options.quick)
    return [table([row for case in found for row in rows_of(case, quick=options.quick)])]


if __name__ == "__main__":
    run("updates", "Updates of a growing graph", tables)
