"""Three parts of your own in one file: a method, a sampler and a topology, each with a name.

    evergraph list methods --plugin examples/my_parts.py
    evergraph run --plugin examples/my_parts.py --dataset synthetic --method anchored,finetune
    evergraph run --plugin examples/my_parts.py --dataset synthetic --method tem \
        --topology residual --sampler low-degree --budget 20

A preset or benchmark names the file instead: plugins = ["my_parts.py"].
"""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.core.errors import check_number
from evergraph.graphs import Graph, Smoother, walk
from evergraph.graphs.csr import densify
from evergraph.memory.samplers.base import Candidates, WeightedSampler, samplers
from evergraph.methods.base import BackboneLearner, methods
from evergraph.nn import Backbone
from evergraph.streams import Task
from evergraph.topology.base import TopologyEncoder, topologies
from evergraph.training import Batch, Trainer


@methods.register
class Anchored(BackboneLearner):
    """Keeps weights near those of the task before: L + strength · Σ (θ - θ*)².

    Args:
        strength: 0 is ``finetune``.
        backbone, trainer, generator: see ``BackboneLearner``.

    Attributes:
        anchors_: θ*, by parameter; none during the first task.
    """

    name = "anchored"
    default_backbone = "pdgnn"

    def __init__(
        self,
        *,
        strength: float = 0.01,
        backbone: Backbone | None = None,
        trainer: Trainer | None = None,
        generator: torch.Generator,
    ) -> None:
        check_number("strength", strength, least=0.0)
        super().__init__(backbone=backbone, trainer=trainer, generator=generator)
        self.strength = strength
        self.anchors_: dict[str, Tensor] = {}

    def begin_task(self, task: Task) -> int:
        """Make room for the task's classes, then remember the weights as they are."""
        learned = self.backbone.begun
        examples = super().begin_task(task)
        if learned:
            weights = self.named_parameters().items()
            self.anchors_ = {name: weight.detach().clone() for name, weight in weights}
        return examples

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy plus the penalty for having moved away."""
        weights = self.named_parameters()
        moved = sum(((weights[name] - old) ** 2).sum() for name, old in self.anchors_.items())
        return super().loss(batch) + self.strength * moved


@samplers.register
class LowDegreeSampler(WeightedSampler):
    """p_v ∝ 1 / (1 + in-degree): nodes at the rim rather than hubs."""

    name = "low-degree"

    def weigh(self, candidates: Candidates) -> Tensor:
        """Return 1 / (1 + in-degree) of each candidate."""
        degrees = candidates.graph.degrees[candidates.nodes.to(candidates.graph.device)]
        return 1 / (degrees.cpu().double() + 1)


@topologies.register
class Residual(TopologyEncoder):
    """E = (X + Â^L X) / 2: a node's own features beside what L hops make of them."""

    name = "residual"

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        embeddings = graph.features
        for step in walk(adjacency, graph.features, hops=self.hops):
            embeddings = step
        return (densify(graph.features) + densify(embeddings)) / 2
