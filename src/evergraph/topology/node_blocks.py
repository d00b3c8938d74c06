"""Products with an adjacency that is too large for one worker: a range of rows at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from evergraph.core.engine import Engine, LocalEngine
from evergraph.core.ray_transport import Part
from evergraph.graphs import Graph, Smoother, smoother
from evergraph.graphs.kernels import Kernel, room
from evergraph.graphs.kernels.held_rows import RowType
from evergraph.graphs.kernels.row_ranges import row_ranges

# Row ranges for each worker: some are heavier than they look, and who is done takes the next.
BLOCKS_A_WORKER = 4


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Some rows of Â, without what all rows share: the diagonal of R.

    Attributes:
        indptr: where each row begins in ``indices``, from 0 on.  [rows + 1]
        indices: the rows' part of the graph's own.  int32 [entries]
        left: the rows' part of the diagonal of L.  float32 [rows]
        self_loops, first, mapped, kernel, scaled: see ``Smoother``.
        weights: the rows' part of the graph's own, if it has any.  float32 [entries]
    """

    indptr: Tensor
    indices: Part
    left: Tensor
    self_loops: bool
    first: int
    mapped: bool
    kernel: Kernel
    weights: Part | None = None
    scaled: bool = False

    def smoother(self, right: Tensor) -> Smoother:
        """Return the rows as what can be multiplied by."""
        return Smoother(
            self.indptr,
            self.indices.rows(),
            self.left,
            right,
            self_loops=self.self_loops,
            first=self.first,
            mapped=self.mapped,
            kernel=self.kernel,
            weights=None if self.weights is None else self.weights.rows(),
            scaled=self.scaled,
        )


@dataclass(frozen=True, eq=False)
class NodeBlocks(Smoother):
    """Â whose products are computed by an engine's workers, each of which sees some rows alone.

    For (Â X)_v only row v of Â is needed, but all of X: so X goes to every worker at every hop, and
    a worker's rows of the result come back. Of the adjacency a worker reads its rows only, from
    the graph's folder where it can open it; else they are sent to it, once. ``propagate`` takes
    it in the place of any other Â, so every f_topo can be computed this way.

    Attributes:
        engine: who does the work.
    """

    engine: Engine = field(default_factory=LocalEngine)

    def product(
        self,
        features: Tensor,
        *,
        add: Tensor | None = None,
        scale: float = 1.0,
        add_scale: float = 1.0,
        out: Tensor | None = None,
    ) -> Tensor:
        """Return scale · Â features + add_scale · add.  [columns, dims] -> [rows, dims]

        What is added never leaves this process. Rows are sent as they are held: half numbers are
        half the bytes.
        """
        out = room(len(self.left), like=features) if out is None else out
        operator, held = self.holding(features)
        shared = {"features": held, "right": self.right, "scale": scale}
        start = 0
        for rows in self.engine.map(smooth_rows, operator.blocks, shared=shared):
            part = slice(start, start + len(rows))
            out[part] = rows if add is None else rows + add_scale * add[part]
            start = part.stop
        return out

    @cached_property
    def blocks(self) -> list[RowBlock]:
        """All rows, in ranges of about as many entries."""
        count = BLOCKS_A_WORKER * self.engine.workers
        return [self._block(part) for part in row_ranges(self.indptr, count=count)]

    def _block(self, part: slice) -> RowBlock:
        start, stop = int(self.indptr[part.start]), int(self.indptr[part.stop])
        return RowBlock(
            self.indptr[part.start : part.stop + 1] - start,
            Part(self.indices, start, stop),
            self.left[part],
            self.self_loops,
            self.first + part.start,
            self.mapped,
            self.kernel,
            None if self.weights is None else Part(self.weights, start, stop),
            self.scaled,
        )


def smooth_rows(block: RowBlock, *, features: Tensor, right: Tensor, scale: float) -> Tensor:
    """Return the rows of scale · Â X that a block has; a pure function.  -> [rows, dims]"""
    return block.smoother(right).product(features, scale=scale)


def node_blocks(
    graph: Graph, *, engine: Engine, self_loops: bool = True, held: RowType = "float32"
) -> NodeBlocks:
    """Return the graph's normalised adjacency, to be multiplied by an engine.

    >>> import torch
    >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.eye(2),
    ...                         labels=torch.tensor([0, 0]), undirected=True)
    >>> node_blocks(pair, engine=LocalEngine()).product(torch.tensor([[1.], [3.]]))
    tensor([[2.0000],
            [2.0000]])
    """
    whole = smoother(graph, self_loops=self_loops, held=held)
    return NodeBlocks(**vars(whole), engine=engine)
