"""Elastic weight consolidation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import scipy
import torch
from torch import Tensor

from evergraph.core.checks import check_choice, check_integer, check_number
from evergraph.methods.base import methods
from evergraph.methods.consolidation import ConsolidatingLearner, Values, added
from evergraph.nn import Backbone
from evergraph.nn.linear import padded
from evergraph.nn.losses import masked_losses
from evergraph.training import Trainer
from evergraph.training.batches import EVERYTHING


@methods.register
class EWC(ConsolidatingLearner):
    """Holds parameters near old values, weighted by Fisher information (Kirkpatrick et al. 2017).

    L + λ Σ_τ Σ_k F_τk (θ_k - θ_τk)², F_τ the diagonal of the Fisher information of task τ.

    With one anchor per task the penalties are quadratic, so their sum is quadratic too:
    Σ_τ F_τ (θ - θ_τ)² = F (θ - θ̄)² + const with F = Σ_τ F_τ and θ̄ = Σ_τ F_τ θ_τ / F. The stored
    values therefore do not grow with the number of tasks, and every gradient stays the same.

    A per-sample Fisher Σ_i g_i² would take one backward pass per node. With random signs s_i = ±1,
    E[(Σ_i s_i g_i)²] = Σ_i g_i², so ``probes`` passes over all nodes together estimate it without
    bias, and exactly (with orthogonal signs) if there are no more nodes than probes.

    Args:
        strength: λ; published searches go from 10⁴ to 10⁶.
        anchors: ``task`` for one anchor per task, ``online`` for the latest alone, F ← γF + F_τ
            (Schwarz et al. 2018).
        decay: γ of ``online``.
        fisher: ``samples`` for the mean of squared gradients; ``batch`` for CGLB's square of the
            mean gradient, which vanishes if the task is learned well.
        probes: backward passes of the ``samples`` Fisher.
        backbone, trainer, generator: see ``BackboneLearner``.
    """

    name = "ewc"

    def __init__(
        self,
        *,
        strength: float = 1e5,
        anchors: Literal["task", "online"] = "task",
        decay: float = 0.9,
        fisher: Literal["samples", "batch"] = "samples",
        probes: int = 32,
        backbone: Backbone | None = None,
        trainer: Trainer | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(strength=strength, backbone=backbone, trainer=trainer, generator=generator)
        check_choice("anchors", anchors, ("task", "online"))
        check_number("decay", decay, least=0.0, most=1.0)
        check_choice("fisher", fisher, ("samples", "batch"))
        check_integer("probes", probes, least=1)
        self.anchors = anchors
        self.decay = decay
        self.fisher = fisher
        self.probes = probes

    def importance(self) -> Values:
        """Return the diagonal of the task's Fisher information."""
        if self.fisher == "batch":
            gradients = self.gradients(super(ConsolidatingLearner, self).loss(EVERYTHING))
            return {name: gradient**2 for name, gradient in gradients.items()}
        assert self._examples is not None
        examples = self._examples
        losses = masked_losses(self.scores(EVERYTHING), examples.targets, allowed=examples.allowed)
        losses = losses * examples.weights.sqrt()
        total: Values = {}
        count = 0
        for signs in self._signs(len(losses)):
            gradients = self.gradients(torch.dot(signs, losses), keep=True)
            total = added(total, {name: g**2 for name, g in gradients.items()})
            count += 1
        return {name: value / (count * len(losses)) for name, value in total.items()}

    def _signs(self, samples: int) -> Iterator[Tensor]:
        """Yield vectors of ±1: orthogonal if ``probes`` suffices for all samples, else random."""
        if samples <= self.probes:
            order = 1 << (samples - 1).bit_length()
            yield from (
                torch.from_numpy(scipy.linalg.hadamard(order)[:, :samples]).float().to(self.device)
            )
            return
        for _ in range(self.probes):
            draws = torch.randint(2, (samples,), generator=self.generator)
            yield (2 * draws - 1).float().to(self.device)

    def consolidate(self, importance: Values) -> None:
        """Move the anchor to the minimum of the sum of all tasks' penalties."""
        if self.anchors == "online":
            self.importance_ = added(self.importance_, importance, keep=self.decay)
            self.anchor_ = self.parameters_now()
            return
        old = self.importance_
        total = added(old, importance)
        anchor = {}
        for name, parameter in self.named_parameters().items():
            here = importance[name] * parameter.detach()
            if name in old:
                here = here + padded(old[name] * self.anchor_[name], parameter)
            weight = total[name]
            anchor[name] = torch.where(weight > 0, here / weight, parameter.detach())
        self.importance_, self.anchor_ = total, anchor
