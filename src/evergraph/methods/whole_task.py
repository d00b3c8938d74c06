"""What methods share that do not learn by epochs."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from evergraph.core.errors import ConfigurationError
from evergraph.methods.backbone_learner import BackboneLearner
from evergraph.streams import Task
from evergraph.training import Batch


class WholeTaskLearner(BackboneLearner):
    """Learns a task as a whole, by its own ``fit_task``: a trainer has nothing to drive."""

    @abstractmethod
    def fit_task(self, task: Task) -> None:
        """Learn one task."""

    def begin_task(self, task: Task) -> int:
        """Refuse: there are no epochs to prepare for."""
        raise ConfigurationError(f"{self.name} learns a task as a whole: call fit_task")

    def loss(self, batch: Batch) -> Tensor:
        """Refuse, see ``begin_task``."""
        raise ConfigurationError(f"{self.name} learns a task as a whole: call fit_task")
