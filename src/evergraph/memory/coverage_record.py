"""Who covers the nodes met so far, counted so that stored nodes may still be dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from evergraph.graphs import Graph
from evergraph.graphs.csr import repeat
from evergraph.graphs.rows import RowSweep


def _nothing() -> Tensor:
    return torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class CoverageRecord:
    """Nodes met, in groups of which each is covered by the same stored nodes.

    A memory drops the nodes of a class in one order, the worst rank first. So a node stays covered
    by a class for as long as the best-ranked stored node of that class that covers it is stored,
    and only that one has to be known. Nodes covered by the same ones are counted together: no
    node that is not stored is named, and there are never more groups than nodes covered.

    Attributes:
        met: how many nodes have been met.
        sizes: nodes of each group.  int64 [groups]
        groups: for every entry, whom it covers.  int64 [entries]
        coverers: and who covers them, one entry for each class that does.  int64 [entries]
    """

    met: int = 0
    sizes: Tensor = field(default_factory=_nothing)
    groups: Tensor = field(default_factory=_nothing)
    coverers: Tensor = field(default_factory=_nothing)

    def covered(self, stored: Tensor) -> int:
        """Return how many nodes met some stored nodes cover."""
        return int(self.sizes[self.groups[torch.isin(self.coverers, stored)].unique()].sum())

    def pruned(self, stored: Tensor) -> CoverageRecord:
        """Return the record without nodes that are stored no longer."""
        alive = torch.isin(self.coverers, stored)
        left, groups = self.groups[alive].unique(return_inverse=True)
        return CoverageRecord(self.met, self.sizes[left], groups, self.coverers[alive])

    def with_task(
        self, graph: Graph, ids: Tensor, own: Tensor, races: Sequence[Tensor], *, hops: int
    ) -> CoverageRecord:
        """Return the record with a task's nodes.

        ids: which node each node of ``graph`` is; own: positions of the task's nodes; races: the
        task's stored nodes in the order in which they stay, those of one class apart from others.
        """
        own = own.cpu()
        group = torch.zeros(len(own), dtype=torch.int64)
        firsts = []
        for nodes in races:
            first = first_coverers(graph, torch.searchsorted(ids, nodes), hops=hops)[own]
            firsts.append(first)
            group = (group * (len(nodes) + 1) + first).unique(return_inverse=True)[1]
        sizes = torch.bincount(group)
        member = torch.empty_like(sizes)
        member[group] = torch.arange(len(own))  # one of each group: the others are like it
        groups, coverers = [self.groups], [self.coverers]
        for nodes, first in zip(races, firsts, strict=True):
            some = first[member]
            found = some < len(nodes)
            groups.append(found.nonzero().flatten() + len(self.sizes))
            coverers.append(nodes[some[found]])
        return CoverageRecord(
            self.met + len(own),
            torch.cat([self.sizes, sizes]),
            torch.cat(groups),
            torch.cat(coverers),
        )


def first_coverers(graph: Graph, nodes: Tensor, *, hops: int) -> Tensor:
    """Return which of ``nodes`` is the first to cover each node; their number where none does.

    A sweep a hop for all of them together, as in ``covered_nodes``.  int64 [n] -> int64 [all nodes]

    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), features=torch.eye(4),
    ...                         labels=torch.zeros(4, dtype=torch.long), undirected=True)
    >>> first_coverers(path, torch.tensor([2, 1]), hops=1)
    tensor([1, 0, 0, 0])
    """
    nodes = nodes.to(graph.device)
    first = torch.full((graph.num_nodes,), len(nodes), device=graph.device)
    first[nodes] = torch.arange(len(nodes), device=graph.device)
    sweep, rows = RowSweep.of(graph), nodes.sort().values
    for _ in range(hops):
        found = first.clone()
        for part, near in sweep.blocks(rows, sweep.neighbours):
            some = rows[part]
            counts = graph.indptr[some + 1] - graph.indptr[some]
            found.scatter_reduce_(0, near, repeat(first[some], counts), "amin")
        rows, first = (found < first).nonzero().flatten(), found
    return first.cpu()
