"""No remedy at all: the lower bound."""

from __future__ import annotations

from evergraph.methods.base import methods
from evergraph.methods.decoupled import DecoupledLearner


@methods.register
class Finetune(DecoupledLearner):
    """Trains on each task as it comes and keeps nothing: how much is forgotten without a remedy."""

    name = "finetune"
