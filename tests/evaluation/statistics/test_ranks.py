"""Mean ranks and critical differences: by hand, of the literature, and what must hold."""

import math
from itertools import permutations

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import ConfigurationError
from evergraph.evaluation.statistics import nemenyi

# Table 6 of Demšar 2006: C4.5, with parameter m, with cf, with both; AUC on 14 datasets. Of two
# that read 0.975 the first is ranked higher there.
DEMSAR = [
    [0.763, 0.768, 0.771, 0.798],
    [0.599, 0.591, 0.590, 0.569],
    [0.954, 0.971, 0.968, 0.967],
    [0.628, 0.661, 0.654, 0.657],
    [0.882, 0.888, 0.886, 0.898],
    [0.936, 0.931, 0.916, 0.931],
    [0.661, 0.668, 0.609, 0.685],
    [0.583, 0.583, 0.563, 0.625],
    [0.775, 0.838, 0.866, 0.875],
    [1.000, 1.000, 1.000, 1.000],
    [0.940, 0.962, 0.965, 0.962],
    [0.619, 0.666, 0.614, 0.669],
    [0.972, 0.981, 0.9751, 0.975],
    [0.957, 0.978, 0.946, 0.970],
]
# Table 5(a) there: q of the two-tailed Nemenyi test for 2 to 10 methods.
Q = {
    0.95: [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164],
    0.90: [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920],
}
tables = st.integers(2, 5).flatmap(
    lambda k: st.lists(st.lists(st.integers(0, 9), min_size=k, max_size=k), min_size=3, max_size=8)
)


def test_demsars_example():
    ranks = nemenyi(DEMSAR)
    assert ranks.mean_ranks == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    assert ranks.critical_difference == pytest.approx(1.25, abs=5e-3)
    assert nemenyi(DEMSAR, confidence=0.9).critical_difference == pytest.approx(1.12, abs=5e-3)
    # F = 3.69 with 3 and 39 degrees of freedom there, ties not corrected; exact it is close by
    assert ranks.friedman_p == pytest.approx(scipy.stats.f.sf(3.69, 3, 39), abs=0.01)
    assert not ranks.differ(0, 3)  # no two are told apart at 0.05
    at_ten = nemenyi(DEMSAR, confidence=0.9)  # where the last, and it alone, is worse than two
    assert (at_ten.differ(0, 3), at_ten.differ(0, 1), at_ten.differ(0, 2)) == (True, True, False)


@pytest.mark.parametrize("confidence", Q)
@pytest.mark.parametrize("methods", [2, 3, 5, 10])
def test_critical_values_of_the_literature(confidence, methods):
    found = nemenyi(np.zeros((6, methods)), confidence=confidence).critical_difference
    q = found / math.sqrt(methods * (methods + 1) / 36)
    assert q == pytest.approx(Q[confidence][methods - 2], abs=1.5e-3)


def test_ties_by_hand():
    ranks = nemenyi([[0.9, 0.9, 0.1], [0.5, 0.6, 0.5], [0.3, 0.2, 0.1]])
    assert ranks.mean_ranks == pytest.approx([(1.5 + 2.5 + 1) / 3, (1.5 + 1 + 2) / 3, 8.5 / 3])
    # 20 datasets agree on 5 methods: CD = 2.728 · √(30/120) = 1.364, so neighbours hang together
    scores = np.tile(np.arange(5, 0, -1.0), (20, 1))
    ranks = nemenyi(scores)
    assert (ranks.differ(0, 1), ranks.differ(0, 2)) == (False, True)
    assert 0 < ranks.friedman_p < 1e-9


@pytest.mark.parametrize("datasets", [3, 4, 5])
def test_where_all_datasets_agree_by_hand(datasets):
    # 2 of the 2ⁿ orders of two methods agree, and 6 of the 6ⁿ of three.
    for methods in (2, 3):
        ranks = nemenyi(np.tile(np.arange(methods), (datasets, 1)))
        assert ranks.friedman_p == pytest.approx(math.factorial(methods) ** (1 - datasets))
        assert not ranks.differs
    assert nemenyi(np.tile([1, 0], (6, 1))).differ(0, 1)  # 2/64
    # Many methods that agree have no p of nothing.
    ranks = nemenyi(np.tile(np.arange(12), (6, 1)))
    assert ranks.friedman_p == pytest.approx(math.factorial(12) ** -5.0)


def test_nemenyi_does_not_speak_where_friedman_does_not():
    # Mean ranks 2.14, 1.29 and 2.57: farther apart than 1.25, but p is 0.051.
    scores = [[1, 2, 0]] * 4 + [[0, 1, 2], [2, 1, 0], [0, 2, 1]]
    ranks = nemenyi(scores)
    assert max(ranks.mean_ranks) - min(ranks.mean_ranks) > ranks.critical_difference
    assert ranks.friedman_p == pytest.approx(0.0515, abs=1e-4)
    assert not any(ranks.differ(i, j) for i in range(3) for j in range(3))


@given(st.integers(2, 4), st.data())
def test_every_order_is_counted(methods, data):
    row = st.lists(st.integers(0, 2), min_size=methods, max_size=methods)
    scores = data.draw(st.lists(row, min_size=3, max_size=3))
    table = np.array([scipy.stats.rankdata(r) for r in scores])
    orders = [np.array(list(permutations(row))) for row in table]
    sums = orders[0][:, None, None] + orders[1][:, None] + orders[2]  # every order with every other
    by_count = np.mean((sums**2).sum(axis=-1) >= (table.sum(axis=0) ** 2).sum() - 1e-9)
    assert nemenyi(scores).friedman_p == pytest.approx(by_count)


@given(st.lists(st.permutations([0, 0, 1, 2, 2, 2, 3, 4]), min_size=12, max_size=12))
def test_beyond_what_can_be_counted_ties_are_corrected(scores):
    chi = scipy.stats.friedmanchisquare(*np.array(scores).T).statistic
    f = 11 * chi / max(12 * 7 - chi, 1e-12)
    assert nemenyi(scores).friedman_p == pytest.approx(scipy.stats.f.sf(f, 7, 77))


@given(tables)
def test_what_must_hold(scores):
    ranks = nemenyi(scores)
    k = len(scores[0])
    assert sum(ranks.mean_ranks) == pytest.approx(k * (k + 1) / 2)
    assert 0 <= ranks.friedman_p <= 1
    assert nemenyi(np.array(scores) * 0.5 + 3) == ranks  # only the order counts
    turned = nemenyi(-np.array(scores))
    assert [k + 1 - r for r in turned.mean_ranks] == pytest.approx(ranks.mean_ranks)


def test_equal_scores_are_told_apart_by_nothing():
    ranks = nemenyi(np.ones((4, 3)))
    assert (ranks.mean_ranks, ranks.differ(0, 2)) == ((2, 2, 2), False)
    assert ranks.friedman_p == pytest.approx(1.0)
    assert nemenyi(np.ones((4, 12))).friedman_p == 1.0


@pytest.mark.parametrize("shape", [(2, 4), (5, 1), (7,)])
def test_too_few_datasets_or_methods_are_refused(shape):
    with pytest.raises(ConfigurationError, match="at least 3 datasets and 2 methods"):
        nemenyi(np.zeros(shape))
