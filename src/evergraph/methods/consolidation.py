"""Regularisation: parameters are held near their old values (EWC, MAS, TWP), or outputs (LwF)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import scipy
import torch
from torch import Tensor

from evergraph.core.component import choice, integer, number
from evergraph.core.errors import ConfigurationError
from evergraph.core.label_space import LabelSpace
from evergraph.memory import MemoryUsage
from evergraph.methods.base import BackboneLearner, methods
from evergraph.nn.linear import padded
from evergraph.nn.losses import masked_losses
from evergraph.streams import Task
from evergraph.training import Batch
from evergraph.training.learner import part_of
from evergraph.training.trainer import EVERYTHING

Values = dict[str, Tensor]
"""A tensor for every parameter, by name."""


@dataclass(kw_only=True, eq=False, repr=False)
class ConsolidatingLearner(BackboneLearner):
    """Adds λ Σ_k Ω_k (θ_k - θ*_k)² to the loss, where Ω is the importance of each parameter so far.

    Parameters of classes that arrive later start with Ω = 0.

    Args:
        strength: λ.

    Attributes:
        importance_: Ω, by parameter.
        anchor_: θ*, by parameter.
    """

    strength: float = number(1.0, least=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
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
        loss = super().loss(batch)
        return loss + self.strength * self.penalty() if self.anchor_ else loss

    def penalty(self) -> Tensor:
        """Return Σ_k Ω_k (θ_k - θ*_k)²."""
        parameters = self.named_parameters()
        terms = []
        for name, anchor in self.anchor_.items():
            old_part = tuple(slice(size) for size in anchor.shape)  # classes may have arrived since
            squares = (parameters[name][old_part] - anchor) ** 2
            terms.append((self.importance_[name] * squares).sum())
        return torch.stack(terms).sum()

    def end_task(self, task: Task) -> None:
        self.backbone.eval()
        self.consolidate(self.importance())
        self.backbone.train()
        super().end_task(task)

    def gradients(self, value: Tensor, *, keep: bool = False) -> Values:
        """Return the gradient of a value by parameter; ``keep`` retains the graph for another."""
        parameters = self.named_parameters()
        gradients = torch.autograd.grad(
            value, list(parameters.values()), retain_graph=keep, materialize_grads=True
        )
        # Same layout as the parameters, since the penalty reads both together at every step.
        return {n: gradient.contiguous() for n, gradient in zip(parameters, gradients, strict=True)}

    @property
    def usage(self) -> MemoryUsage:
        tensors = [*self.importance_.values(), *self.anchor_.values()]
        return MemoryUsage(
            importance=sum(tensor.numel() for tensor in tensors),
            bytes=sum(tensor.nbytes for tensor in tensors),
        )

    def state(self) -> dict[str, Tensor]:
        stored = {f"importance.{name}": value.cpu() for name, value in self.importance_.items()}
        stored |= {f"anchor.{name}": value.cpu() for name, value in self.anchor_.items()}
        return super().state() | stored

    def restore(self, state: dict[str, Tensor], label_space: LabelSpace) -> None:
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


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
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
    """

    name = "ewc"

    strength: float = number(1e5, least=0.0)
    anchors: Literal["task", "online"] = choice("task", ("task", "online"))
    decay: float = number(0.9, least=0.0, most=1.0)
    fisher: Literal["samples", "batch"] = choice("samples", ("samples", "batch"))
    probes: int = integer(32, least=1)

    def importance(self) -> Values:
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
            weighted = importance[name] * parameter.detach()
            if name in old:
                weighted = weighted + padded(old[name] * self.anchor_[name], parameter)
            weight = total[name]
            anchor[name] = torch.where(weight > 0, weighted / weight, parameter.detach())
        self.importance_, self.anchor_ = total, anchor


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class MAS(ConsolidatingLearner):
    """Holds parameters to which the outputs are sensitive (Aljundi et al. 2018).

    L + λ Σ_k Ω_k (θ_k - θ*_k)², Ω = Σ_τ |∂ mean_i ‖f(x_i)‖² / ∂θ|. No labels are needed. The
    gradient is that of the mean over the task's training nodes, as in the published runs, not a
    mean of each node's absolute gradient: one backward pass per task.

    Args:
        strength: λ.
    """

    name = "mas"

    strength: float = number(1e4, least=0.0)

    def importance(self) -> Values:
        assert self._examples is not None
        squares = self.scores(EVERYTHING) ** 2
        if self._examples.allowed is not None:
            squares = squares * self._examples.allowed
        gradients = self.gradients(squares.sum(1).mean())
        return {name: gradient.abs() for name, gradient in gradients.items()}


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class TWP(ConsolidatingLearner):
    """Holds parameters on which the loss or the use of topology depends (Liu et al. 2021).

    L + Σ_k Ω_k (θ_k - θ*_k)² + β ‖∂L/∂θ‖₁ with Ω = Σ_τ λ_l (∂L_τ/∂θ)² + λ_t (∂T_τ/∂θ)², where T is
    the mean of e_ij² over edges and e_ij is the attention of node i to node j: that of ``gat``, or
    ⟨W h_i, tanh(W h_j)⟩ in layers without attention (the TWP paper's extension). The paper sums
    over edges; a mean lets one λ_t serve graphs of any size. The β term keeps importance small, so
    that parameters stay free for later tasks; it takes a gradient of a gradient at every step.

    Args:
        loss_strength: λ_l; 10⁴ in published runs.
        topology_strength: λ_t; 0 omits the topology, for backbones whose aggregation has no
            trained parameters.
        beta: β; 0.01 in published runs, where gradients are of another scale.
    """

    name = "twp"

    strength: float = field(init=False, default=1.0)
    loss_strength: float = number(1e4, least=0.0)
    topology_strength: float = number(1e2, least=0.0)
    beta: float = number(1e-4, least=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.topology_strength and not self.backbone.scores_edges:
            raise ConfigurationError(
                f"topology_strength must be 0 with backbone {self.backbone.name!r}, whose "
                "aggregation has no trained parameters: set it to 0, or use 'gat', 'gcn', 'gin' or "
                "'sage'"
            )

    def importance(self) -> Values:
        by_loss = self.gradients(BackboneLearner.loss(self, EVERYTHING))
        total = {name: self.loss_strength * g**2 for name, g in by_loss.items()}
        if not self.topology_strength:
            return total
        by_topology = self.gradients(self.topology_loss())
        return {n: total[n] + self.topology_strength * g**2 for n, g in by_topology.items()}

    def topology_loss(self) -> Tensor:
        """Return the mean of e_ij² over edges, summed over layers and heads."""
        assert self._examples is not None
        scores = self.backbone.edge_scores(self._examples.inputs)
        assert scores is not None
        return torch.stack([(layer**2).mean(0).sum() for layer in scores]).sum()

    def loss(self, batch: Batch) -> Tensor:
        loss = BackboneLearner.loss(self, batch)
        parts = [loss]
        if self.anchor_:
            parts.append(self.penalty())
        if self.beta:
            parameters = list(self.named_parameters().values())
            gradients = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
            norms = torch.stack([g.abs().sum() for g in gradients if g is not None])
            parts.append(self.beta * norms.sum())
        return torch.stack(parts).sum()


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
    """

    name = "lwf"

    strength: float = number(1.0, least=0.0)
    temperature: float = number(2.0, least=1e-3)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._targets: list[tuple[range, Tensor]] = []  # soft targets of each old class group

    def begin_task(self, task: Task) -> int:
        if self.label_space_ is not None:
            old = self.logits(task.graph, task.train) / self.temperature
            groups = self.label_space_.groups()
            self._targets = [(g, old[:, g.start : g.stop].softmax(1)) for g in groups]
        return super().begin_task(task)

    def loss(self, batch: Batch) -> Tensor:
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
        self._targets = []
        super().end_task(task)
