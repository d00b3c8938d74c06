"""Budgets and sizes of memories, in the paper's units."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from torch import Tensor

from evergraph.core.errors import ConfigurationError

logger = logging.getLogger(__name__)

Budget = int | float


def check_budget(budget: Budget) -> None:
    """Raise unless the budget is a whole number per class or a fraction of the dataset.

    >>> check_budget(1.5)
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: budget must be an integer of at least 0 (per class) \
or a fraction between 0 and 1 (of the dataset), not 1.5
    """
    whole = isinstance(budget, int) and not isinstance(budget, bool) and budget >= 0
    fraction = isinstance(budget, float) and 0.0 < budget < 1.0
    if not whole and not fraction:
        raise ConfigurationError(
            "budget must be an integer of at least 0 (per class) or a fraction between 0 and 1 "
            f"(of the dataset), not {budget!r}"
        )


def count_classes(labels: Tensor) -> dict[int, int]:
    """Return the number of nodes of each class, ascending.  int64 [n]"""
    values, counts = labels.unique(return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def class_budgets(
    budget: Budget,
    sizes: Mapping[int, int],
    available: Mapping[int, int],
    *,
    known: Collection[int] = (),
) -> dict[int, int]:
    """Return the number of nodes that each class keeps.

    An integer counts per class. A fraction is of the class's nodes, training or not, at least
    one: over all classes this is the same fraction of the dataset. A class cannot keep more than
    its training nodes; a larger budget is allowed, and logged.

    sizes: nodes of each class; available: training nodes of each class; known: classes that have
    arrived before, for which nothing is logged again.

    >>> class_budgets(0.1, {0: 50, 1: 4}, {0: 30, 1: 2})
    {0: 5, 1: 1}
    """
    wanted = {
        label: budget if isinstance(budget, int) else max(1, round(budget * sizes[label]))
        for label in available
    }
    short = [c for c, count in available.items() if wanted[c] > count and c not in known]
    if short:
        logger.info(
            "budget %s is larger than the training nodes of class %s: all of them are kept",
            budget, ", ".join(map(str, short)),
        )  # fmt: skip
    return {label: min(wanted[label], count) for label, count in available.items()}


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

    @property
    def floats(self) -> int:
        """Number of float32 values kept, as counted in the paper."""
        return self.samples + self.gradients + self.importance + self.models + self.statistics
