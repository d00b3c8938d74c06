"""The examples that a learner trains on during a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from evergraph.core.label_space import LabelSpace
from evergraph.nn.losses import class_balanced, log_prior, term_weights
from evergraph.training import Batch

Weighting = Literal["class-balanced", "plain", "current-balanced", "logit-adjusted"]
WEIGHTINGS: tuple[str, ...] = get_args(Weighting)


@dataclass(frozen=True, eq=False)
class Examples:
    """Nodes with their classes and weights in the loss.

    Attributes:
        inputs: their graph, as prepared by the backbone
        rows: their rows in ``inputs``; None for every row, in order.  int64 [n]
        targets: int64 [n]
        weights: float32 [n], scaled so that the loss is the mean of weight x cross-entropy
        allowed: bool [n, classes], or None if every class is allowed
        offsets: added to every class's score in the loss; None for nothing.  float32 [classes]
    """

    inputs: Any
    rows: Tensor | None
    targets: Tensor
    weights: Tensor
    allowed: Tensor | None
    offsets: Tensor | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def rows_of(self, batch: Batch) -> Tensor | None:
        """Return the rows of a batch in the inputs; None for all."""
        if self.rows is not None:
            return self.rows[batch]
        return batch if isinstance(batch, Tensor) else None


def make_examples(
    inputs: Any,
    rows: Tensor | None,
    targets: Tensor,
    *,
    label_space: LabelSpace,
    stored: int = 0,
    weighting: Weighting = "class-balanced",
    replay_weight: float = 1.0,
) -> Examples:
    """Assemble examples; the last ``stored`` of them come from memory.

    Their weights in the loss: class-balanced: 1/n_c, n_c counted on current and stored examples
    together; a weighted mean per term (the paper's re-scaling by class sizes). plain: 1, and
    λ = ``replay_weight`` for stored ones (the paper's equation with a λ chosen by hand).
    current-balanced: 1/n_c for the current task's examples and 1 for stored ones, as the released
    code does in task-IL. logit-adjusted: equal within a term, since the scores are shifted instead
    (``log_prior``).
    """
    tasks, ones = label_space.task_of(targets), torch.ones_like(targets, dtype=torch.float32)
    from_memory = torch.arange(len(targets), device=targets.device) >= len(targets) - stored
    adjusted = weighting == "logit-adjusted"
    if weighting == "plain":
        weights = ones.masked_fill(from_memory, replay_weight)
    else:
        weights = ones if adjusted else class_balanced(targets)
        if weighting == "current-balanced":
            weights = weights.masked_fill(from_memory, 1.0)
        weights = term_weights(weights, label_space.terms(tasks))
    offsets = log_prior(targets, label_space.num_classes) if adjusted else None
    return Examples(inputs, rows, targets, weights, label_space.allowed(tasks), offsets)
