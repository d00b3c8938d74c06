"""Predict a node's task by prototypes anchored to its own features, then its class."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from evergraph.core.checks import check_number
from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph, propagate
from evergraph.methods.base import methods
from evergraph.methods.tpp import TPP, Distance
from evergraph.nn import Backbone, Modulated
from evergraph.topology import APPNP
from evergraph.training import Trainer


@methods.register
class TAAM(TPP):
    """Predicts each node's task, then classifies with that task's modulation (Liu and Zhang 2026).

    The embedding Â^L X is frozen. Every task trains its own ``ModulatedHead`` on it (scales, shifts
    and classifier), which no later task changes. The task of a node is that of the nearest
    prototype p_t = 1/n Σ_v z_v over the task's training nodes, with z = Z_s of anchored propagation

        Z_0 = X,  Z_i = (1 - α) Â Z_{i-1} + α X.

    There are two variants, as for ``tpp``: the authors predict one task for a whole test set
    (``taam-per-test-set``); this class predicts it for each node. This implementation compares
    angles between a node and a prototype, and has one loss, weighted by class sizes.

    Args:
        steps: s, the number of propagation steps for a prototype.
        anchor: α, the share of a node's own features at every step.
        distance: ``angle`` or ``euclidean``, see ``TPP``.
        backbone: ``Modulated``.
        trainer, generator: see ``BackboneLearner``.

    Attributes:
        profiles_: the prototypes.  float32 [tasks, features]
        classes_, heads_: see ``TPP``.

    >>> from evergraph.datasets import load
    >>> from evergraph.streams import GraphStream
    >>> graph = load("synthetic", nodes=120, classes=4, features=8, seed=0)
    >>> learner = TAAM(trainer=Trainer(epochs=2), generator=torch.Generator())
    >>> for task in GraphStream(graph):
    ...     learner.fit_task(task)
    >>> learner.profiles_.shape, learner.logits(graph, torch.arange(3)).shape
    (torch.Size([2, 8]), torch.Size([3, 4]))
    """

    name = "taam"
    default_backbone = "modulated"
    backbone: Modulated

    def __init__(
        self,
        *,
        steps: int = 2,
        anchor: float = 0.1,
        distance: Distance = "angle",
        backbone: Backbone | None = None,
        trainer: Trainer | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(
            steps=steps, distance=distance, backbone=backbone, trainer=trainer, generator=generator
        )
        check_number("anchor", anchor, least=0.0, most=1.0)
        self.anchor = anchor

    @classmethod
    def check_backbone(cls, backbone: Backbone) -> None:
        """Raise unless the backbone has frozen embeddings that a task can modulate."""
        if not isinstance(backbone, Modulated):
            raise ConfigurationError(
                f"{cls.name} modulates frozen embeddings: use backbone 'modulated', not "
                f"{backbone.name!r}"
            )

    def profile(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return the mean of z over some nodes.  int64 [n] -> float32 [features]"""
        return self._anchored.encode(graph)[nodes].mean(0)

    def likeness(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return ⟨z of each node, prototype of each task⟩.  -> [nodes, tasks]

        Propagation is linear, so one column per task is propagated instead of one per feature.
        """
        graph = graph.to(self.device)
        columns = propagate(graph.features, self.profiles_.to(self.device).t().contiguous())
        along = replace(graph.structure, features=columns)
        return self._anchored.encode(along)[nodes.to(self.device)]

    @property
    def _anchored(self) -> APPNP:
        return APPNP(hops=self.steps, alpha=self.anchor)


@methods.register
class TAAMPerTestSet(TAAM):
    """``taam`` with one task predicted per test set, as in the paper (Liu and Zhang 2026).

    Not comparable in class-IL, see ``TPP.pooled``.

    Args:
        steps, anchor, distance, backbone, trainer, generator: see ``TAAM``.
    """

    name = "taam-per-test-set"
    pooled = True
