"""The product on a device that the adjacency does not fit on."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import torch
from torch import Tensor

from evergraph.graphs.kernels.choice import choose_kernel
from evergraph.graphs.kernels.held_rows import held_rows
from evergraph.graphs.kernels.products import Product, torch_product
from evergraph.graphs.kernels.row_ranges import row_ranges
from evergraph.graphs.kernels.scaled_rows import ScaledRows

# Entries that are on the device at a time: 64 MB of them; without Triton some 400 MB, with weights.
STREAMED_ENTRIES = 1 << 24
AT_ONCE = 2  # ranges on their way or being summed; the processor reads no further ahead


def streamed_product(
    smoother: ScaledRows,
    features: Tensor,
    out: Tensor,
    *,
    add: Tensor | None,
    scale: float,
    add_scale: float,
) -> None:
    """Fill ``out`` where the features are; rows of the adjacency go there a range at a time.

    While the device sums one range, the processor reads the next from memory or a file. The kernel
    is the one that would sum all of it at once, and gives the same bits.

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
    """Return who sums on the device."""
    entries = len(smoother.indices) + (len(smoother.right) if smoother.self_loops else 0)
    if choose_kernel(entries=entries, device=device) != "triton":
        return torch_product
    from evergraph.graphs.kernels.triton_sum import triton_product

    return triton_product


def _moved(smoother: ScaledRows, part: slice, device: torch.device) -> ScaledRows:
    """Return some rows with all that belongs to them on a device."""
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
    """Return values on a device, through memory that it fetches from while others work."""
    if device.type != "cuda" or values.device.type != "cpu":
        return values.to(device)
    return values.as_subclass(Tensor).pin_memory().to(device, non_blocking=True)
