"""``tpp`` with one guess of the task for a whole test set."""

from __future__ import annotations

from evergraph.methods.base import methods
from evergraph.methods.pooled_test_sets import PooledTestSets
from evergraph.methods.tpp import TPP


@methods.register
class TPPPerTestSet(PooledTestSets, TPP):
    """``tpp`` told which test nodes share a task, as its paper tests (Niu et al. 2024).

    See ``PooledTestSets`` for what its accuracies are worth.

    Args:
        steps, distance, backbone, trainer, generator: see ``TPP``.
    """

    name = "tpp-per-test-set"
