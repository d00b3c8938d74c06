"""The classifier under scikit-learn's own checks, and in its tools."""

import pytest

pytest.importorskip("sklearn")
from sklearn.utils.estimator_checks import parametrize_with_checks

from evergraph.online.classifier import ContinualNodeClassifier

EXCEPTED = {}


@parametrize_with_checks(
    [ContinualNodeClassifier(width=32)], expected_failed_checks=lambda _: EXCEPTED
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)
