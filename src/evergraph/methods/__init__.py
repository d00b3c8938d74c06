"""Floor 6: one file a method."""

from evergraph.methods.backbone_learner import BackboneLearner
from evergraph.methods.base import methods
from evergraph.methods.finetune import Finetune
from evergraph.methods.joint import Joint
from evergraph.methods.tem import TEM

__all__ = ["TEM", "BackboneLearner", "Finetune", "Joint", "methods"]
