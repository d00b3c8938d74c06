"""The interface of learners, and the epoch loop."""

from evergraph.training.batches import Batch, batches
from evergraph.training.learner import Learner
from evergraph.training.trainer import Trainer

__all__ = ["Batch", "Learner", "Trainer", "batches"]
