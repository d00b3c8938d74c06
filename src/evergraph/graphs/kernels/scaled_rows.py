"""The scaled adjacency as factors, and its products by each of the kernels.

A product is scale · Â X + add_scale · Y, on the adjacency's device or another.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import numpy as np
import torch
from torch import Tensor

from evergraph.core.device import available_threads, exactly_threads
from evergraph.core.errors import DataError
from evergraph.core.mapped import page_out
from evergraph.graphs.kernels.row_ranges import in_parts, range_count, row_ranges, spread
from evergraph.graphs.normalisation import written_out

if TYPE_CHECKING:
    from typing_extensions import Self

    from evergraph.graphs.kernels.numba_sum import Flat, ListedRows

Kernel = Literal["torch", "numba", "triton"]
KERNELS: tuple[Kernel, ...] = get_args(Kernel)

# Numba is chosen from this many entries on, self-loops included. Below, features fit in the caches
# and torch is as fast, without numba's start-up time. Above, numba prefetches, and an embedding
# need not wait for Â to be materialised. ``benchmarks/kernels.py`` measures both sides.
NUMBA_PAYS_FROM = 1_000_000
# The same on a GPU, where cuSPARSE needs Â materialised and Triton a second to start.
TRITON_PAYS_FROM = 1_000_000
log = logging.getLogger(__name__)
_LINE = 64  # bytes of a cache line
RowType = Literal["float32", "float16", "bfloat16"]
ROW_TYPES: dict[RowType, torch.dtype] = {
    "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16,
}  # fmt: skip
LARGEST = torch.finfo(torch.float16).max
ROUNDED = 1 << 19  # values at a time on a CPU: 2 MB of memory besides the result
# Bytes of a row that a GPU program sums: whole rows if they are short. For longer ones a narrow
# slice, so that more nodes' values of these columns stay in cache; see ``benchmarks/gpu.py``.
WHOLE, SLICE = 512, 256
VECTOR = 16  # bytes that a GPU thread reads at once; rows begin at multiples of it
LINE = 128  # bytes of a GPU cache line; a slice that straddles two lines costs both
# Entries on the device at a time: 64 MB of them; without Triton some 400 MB, with weights.
STREAMED_ENTRIES = 1 << 24
AT_ONCE = 2  # ranges being sent or summed; the processor reads no further ahead


def choose_kernel(*, entries: int, device: torch.device | str = "cpu") -> Kernel:
    """Return the faster kernel for an adjacency with this many entries, self-loops included.

    The choice does not depend on width or rows: a block of columns or of rows must be summed by the
    same kernel as the whole, or the last bits would depend on the size of the block.
    """
    kernel: Kernel = "torch"
    kind = torch.device(device).type
    if kind == "cpu" and entries >= NUMBA_PAYS_FROM and numba_works():
        kernel = "numba"
    if kind == "cuda" and entries >= TRITON_PAYS_FROM and triton_works():
        kernel = "triton"
    log.debug("kernel %s for %d entries on %s", kernel, entries, device)
    return kernel


def numba_works() -> bool:
    """Return whether numba is installed and can be imported with this numpy."""
    try:
        import numba  # noqa: F401
    except ImportError as error:
        log.debug("numba cannot be used (%s): torch multiplies instead", error)
        return False
    return True


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


def room(
    rows: int, *, like: Tensor, width: int | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Return uninitialised memory for this many rows, similar to others.  -> [rows, dims]

    On a CPU numpy requests pages of 2 MB from Linux where torch takes pages of 4 kB; this avoids
    thousands of page faults that cost about as much as a whole product
    (``benchmarks/kernels.py``). The first value is at the start of a cache line, so that rows of
    a multiple of 16 floats touch no extra line.

    width, dtype: those of ``like`` by default.
    """
    width = like.shape[1] if width is None else width
    dtype = like.dtype if dtype is None else dtype
    if like.device.type != "cpu":
        return like.new_empty(rows, width, dtype=dtype)
    size = rows * width * dtype.itemsize
    values = np.empty(size + _LINE, dtype=np.uint8)
    skipped = -values.ctypes.data % _LINE
    return torch.from_numpy(values[skipped : skipped + size]).view(dtype).reshape(rows, width)


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
        own, every = None, slice(0, len(self.left))
        if self.self_loops:
            last = self.first + len(self.left)
            own = torch.arange(self.first, last, dtype=torch.int32, device=self.device)
        return written_out(
            self.indptr - self.indptr[0],
            self.entries(every),
            left=self.left,
            right=torch.ones_like(self.right) if self.scaled else self.right,
            own=own,
            weights=self.entry_weights(every),
        )

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

    def let_go(self, part: slice) -> None:
        """Release the mapped pages of some rows after they were read."""
        if self.mapped:
            for read in (self.entries(part), self.entry_weights(part)):
                if read is not None:
                    page_out(read)

    def _span(self, part: slice) -> slice:
        return slice(int(self.indptr[part.start]), int(self.indptr[part.stop]))


def held_rows(features: Tensor, right: Tensor, kind: torch.dtype) -> Tensor:
    """Return R features, rounded to a type.  [columns, dims], float32 [columns] -> [columns, dims]

    On a GPU rows are padded so that they begin at aligned addresses.
    """
    rows, dims = features.shape
    if features.device.type == "cpu":
        held = room(rows, like=features, dtype=kind)
        step = max(ROUNDED // max(dims, 1), 1)
        parts = [slice(start, start + step) for start in range(0, rows, step)]
        if kind != torch.float16:
            for part in parts:
                held[part].copy_(features[part] * right[part, None])
            return held

        def work(part: slice) -> None:  # with numpy, five times as fast on some processors
            factors, out = (features[part].numpy(), right[part, None].numpy()), held[part].numpy()
            with np.errstate(over="raise"):
                np.multiply(*factors, out=out, dtype=np.float32, casting="unsafe")

        try:
            spread(work, parts)
        except FloatingPointError:
            raise _too_large(features) from None
        return held
    held = room(rows, like=features, width=_length(dims, kind.itemsize), dtype=kind)[:, :dims]
    torch.mul(features, right[:, None], out=held)
    if kind == torch.float16 and features.numel():
        largest = torch.stack(features.aminmax()).abs().max() * right.max()
        if float(largest) > LARGEST and bool(held.isinf().any()):
            raise _too_large(features)
    return held


def _length(dims: int, size: int) -> int:
    """Return the distance of rows on a GPU in values, chosen so that few straddle cache lines.

    Whole lines if slices of rows are read, or half-precision rows; below a line, fractions of one.
    Padding a short single-precision row costs more than it saves.

    >>> _length(100, 4), _length(602, 4), _length(100, 2), _length(20, 2)
    (100, 608, 128, 32)
    """
    bytes_ = dims * size
    if size == 4 and bytes_ <= WHOLE:
        unit = VECTOR
    else:
        unit = min(LINE, max(VECTOR, 1 << (bytes_ - 1).bit_length()))
    return -(-bytes_ // unit) * unit // size


def _too_large(features: Tensor) -> DataError:
    return DataError(
        f"features must be at most {LARGEST:,.0f} in size for rows 'float16', at every hop, not "
        f"{float(features.abs().amax()):g}: rows 'bfloat16' have float32's range"
    )


class Product(Protocol):
    """Fills ``out`` with scale · Â features + add_scale · add."""

    def __call__(
        self, smoother: ScaledRows, features: Tensor, out: Tensor, *,
        add: Tensor | None, scale: float, add_scale: float,
    ) -> None:  # fmt: skip
        """features: [columns, dims]; out, add: [rows, dims]."""


def numba_product(
    smoother: ScaledRows, features: Tensor, out: Tensor, *,
    add: Tensor | None, scale: float, add_scale: float,
) -> None:  # fmt: skip
    """Fill ``out`` in one pass without materialising weights or self-loops.

    features: float32, float16 or bfloat16 [columns, dims]; out, add: float32 [rows, dims]
    """
    from evergraph.graphs.kernels.numba_sum import ListedRows, weighted_sums

    right, indices = smoother.right.numpy(), smoother.indices.numpy()
    if smoother.scaled:
        right = np.ones(len(right), np.float32)
    weights = () if smoother.weights is None else smoother.weights.numpy()
    x, share = _flat(features), np.float32(0.0 if add is None else add_scale)

    def work(part: slice) -> None:
        pointers = smoother.indptr[part.start : part.stop + 1].long().numpy()
        first = smoother.first + part.start
        stop = first + len(pointers) - 1 if smoother.self_loops else first
        own, left = np.arange(first, stop), smoother.left[part].numpy()
        rows = ListedRows(
            pointers[:-1], pointers[1:], indices, left, right, own, len(indices) - 1, weights
        )
        y = _flat(out[part])
        more = y if add is None else _flat(add[part])
        weighted_sums(rows, x, y, more, np.float32(scale), share, out.shape[1], 0, len(left))
        smoother.let_go(part)

    count = range_count(smoother.indptr, mapped=smoother.mapped)
    spread(work, row_ranges(smoother.indptr, count=count))


def listed_product(rows: ListedRows, features: Tensor, out: Tensor) -> None:
    """Fill ``out`` with rows whose entries lie anywhere.  [columns, dims], [rows, dims]"""
    from evergraph.graphs.kernels.numba_sum import weighted_sums

    x, y, width = _flat(features), _flat(out), out.shape[1]
    rest = (rows, x, y, y, np.float32(1), np.float32(0), width)
    costs = rows.stops - rows.starts + 1
    in_parts(lambda part: weighted_sums(*rest, part.start, part.stop), costs, each=width)


def torch_product(
    smoother: ScaledRows, features: Tensor, out: Tensor, *,
    add: Tensor | None, scale: float, add_scale: float,
) -> None:  # fmt: skip
    """Fill ``out`` by a product with Â as a matrix; if it is mapped, one range of rows at a time.

    Half-precision features are widened first, since torch only multiplies equal types.
    """
    features = features.to(smoother.left.dtype)
    if not smoother.mapped:
        into(smoother.matrix, features, out, add, scale, add_scale)
        return
    count = range_count(smoother.indptr, mapped=True)
    for part in row_ranges(smoother.indptr, count=count):
        more = None if add is None else add[part]
        into(smoother.rows(part).matrix, features, out[part], more, scale, add_scale)
        smoother.let_go(part)


def into(
    matrix: Tensor, features: Tensor, out: Tensor, add: Tensor | None, scale: float, share: float
) -> None:
    """Fill ``out``, in half or single precision, with scale · matrix features + share · add."""
    beta = 0.0 if add is None else share
    sums = out if out.dtype == matrix.dtype else torch.empty_like(out, dtype=matrix.dtype)
    more = sums if add is None else add.to(sums.dtype)
    if add is None and not torch.backends.mkl.is_available():
        sums.zero_()  # with beta = 0 MKL never reads it; torch's own product does, and 0 NaN = NaN
    with exactly_threads(available_threads()):  # a row is always summed by one thread
        torch.addmm(more, matrix, features, beta=beta, alpha=scale, out=sums)
    if sums is not out:
        out.copy_(sums)


def _flat(matrix: Tensor) -> Flat:
    """Return a matrix with contiguous rows, which may lie apart, as a flat array.

    Half floats are given by their bits: see ``load``.
    """
    from evergraph.graphs.kernels.numba_sum import Flat

    assert matrix.stride(1) == 1 or matrix.shape[1] == 1, "columns must be contiguous"
    length = (matrix.shape[0] - 1) * matrix.stride(0) + matrix.shape[1]
    values = matrix.as_strided((length,), (1,))
    if values.dtype == torch.float32:
        return Flat(values.numpy(), matrix.stride(0))
    bits = values.view(torch.int16).numpy()
    return Flat(bits if values.dtype == torch.float16 else bits.view(np.uint16), matrix.stride(0))


def streamed_product(
    smoother: ScaledRows, features: Tensor, out: Tensor, *,
    add: Tensor | None, scale: float, add_scale: float,
) -> None:  # fmt: skip
    """Fill ``out`` on the features' device; rows of the adjacency are sent a range at a time.

    While the device sums one range, the processor reads the next from memory or a file. The kernel
    is the one that would sum everything at once, and gives the same bits.

    features: [columns, dims]; out, add: [rows, dims]
    """
    device = features.device
    smoother = replace(smoother, right=smoother.right.to(device))
    product = _kernel(smoother, device)
    if product is torch_product:  # here and below: once, not for every range
        features = features.to(smoother.left.dtype)
    elif not smoother.scaled:
        features = held_rows(features, smoother.right, features.dtype)
        smoother = replace(smoother, scaled=True)
    entries = int(smoother.indptr[-1]) - int(smoother.indptr[0])
    begun: deque[torch.cuda.Event] = deque()
    for part in row_ranges(smoother.indptr, count=-(-entries // STREAMED_ENTRIES) or 1):
        if len(begun) == AT_ONCE:
            begun.popleft().synchronize()
        rows, more = _moved(smoother, part, device), None if add is None else add[part]
        product(rows, features, out[part], add=more, scale=scale, add_scale=add_scale)
        smoother.let_go(part)
        if device.type == "cuda":
            begun.append(torch.cuda.current_stream(device).record_event())


def _kernel(smoother: ScaledRows, device: torch.device) -> Product:
    entries = len(smoother.indices) + (len(smoother.right) if smoother.self_loops else 0)
    if choose_kernel(entries=entries, device=device) != "triton":
        return torch_product
    from evergraph.graphs.kernels.triton_sum import triton_product

    return triton_product


def _moved(smoother: ScaledRows, part: slice, device: torch.device) -> ScaledRows:
    """Return some rows with all their arrays on a device."""
    weights = smoother.entry_weights(part)
    pointers = smoother.indptr[part.start : part.stop + 1]
    return replace(
        smoother.rows(part),
        indptr=_sent(pointers - pointers[0], device),
        indices=_sent(smoother.entries(part), device),
        weights=None if weights is None else _sent(weights, device),
        left=_sent(smoother.left[part], device),
        mapped=False,
        kernel="torch",
    )


def _sent(values: Tensor, device: torch.device) -> Tensor:
    """Return values on a device, through pinned memory so that the copy is asynchronous."""
    if device.type != "cuda" or values.device.type != "cpu":
        return values.to(device)
    return values.as_subclass(Tensor).pin_memory().to(device, non_blocking=True)
