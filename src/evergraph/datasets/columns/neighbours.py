"""Gaps filled from neighbours, for a graph that is read whole: feature propagation.

After Rossi et al., "On the Unreasonable Effectiveness of Feature Propagation in Learning on Graphs
with Missing Node Features" (LoG 2022): values that are known are held, those that are not become
the mean of their neighbours' values, ``ROUNDS`` times. A node that no known value reaches keeps
the median. A learner that grows cannot do so without changing rows that it has learned from; it
has the flag of gaps instead, whose hops tell how much of a neighbourhood's mean is known.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from evergraph.datasets.columns.block import Mask
from evergraph.datasets.columns.scheme import Scheme
from evergraph.graphs import Graph

ROUNDS = 40  # of the paper


def propagated(graph: Graph, values: Tensor, known: Tensor) -> Tensor:
    """Return values with those that are not known filled.  [nodes, d], bool [nodes, d]

    x ← D^-1 A x, where not known; edges count both ways.

    >>> path = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), features=torch.zeros(3, 1),
    ...                         labels=torch.zeros(3, dtype=torch.int64))
    >>> values, known = torch.tensor([[1.0], [0.0], [4.0]]), torch.tensor([[1], [0], [1]]) > 0
    >>> propagated(path, values, known).flatten()
    tensor([1.0000, 2.5000, 4.0000])
    """
    from scipy.sparse import csr_matrix

    whole = graph.to_undirected()
    degrees = whole.degrees.numpy()
    entries = np.repeat(1.0 / np.maximum(degrees, 1), degrees)
    shape = (graph.num_nodes, graph.num_nodes)
    mean = csr_matrix((entries, whole.indices.numpy(), whole.indptr.numpy()), shape=shape)
    held, given = known.numpy(), values.double().numpy()
    filled = np.where(held, given, 0.0)
    for _ in range(ROUNDS):
        filled = np.where(held, given, mean @ filled)
    return torch.from_numpy(filled.astype(np.float32))


def filled_from_neighbours(graph: Graph, scheme: Scheme, gaps: Mapping[str, Mask]) -> Graph:
    """Return a graph whose numbers have no gaps; the flags stay."""
    places, masks, begin = [], [], 0
    for each in scheme.columns:
        if each.encoder.kind == "number" and gaps[each.name].any():
            places.append(begin)
            masks.append(gaps[each.name])
        begin += each.encoder.width
    if not places:
        return graph
    known = torch.from_numpy(~np.stack(masks, axis=1))
    features = graph.features.clone()
    features[:, places] = propagated(graph, features[:, places], known)
    return graph.with_features(features)
