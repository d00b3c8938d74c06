"""The interface of learners, and the epoch loop."""

from evergraph.training.learner import Learner
from evergraph.training.trainer import Batch, Trainer, batches

__all__ = ["Batch", "Learner", "Trainer", "batches"]
