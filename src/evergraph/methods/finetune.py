"""No remedy at all: the lower bound."""

from __future__ import annotations

from evergraph.methods.backbone_learner import BackboneLearner
from evergraph.methods.base import methods


@methods.register
class Finetune(BackboneLearner):
    """Trains on each task as it comes and keeps nothing: how much is forgotten without a remedy."""

    name = "finetune"
    default_backbone = "pdgnn"
