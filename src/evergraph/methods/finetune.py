"""Plain training on each task: the lower bound."""

from __future__ import annotations

from evergraph.methods.backbone_learner import BackboneLearner
from evergraph.methods.base import methods


@methods.register
class Finetune(BackboneLearner):
    """Trains on each task in turn and stores nothing: shows forgetting without a remedy."""

    name = "finetune"
    default_backbone = "pdgnn"
