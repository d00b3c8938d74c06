"""The product on a device that the adjacency does not fit on."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from evergraph.graphs.kernels.products import into
from evergraph.graphs.kernels.row_ranges import row_ranges
from evergraph.graphs.kernels.scaled_rows import ScaledRows

# Entries that are on the device at a time: 64 MB of them, some 400 MB while weights are made.
STREAMED_ENTRIES = 1 << 24


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

    features: [columns, dims]; out, add: [rows, dims]
    """
    device, right = features.device, smoother.right.to(features.device)
    entries = int(smoother.indptr[-1]) - int(smoother.indptr[0])
    for part in row_ranges(smoother.indptr, count=-(-entries // STREAMED_ENTRIES) or 1):
        weights = smoother.entry_weights(part)
        pointers = smoother.indptr[part.start : part.stop + 1]
        rows = replace(
            smoother.rows(part),
            indptr=(pointers - pointers[0]).to(device),
            indices=smoother.entries(part).to(device),
            weights=None if weights is None else weights.to(device),
            left=smoother.left[part].to(device),
            right=right,
            mapped=False,
            kernel="torch",
        )
        more = None if add is None else add[part]
        into(rows.matrix, features, out[part], more, scale, add_scale)
        smoother.let_go(part)
