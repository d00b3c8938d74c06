"""The base of regularisation methods, which hold important parameters near their old values."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from evergraph.core.checks import check_number
from evergraph.core.label_space import LabelSpace
from evergraph.memory import MemoryUsage
from evergraph.methods.backbone_learner import BackboneLearner
from evergraph.nn import Backbone
from evergraph.nn.linear import padded
from evergraph.streams import Task
from evergraph.training import Batch, Trainer
from evergraph.training.learner import part_of

Values = dict[str, Tensor]
"""A tensor for every parameter, by name."""


class ConsolidatingLearner(BackboneLearner):
    """Adds λ Σ_k Ω_k (θ_k - θ*_k)² to the loss, where Ω is the importance of each parameter so far.

    Parameters of classes that arrive later start with Ω = 0.

    Args:
        strength: λ.
        backbone, trainer, generator: see ``BackboneLearner``.

    Attributes:
        importance_: Ω, by parameter.
        anchor_: θ*, by parameter.
    """

    def __init__(
        self,
        *,
        strength: float,
        backbone: Backbone | None = None,
        trainer: Trainer | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(backbone=backbone, trainer=trainer, generator=generator)
        check_number("strength", strength, least=0.0)
        self.strength = strength
        self.importance_: Values = {}
        self.anchor_: Values = {}

    @abstractmethod
    def importance(self) -> Values:
        """Return the importance of each parameter for the task just learned."""

    def consolidate(self, importance: Values) -> None:
        """Add a task's importance: Ω ← Ω + Ω_τ, θ* ← θ."""
        self.importance_ = added(self.importance_, importance)
        self.anchor_ = self.parameters_now()

    def parameters_now(self) -> Values:
        """Return a copy of every parameter."""
        return {name: p.detach().clone() for name, p in self.named_parameters().items()}

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of the task plus the penalty for changing important parameters."""
        loss = super().loss(batch)
        return loss + self.strength * self.penalty() if self.anchor_ else loss

    def penalty(self) -> Tensor:
        """Return Σ_k Ω_k (θ_k - θ*_k)²."""
        parameters = self.named_parameters()
        terms = []
        for name, anchor in self.anchor_.items():
            known = tuple(slice(size) for size in anchor.shape)  # classes may have arrived since
            terms.append((self.importance_[name] * (parameters[name][known] - anchor) ** 2).sum())
        return torch.stack(terms).sum()

    def end_task(self, task: Task) -> None:
        """Measure the importance on the whole task, without dropout."""
        self.backbone.eval()
        self.consolidate(self.importance())
        self.backbone.train()
        super().end_task(task)

    def gradients(self, value: Tensor, *, keep: bool = False) -> Values:
        """Return the gradient of a value by parameter; ``keep`` retains the graph for another."""
        parameters = self.named_parameters()
        found = torch.autograd.grad(
            value, list(parameters.values()), retain_graph=keep, allow_unused=True
        )
        pairs = zip(parameters.items(), found, strict=True)
        # Same layout as the parameters, since the penalty reads both together at every step.
        return {n: torch.zeros_like(p) if g is None else g.contiguous() for (n, p), g in pairs}

    @property
    def usage(self) -> MemoryUsage:
        """Importance and anchor: one value each per parameter."""
        kept = [*self.importance_.values(), *self.anchor_.values()]
        return MemoryUsage(
            importance=sum(tensor.numel() for tensor in kept),
            bytes=sum(tensor.nbytes for tensor in kept),
        )

    def state(self) -> dict[str, Tensor]:
        """Return everything that later tasks depend on, as named CPU tensors."""
        kept = {f"importance.{name}": value.cpu() for name, value in self.importance_.items()}
        kept |= {f"anchor.{name}": value.cpu() for name, value in self.anchor_.items()}
        return super().state() | kept

    def restore(self, state: dict[str, Tensor], label_space: LabelSpace) -> None:
        """Restore what ``state`` returned."""
        super().restore(state, label_space)
        for kind in ("importance", "anchor"):
            values = part_of(state, f"{kind}.").items()
            setattr(self, f"{kind}_", {name: value.to(self.device) for name, value in values})


def added(old: Values, new: Values, *, keep: float = 1.0) -> Values:
    """Return keep · old + new, with old values padded to the current parameter sizes."""
    return {
        name: keep * padded(old[name], value) + value if name in old else value
        for name, value in new.items()
    }
