"""Averaged gradient episodic memory."""

from __future__ import annotations

import torch

from evergraph.core.checks import check_integer
from evergraph.memory import SubgraphMemory
from evergraph.methods.base import methods
from evergraph.methods.gem import GradientMemoryLearner
from evergraph.nn import Backbone
from evergraph.training import Trainer


@methods.register
class AGEM(GradientMemoryLearner):
    """Projects gradients so that the mean loss of earlier tasks does not rise (Chaudhry 2019).

    There is one constraint in all, not one per task: if ⟨g, g_ref⟩ < 0 on a random sample of stored
    nodes, g ← g - (⟨g, g_ref⟩ / ‖g_ref‖²) g_ref.

    Args:
        sample: number of stored nodes drawn at each step.
        memory: which nodes are kept, and how many; 100 per class drawn uniformly by default.
        backbone, trainer, generator: see ``BackboneLearner``.
    """

    name = "a-gem"

    def __init__(
        self,
        *,
        sample: int = 256,
        memory: SubgraphMemory | None = None,
        backbone: Backbone | None = None,
        trainer: Trainer | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(memory=memory, backbone=backbone, trainer=trainer, generator=generator)
        check_integer("sample", sample, least=1)
        self.sample = sample

    def adjust_gradients(self) -> None:
        """Project the gradient if it would raise the loss of the sample."""
        if self._stored is None:
            return
        rows = torch.randperm(len(self._stored), generator=self.generator)[: self.sample]
        rows = rows.to(self.device)
        places = rows if self._stored.rows is None else self._stored.rows[rows]
        scores = self.backbone(self._stored.inputs, places, generator=self._noise)
        reference = self.gradient_of(self.stored_loss(scores, rows))
        gradient = self.gradient()
        harm = torch.dot(gradient, reference)
        if harm < 0:
            self.set_gradient(gradient - harm / torch.dot(reference, reference) * reference)
