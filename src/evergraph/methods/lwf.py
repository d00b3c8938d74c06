"""Learning without forgetting."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.component import number
from evergraph.methods.backbone_learner import BackboneLearner
from evergraph.methods.base import methods
from evergraph.streams import Task
from evergraph.training import Batch


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class LwF(BackboneLearner):
    """Distils the old model's outputs on the new nodes (Li and Hoiem 2017).

    L + λ Σ_groups -Σ_c p_c log q_c, p = softmax(old scores / T), q = softmax(new scores / T), over
    the classes that competed before this task: all of them in class-IL, each task's in task-IL.
    The old outputs are computed once, before the task begins, so no old model is kept.

    Args:
        strength: λ.
        temperature: T.
        backbone, trainer, generator: see ``BackboneLearner``.
    """

    name = "lwf"

    strength: float = number(1.0, least=0.0)
    temperature: float = number(2.0, least=1e-3)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._targets: list[tuple[range, Tensor]] = []  # soft targets of each old class group

    def begin_task(self, task: Task) -> int:
        """Compute the old model's outputs on the new task's nodes."""
        if self.label_space_ is not None:
            old = self.logits(task.graph, task.train) / self.temperature
            groups = self.label_space_.groups()
            self._targets = [(g, old[:, g.start : g.stop].softmax(1)) for g in groups]
        return super().begin_task(task)

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of the task plus the distillation loss."""
        scores = self.scores(batch)
        loss = self.classification_loss(scores, batch)
        return loss + self.strength * self.distillation(scores, batch) if self._targets else loss

    def distillation(self, scores: Tensor, batch: Batch) -> Tensor:
        """Return the cross-entropy between old and new outputs.  [batch, classes] -> []"""
        terms = []
        for group, targets in self._targets:
            logs = (scores[:, group.start : group.stop] / self.temperature).log_softmax(1)
            terms.append(-(targets[batch] * logs).sum(1).mean())
        return torch.stack(terms).sum()

    def end_task(self, task: Task) -> None:
        """Release the old outputs."""
        self._targets = []
        super().end_task(task)
