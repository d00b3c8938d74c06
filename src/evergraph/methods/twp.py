"""Topology-aware weight preserving."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.core.checks import check_number
from evergraph.core.errors import ConfigurationError
from evergraph.methods.backbone_learner import BackboneLearner
from evergraph.methods.base import methods
from evergraph.methods.consolidation import ConsolidatingLearner, Values
from evergraph.nn import Backbone
from evergraph.training import Batch, Trainer
from evergraph.training.batches import EVERYTHING


@methods.register
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
        backbone, trainer, generator: see ``BackboneLearner``.
    """

    name = "twp"

    def __init__(
        self,
        *,
        loss_strength: float = 1e4,
        topology_strength: float = 1e2,
        beta: float = 1e-4,
        backbone: Backbone | None = None,
        trainer: Trainer | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(strength=1.0, backbone=backbone, trainer=trainer, generator=generator)
        check_number("loss_strength", loss_strength, least=0.0)
        check_number("topology_strength", topology_strength, least=0.0)
        check_number("beta", beta, least=0.0)
        if topology_strength and not self.backbone.scores_edges:
            raise ConfigurationError(
                f"topology_strength must be 0 with backbone {self.backbone.name!r}, whose "
                "aggregation has no trained parameters: set it to 0, or use 'gat', 'gcn', 'gin' or "
                "'sage'"
            )
        self.loss_strength = loss_strength
        self.topology_strength = topology_strength
        self.beta = beta

    def importance(self) -> Values:
        """Return λ_l times the squared gradients of the loss plus λ_t times the topology's."""
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
        """Return the task's loss plus the penalty plus β times the norm of the loss gradient."""
        loss = BackboneLearner.loss(self, batch)
        parts = [loss]
        if self.anchor_:
            parts.append(self.penalty())
        if self.beta:
            parameters = list(self.named_parameters().values())
            found = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
            sizes = torch.stack([g.abs().sum() for g in found if g is not None])
            parts.append(self.beta * sizes.sum())
        return torch.stack(parts).sum()
