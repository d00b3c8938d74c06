"""Floor 6: one file a method."""

from evergraph.methods.base import methods
from evergraph.methods.decoupled import DecoupledLearner
from evergraph.methods.finetune import Finetune
from evergraph.methods.joint import Joint
from evergraph.methods.tem import TEM

__all__ = ["TEM", "DecoupledLearner", "Finetune", "Joint", "methods"]
