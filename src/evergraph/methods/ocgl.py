"""Streaming discriminant analysis on a graph neural network that is never trained."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch

from evergraph.core.errors import ConfigurationError
from evergraph.graphs import covered_nodes
from evergraph.methods.analytic import Weights
from evergraph.methods.base import methods
from evergraph.methods.slda import SLDA
from evergraph.nn import Backbone
from evergraph.nn.untrained_gcn import UntrainedGCN
from evergraph.streams import Task
from evergraph.streams.task import Lease
from evergraph.training import Trainer

# Of a graph's nodes: a task with fewer training nodes has only what lies around these embedded.
FEW = 0.1


@methods.register
class OCGL(SLDA):
    """A frozen random GCN and streaming LDA (Donghi et al. 2025), for nodes in small batches.

    e_v = [H^1_v, ..., H^L_v] of an ``UntrainedGCN``, classified as ``slda`` does, by class means
    and one covariance Σ of all nodes met. Nothing is trained and nothing stored but sums, so it
    does not matter into which batches, or in which order, the nodes of a graph come.

    A batch costs its own ego-subnetworks and n m² multiplications for n nodes and embeddings m
    wide; m³ / 3 more are spent when somebody asks, however many batches came before.

    Args:
        shrinkage, ledger: see ``SLDA``.
        weights: ``equal``, as classes do not come whole in small batches; see ``Analytic``.
        backbone: ``UntrainedGCN``.
        trainer, generator: see ``BackboneLearner``; nothing is trained or drawn.

    >>> from evergraph.datasets import load
    >>> from evergraph.streams import GraphStream
    >>> graph = load("synthetic", nodes=120, classes=4, features=8, seed=0)
    >>> learner = OCGL(backbone=UntrainedGCN(dims=8), generator=torch.Generator())
    >>> for task in GraphStream(graph):
    ...     learner.fit_task(task)
    >>> learner.logits(graph, torch.arange(3)).shape  # scores of all classes met
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
                "ocgl classifies by a network that was never trained: use backbone "
                f"'untrained-gcn', not {backbone.name!r}"
            )

    def fit_task(self, task: Task) -> None:
        """Count the task's nodes in, embedded from what lies around them where they are few."""
        few = len(task.train) < FEW * task.graph.num_nodes
        super().fit_task(around_training(task, hops=self.backbone.hops) if few else task)


def around_training(task: Task, *, hops: int) -> Task:
    """Return the task with its training nodes and what their embeddings depend on, and no more.

    One hop more than an embedding looks: the degrees of the outermost nodes count.
    """
    around = covered_nodes(task.graph, task.train, hops=hops + 1).nonzero().flatten()
    none = task.validation[:0]
    return replace(
        task,
        ids=task.ids[around],
        train=torch.searchsorted(around, task.train),
        validation=none,
        validation_labels=task.validation_labels[:0],
        own=none,
        lease=Lease(task.graph.subgraph(around)),
    )
