"""Everything kept: the upper bound."""

from __future__ import annotations

from evergraph.methods.backbone_learner import BackboneLearner
from evergraph.methods.base import methods


@methods.register
class Joint(BackboneLearner):
    """Trains at every task on the training nodes of all tasks so far, through a cumulative view."""

    name = "joint"
    default_backbone = "pdgnn"
    cumulative = True
