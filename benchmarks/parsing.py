"""What it costs to read, check and write a delta's edges: in columns, and one by one as before.

python benchmarks/parsing.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.loop_checking import loop_check
from benchmarks.measure import Options, Table, interleaved, run, times

from evergraph.online.checking import check_delta
from evergraph.online.codecs.delta_bytes import delta_from_bytes, delta_to_bytes
from evergraph.online.delta import Delta, NodeId, in_columns
from evergraph.online.identifiers import IdTable
from evergraph.server.arrow import arrow_from_delta, delta_from_arrow
from evergraph.server.bodies import DeltaBody, parse

NODES = 100_000
SIZES = (1_000, 300_000)
QUICK = (300, 3_000)
Work = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """A delta of edges among known nodes, as users, HTTP and the journal have it.

    Attributes:
        kind: of its ids.
        delta: pairs of ids, each an object of its own, as a parser makes them.
        ids: those that are known.
        known: the same as a mapping.
    """

    kind: str
    delta: Delta
    ids: IdTable
    known: dict[NodeId, int]

    def paths(self) -> dict[str, tuple[Work, Work]]:
        """Return what is done on each path, one by one and in columns."""
        delta, columns = self.delta, in_columns(self.delta)
        written, older = delta_to_bytes(columns), _json(delta)
        body, arrow = _json(delta), arrow_from_delta(columns)

        def before() -> None:
            _json(delta)
            self.loop()
            _pairs(older)

        def now() -> None:
            edges = in_columns(delta)
            delta_to_bytes(edges)
            self.check(edges)

        return {
            "pairs: check": (self.loop, lambda: self.check(in_columns(delta))),
            "pairs: written for the journal": (lambda: _json(delta), lambda: delta_to_bytes(delta)),
            "journal: read back": (lambda: _pairs(older), lambda: delta_from_bytes(written)),
            "JSON body": (lambda: _pairs(body), lambda: parse(DeltaBody, body).delta()),
            "Arrow body": (
                lambda: list(delta_from_arrow(arrow).edges),
                lambda: delta_from_arrow(arrow),
            ),
            "Arrow body: read and check": (
                lambda: self.loop(Delta(edges=list(delta_from_arrow(arrow).edges))),
                lambda: self.check(delta_from_arrow(arrow)),
            ),
            "submit: all before the disk": (before, now),
        }

    def loop(self, delta: Delta | None = None) -> object:
        """Look at the delta, or another, one by one."""
        return loop_check(delta or self.delta, self.known, first=NODES)

    def check(self, delta: Delta) -> object:
        """Look at a delta in columns."""
        return check_delta(delta, self.ids, num_features=None)


def _json(delta: Delta) -> bytes:
    return json.dumps({"edges": list(delta.edges)}, separators=(",", ":")).encode()


def _pairs(data: bytes) -> object:
    return tuple((source, target) for source, target in json.loads(data)["edges"])


def case(kind: str, edges: int, nodes: int) -> Case:
    """Return a delta of random edges between known nodes, whose ids are texts or numbers."""
    drawn = np.random.default_rng(0).integers(0, nodes, (2, edges)).tolist()

    def name(place: int) -> NodeId:
        return f"node-{place}" if kind == "text" else int(place)

    ids = IdTable()
    ids.add([name(place) for place in range(nodes)])
    known = {node: place for place, node in enumerate(ids)}
    pairs = [(name(a), name(b)) for a, b in zip(*drawn, strict=True)]
    return Case(kind, Delta(edges=pairs), ids, known)


def rows(sizes: tuple[int, ...], nodes: int, rounds: int) -> Iterator[list[str]]:
    """Yield a row for each size, kind of ids and path."""
    for edges in sizes:
        for kind in ("text", "integer"):
            made = case(kind, edges, nodes)
            for path, (before, now) in made.paths().items():
                gc.collect()
                found = interleaved(
                    {"before": before, "now": now}, rounds=rounds, clock=time.process_time
                )
                cost = [1e9 * found[name] / edges for name in ("before", "now")]
                ratio = times(cost[0] / max(cost[1], 1e-3))
                yield [f"{edges:,} edges, {kind} ids, {path}", *(f"{c:,.0f}" for c in cost), ratio]


def tables(options: Options) -> list[Table]:
    """Return the tables of one run."""
    torch.set_num_threads(1)
    nodes, rounds = (2_000, 2) if options.quick else (NODES, 3)
    found = list(rows(QUICK if options.quick else SIZES, nodes, rounds))
    return [
        Table(
            f"A delta of edges among {nodes:,} known nodes, CPU nanoseconds an edge",
            ("delta, path", "one by one", "columns", "one by one / columns"),
            found,
            (
                "one by one: plain loops over ids (`benchmarks/loop_checking.py`), JSON read by "
                "the models alone, pairs made of Arrow's columns.",
                f"best of {rounds} rounds in which both take turns, one thread.",
                "submit: bytes for the journal and the check; one by one also reads back what was "
                "written, as it had to be then.",
            ),
        )
    ]


if __name__ == "__main__":
    run("parsing", "Reading, checking and writing a delta's edges", tables)
