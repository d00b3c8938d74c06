"""The adjacency among some nodes of a graph, cut out block by block."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.core.mapped import is_mapped, page_out, put, shortened
from evergraph.core.resources import Resources
from evergraph.graphs.csr import build_csr, build_weighted_csr, pointers_of, row_entries
from evergraph.graphs.cuts import cut

# Adjacency entries looked at at a time: some 100 MB on a CPU. A GPU has room, and waits for
# every block that is cut.
BLOCK_ENTRIES = {"cpu": 1 << 22, "cuda": 1 << 28}


def induced_adjacency(
    indptr: Tensor,
    indices: Tensor,
    nodes: Tensor,
    *,
    weights: Tensor | None = None,
    keep: Tensor | None = None,
    groups: Tensor | None = None,
    resources: Resources | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the adjacency among ``nodes``, numbered in the order given, and its weights.

    weights: of the entries, if they have any.  float32 [edges]; keep: entries to keep, where not
    all.  bool [edges]; groups: only entries that join nodes of one group are kept.  [all nodes]
    -> [nodes + 1], int32 [entries], float32 [entries]
    """
    position = torch.full((len(indptr) - 1,), -1, dtype=torch.int32, device=indptr.device)
    position[nodes] = torch.arange(len(nodes), dtype=torch.int32, device=indptr.device)
    lengths = indptr[nodes + 1].long() - indptr[nodes].long()
    resources = Resources() if resources is None else resources
    most = int(lengths.sum())
    columns = _room(most, torch.int32, indptr.device, resources)
    weighed = None if weights is None else _room(most, weights.dtype, indptr.device, resources)
    counts = torch.empty(len(nodes), dtype=torch.int64, device=indptr.device)
    stop = 0
    for block in cut(lengths.cpu().double().numpy(), BLOCK_ENTRIES[indptr.device.type]):
        owners, entries = row_entries(indptr, nodes[block])
        found = indices.as_subclass(Tensor).index_select(0, entries)
        inside = position.index_select(0, found)
        kept = inside >= 0
        if keep is not None:
            kept &= keep[entries]
        if groups is not None:
            kept &= groups[found] == groups[nodes[block]][owners]
        inside, owners = inside[kept], owners[kept]
        counts[block] = torch.bincount(owners, minlength=len(counts[block]))
        put(columns, stop, inside)
        _let_go(indices, entries)
        if weights is not None and weighed is not None:
            put(weighed, stop, weights.as_subclass(Tensor).index_select(0, entries[kept]))
            _let_go(weights, entries)
        stop += len(inside)
    pointers = pointers_of(counts)
    columns = shortened(columns, stop)
    weighed = None if weighed is None else shortened(weighed, stop)
    if len(nodes) < 2 or bool((nodes[1:] > nodes[:-1]).all()):  # columns keep their order
        return pointers, columns, weighed
    rows = torch.repeat_interleave(torch.arange(len(nodes), device=nodes.device), counts)
    if weighed is not None:
        return build_weighted_csr(rows, columns.long(), weighed.as_subclass(Tensor), len(nodes))
    return *build_csr(rows, columns.long(), len(nodes)), None


def _room(size: int, kind: torch.dtype, device: torch.device, resources: Resources) -> Tensor:
    if device.type == "cpu":
        return resources.array((size,), kind)
    return torch.empty(size, dtype=kind, device=device)


def _let_go(indices: Tensor, entries: Tensor) -> None:
    """Let pages that are done with leave memory."""
    if is_mapped(indices) and len(entries):
        low, high = int(entries.min()), int(entries.max())
        page_out(indices[low : high + 1])
