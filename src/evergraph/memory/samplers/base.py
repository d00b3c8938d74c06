"""The base of samplers: a ranking of candidates, of which each class keeps the first.

``WeightedSampler`` draws by weight: the paper's Algorithm 1, its approximation, and uniformly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Generator, Tensor

from evergraph.core.component import Part, Resolver, choice
from evergraph.core.errors import ConfigurationError
from evergraph.core.resources import Resources
from evergraph.core.seeding import exponential
from evergraph.graphs import Graph, reach_sizes
from evergraph.graphs.reachability import METHODS

Budgets = Mapping[int, int]
"""Number of nodes to keep of each class."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Nodes that may be stored.

    Attributes:
        graph: the task's graph.
        nodes: positions in ``graph``.  int64 [n]
        labels: their classes.  int64 [n]
        embeddings: their topology-aware embeddings.  float32 [n, dims]
        hops: radius of an embedding's ego-subnetwork.
        residuals: softmax of the scores minus the one-hot class, if a model has been trained.
            float32 [n, classes]
        known_as: their ids in the dataset, if these differ from the positions.  int64 [n]
        resources: memory and workers for the choice.
    """

    graph: Graph
    nodes: Tensor
    labels: Tensor
    embeddings: Tensor
    hops: int
    residuals: Tensor | None = None
    known_as: Tensor | None = None
    resources: Resources | None = None

    @property
    def ids(self) -> Tensor:
        """Their ids in the dataset.  int64 [n]"""
        return self.nodes if self.known_as is None else self.known_as

    def __len__(self) -> int:
        return len(self.nodes)

    def take(self, rows: Tensor | slice) -> Candidates:
        """Return some of the candidates."""
        return replace(
            self,
            nodes=self.nodes[rows],
            labels=self.labels[rows],
            embeddings=self.embeddings[rows],
            residuals=None if self.residuals is None else self.residuals[rows],
            known_as=None if self.known_as is None else self.known_as[rows],
        )


class Sampler(Part, ABC):
    """Chooses which candidates a memory keeps.

    A sampler gives every candidate a rank (a number, smaller is better) and a class keeps its
    best ``budget``. If ranks of different batches can be compared (``mergeable``), a task may
    arrive in batches: the memory keeps the ranks of what it stores, and the best of old and new
    together are exactly those that the whole task at once would have given.
    """

    name: ClassVar[str]
    mergeable: ClassVar[bool] = False

    @abstractmethod
    def rank(self, candidates: Candidates, budgets: Budgets, *, generator: Generator) -> Tensor:
        """Return a rank for every candidate, smaller is better.  -> float64 [n]"""

    def select(self, candidates: Candidates, budgets: Budgets, *, generator: Generator) -> Tensor:
        """Return the candidates to keep, ``budgets[c]`` of each class c.  -> int64 [kept]"""
        ranks = self.rank(candidates, budgets, generator=generator)
        return best_per_class(ranks, candidates.labels.cpu(), budgets)

    def check_whole(self, returned: Tensor) -> None:
        """Raise if a class returns to a sampler that cannot compare old and new candidates.

        returned: classes of stored nodes that came again.  int64 [n]
        """
        if len(returned) and not self.mergeable:
            raise ConfigurationError(
                f"sampler {self.name!r} must see a class whole, but class {int(returned[0])} came "
                "in a second batch: use 'uniform', 'coverage' or 'degree'"
            )

    def vectors(self, candidates: Candidates, chosen: Tensor, *, generator: Generator) -> Tensor:
        """Return the vectors to store for the chosen candidates: here, their own.

        chosen: int64 [kept] -> [kept, dims]
        """
        return candidates.embeddings[chosen]


class WeightedSampler(Sampler):
    """Draws without replacement, with probabilities proportional to weights.

    Drawing one after the other, each in proportion to the weights of the rest (the paper's
    Algorithm 1), has the same law as a race: candidate i finishes after an exponential time with
    rate w_i, and the first n win (Efraimidis and Spirakis 2006). Finishing times do not depend
    on the other candidates, so batches merge: this is weighted reservoir sampling.
    """

    mergeable = True

    @abstractmethod
    def weigh(self, candidates: Candidates) -> Tensor:
        """Return positive weights.  -> float64 [n]"""

    def rank(self, candidates: Candidates, budgets: Budgets, *, generator: Generator) -> Tensor:
        """Return each candidate's finishing time: Exp(1) / weight."""
        return exponential(len(candidates), generator=generator) / self.weigh(candidates)


def best_per_class(ranks: Tensor, labels: Tensor, budgets: Budgets) -> Tensor:
    """Return the rows with the smallest ranks, ``budgets[c]`` of each class c, ascending."""
    rows_kept = []
    for label, budget in budgets.items():
        rows = (labels == label).nonzero().flatten()
        best = ranks[rows].argsort(stable=True)[:budget]
        rows_kept.append(rows[best])
    return torch.cat(rows_kept).sort().values if rows_kept else torch.empty(0, dtype=torch.int64)


samplers = Resolver[Sampler]("sampler")


class StepwiseSampler(Sampler):
    """Takes a class's candidates one by one, each given those taken before."""

    @abstractmethod
    def order(self, embeddings: Tensor, count: int) -> Tensor:
        """Return the rows of one class to take, first to last.  [n, dims] -> int64 [count]"""

    def rank(self, candidates: Candidates, budgets: Budgets, *, generator: Generator) -> Tensor:
        ranks = torch.full((len(candidates),), torch.inf, dtype=torch.float64)
        labels = candidates.labels.cpu()
        for label, budget in budgets.items():
            rows = (labels == label).nonzero().flatten()
            count = min(budget, len(rows))
            if count:
                chosen = rows[self.order(candidates.embeddings[rows], count).cpu()]
                ranks[chosen] = torch.arange(count, dtype=torch.float64)
        return ranks


@samplers.register
@dataclass(kw_only=True, eq=False, repr=False)
class CoverageSampler(WeightedSampler):
    """Draws nodes in proportion to the size of their L-hop ego-subnetwork (Algorithm 1); mergeable.

    p_v ∝ R_c({v}). Replaying an embedding also trains its neighbours (the pseudo-training effect),
    so nodes that cover more of the graph are preferred. Over batches this is weighted reservoir
    sampling on stored ego sizes.

    Args:
        reach: how sizes are computed: "exact", "estimated" from HyperLogLog counters, or "auto":
            exact if that takes no more than about a minute (``reach_sizes``).
    """

    name = "coverage"
    aliases = ("weighted-reservoir",)

    reach: str = choice("auto", METHODS)

    def weigh(self, candidates: Candidates) -> Tensor:
        sizes = reach_sizes(
            candidates.graph,
            candidates.nodes,
            hops=candidates.hops,
            method=self.reach,
            resources=candidates.resources,
        )
        return sizes.double()


@samplers.register
class DegreeSampler(WeightedSampler):
    """Draws nodes in proportion to 1 + in-degree, the 1-hop ego size, as the released code does."""

    name = "degree"

    def weigh(self, candidates: Candidates) -> Tensor:
        degrees = candidates.graph.degrees[candidates.nodes.to(candidates.graph.device)]
        return degrees.cpu().double() + 1


@samplers.register
class UniformSampler(WeightedSampler):
    """Draws uniformly without replacement; over batches this is reservoir sampling."""

    name = "uniform"
    aliases = ("reservoir",)

    def weigh(self, candidates: Candidates) -> Tensor:
        return torch.ones(len(candidates), dtype=torch.float64)
