"""``taam`` with one guess of the task for a whole test set."""

from __future__ import annotations

from evergraph.methods.base import methods
from evergraph.methods.pooled_test_sets import PooledTestSets
from evergraph.methods.taam import TAAM


@methods.register
class TAAMPerTestSet(PooledTestSets, TAAM):
    """``taam`` told which test nodes share a task, as its authors test (Liu and Zhang 2026).

    See ``PooledTestSets`` for what its accuracies are worth.

    Args:
        steps, anchor, distance, backbone, trainer, generator: see ``TAAM``.
    """

    name = "taam-per-test-set"
