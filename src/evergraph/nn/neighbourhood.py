"""What a few nodes gather from, layer by layer, as sparse matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.seeding import exponential
from evergraph.graphs.csr import csr_tensor, first_of_each_row, row_entries, row_pointers
from evergraph.graphs.operator import SparseOperator

ALL = -1
"""A fan-out that leaves no neighbour out."""


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """The nodes whose features are needed, and one matrix a layer, the outermost first.

    Each matrix has the nodes of the next layer as rows and those of the layer before as columns;
    the rows' own nodes are the first of its columns.

    Attributes:
        nodes: int64 [nodes]
        operators: [out, in] for each layer
    """

    nodes: Tensor
    operators: list[SparseOperator]


def sample_neighbourhood(
    adjacency: Tensor, rows: Tensor, *, fanouts: Sequence[int], generator: torch.Generator
) -> Neighbourhood:
    """Draw at most ``fanouts[l]`` neighbours per node for layer l, counted from the features.

    Weights of a row are scaled up by its degree over the number drawn, so that a sampled sum
    estimates the whole one without bias (GraphSAGE's sampling, Hamilton et al. 2017).

    adjacency: CSR [all nodes, all nodes]; rows: the nodes wanted, each once.
    """
    nodes, operators = rows, []
    for fanout in reversed(fanouts):
        block, nodes = _block(adjacency, nodes, fanout, generator)
        operators.append(SparseOperator.of(block))
    return Neighbourhood(nodes, operators[::-1])


def _block(
    adjacency: Tensor, targets: Tensor, fanout: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return one layer's matrix and the nodes of its columns, the targets first."""
    owners, entries = row_entries(adjacency.crow_indices(), targets)
    values = adjacency.values()[entries]
    if fanout != ALL:
        keys = exponential(len(entries), generator=generator).to(targets.device)
        drawn = first_of_each_row(owners, keys, fanout)
        degrees = torch.bincount(owners, minlength=len(targets))
        scale = degrees / degrees.clamp(1, fanout)
        owners, entries = owners[drawn], entries[drawn]
        values = values[drawn] * scale[owners].to(values.dtype)
    columns = adjacency.col_indices()[entries].long()
    place = torch.full((adjacency.shape[0],), -1, device=targets.device)
    place[targets] = torch.arange(len(targets), device=targets.device)
    new = columns[place[columns] < 0].unique()
    place[new] = torch.arange(len(targets), len(targets) + len(new), device=targets.device)
    nodes = torch.cat([targets, new])
    indptr = row_pointers(owners, len(targets))
    return csr_tensor(indptr, place[columns].int(), values, (len(targets), len(nodes))), nodes
