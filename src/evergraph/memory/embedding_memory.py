"""TEM: the memory of topology-aware embeddings."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from evergraph.core.component import Part
from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph
from evergraph.memory.budget import Budget, check_budget, class_budgets
from evergraph.memory.coverage_record import CoverageRecord
from evergraph.memory.samplers import Candidates, CoverageSampler, Sampler
from evergraph.memory.samplers.base import best_per_class
from evergraph.memory.usage import MemoryUsage

logger = logging.getLogger(__name__)

_KEPT = ("embeddings", "labels", "nodes", "ranks")


class EmbeddingMemory(Part):
    """TEM ← TEM ∪ sampler({e_v | v ∈ V_τ}, n): one vector for each node kept, O(n) in all.

    Args:
        budget: n, an integer per class or a fraction of the dataset.
        sampler: which embeddings to keep.

    Attributes:
        embeddings_: float32 [kept, dims].
        labels_: their classes.  int64 [kept]
        nodes_: which nodes of the dataset they are of, or started from where a sampler makes
            vectors of its own.  int64 [kept]
    """

    def __init__(self, *, budget: Budget = 400, sampler: Sampler | None = None) -> None:
        check_budget(budget)
        if budget == 0:
            logger.warning("budget 0: nothing is stored, and nothing will be replayed")
        self.budget = budget
        self.sampler = sampler if sampler is not None else CoverageSampler()
        self.embeddings_ = torch.empty(0, 0)
        self.labels_ = torch.empty(0, dtype=torch.int64)
        self.nodes_ = torch.empty(0, dtype=torch.int64)
        self.ranks_ = torch.empty(0, dtype=torch.float64)
        self.coverage_ = CoverageRecord()

    def __len__(self) -> int:
        return len(self.labels_)

    def _parameter_default(self, name: str) -> Any:
        return CoverageSampler() if name == "sampler" else super()._parameter_default(name)

    def store(
        self, candidates: Candidates, sizes: dict[int, int], *, generator: torch.Generator
    ) -> None:
        """Keep the best of some candidates; a class may come in several batches.

        sizes: how many nodes each class has in the whole task, for fractional budgets.
        """
        new = candidates.labels.unique().tolist()
        stored = torch.isin(self.labels_, torch.tensor(new, dtype=torch.int64))
        if bool(stored.any()) and not self.sampler.mergeable:
            raise ConfigurationError(
                f"sampler {self.sampler.name!r} must see a class whole, but class "
                f"{int(self.labels_[stored][0])} came in a second batch: use 'uniform', "
                "'coverage' or 'degree'"
            )
        budgets = self._budgets(candidates, sizes, stored)
        ranks = self.sampler.rank(candidates, budgets, generator=generator)
        self._merge(candidates, ranks, stored, budgets, generator=generator)

    def _budgets(
        self, candidates: Candidates, sizes: dict[int, int], stored: Tensor
    ) -> dict[int, int]:
        labels = torch.cat([self.labels_[stored], candidates.labels.cpu()])
        values, counts = labels.unique(return_counts=True)
        available = dict(zip(values.tolist(), counts.tolist(), strict=True))
        known = self.labels_[stored].unique().tolist()
        return class_budgets(self.budget, sizes, available, known=known)

    def _merge(
        self,
        candidates: Candidates,
        ranks: Tensor,
        stored: Tensor,
        budgets: dict[int, int],
        *,
        generator: torch.Generator,
    ) -> None:
        """Keep the best-ranked of what is stored for these classes and what is new."""
        width = candidates.embeddings.shape[1]
        old = self.embeddings_.reshape(len(self), width).to(candidates.embeddings.device)
        labels = torch.cat([self.labels_, candidates.labels.cpu()])
        every_rank = torch.cat([self.ranks_, ranks])
        contested = torch.cat([stored, torch.ones(len(candidates), dtype=torch.bool)])
        rows = contested.nonzero().flatten()
        best = rows[best_per_class(every_rank[rows], labels[rows], budgets)]
        keep = torch.cat([(~contested).nonzero().flatten(), best])
        from_old, from_new = keep[keep < len(self)], keep[keep >= len(self)] - len(self)
        new = self.sampler.vectors(candidates, from_new, generator=generator)
        self.embeddings_ = torch.cat([old[from_old], new])
        self.nodes_ = torch.cat([self.nodes_, candidates.ids.cpu()])[keep]
        self.labels_, self.ranks_ = labels[keep], every_rank[keep]

    def measure(self, graph: Graph, ids: Tensor, own: Tensor, *, hops: int) -> None:
        """Take down which of a task's nodes its stored embeddings cover.

        ids: which node each node of ``graph`` is; own: positions in it of the task's nodes.
        """
        new = torch.isin(self.nodes_, ids[own.cpu()])
        record = self.coverage_.pruned(self.nodes_)
        self.coverage_ = record.with_task(graph, ids, own, self._races(new), hops=hops)

    def _races(self, new: Tensor) -> list[Tensor]:
        """Return some stored nodes in the order in which they stay, class by class."""
        if not self.sampler.mergeable:  # nothing is ever dropped, so any order will do
            return [self.nodes_[new]]
        rows = [
            (new & (self.labels_ == label)).nonzero().flatten()
            for label in self.labels_[new].unique()
        ]
        return [self.nodes_[row[self.ranks_[row].argsort(stable=True)]] for row in rows]

    @property
    def coverage_ratio(self) -> float:
        """R_c: the share of all nodes met that lie in a stored node's ego-subnetwork, 0..1.

        Of what is stored now, each ego-subnetwork as it was when its node was stored, and in it
        the nodes of the same task.
        """
        met = self.coverage_.met
        return self.coverage_.covered(self.nodes_) / met if met else 0.0

    @property
    def usage(self) -> MemoryUsage:
        """Floats as the paper counts them (the embeddings), and the bytes of all that is kept."""
        size = sum(tensor.nbytes for tensor in self.state().values())
        return MemoryUsage(samples=self.embeddings_.numel(), bytes=size)

    def state(self) -> dict[str, Tensor]:
        """Return everything stored, by name."""
        record = self.coverage_
        return {name: getattr(self, f"{name}_") for name in _KEPT} | {
            "coverage.met": torch.tensor(record.met),
            "coverage.sizes": record.sizes,
            "coverage.groups": record.groups,
            "coverage.coverers": record.coverers,
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        for name in _KEPT:
            setattr(self, f"{name}_", state[name])
        self.coverage_ = _record(state)


def _record(state: dict[str, Tensor]) -> CoverageRecord:
    if "coverage.met" in state:
        parts = (state[f"coverage.{name}"] for name in ("sizes", "groups", "coverers"))
        return CoverageRecord(int(state["coverage.met"]), *parts)
    # Early states have two numbers only: nodes covered and nodes met.
    logger.warning("this state does not say who covers whom: what was covered counts as covered")
    covered, met = state["covered"].tolist()
    nodes = state["nodes"]
    return CoverageRecord(met, torch.tensor([covered]), torch.zeros_like(nodes), nodes)
