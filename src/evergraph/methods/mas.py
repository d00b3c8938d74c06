"""Memory aware synapses."""

from __future__ import annotations

import torch

from evergraph.methods.base import methods
from evergraph.methods.consolidation import ConsolidatingLearner, Values
from evergraph.nn import Backbone
from evergraph.training import Trainer
from evergraph.training.batches import EVERYTHING


@methods.register
class MAS(ConsolidatingLearner):
    """Holds parameters to which the outputs are sensitive (Aljundi et al. 2018).

    L + λ Σ_k Ω_k (θ_k - θ*_k)², Ω = Σ_τ |∂ mean_i ‖f(x_i)‖² / ∂θ|. No labels are needed. The
    gradient is that of the mean over the task's training nodes, as in the published runs, not a
    mean of each node's absolute gradient: one backward pass per task.

    Args:
        strength: λ.
        backbone, trainer, generator: see ``BackboneLearner``.
    """

    name = "mas"

    def __init__(
        self,
        *,
        strength: float = 1e4,
        backbone: Backbone | None = None,
        trainer: Trainer | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(strength=strength, backbone=backbone, trainer=trainer, generator=generator)

    def importance(self) -> Values:
        """Return the sensitivity of the outputs' squared length to every parameter."""
        assert self._examples is not None
        squares = self.scores(EVERYTHING) ** 2
        if self._examples.allowed is not None:
            squares = squares * self._examples.allowed
        gradients = self.gradients(squares.sum(1).mean())
        return {name: gradient.abs() for name, gradient in gradients.items()}
