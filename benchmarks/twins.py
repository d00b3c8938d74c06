"""Twins of Reddit and OGB-Products: what drawing one costs, and how like the original it is.

python benchmarks/twins.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import (
    Options,
    Table,
    extra_peak,
    in_own_process,
    megabytes,
    run,
    seconds_of,
    times,
)
from benchmarks.twin_graphs import twin_facts

import evergraph
from evergraph.graphs import Graph, homophily

NAMES = ("products-twin", "reddit-twin")
LADDER = (0.08, 0.33, 1.0)
QUICK_LADDER = (0.002, 0.004)


@dataclass(frozen=True)
class Drawn:
    """One twin: what it took to draw it, and what came out."""

    name: str
    scale: float
    seconds: float
    cpu: float
    peak: int
    disk: int
    nodes: int
    entries: int
    homophily: float
    largest_degree: int

    @property
    def per_million(self) -> float:
        """Processor seconds for a million entries."""
        return self.cpu / (self.entries / 1e6)

    @property
    def published_entries(self) -> int:
        """How many entries the original has."""
        original = twin_facts()[self.name].original
        return original.edges if original.kept_edges is None else original.kept_edges


def draw(name: str, scale: float) -> Drawn:
    """Draw a twin that is not there yet; to be called in a process of its own."""
    with tempfile.TemporaryDirectory() as cache:
        seconds: list[float] = []

        def load() -> Graph:
            return evergraph.load(name, cache=Path(cache), scale=scale)

        start = time.process_time()
        peak = extra_peak(lambda: seconds.append(seconds_of(load)))
        cpu = time.process_time() - start
        return _drawn(name, scale, (seconds[0], cpu), peak, load())


def _drawn(name: str, scale: float, seconds: tuple[float, float], peak: int, graph: Graph) -> Drawn:
    assert graph.folder is not None
    return Drawn(
        name,
        scale,
        *seconds,
        peak,
        sum(file.stat().st_size for file in graph.folder.iterdir()),
        graph.num_nodes,
        graph.num_edges,
        homophily(graph),
        int(graph.degrees.max()),
    )


def likeness_table(drawn: Sequence[Drawn]) -> Table:
    """Return every twin beside its original."""
    return Table(
        "Likeness (twin / original)",
        ("twin", "scale", "nodes", "entries", "entries off by", "homophily", "largest degree"),
        [_likeness(one) for one in drawn],
        ("An edge has two entries. Class sizes are exact: they are given, not drawn.",),
    )


def _likeness(one: Drawn) -> list[str]:
    facts = twin_facts()[one.name]
    off = one.entries / (one.scale * one.published_entries) - 1
    return [
        one.name,
        f"{one.scale:g}",
        f"{one.nodes:,} / {facts.original.nodes:,}",
        f"{one.entries:,} / {one.published_entries:,}",
        f"{100 * off:+.3f} %",
        f"{one.homophily:.4f} / {facts.original.homophily}",
        f"{one.largest_degree:,} / {facts.largest_degree:,}",
    ]


def cost_table(drawn: Sequence[Drawn]) -> Table:
    """Return seconds, memory and disk, and the cost of an entry against the first row's."""
    base = drawn[0].per_million
    rows = [
        [
            one.name,
            f"{one.scale:g}",
            f"{one.entries / 1e6:,.1f}",
            f"{one.seconds:.1f}",
            f"{one.cpu:.1f}",
            f"{one.per_million:.3f}",
            times(one.per_million / base),
            megabytes(one.peak),
            megabytes(one.disk),
        ]
        for one in drawn
    ]
    return Table(
        "Cost (a process each)",
        ("twin", "scale", "million entries", "seconds", "CPU seconds",
         "CPU seconds a million entries", "against the first row", "peak MB", "disk MB"),
        rows,
        ("Labels, features, edges, sorting, and the checksums of what was written. Peak: resident "
         "memory beyond what the imports take. On a shared machine CPU seconds are the cost.",),
    )  # fmt: skip


def tables(options: Options) -> list[Table]:
    """Draw everything."""
    scales = QUICK_LADDER if options.quick else LADDER
    products = [in_own_process(draw, NAMES[0], scale) for scale in scales]
    reddit = in_own_process(draw, NAMES[1], scales[-1])
    return [likeness_table([products[-1], reddit]), cost_table([*products, reddit])]


if __name__ == "__main__":
    run("twins", "Twins of published graphs", tables)
