"""Streaming discriminant analysis on an untrained graph neural network."""

from __future__ import annotations

from typing import ClassVar

import torch

from evergraph.core.errors import ConfigurationError
from evergraph.methods.analytic import Weights
from evergraph.methods.base import methods
from evergraph.methods.slda import SLDA
from evergraph.nn import Backbone
from evergraph.nn.linear_head import UntrainedGCN
from evergraph.training import Trainer


@methods.register
class OCGL(SLDA):
    """A frozen random GCN with streaming LDA (Donghi et al. 2025), for nodes in small batches.

    e_v = [H^1_v, ..., H^L_v] of an ``UntrainedGCN``, classified as in ``slda``, by class means and
    one covariance Σ of all nodes seen. Nothing is trained and only sums are stored, so the batches
    and the order in which the nodes of a graph arrive do not matter.

    Besides embedding its graph, a batch costs n m² multiplications for n nodes and embeddings of
    width m; the first prediction after it costs m³ / 3 more, however many batches came before.

    Args:
        shrinkage, ledger: see ``SLDA``.
        weights: ``equal``, as classes do not arrive whole in small batches; see ``Analytic``.
        backbone: ``UntrainedGCN``.
        trainer, generator: see ``BackboneLearner``; nothing is trained or drawn.

    >>> from evergraph.datasets import load
    >>> from evergraph.streams import GraphStream
    >>> graph = load("synthetic", nodes=120, classes=4, features=8, seed=0)
    >>> learner = OCGL(backbone=UntrainedGCN(dims=8), generator=torch.Generator())
    >>> for task in GraphStream(graph):
    ...     learner.fit_task(task)
    >>> learner.logits(graph, torch.arange(3)).shape  # scores of all classes seen
    torch.Size([3, 4])
    """

    name = "ocgl"
    default_backbone: ClassVar[str] = "untrained-gcn"
    backbone: UntrainedGCN

    def __init__(
        self,
        *,
        shrinkage: float = 0.1,
        weights: Weights = "equal",
        ledger: bool = False,
        backbone: Backbone | None = None,
        trainer: Trainer | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(
            shrinkage=shrinkage,
            weights=weights,
            ledger=ledger,
            backbone=backbone,
            trainer=trainer,
            generator=generator,
        )

    @classmethod
    def check_backbone(cls, backbone: Backbone) -> None:
        """Raise unless the encoder is random and frozen."""
        if not isinstance(backbone, UntrainedGCN):
            raise ConfigurationError(
                "ocgl needs an untrained network: use backbone "
                f"'untrained-gcn', not {backbone.name!r}"
            )
