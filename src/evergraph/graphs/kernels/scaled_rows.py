"""What kernels multiply by: a scaled adjacency that is never written out; and which kernel does."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.mapped import page_out
from evergraph.graphs.kernels.row_ranges import spread
from evergraph.graphs.normalisation import written_out

if TYPE_CHECKING:
    from typing_extensions import Self


Kernel = Literal["torch", "numba", "triton"]
KERNELS: tuple[Kernel, ...] = get_args(Kernel)

# From so many entries on, self-loops among them, numba is chosen. Below, features lie in the
# caches and torch is as fast, less what numba takes to start. Above, numba reads ahead, and an
# embedding need not wait for Â to be written out. ``benchmarks/kernels.py`` has both sides.
NUMBA_PAYS_FROM = 1_000_000
# The same on a GPU, where a product by cuSPARSE needs Â written out and Triton a second to start.
TRITON_PAYS_FROM = 1_000_000

log = logging.getLogger(__name__)


def choose_kernel(*, entries: int, device: torch.device | str = "cpu") -> Kernel:
    """Return the faster kernel for an adjacency of so many entries, self-loops among them.

    Neither width nor rows are asked for: a block of columns or of rows must be summed by the
    kernel that sums the whole, or the last bits would depend on the size of the block.

    >>> choose_kernel(entries=1000)
    'torch'
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
    """Whether numba is there and can be imported beside this numpy."""
    try:
        import numba  # noqa: F401
    except ImportError as error:
        log.debug("numba cannot be used (%s): torch multiplies instead", error)
        return False
    return True


@cache  # to ask for a GPU takes as long as to start a kernel
def triton_works() -> bool:
    """Whether Triton is there, as it is beside torch's own builds for GPUs, and there is one."""
    if not torch.cuda.is_available():
        return False
    try:
        import triton  # noqa: F401
    except ImportError as error:
        log.debug("Triton cannot be used (%s): torch multiplies instead", error)
        return False
    return True


_LINE = 64  # bytes of a cache line


def room(
    rows: int, *, like: Tensor, width: int | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Return uninitialised memory for so many rows that are like others.  -> [rows, dims]

    On a CPU numpy asks Linux for pages of 2 MB where torch takes 4 kB ones, and so is spared
    thousands of page faults that cost about as much as a whole product
    (``benchmarks/kernels.py``). The first value lies at the start of a cache line, so that rows of
    a multiple of 16 floats touch no line too many.

    width, dtype: those of the others unless given.

    >>> new = room(3, like=torch.eye(16))
    >>> new.shape, new.data_ptr() % 64
    (torch.Size([3, 16]), 0)
    """
    width = like.shape[1] if width is None else width
    dtype = like.dtype if dtype is None else dtype
    if like.device.type != "cpu":
        return like.new_empty(rows, width, dtype=dtype)
    size = rows * width * dtype.itemsize
    values = np.empty(size + _LINE, dtype=np.uint8)
    skipped = -values.ctypes.data % _LINE
    return torch.from_numpy(values[skipped : skipped + size]).view(dtype).reshape(rows, width)


RowType = Literal["float32", "float16", "bfloat16"]
ROW_TYPES: dict[RowType, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """Â = L (A + sI) R with diagonal L and R, over the graph's own arrays; or some of its rows.

    Attributes:
        indptr: where each row begins in ``indices``.  [rows + 1]
        indices: the graph's own, all of them.  int32 [edges]
        left: the diagonal of L.  float32 [rows]
        right: the diagonal of R.  float32 [columns]
        self_loops: whether s is 1, else 0.
        first: which row of the whole the first row is.
        mapped: whether ``indices`` lie in a file, so that pages leave memory once they are read.
        kernel: who multiplies where it can; part of a whole keeps the whole's.
        weights: of the entries of A, in the order of ``indices``; all 1 if None.  float32 [edges]
        held: what rows of R X are held in while they are summed; sums are float32.
        scaled: whether features come multiplied by R already: see ``held_rows``.
    """

    indptr: Tensor
    indices: Tensor
    left: Tensor
    right: Tensor
    self_loops: bool = True
    first: int = 0
    mapped: bool = False
    kernel: Kernel = "torch"
    weights: Tensor | None = None
    held: RowType = "float32"
    scaled: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and columns."""
        return len(self.left), len(self.right)

    @property
    def device(self) -> torch.device:
        """Where the arrays live."""
        return self.indices.device

    @cached_property
    def matrix(self) -> Tensor:
        """Â with its weights written out, made once.  ``torch.sparse_csr`` [rows, columns]

        Without R if that is in the features.
        """
        own = None
        if self.self_loops:
            last = self.first + len(self.left)
            own = torch.arange(self.first, last, dtype=torch.int32, device=self.device)
        indptr = self.indptr - self.indptr[0]
        every = slice(0, len(self.left))
        return written_out(
            indptr,
            self.entries(every),
            left=self.left,
            right=torch.ones_like(self.right) if self.scaled else self.right,
            own=own,
            weights=self.entry_weights(every),
        )

    def rows(self, part: slice) -> Self:
        """Return Â of some rows only, in views: nothing is copied."""
        start, stop, _ = part.indices(len(self.left))
        return replace(
            self,
            indptr=self.indptr[start : stop + 1],
            left=self.left[start:stop],
            first=self.first + start,
        )

    def entries(self, part: slice) -> Tensor:
        """Return the neighbours listed in some rows, self-loops aside.  int32 [entries]"""
        return self.indices[self._span(part)]

    def entry_weights(self, part: slice) -> Tensor | None:
        """Return their weights, if they have any.  float32 [entries]"""
        return None if self.weights is None else self.weights[self._span(part)]

    def let_go(self, part: slice) -> None:
        """Let the pages of some rows leave memory, once they were read, if they lie in a file."""
        if self.mapped:
            page_out(self.entries(part))
            weights = self.entry_weights(part)
            if weights is not None:
                page_out(weights)

    def _span(self, part: slice) -> slice:
        return slice(int(self.indptr[part.start]), int(self.indptr[part.stop]))


LARGEST = torch.finfo(torch.float16).max
ROUNDED = 1 << 19  # values at a time on a CPU: 2 MB of memory beside what is returned

# Bytes of a row that a GPU's program sums: a row whole if it is short. Of longer ones a narrow
# slice, so that more of the same columns of all nodes stays in the cache; ``benchmarks/gpu.py``.
WHOLE, SLICE = 512, 256
VECTOR = 16  # bytes that a GPU's thread reads at once; rows begin at multiples of it
LINE = 128  # bytes of its cache's lines; a slice of a row that straddles two costs both


def held_rows(features: Tensor, right: Tensor, kind: torch.dtype) -> Tensor:
    """Return R features, rounded to a type.  [columns, dims], float32 [columns] -> [columns, dims]

    On a GPU rows lie further apart than they are long, so that they begin where they are read best.

    >>> held_rows(torch.tensor([[1., 3.]]), torch.tensor([1 / 3]), torch.bfloat16)
    tensor([[0.3340, 1.0000]], dtype=torch.bfloat16)
    """
    rows, dims = features.shape
    if features.device.type == "cpu":
        held = room(rows, like=features, dtype=kind)
        step = max(ROUNDED // max(dims, 1), 1)
        parts = [slice(start, start + step) for start in range(0, rows, step)]
        if kind == torch.float16:
            _round(features, right, held, parts)
        else:
            for part in parts:
                held[part].copy_(features[part] * right[part, None])
        return held
    held = room(rows, like=features, width=_length(dims, kind.itemsize), dtype=kind)[:, :dims]
    torch.mul(features, right[:, None], out=held)
    if kind == torch.float16 and features.numel():
        largest = torch.stack(features.aminmax()).abs().max() * right.max()
        if float(largest) > LARGEST and bool(held.isinf().any()):
            raise _too_large(features)
    return held


def _round(features: Tensor, right: Tensor, held: Tensor, parts: Sequence[slice]) -> None:
    """Fill float16 rows on a CPU: by numpy, five times as fast as torch on some processors."""

    def work(part: slice) -> None:
        with np.errstate(over="raise"):
            np.multiply(
                features[part].numpy(),
                right[part, None].numpy(),
                out=held[part].numpy(),
                dtype=np.float32,
                casting="unsafe",
            )

    try:
        spread(work, parts)
    except FloatingPointError:
        raise _too_large(features) from None


def _length(dims: int, size: int) -> int:
    """Return how many values apart rows lie on a GPU, so that few straddle lines of the cache.

    At whole lines where slices of rows are read, or rows of half numbers; shorter than a line, at
    parts of one. A short row of whole numbers costs more by being longer.

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
