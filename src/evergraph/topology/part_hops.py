"""Hops over a graph whose rows lie apart: who computes what, and what is handed on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from evergraph.core.engine import Engine, Held
from evergraph.core.resources import Resources
from evergraph.graphs.kernels import choose_kernel
from evergraph.topology.base import TopologyEncoder
from evergraph.topology.column_blocks import LEAST_RESERVE
from evergraph.topology.part_step import (
    Step,
    count_products,
    first_state,
    message,
    next_state,
    part_scalings,
)
from evergraph.topology.parted_graph import PartedGraph


@dataclass(frozen=True, eq=False)
class Joined:
    """What all parts hold, one below the other, put together by who asks for it."""

    parts: tuple[Held, ...]

    def get(self) -> Tensor:
        """Return it.  [nodes, ...]"""
        found = [part.get() for part in self.parts]
        return found[0] if len(found) == 1 else torch.cat(found)


def together(held: Sequence[Held], engine: Engine) -> Held:
    """Return what parts hold as one array.

    On one machine it is put together once, for all workers. Of several machines, each worker
    gets the parts from where they are: so they go over all links at once, and not over that of
    whoever put them together.
    """
    whole = Joined(tuple(held))
    if engine.machines > 1 or len(held) == 1:
        return whole
    return next(iter(engine.hold(joined, [whole])))


def joined(whole: Joined) -> Tensor:
    """Return what all parts hold, as work of its own."""
    return whole.get()


@dataclass(frozen=True, eq=False)
class PartHops:
    """Takes blocks of columns of a graph through the hops of an f_topo, part by part.

    Attributes:
        graph: in parts.
        topology: made of plain hops, see ``count_products``.
        resources: who works, and how much memory a machine has.
    """

    graph: PartedGraph
    topology: TopologyEncoder
    resources: Resources

    @cached_property
    def products(self) -> int:
        """How many hops there are."""
        return count_products(self.topology)

    def block(self, columns: tuple[int, int]) -> PartBlock:
        """Return some columns of the features, before the first hop."""
        return PartBlock(self, columns)

    @cached_property
    def given(self) -> dict[str, Any]:
        """What every hop is given, whatever the columns."""
        loops = self.graph.nodes if self.topology.self_loops else 0
        kernel = choose_kernel(entries=self.graph.entries + loops)  # the whole's, for every part
        return {"graph": self.graph.graph, "kernel": kernel, "scales": self._scales()}

    def _scales(self) -> Held | None:
        """Return what Â multiplies the rows and columns of all nodes by."""
        if not self.products:
            return None
        engine, graph = self.resources.engine, self.graph
        shared = {"graph": graph.graph, "self_loops": self.topology.self_loops}
        held = engine.hold(part_scalings, graph.parts, shared=shared, near=graph.near)
        return together(list(held), engine)

    def widest(self) -> int:
        """Return how many columns fit in memory at a time.

        A machine holds its share of all states, and what its workers make of them; what is to be
        smoothed it holds as a whole: once in the store, and again in every worker that puts it
        together for itself. Beside that, every worker holds the scalings of all nodes.
        """
        engine, parts = self.resources.engine, len(self.graph.parts)
        workers = -(-min(engine.workers, parts) // engine.machines)
        shared = 1 + workers if engine.machines > 1 else int(parts > 1)
        arrays = (max(self.products, 1) + 1 + self.topology.parts) / engine.machines + shared
        fixed = workers * (LEAST_RESERVE + 4 * self.graph.nodes)
        one = max(int(4 * self.graph.nodes * arrays), 1)
        self.resources.tidy()
        self.resources.check(fixed + one, "embedding a single column of the features")
        return max((self.resources.left - fixed) // one, 1)


@dataclass(frozen=True, eq=False)
class PartBlock:
    """Some columns on their way through the hops.

    Attributes:
        hops: whose they are.
        columns: which.
        states: what each part holds, after each hop so far.
    """

    hops: PartHops
    columns: tuple[int, int]
    states: list[list[Held]] = field(default_factory=list)

    def before_last(self) -> Iterator[None]:
        """Read the features and compute all hops but the last; yield as each part is through."""
        engine, graph = self.hops.resources.engine, self.hops.graph
        shared = {"graph": graph.graph, "columns": self.columns}
        first = engine.hold(first_state, graph.parts, shared=shared, near=graph.near)
        self.states.append(list(first))
        for _ in range(self.hops.products - 1):
            results = engine.hold(next_state, self.steps, shared=self.shared(), near=graph.near)
            reached = []
            for held in results:
                reached.append(held)
                yield
            self.states.append(reached)

    @property
    def steps(self) -> list[Step]:
        """Each part, and the states that it was in."""
        parts = self.hops.graph.parts
        return [Step(part, tuple(hop[part.index] for hop in self.states)) for part in parts]

    def shared(self) -> dict[str, Any]:
        """Return what the next hop is given: among others, the state of all nodes."""
        topology, whole = self.hops.topology.from_column(self.columns[0]), None
        if self.hops.products:
            whole = together(self._messages(), self.hops.resources.engine)
        return self.hops.given | {"topology": topology, "message": whole}

    def _messages(self) -> Sequence[Held]:
        """Return the last states as they are summed: where that is in half numbers, sent so."""
        rows, graph = self.hops.topology.rows, self.hops.graph
        if rows == "float32":
            return self.states[-1]
        shared = {"rows": rows, "scales": self.hops.given["scales"]}
        engine = self.hops.resources.engine
        return list(engine.hold(message, self.steps, shared=shared, near=graph.near))
