"""One hop at some rows of a graph, when the rows of all others have come as far."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import torch
from torch import Tensor

from evergraph.core.engine import Held
from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph, Smoother
from evergraph.graphs.kernels import Kernel
from evergraph.graphs.kernels.held_rows import ROW_TYPES, RowType, held_rows
from evergraph.graphs.normalisation import row_sums, scalings
from evergraph.graphs.split_folder import PartFacts
from evergraph.topology.base import TopologyEncoder
from evergraph.topology.column_blocks import columns_of
from evergraph.topology.parted_graph import open_rows
from evergraph.topology.stepwise import Stepwise


class _Asked(Exception):  # noqa: N818  (no error: it stops an f_topo where others are waited for)
    """An f_topo has come to a product that cannot be computed yet."""

    def __init__(self, features: Tensor) -> None:
        super().__init__()
        self.features = features


@dataclass(frozen=True, eq=False)
class ReplayedRows(Smoother):
    """Some rows of Â, and the products with them that are known already.

    (Â H)_v takes H of v's neighbours, who belong to other workers. So a worker runs an f_topo on
    its own rows up to a product, hands on what is to be smoothed, and runs it again from the start
    when all others have done so: products that it had before are given, the next one is computed,
    and at the one after it stops. An f_topo is what it is; nothing of it is written twice.

    Attributes:
        known: results of the first products.  [rows, dims] each
        message: what is smoothed by the product that follows.  [columns, dims], one or none
    """

    known: deque[Tensor] = field(default_factory=deque)
    message: deque[Tensor] = field(default_factory=deque)

    def product(
        self,
        features: Tensor,
        *,
        add: Tensor | None = None,
        scale: float = 1.0,
        add_scale: float = 1.0,
        out: Tensor | None = None,
    ) -> Tensor:
        """Return scale · Â features + add_scale · add, where ``features`` are the rows' own."""
        if self.known:
            found = self.known.popleft().clone()  # what is kept may not be written to
        elif self.message:
            whole = self.message.popleft()
            found = super().product(whole, add=add, scale=scale, add_scale=add_scale)
        else:
            raise _Asked(features)
        return found if out is None else out.copy_(found)


@dataclass(frozen=True)
class Step:
    """A part of a graph, and the states that its rows have been in: H_0, H_1, ..."""

    part: PartFacts
    states: tuple[Held, ...] = ()


def part_scalings(part: PartFacts, *, graph: Graph | None, self_loops: bool) -> Tensor:
    """Return what Â multiplies the rows of a part by, and columns alike.  -> float32 [rows]"""
    return scalings(row_sums(open_rows(part, graph)) + int(self_loops), "symmetric")[0]


def first_state(part: PartFacts, *, graph: Graph | None, columns: tuple[int, int]) -> Tensor:
    """Return some columns of the features of a part.  -> float32 [rows, columns]"""
    return columns_of(open_rows(part, graph).features, *columns)


def message(step: Step, *, scales: Held, rows: RowType) -> Tensor:
    """Return the last state of a part as others sum it, in half as many bytes.  -> [rows, dims]"""
    own = scales.get()[step.part.start : step.part.stop]
    return held_rows(step.states[-1].get(), own, ROW_TYPES[rows])


def next_state(
    step: Step,
    *,
    graph: Graph | None,
    topology: TopologyEncoder,
    scales: Held | None,
    message: Held | None,
    kernel: Kernel,
) -> Tensor:
    """Return the next state of a part's rows, or their embeddings if no product is left.

    scales: of all nodes; message: the states of all nodes now, as they are summed; both None
    without any product.
    """
    rows = open_rows(step.part, graph)
    features, *known = (held.get() for held in step.states)
    right = torch.ones(len(features)) if scales is None else scales.get()
    own = slice(step.part.start, step.part.stop) if scales is not None else slice(None)
    adjacency = ReplayedRows(
        rows.indptr,
        rows.indices,
        right[own],
        right,
        self_loops=topology.self_loops,
        first=step.part.start,
        mapped=rows.mapped,
        kernel=kernel,
        weights=rows.weights,
        scaled=topology.rows != "float32",
        known=deque(known),
        message=deque([] if message is None else [message.get()]),
    )
    try:
        return topology.smooth(rows.with_features(features), adjacency=adjacency)
    except _Asked as asked:
        return asked.features


def count_products(topology: TopologyEncoder) -> int:
    """Return how many products with Â an f_topo makes; raise unless it is made of plain hops.

    Plain hops: each column for itself, each smoothing what the one before has given.

    >>> from evergraph.topology import SGC, Reservoir
    >>> count_products(SGC(hops=3))
    3
    >>> count_products(Reservoir())
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: topology must be made of plain hops to be computed \
part by part, and 'reservoir' is not: choose one such as sgc, s2gc, appnp, ppr or mixhop
    """
    if isinstance(topology, Stepwise) and topology.separable and not topology.reads_labels:
        products = _products_on_one_node(topology)
        if products is not None:
            return products
    raise ConfigurationError(
        f"topology must be made of plain hops to be computed part by part, and {topology.name!r} "
        "is not: choose one such as sgc, s2gc, appnp, ppr or mixhop"
    )


def _products_on_one_node(topology: TopologyEncoder) -> int | None:
    """Return how many products there are, None where one smooths anything but a product."""
    one = torch.ones(1)
    empty = torch.zeros(2, dtype=torch.int32), torch.zeros(0, dtype=torch.int32)
    node = Graph(*empty, one[:, None], torch.zeros(1, dtype=torch.int64), undirected=True)
    states = [node.features]
    while True:
        adjacency = ReplayedRows(*empty, one, one, known=deque(states[1:]))
        try:
            topology.smooth(node, adjacency=adjacency)
        except _Asked as asked:
            if not torch.equal(asked.features, states[-1]):
                return None
            states.append(torch.full((1, 1), float(len(states) + 1)))
        else:
            return len(states) - 1
