"""TEM: the memory of topology-aware embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor

from evergraph.core.component import Made
from evergraph.graphs import Graph, covered_nodes
from evergraph.graphs.csr import repeat
from evergraph.memory.budget import Budget, Memory, MemoryUsage
from evergraph.memory.samplers import Candidates, CoverageSampler, Sampler

_STATE_NAMES = ("embeddings", "labels", "nodes", "ranks")


@dataclass(kw_only=True, eq=False, repr=False)
class EmbeddingMemory(Memory):
    """The paper's memory: one embedding per stored node, O(n) in all.

    TEM ← TEM ∪ sampler({e_v | v ∈ V_τ}, n).

    Args:
        budget: n, an integer per class or a fraction of the dataset.
        sampler: chooses the embeddings to keep.

    Attributes:
        embeddings_: float32 [kept, dims].
        nodes_: their ids in the dataset, or the ids of the starting nodes if the sampler makes
            synthetic vectors.  int64 [kept]
    """

    budget: Budget = 400
    sampler: Made[Sampler] = Made(default=CoverageSampler)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.embeddings_ = torch.empty(0, 0)
        self.nodes_ = torch.empty(0, dtype=torch.int64)
        self.coverage_ = CoverageRecord()

    def store(self, candidates: Candidates, sizes: dict[int, int], *, generator: Generator) -> None:
        """Keep the best of some candidates; a class may arrive in several batches.

        sizes: number of nodes of each class in the whole task, for fractional budgets.
        """
        labels, ranks, keep = self._choose(candidates, sizes, generator=generator)
        from_old = keep[keep < len(self)]
        from_new = keep[keep >= len(self)] - len(self)
        new = self.sampler.vectors(candidates, from_new, generator=generator)
        width = candidates.embeddings.shape[1]
        old = self.embeddings_.reshape(len(self), width).to(candidates.embeddings.device)
        self.embeddings_ = torch.cat([old[from_old], new])
        self.nodes_ = torch.cat([self.nodes_, candidates.ids.cpu()])[keep]
        self.labels_, self.ranks_ = labels[keep], ranks[keep]

    def measure(self, graph: Graph, ids: Tensor, task_nodes: Tensor, *, hops: int) -> None:
        """Record which of a task's nodes its stored embeddings cover.

        ids: id of each node of ``graph``; task_nodes: positions in it of the task's nodes.
        """
        is_new = torch.isin(self.nodes_, ids[task_nodes.cpu()])
        orders = [self.nodes_[is_new]]  # if nothing is ever dropped, any order is valid
        if self.sampler.mergeable:  # class by class, in the order in which they are kept
            classes = self.labels_[is_new].unique()
            rows = [(is_new & (self.labels_ == label)).nonzero().flatten() for label in classes]
            orders = [self.nodes_[row[self.ranks_[row].argsort(stable=True)]] for row in rows]
        record = self.coverage_.pruned(self.nodes_)
        self.coverage_ = record.with_task(graph, ids, task_nodes, orders, hops=hops)

    @property
    def coverage_ratio(self) -> float:
        """R_c: the share of all nodes seen that lie in a stored node's ego-subnetwork, 0..1.

        It counts the currently stored nodes. Each ego-subnetwork is that of the time when its node
        was stored, restricted to nodes of the same task.
        """
        seen = self.coverage_.met
        return self.coverage_.covered(self.nodes_) / seen if seen else 0.0

    @property
    def usage(self) -> MemoryUsage:
        """Floats as counted in the paper (the embeddings), and the bytes of everything kept."""
        size = sum(tensor.nbytes for tensor in self.state().values())
        return MemoryUsage(samples=self.embeddings_.numel(), bytes=size)

    def state(self) -> dict[str, Tensor]:
        """Return everything stored, by name."""
        covered = {f"coverage.{name}": part for name, part in vars(self.coverage_).items()}
        covered["coverage.met"] = torch.tensor(self.coverage_.met)
        return {name: getattr(self, f"{name}_") for name in _STATE_NAMES} | covered

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        for name in _STATE_NAMES:
            setattr(self, f"{name}_", state[name])
        parts = (state[f"coverage.{name}"] for name in ("sizes", "groups", "coverers"))
        self.coverage_ = CoverageRecord(int(state["coverage.met"]), *parts)


def _nothing() -> Tensor:
    return torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class CoverageRecord:
    """Seen nodes, in groups that are covered by the same stored nodes.

    A memory drops the nodes of a class in one order, the worst rank first. So a node stays covered
    by a class as long as the best-ranked stored node of that class that covers it is stored, and
    only that one has to be recorded. Nodes covered by the same ones are counted together: ids of
    nodes that are not stored are not kept, and there are never more groups than covered nodes.
    """

    met: int = 0  # number of nodes seen
    sizes: Tensor = field(default_factory=_nothing)  # nodes of each group.  int64 [groups]
    groups: Tensor = field(default_factory=_nothing)  # the group of every entry.  int64 [entries]
    # the covering node of every entry, one per covering class.  int64 [entries]
    coverers: Tensor = field(default_factory=_nothing)

    def covered(self, stored: Tensor) -> int:
        """Return the number of seen nodes that some stored nodes cover."""
        return int(self.sizes[self.groups[torch.isin(self.coverers, stored)].unique()].sum())

    def pruned(self, stored: Tensor) -> CoverageRecord:
        """Return the record without nodes that are no longer stored."""
        is_stored = torch.isin(self.coverers, stored)
        groups_left, groups = self.groups[is_stored].unique(return_inverse=True)
        return CoverageRecord(self.met, self.sizes[groups_left], groups, self.coverers[is_stored])

    def with_task(
        self, graph: Graph, ids: Tensor, task_nodes: Tensor, orders: Sequence[Tensor], *, hops: int
    ) -> CoverageRecord:
        """Return the record with a task's nodes added.

        ids: id of each node of ``graph``; task_nodes: positions of the task's nodes; orders: the task's
        stored nodes in the order in which they are kept, one tensor per class.
        """
        task_nodes = task_nodes.cpu()
        group = torch.zeros(len(task_nodes), dtype=torch.int64)
        firsts = []
        for nodes in orders:
            first = first_coverers(graph, torch.searchsorted(ids, nodes), hops=hops)[task_nodes]
            firsts.append(first)
            group = (group * (len(nodes) + 1) + first).unique(return_inverse=True)[1]
        sizes = torch.bincount(group)
        member = torch.empty_like(sizes)
        member[group] = torch.arange(len(task_nodes))  # one of each group: the others are equal
        groups, coverers = [self.groups], [self.coverers]
        for nodes, first in zip(orders, firsts, strict=True):
            member_firsts = first[member]
            is_covered = member_firsts < len(nodes)
            groups.append(is_covered.nonzero().flatten() + len(self.sizes))
            coverers.append(nodes[member_firsts[is_covered]])
        arrays = ([self.sizes, sizes], groups, coverers)
        return CoverageRecord(self.met + len(task_nodes), *map(torch.cat, arrays))


def first_coverers(graph: Graph, nodes: Tensor, *, hops: int) -> Tensor:
    """Return the index of the first of ``nodes`` that covers each node; their number if none does.

    One sweep per hop for all of them, as in ``covered_nodes``.  int64 [n] -> int64 [all nodes]

    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), features=torch.eye(4),
    ...                         labels=torch.zeros(4, dtype=torch.long), undirected=True)
    >>> first_coverers(path, torch.tensor([2, 1]), hops=1)
    tensor([1, 0, 0, 0])
    """
    nodes = nodes.to(graph.device)
    first = torch.full((graph.num_nodes,), len(nodes), device=graph.device)
    first[nodes] = torch.arange(len(nodes), device=graph.device)
    sweep, rows = graph.sweep, nodes.sort().values
    for _ in range(hops):
        next_first = first.clone()
        for part, neighbours in sweep.blocks(rows, sweep.neighbours):
            block_rows = rows[part]
            counts = graph.indptr[block_rows + 1] - graph.indptr[block_rows]
            next_first.scatter_reduce_(0, neighbours, repeat(first[block_rows], counts), "amin")
        rows, first = (next_first < first).nonzero().flatten(), next_first
    return first.cpu()


def coverage_ratio(graph: Graph, nodes: Tensor, *, hops: int) -> float:
    """Return R_c(V_s) = |∪_{v∈V_s} ego(v)| / |V|: the share of nodes within reach of ``nodes``.

    >>> import torch
    >>> path = Graph.from_edges(torch.tensor([[0, 1, 2], [1, 2, 3]]), features=torch.eye(4),
    ...                         labels=torch.zeros(4, dtype=torch.long), undirected=True)
    >>> coverage_ratio(path, torch.tensor([0]), hops=1)
    0.5
    """
    return float(covered_nodes(graph, nodes, hops=hops).float().mean())
