"""The normalised adjacency, as a matrix and as the factors that kernels multiply.

A product is scale · Â X + add_scale · Y, on the adjacency's device or another.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import DataError, check_choice
from evergraph.core.mapped import page_out
from evergraph.graphs.csr import RowSweep, csr_tensor, pointer_type, repeat
from evergraph.graphs.graph import Graph

if TYPE_CHECKING:
    from typing_extensions import Self

Normalisation = Literal["symmetric", "row", "none"]
BLOCK_NODES = 1 << 20  # nodes whose degrees are processed at a time
Kernel = Literal["torch", "numba", "triton"]
KERNELS: tuple[Kernel, ...] = get_args(Kernel)

# Numba is chosen from this many entries on, self-loops included. Below, features fit in the caches
# and torch is as fast, without numba's start-up time. Above, an embedding need not wait for Â to be
# materialised. ``benchmarks/speed/kernels.py`` measures both sides.
NUMBA_PAYS_FROM = 1_000_000
# The same on a GPU, where cuSPARSE needs Â materialised and Triton a second to start.
TRITON_PAYS_FROM = 1_000_000
log = logging.getLogger(__name__)
_LINE = 64  # bytes of a cache line
RowType = Literal["float32", "float16", "bfloat16"]
ROW_TYPES: dict[RowType, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
MAX_FLOAT16 = torch.finfo(torch.float16).max
VALUES_AT_ONCE = 1 << 19  # values at a time on a CPU: 2 MB of memory besides the result
# Bytes of a row that a GPU program sums: whole rows if they are short. For longer ones a narrow
# slice, so that more nodes' values of these columns stay in cache; see ``benchmarks/speed/gpu.py``.
MAX_WHOLE_ROW, SLICE = 512, 256
VECTOR = 16  # bytes that a GPU thread reads at once; rows begin at multiples of it
LINE = 128  # bytes of a GPU cache line; a slice that straddles two lines costs both


def row_sums(graph: Graph) -> Tensor:
    """Return the sum of the weights in each row of A, or the number of entries without weights.

    Weights are added in float64, which holds all digits of sums of float32: the order makes no
    difference in float32.  -> int32 or float64 [nodes]
    """
    if graph.weights is None:
        return graph.indptr.diff()
    sums = torch.zeros(graph.num_nodes, dtype=torch.float64, device=graph.device)
    if graph.device.type != "cpu":
        return sums.index_add_(0, graph.edge_rows(), graph.weights.double())
    sweep = RowSweep(graph.indptr, graph.weights, graph.mapped)

    def add_up(rows: Tensor) -> Tensor:
        lengths = sweep.lengths(rows)
        weights = sweep.run(rows)
        not_empty = lengths > 0  # numpy cannot sum empty rows
        added = torch.zeros(len(rows), dtype=torch.float64)
        if len(weights):
            first = (lengths.cumsum(0) - lengths)[not_empty].numpy()
            totals = np.add.reduceat(weights.numpy(), first, dtype=np.float64)
            added[not_empty] = torch.from_numpy(totals)
        return added

    for part, added in sweep.blocks(None, add_up):
        sums[part] = added
    return sums


def graph_scalings(
    graph: Graph, *, self_loops: bool, scheme: Normalisation
) -> tuple[Tensor, Tensor]:
    """Return the factors of rows and columns of a graph's A + sI.  2 x float32 [nodes]

    Rows are processed in blocks, into numpy's memory: at 10^8 nodes every temporary is as large as
    a feature column, and torch does not return it to the system at once on every platform.
    """
    loops = int(self_loops)
    nodes = graph.num_nodes
    if graph.weights is not None or graph.device.type != "cpu" or nodes <= BLOCK_NODES:
        return scalings(row_sums(graph) + loops, scheme)
    left = torch.from_numpy(np.empty(nodes, np.float32))
    for start in range(0, nodes, BLOCK_NODES):
        part = slice(start, min(start + BLOCK_NODES, nodes))
        degrees = graph.indptr[part.start : part.stop + 1].diff() + loops
        left[part] = scalings(degrees, scheme)[0]
    return left, left if scheme == "symmetric" else torch.ones(nodes)


def scalings(degrees: Tensor, scheme: Normalisation) -> tuple[Tensor, Tensor]:
    """Return the factors of rows and columns.  2 x float32 [nodes]

    degrees: number of entries in each row, self-loops included, or their sum of weights.  [nodes]
    """
    check_choice("normalisation", scheme, get_args(Normalisation))
    ones = torch.ones(len(degrees) if scheme != "symmetric" else 0, device=degrees.device)
    if scheme == "none":
        return ones, ones
    # In place: at 10^8 nodes every temporary is as large as a feature column.
    inverse = degrees.to(torch.float32, copy=True).pow_(-0.5 if scheme == "symmetric" else -1.0)
    inverse.masked_fill_(degrees <= 0, 0.0)  # isolated nodes get weight 0
    return inverse, inverse if scheme == "symmetric" else ones


def with_last(indptr: Tensor, values: Tensor, last: Tensor) -> Tensor:
    """Append one value to the values of each row.  -> [entries + rows]

    indptr: start of each row in the result.  [rows + 1]; values: [entries]; last: [rows]
    """
    last_positions = (indptr[1:] - 1).long()  # the last position of every row
    length = len(values) + len(last)
    device = values.device
    free = torch.ones(length, dtype=torch.bool, device=device).scatter_(0, last_positions, False)
    extended = torch.empty(length, dtype=values.dtype, device=device)
    extended.scatter_(0, last_positions, last)
    return extended.masked_scatter_(free, values)


def choose_kernel(*, entries: int, device: torch.device | str = "cpu") -> Kernel:
    """Return the faster kernel for an adjacency with this many entries, self-loops included.

    The choice does not depend on width or rows: a block of columns or of rows must be summed by the
    same kernel as the whole, or the last bits would depend on the size of the block.
    """
    kernel: Kernel = "torch"
    kind = torch.device(device).type
    if kind == "cpu" and entries >= NUMBA_PAYS_FROM:
        kernel = "numba"
    if kind == "cuda" and entries >= TRITON_PAYS_FROM and triton_works():
        kernel = "triton"
    log.debug("kernel %s for %d entries on %s", kernel, entries, device)
    return kernel


@cache  # checking for a GPU takes as long as starting a kernel
def triton_works() -> bool:
    """Return whether Triton, which comes with torch's GPU builds, and a GPU are available."""
    if not torch.cuda.is_available():
        return False
    try:
        import triton  # noqa: F401
    except ImportError as error:
        log.debug("Triton cannot be used (%s): torch multiplies instead", error)
        return False
    return True


def empty_rows(
    rows: int, *, like: Tensor, width: int | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Return uninitialised memory for this many rows, similar to others.  -> [rows, dims]

    On a CPU numpy requests pages of 2 MB from Linux where torch takes pages of 4 kB; this avoids
    thousands of page faults that cost about as much as a whole product
    (benchmarks/speed). The first value is at the start of a cache line, so that rows of
    a multiple of 16 floats touch no extra line.

    width, dtype: those of ``like`` by default.
    """
    width = like.shape[1] if width is None else width
    dtype = like.dtype if dtype is None else dtype
    if like.device.type != "cpu":
        return like.new_empty(rows, width, dtype=dtype)
    values = aligned(rows * width * dtype.itemsize)
    return torch.from_numpy(values).view(dtype).reshape(rows, width)


def aligned(size: int) -> NDArray[np.uint8]:
    """Return so many uninitialised bytes, the first of them at the start of a cache line."""
    values = np.empty(size + _LINE, dtype=np.uint8)
    skipped = -values.ctypes.data % _LINE
    return values[skipped : skipped + size]


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """Â = L (A + sI) R with diagonal L and R, over the graph's own arrays; or some of its rows."""

    indptr: Tensor  # start of each row in ``indices``.  [rows + 1]
    indices: Tensor  # all of the graph's own.  int32 [edges]
    left: Tensor  # the diagonal of L.  float32 [rows]
    right: Tensor  # the diagonal of R.  float32 [columns]
    self_loops: bool = True  # whether s is 1, else 0
    first: int = 0  # number of the first row in the whole
    # whether ``indices`` are in a file, so that pages leave memory once they are read
    mapped: bool = False
    kernel: Kernel = "torch"  # the preferred kernel; part of a whole keeps the whole's
    # weights of A's entries, in ``indices``' order; all 1 if None.  float32 [edges]
    weights: Tensor | None = None
    held: RowType = "float32"  # type of the rows of R X while they are summed; sums are float32
    scaled: bool = False  # whether features are already multiplied by R: see ``held_rows``

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return len(self.left), len(self.right)

    @property
    def device(self) -> torch.device:
        """Device of the arrays."""
        return self.indices.device

    @cached_property
    def matrix(self) -> Tensor:
        """Â as a matrix with its weights, made once.  ``torch.sparse_csr`` [rows, columns]

        Without R if the features include it.
        """
        all_rows = slice(0, len(self.left))
        indptr = self.indptr - self.indptr[0]
        indices = self.entries(all_rows)
        weights = self.entry_weights(all_rows)
        if self.self_loops:  # the last entry of each row
            loop_columns = torch.arange(
                self.first, self.first + len(self.left), dtype=torch.int32, device=self.device
            )
            dtype = pointer_type(len(indices) + len(loop_columns))
            loops_before = torch.arange(len(loop_columns) + 1, dtype=dtype, device=self.device)
            indptr = indptr.to(dtype) + loops_before
            indices = with_last(indptr, indices, loop_columns)
            if weights is not None:
                weights = with_last(indptr, weights, torch.ones_like(self.left))
        values = repeat(self.left, indptr.diff())
        if not self.scaled:
            values.mul_(self.right.index_select(0, indices))
        if weights is not None:
            values.mul_(weights)
        return csr_tensor(indptr, indices, values, self.shape)

    def rows(self, part: slice) -> Self:
        """Return Â of some rows as views, without copying."""
        start, stop, _ = part.indices(len(self.left))
        pointers, left = self.indptr[start : stop + 1], self.left[start:stop]
        return replace(self, indptr=pointers, left=left, first=self.first + start)

    def entries(self, part: slice) -> Tensor:
        """Return the neighbours listed in some rows, without self-loops.  int32 [entries]"""
        return self.indices[self._span(part)]

    def entry_weights(self, part: slice) -> Tensor | None:
        """Return their weights, if they have any.  float32 [entries]"""
        return None if self.weights is None else self.weights[self._span(part)]

    def page_out(self, part: slice) -> None:
        """Release the mapped pages of some rows after they were read."""
        if self.mapped:
            for array in (self.entries(part), self.entry_weights(part)):
                if array is not None:
                    page_out(array)

    def _span(self, part: slice) -> slice:
        return slice(int(self.indptr[part.start]), int(self.indptr[part.stop]))


class Affine(NamedTuple):
    """What becomes of a product: scale · Â X + share · add."""

    add: Tensor | None = None  # [rows, dims]
    scale: float = 1.0
    share: float = 1.0

    def rows(self, part: slice) -> Affine:
        """Return the same for some rows."""
        return self if self.add is None else self._replace(add=self.add[part])


def held_rows(features: Tensor, right: Tensor, kind: torch.dtype) -> Tensor:
    """Return R features, rounded to a type.  [columns, dims], float32 [columns] -> [columns, dims]

    On a GPU rows are padded so that they begin at aligned addresses.
    """
    rows, dims = features.shape
    if features.device.type == "cpu":
        held = empty_rows(rows, like=features, dtype=kind)
        step = max(VALUES_AT_ONCE // max(dims, 1), 1)
        for start in range(0, rows, step):
            part = slice(start, start + step)
            held[part].copy_(features[part] * right[part, None])
    else:
        held = empty_rows(rows, like=features, width=_length(dims, kind.itemsize), dtype=kind)[
            :, :dims
        ]
        torch.mul(features, right[:, None], out=held)
    if kind == torch.float16 and features.numel():
        largest = torch.stack(features.aminmax()).abs().max() * right.max()
        if float(largest) > MAX_FLOAT16 and bool(held.isinf().any()):
            raise DataError(
                f"features must be at most {MAX_FLOAT16:,.0f} in size for rows 'float16', at every "
                f"hop, not {float(features.abs().amax()):g}: rows 'bfloat16' have float32's range"
            )
    return held


def _length(dims: int, size: int) -> int:
    """Return the distance of rows on a GPU in values, chosen so that few straddle cache lines.

    Whole lines if slices of rows are read, or half-precision rows; below a line, fractions of one.
    Padding a short single-precision row costs more than it saves.

    >>> _length(100, 4), _length(602, 4), _length(100, 2), _length(20, 2)
    (100, 608, 128, 32)
    """
    bytes_ = dims * size
    if size == 4 and bytes_ <= MAX_WHOLE_ROW:
        unit = VECTOR
    else:
        unit = min(LINE, max(VECTOR, 1 << (bytes_ - 1).bit_length()))
    return -(-bytes_ // unit) * unit // size
