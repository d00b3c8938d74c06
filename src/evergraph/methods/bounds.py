"""Bounds: plain training on each task, and joint training on all tasks so far."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.component import number
from evergraph.core.label_space import LabelSpace
from evergraph.methods.base import BackboneLearner, methods
from evergraph.nn import Tuned
from evergraph.streams import Task

logger = logging.getLogger(__name__)


@methods.register
class Finetune(BackboneLearner):
    """Trains on each task in turn and stores nothing: shows forgetting without a remedy."""

    name = "finetune"
    default_backbone = "pdgnn"


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class Joint(BackboneLearner):
    """Trains at every task on the training nodes of all tasks so far: the upper bound.

    With its default backbone ``tuned``, every candidate is trained from scratch and the best on the
    validation nodes of all tasks so far is kept; this costs five trainings per task. Any other
    backbone is trained as it is, and continues from task to task.

    Args:
        again: choose again once the training nodes have grown by this factor since the last
            choice; 1 chooses at every task. In between, the chosen network continues from its
            weights.

    Attributes:
        tried_: validation accuracy of every candidate at the last choice.
    """

    name = "joint"
    default_backbone = "tuned"
    chooses = True
    cumulative = True

    again: float = number(1.0, least=1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tried_: list[float] = []
        self._choice = (-1, 0)  # index of the candidate, and number of training nodes
        if isinstance(self.backbone, Tuned):
            self.backbone.candidates()  # raises if the candidates are invalid

    def fit_task(self, task: Task) -> None:
        nodes = len(task.train)
        if not isinstance(self.backbone, Tuned) or nodes < self.again * self._choice[1]:
            super().fit_task(task)
            return
        candidates = self.backbone.candidates()
        self.tried_ = []
        best = 0
        best_score: tuple[float, float] | None = None
        # Without validation nodes there is nothing to choose by.
        for index in range(len(candidates) if len(task.validation) else 1):
            self._continue_with(candidates[index])
            self.trainer.fit(self, task)
            score = self.validate(task) or (0.0, 0.0)
            self.tried_.append(score[0])
            if best_score is None or score > best_score:
                best, best_score = index, score
        chosen = candidates[best]
        self._choice = best, nodes
        self._continue_with(chosen)
        logger.info(
            "joint: task %d: %s of %d layers is best on validation nodes: %.1f %% (tried: %s)",
            task.index,
            chosen.kind,
            chosen.layers,
            100 * self.tried_[best],
            ", ".join(f"{100 * accuracy:.1f}" for accuracy in self.tried_),
        )

    def _continue_with(self, candidate: Tuned) -> None:
        """Continue with a candidate, with its own weights if it has any."""
        candidate.place(self.device, self.resources)
        self.backbone = candidate
        self.trainer.restore({})  # Adam's moments belong to another network

    def state(self) -> dict[str, Tensor]:
        chosen = {"choice": torch.tensor(self._choice)} if self._choice[0] >= 0 else {}
        return super().state() | chosen

    def restore(self, state: dict[str, Tensor], label_space: LabelSpace) -> None:
        if "choice" in state and isinstance(self.backbone, Tuned):
            index, nodes = state["choice"].tolist()
            self._choice = index, nodes
            self._continue_with(self.backbone.candidates()[index])
        super().restore(state, label_space)
