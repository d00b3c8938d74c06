"""The base of memories, with their budgets and sizes in the paper's units."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.component import Made, Part
from evergraph.core.errors import ConfigurationError
from evergraph.memory.samplers import Candidates, Sampler, samplers
from evergraph.memory.samplers.base import best_per_class

logger = logging.getLogger(__name__)

Budget = int | float


def check_budget(budget: Budget) -> None:
    """Raise unless the budget is a whole number per class or a fraction of the dataset.

    A warning is logged if it is 0.

    >>> check_budget(1.5)
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: budget must be an integer of at least 0 (per class) \
or a fraction between 0 and 1 (of the dataset), not 1.5
    """
    is_count = isinstance(budget, int) and not isinstance(budget, bool) and budget >= 0
    is_fraction = isinstance(budget, float) and 0.0 < budget < 1.0
    if not is_count and not is_fraction:
        raise ConfigurationError(
            "budget must be an integer of at least 0 (per class) or a fraction between 0 and 1 "
            f"(of the dataset), not {budget!r}"
        )
    if budget == 0:
        logger.warning("budget 0: nothing is stored, and nothing will be replayed")


def class_budgets(
    budget: Budget, sizes: Mapping[int, int], available: Mapping[int, int]
) -> dict[int, int]:
    """Return the number of nodes that each class keeps.

    An integer counts per class. A fraction is of the class's nodes, training or not, at least
    one: over all classes this is the same fraction of the dataset. With a larger budget, a class
    keeps all its training nodes.

    sizes: nodes of each class; available: training nodes of each class.

    >>> class_budgets(0.1, {0: 50, 1: 4}, {0: 30, 1: 2})
    {0: 5, 1: 1}
    """
    budgets = {
        label: budget if isinstance(budget, int) else max(1, round(budget * sizes[label]))
        for label in available
    }
    return {label: min(budgets[label], count) for label, count in available.items()}


@dataclass(frozen=True)
class MemoryUsage:
    """Size of everything that a method keeps between tasks besides the model itself.

    The paper's memory table counts float32 values: features of stored nodes, embeddings,
    gradients. Edges are pairs of integers and count in bytes only.

    Attributes:
        samples: values of stored nodes' features, neighbours' included, or of embeddings.
        gradients: values of gradients held for old tasks.
        importance: values of importance weights and of their anchor parameters.
        models: values of old models.
        statistics: values of sufficient statistics.
        edges: adjacency entries.
        bytes: of everything, including labels, positions and edges.
    """

    samples: int = 0
    gradients: int = 0
    importance: int = 0
    models: int = 0
    edges: int = 0
    bytes: int = 0
    statistics: int = 0

    def __add__(self, other: MemoryUsage) -> MemoryUsage:
        names = vars(self)
        return MemoryUsage(**{name: names[name] + getattr(other, name) for name in names})

    @property
    def floats(self) -> int:
        """Number of float32 values kept, as counted in the paper."""
        return self.samples + self.gradients + self.importance + self.models + self.statistics


@dataclass(kw_only=True, eq=False, repr=False)
class Memory(Part):
    """Nodes of earlier tasks, chosen by a sampler.

    Args:
        budget: an integer per class or a fraction of the dataset.
        sampler: chooses the nodes to keep.

    Attributes:
        labels_: their classes.  int64 [kept]
        ranks_: their ranks from the sampler, used to choose again when a class returns.
            float64 [kept]
    """

    budget: Budget = 100
    sampler: Made[Sampler] = Made(samplers)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budget(self.budget)
        self.labels_ = torch.empty(0, dtype=torch.int64)
        self.ranks_ = torch.empty(0, dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.labels_)

    def _choose(
        self, candidates: Candidates, sizes: Mapping[int, int], *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Choose among candidates and the stored nodes of their classes; others stay.

        Return the classes and ranks of stored nodes and candidates, in sequence, and the positions
        of those to keep.  int64 [n], float64 [n], int64 [kept]
        """
        returns = torch.isin(self.labels_, candidates.labels.cpu())
        self.sampler.check_whole(self.labels_[returns])
        labels = torch.cat([self.labels_, candidates.labels.cpu()])
        contested = torch.cat([returns, torch.ones(len(candidates), dtype=torch.bool)])
        rows = contested.nonzero().flatten()
        classes, counts = labels[rows].unique(return_counts=True)
        available = dict(zip(classes.tolist(), counts.tolist(), strict=True))
        budgets = class_budgets(self.budget, sizes, available)
        new_ranks = self.sampler.rank(candidates, budgets, generator=generator)
        ranks = torch.cat([self.ranks_, new_ranks])
        best = rows[best_per_class(ranks[rows], labels[rows], budgets)]
        return labels, ranks, torch.cat([(~contested).nonzero().flatten(), best])
