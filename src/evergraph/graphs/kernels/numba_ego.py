"""Exact ego-subnetwork sizes: one breadth-first search after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.graphs.kernels.compiled import in_threads, unsigned

Array = npt.NDArray[Any]


def ego_sizes(indptr: Tensor, indices: Tensor, nodes: Tensor, *, hops: int, costs: Array) -> Tensor:
    """Return how many nodes lie within ``hops`` of each of ``nodes``, itself too.  int64 [nodes]

    A thread holds one byte and one number for every node of the graph, and nothing else.
    """
    sizes = np.empty(len(nodes), dtype=np.int64)
    in_threads(search, costs, unsigned(indptr), unsigned(indices), nodes.numpy(), hops, sizes)
    return torch.from_numpy(sizes)


def search(
    indptr: Array, indices: Array, nodes: Array, hops: int, sizes: Array, start: int, stop: int
) -> None:
    """Fill ``sizes[start:stop]``.

    Who was met is marked with the number of the search, so that marks need to be wiped only when a
    byte has run through all its values.
    """
    met = np.zeros(len(indptr) - 1, np.uint8)
    queue = np.empty(len(indptr) - 1, np.uint32)
    mark = 0
    for i in range(start, stop):
        mark += 1
        if mark == 256:
            met[:] = 0
            mark = 1
        queue[0] = nodes[i]
        met[nodes[i]] = mark
        layer, size = 0, 1  # where the layer begins in the queue, and where it ends
        for _ in range(hops - 1):
            end = size
            for q in range(layer, end):
                for e in range(indptr[queue[q]], indptr[queue[q] + 1]):
                    if met[indices[e]] != mark:
                        met[indices[e]] = mark
                        queue[size] = indices[e]
                        size += 1
            layer = end
        end = size
        for q in range(layer, end if hops > 0 else layer):
            for e in range(indptr[queue[q]], indptr[queue[q] + 1]):
                u = indices[e]
                size += met[u] != mark  # nobody looks at the last layer: no queue, no branch
                met[u] = mark
        sizes[i] = size
