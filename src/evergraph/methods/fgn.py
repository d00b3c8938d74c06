"""Replay of nodes that are turned into independent samples."""

from __future__ import annotations

import logging
from typing import Any

from evergraph.memory import EmbeddingMemory
from evergraph.memory.samplers import UniformSampler
from evergraph.methods.base import methods
from evergraph.methods.tem import TEM
from evergraph.nn.feature_graph import FeatureGraph
from evergraph.streams import Task

logger = logging.getLogger(__name__)


@methods.register
class FGN(TEM):
    """Turns nodes into feature graphs, and replays some of them (Wang et al., CVPR 2022).

    L = Σ_{v∈V_τ} l(f(A(v), x_v), y_v) + Σ_{w∈M} l(f(A(w), x_w), y_w), A(v) the feature adjacency,
    see ``FeatureGraph``. A feature graph needs no other node, so lifelong learning of nodes becomes
    lifelong learning of samples, and it is enough to replay samples drawn uniformly from all that
    have arrived. The inputs of a node's feature graph are stored.

    The paper has one reservoir for all classes; here each class has its own, as in all methods.
    Features are reduced to the backbone's ``width``, since a node takes width² numbers while it is
    computed.

    Args:
        memory: the sampler and the budget; 100 nodes per class drawn uniformly by default.
        weighting, replay_weight, store, arrivals, refresh: see ``TEM``.
        backbone, trainer, generator: see ``BackboneLearner``.

    >>> import torch
    >>> from evergraph import load
    >>> from evergraph.streams import GraphStream
    >>> learner = FGN(generator=torch.Generator().manual_seed(0))
    >>> for task in GraphStream(load("synthetic", nodes=120, classes=4, features=8)):
    ...     learner.fit_task(task)
    >>> learner.usage.samples // len(learner.memory)  # a node's 8 features and its neighbours'
    16
    """

    name = "fgn"
    default_backbone = "feature-graph"
    needs = FeatureGraph, "learns from feature graphs: use 'feature-graph'"
    backbone: FeatureGraph

    def begin_task(self, task: Task) -> int:
        """Log once if features are projected to fewer dimensions."""
        if not self.backbone.begun and task.graph.num_features > self.backbone.width:
            logger.info(
                "fgn: %d features are projected at random to %d: a node costs their square",
                task.graph.num_features, self.backbone.width,
            )  # fmt: skip
        return super().begin_task(task)

    @classmethod
    def make_memory(cls, **options: Any) -> EmbeddingMemory:
        """Return a memory of feature-graph inputs, 100 per class drawn uniformly."""
        return EmbeddingMemory(**{"budget": 100, "sampler": UniformSampler(), **options})
