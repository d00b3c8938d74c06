"""scale · Â X + add_scale · Y with each of the kernels, on the adjacency's device or another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from evergraph.core.resources import available_threads, exactly_threads
from evergraph.graphs.kernels.row_ranges import in_parts, range_count, row_ranges, spread
from evergraph.graphs.kernels.scaled_rows import Affine, ScaledRows, choose_kernel, held_rows

if TYPE_CHECKING:
    from evergraph.graphs.kernels.numba_sum import Flat, ListedRows

# Entries on the device at a time: 64 MB of them; without Triton some 400 MB, with weights.
STREAMED_ENTRIES = 1 << 24
AT_ONCE = 2  # ranges being sent or summed; the processor reads no further ahead
# If features have so many values that they do not fit into a processor's cache, and every row is
# read so many times, it pays to multiply a copy of a few columns at a time.
UNCACHED_VALUES = 1 << 22
READS_PER_ROW = 24
CACHED_COLUMNS = 64


Product = Callable[[ScaledRows, Tensor, Tensor, Affine], None]
"""Fills a matrix with an affine function of Â features.  [columns, dims], [rows, dims]"""


def numba_product(smoother: ScaledRows, features: Tensor, out: Tensor, affine: Affine) -> None:
    """Fill ``out`` in one pass without materialising weights or self-loops.

    features: float32, float16 or bfloat16; out: float32
    """
    from evergraph.graphs.kernels.numba_sum import ListedRows, weighted_sums

    right, indices = smoother.right.numpy(), smoother.indices.numpy()
    if smoother.scaled:
        right = np.ones(len(right), np.float32)
    weights = () if smoother.weights is None else smoother.weights.numpy()
    x = _flat(features)
    scale = np.float32(affine.scale)
    share = np.float32(0.0 if affine.add is None else affine.share)

    def work(part: slice) -> None:
        pointers = smoother.indptr[part.start : part.stop + 1].long().numpy()
        first = smoother.first + part.start
        stop = first + len(pointers) - 1 if smoother.self_loops else first
        loops = np.arange(first, stop)
        left = smoother.left[part].numpy()
        rows = ListedRows(pointers[:-1], pointers[1:], indices, left, right, loops, weights)
        y = _flat(out[part])
        added = y if affine.add is None else _flat(affine.add[part])
        weighted_sums(rows, x, y, added, scale, share, out.shape[1], 0, len(left))
        smoother.page_out(part)

    count = range_count(smoother.indptr, mapped=smoother.mapped)
    spread(work, row_ranges(smoother.indptr, count=count))


def listed_product(rows: ListedRows, features: Tensor, out: Tensor) -> None:
    """Fill ``out`` with rows whose entries lie anywhere.  [columns, dims], [rows, dims]"""
    from evergraph.graphs.kernels.numba_sum import weighted_sums

    x = _flat(features)
    y = _flat(out)
    width = out.shape[1]
    arguments = (rows, x, y, y, np.float32(1), np.float32(0), width)
    costs = rows.stops - rows.starts + 1
    in_parts(lambda part: weighted_sums(*arguments, part.start, part.stop), costs, each=width)


def torch_product(smoother: ScaledRows, features: Tensor, out: Tensor, affine: Affine) -> None:
    """Fill ``out`` by a product with Â as a matrix; if it is mapped, one range of rows at a time.

    Half-precision features are widened first, since torch only multiplies equal types.
    """
    features = features.to(smoother.left.dtype)
    if not smoother.mapped:
        into(smoother.matrix, features, out, affine)
        return
    count = range_count(smoother.indptr, mapped=True)
    for part in row_ranges(smoother.indptr, count=count):
        into(smoother.rows(part).matrix, features, out[part], affine.rows(part))
        smoother.page_out(part)


def into(matrix: Tensor, features: Tensor, out: Tensor, affine: Affine) -> None:
    """Fill ``out``, in half or single precision, by a product with a sparse matrix."""
    add, scale, share = affine
    beta = 0.0 if add is None else share
    sums = out if out.dtype == matrix.dtype else torch.empty_like(out, dtype=matrix.dtype)
    added = sums if add is None else add.to(sums.dtype)
    if add is None and not torch.backends.mkl.is_available():
        sums.zero_()  # with beta = 0 MKL never reads it; torch's own product does, and 0 NaN = NaN
    with exactly_threads(available_threads()):  # a row is always summed by one thread
        if _is_read_often(matrix, features):
            _by_columns(matrix, features, sums, Affine(add, scale, beta))
        else:
            torch.addmm(added, matrix, features, beta=beta, alpha=scale, out=sums)
    if sums is not out:
        out.copy_(sums)


def _is_read_often(matrix: Tensor, features: Tensor) -> bool:
    """Return whether a product is faster some columns at a time."""
    by_mkl = features.device.type == "cpu" and torch.backends.mkl.is_available()
    large = features.numel() >= UNCACHED_VALUES
    return by_mkl and large and matrix.values().numel() >= READS_PER_ROW * len(features)


def _by_columns(matrix: Tensor, features: Tensor, sums: Tensor, affine: Affine) -> None:
    """Fill ``sums`` as ``into`` does, from copies of so many columns as stay in cache."""
    features_buffer = features.new_empty(len(features) * CACHED_COLUMNS)
    sums_buffer = sums.new_empty(len(sums) * CACHED_COLUMNS)
    for start in range(0, features.shape[1], CACHED_COLUMNS):
        columns = slice(start, start + CACHED_COLUMNS)
        x = _view_like(features[:, columns], features_buffer)
        y = _view_like(sums[:, columns], sums_buffer)
        x.copy_(features[:, columns])
        if affine.add is not None:
            y.copy_(affine.add[:, columns])
        torch.addmm(y, matrix, x, beta=affine.share, alpha=affine.scale, out=y)
        sums[:, columns] = y


def _view_like(matrix: Tensor, buffer: Tensor) -> Tensor:
    """Return the beginning of a buffer as a contiguous matrix of the same shape."""
    return buffer[: matrix.numel()].view(matrix.shape)


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


def streamed_product(smoother: ScaledRows, features: Tensor, out: Tensor, affine: Affine) -> None:
    """Fill ``out`` on the features' device; rows of the adjacency are sent a range at a time.

    While the device sums one range, the processor reads the next from memory or a file. The kernel
    is the one that would sum everything at once, and gives the same bits.
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
    events: deque[torch.cuda.Event] = deque()
    for part in row_ranges(smoother.indptr, count=-(-entries // STREAMED_ENTRIES) or 1):
        if len(events) == AT_ONCE:
            events.popleft().synchronize()
        product(_moved(smoother, part, device), features, out[part], affine.rows(part))
        smoother.page_out(part)
        if device.type == "cuda":
            events.append(torch.cuda.current_stream(device).record_event())


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
