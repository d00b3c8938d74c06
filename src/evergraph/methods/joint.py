"""Everything kept: the upper bound."""

from __future__ import annotations

from evergraph.methods.base import methods
from evergraph.methods.decoupled import DecoupledLearner


@methods.register
class Joint(DecoupledLearner):
    """Trains at every task on the training nodes of all tasks so far, through a cumulative view."""

    name = "joint"
    cumulative = True
