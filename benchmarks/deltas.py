"""What a delta costs on a graph that grows: against its frontier, the graph, and starting again.

python benchmarks/deltas.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Options, Table, ms, run, seconds_of, times

from evergraph.core.seeding import seeded
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.live_embeddings import LiveEmbeddings
from evergraph.topology import EmbeddingCache, topologies

SIZES = (100_000, 300_000, 1_000_000)
QUICK = (2_000, 4_000)
FEATURES = 32
EDGES = 10  # that a node brings
NEW = 100  # nodes of a delta
HOPS = 2
AGREE = 1e-5
NEAR = 500  # how far apart, in order of arrival, an edge's ends lie, most of the time
FAR = 0.02  # the share of edges that go anywhere
# Places in the graph that the nodes of one delta come to.
KINDS = {"at one place": 1, "at ten places": 10, "everywhere": NEW}
# What is done to as many nodes that follow each other. From the first weight on all edges have one,
# so weights come last.
CHANGES = ("features", "edges go", "weights")


def near(centres: Tensor, nodes: int, *, far: float, generator: torch.Generator) -> Tensor:
    """Return a node near each of some others, or anywhere with probability ``far``."""
    steps = torch.randint(1, NEAR + 1, centres.shape, generator=generator)
    signs = 1 - 2 * torch.randint(2, centres.shape, generator=generator)
    anywhere = torch.randint(nodes, centres.shape, generator=generator)
    wild = torch.rand(centres.shape, generator=generator) < far
    return torch.where(wild, anywhere, (centres + signs * steps) % nodes)


class Growing:
    """A synthetic graph, its live embeddings, and deltas for it."""

    def __init__(self, nodes: int) -> None:
        self.generator = seeded(0, "deltas", nodes)
        self.graph = GrowingGraph(num_features=FEATURES)
        self.live = LiveEmbeddings(topologies.make("sgc", hops=HOPS), num_features=FEATURES)
        sources = torch.arange(nodes).repeat_interleave(EDGES)
        targets = near(sources, nodes, far=FAR, generator=self.generator)
        self.first = seconds_of(lambda: self._add(nodes, torch.stack([sources, targets])))
        self.recomputed = 0
        self.entries = 0

    def _add(self, nodes: int, edges: Tensor) -> GraphChange:
        features = torch.randn(nodes, FEATURES, generator=self.generator)
        change = self.graph.add(features, edges)
        self._follow(change)
        return change

    def delta(self, places: int) -> float:
        """Apply one delta at so many places, and return how long it took."""
        old = self.graph.num_nodes
        centres = torch.randint(old, (places,), generator=self.generator)
        centres = centres.repeat_interleave(NEW // places).repeat_interleave(EDGES)
        targets = near(centres, old, far=0.0, generator=self.generator)
        edges = torch.stack([torch.arange(old, old + NEW).repeat_interleave(EDGES), targets])
        return self._measured(lambda: self._add(NEW, edges))

    def change(self, kind: str) -> float:
        """Change what is there near one place, and return how long it took."""
        centre = torch.randint(self.graph.num_nodes, (NEW,), generator=self.generator)[:1]
        nodes = (centre + torch.arange(NEW)) % self.graph.num_nodes
        features = torch.randn(NEW, FEATURES, generator=self.generator)
        indptr, columns = self.graph.rows(nodes)
        edges = torch.stack([torch.from_numpy(columns[indptr[:-1]]).long(), nodes])  # one a node
        changes = {
            "features": lambda: self.graph.renew(nodes, features),
            "edges go": lambda: self.graph.disconnect(edges),
            "weights": lambda: self.graph.add(features[:0], edges, features[:, 0].exp()),
        }
        return self._measured(lambda: self._follow(changes[kind]()))

    def _follow(self, change: GraphChange) -> None:
        self.moved = self.live.update(self.graph, change)
        self.live.of(self.moved)  # scaled, as all anew is

    def _measured(self, work: Callable[[], object]) -> float:
        taken = seconds_of(work)
        self.recomputed = len(self.moved)
        self.entries = int(self.graph.into.lengths(self.moved.numpy()).sum())
        return taken


@dataclass(frozen=True)
class Row:
    """Figures of one kind of delta on one graph."""

    nodes: int
    kind: str
    recomputed: float
    entries: float
    seconds: float
    worst: float
    again: float


def measure(nodes: int, *, rounds: int) -> list[Row]:
    """Let deltas of every kind take turns with encoding everything anew, then compare results."""
    growing = Growing(nodes)
    print(f"{nodes} nodes in {growing.first:.1f} s", file=sys.stderr)
    cache = EmbeddingCache(growing.live.topology)
    taken: dict[str, list[float]] = {kind: [] for kind in (*KINDS, *CHANGES)}
    sizes: dict[str, list[tuple[int, int]]] = {kind: [] for kind in taken}
    again = []
    for turn in range(rounds + 1):
        whole, positions = growing.graph.to_graph()
        again.append(seconds_of(lambda whole=whole: cache.encode(whole)))  # type: ignore[misc]
        if turn == 0:
            difference(growing.live.of(positions), cache.encode(whole))
        for kind, places in KINDS.items():
            taken[kind].append(growing.delta(places))
            sizes[kind].append((growing.recomputed, growing.entries))
    for kind in CHANGES:
        for _ in range(rounds + 1):
            taken[kind].append(growing.change(kind))
            sizes[kind].append((growing.recomputed, growing.entries))
    whole, positions = growing.graph.to_graph()
    difference(growing.live.of(positions), cache.encode(whole))
    return [_row(nodes, kind, sizes[kind][1:], taken[kind][1:], again[1:]) for kind in taken]


def _row(
    nodes: int,
    kind: str,
    sizes: Sequence[tuple[int, int]],
    taken: Sequence[float],
    again: Sequence[float],
) -> Row:
    recomputed, entries = (statistics.median(column) for column in zip(*sizes, strict=True))
    return Row(
        nodes,
        kind,
        recomputed,
        entries,
        statistics.median(taken),
        max(taken),
        statistics.median(again),
    )


def difference(live: Tensor, again: Tensor) -> float:
    """Return by how much live embeddings differ from those from scratch, or raise if too much."""
    found = float((live - again).abs().max())
    if not found <= AGREE:
        raise ValueError(f"live embeddings differ from those from scratch by {found}")
    return found


def table(rows: Sequence[Row], rounds: int) -> Table:
    """Return all figures."""
    cells = [
        [
            f"{row.nodes:,}, {row.kind}",
            f"{row.recomputed:,.0f}",
            f"{row.entries:,.0f}",
            ms(row.seconds),
            f"{row.seconds / row.entries * 1e9:,.0f}",
            ms(row.worst),
            ms(row.again),
            times(row.again / row.seconds),
        ]
        for row in rows
    ]
    return Table(
        f"One delta of {NEW} nodes with {EDGES} edges each, {HOPS}-hop SGC of {FEATURES} features",
        ("graph, where nodes come or what changes", "embeddings computed",
         "neighbours summed in the last hop", "delta ms", "ns a neighbour", "worst ms",
         "all anew ms", "all anew / delta"),
        cells,
        (f"graph: {EDGES} edges a node, to nodes within {NEAR} in order of arrival, "
         f"{100 * FAR:.0f} % of them to anywhere.",
         "delta: adding nodes and edges and updating all embeddings that feel it; median and worst "
         f"of {rounds}, kinds and whole encodings taking turns.",
         f"{', '.join(CHANGES)}: of {NEW} nodes one behind the other, an edge of each.",
         "all anew: encoding the whole graph, which is ready as CSR, and scaling.",
         f"embeddings of all nodes agree with those from scratch to {AGREE:g} at both ends."),
    )  # fmt: skip


def tables(options: Options) -> list[Table]:
    """Return the tables of one run."""
    rounds = 2 if options.quick else 15
    rows = [
        row
        for nodes in (QUICK if options.quick else SIZES)
        for row in measure(nodes, rounds=rounds)
    ]
    return [table(rows, rounds)]


if __name__ == "__main__":
    run("deltas", "Deltas on a growing graph", tables)
