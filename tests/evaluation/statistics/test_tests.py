"""Differences, signed ranks and Holm's correction: by hand, against scipy, and what must hold."""

import math
from itertools import product

import numpy as np
import pytest
import scipy
from hypothesis import assume, given
from hypothesis import strategies as st

from evergraph.core.errors import ConfigurationError
from evergraph.evaluation.statistics import (
    LEAST_PAIRS,
    holm,
    paired_difference,
    unpaired_difference,
    wilcoxon,
)

scores = st.integers(0, 1000).map(lambda n: n / 1000)
pairs = st.lists(st.tuples(scores, scores), min_size=2, max_size=8)


def test_students_and_welchs_t_by_hand():
    # d is 0.2 and 0.4: mean 0.3, s = 0.1414, s/√2 = 0.1; t of one degree of freedom is 12.706
    found = paired_difference([0.8, 0.9], [0.6, 0.5])
    assert (found.mean, found.low, found.high) == pytest.approx((0.3, -0.97062, 1.57062))
    # Cauchy: P(|t| > 3) = 1 - 2/π · atan(3)
    assert found.p_value == pytest.approx(1 - 2 / math.pi * math.atan(3))
    assert found.pairs == 2
    # v = 2/2 and 8/2: 5 together; (1 + 4)² / (1/1 + 16/1) = 1.4706 degrees of freedom
    found = unpaired_difference([10, 12], [3, 7])
    freedom = 25 / 17
    assert found.mean == 6
    assert found.high - 6 == pytest.approx(scipy.stats.t.ppf(0.975, freedom) * math.sqrt(5))
    assert found.pairs == 0


def test_splits_that_share_nodes_widen_the_error_by_hand():
    # s = 0.1414 as above, a fifth tested: √(1/2 + 0.2/0.8) = 0.866; t = 0.3/0.1225 = 2.449
    found = paired_difference([0.8, 0.9], [0.6, 0.5], overlap=0.25)
    assert found.error == pytest.approx(0.1414214 * 0.8660254)
    assert found.p_value == pytest.approx(1 - 2 / math.pi * math.atan(math.sqrt(6)))
    # v = 2 · 3/4 and 8 · 3/4: 7.5 together, with as many degrees of freedom as without.
    found = unpaired_difference([10, 12], [3, 7], overlap=0.25)
    assert (found.error, found.freedom) == pytest.approx((math.sqrt(7.5), 25 / 17))


def test_intervals_widen_and_shrink_to_a_point():
    a, b = [0.8, 0.9, 0.7], [0.6, 0.5, 0.6]
    narrow, wide = (paired_difference(a, b, confidence=c) for c in (0.9, 0.99))
    assert wide.low < narrow.low < narrow.mean < narrow.high < wide.high
    assert wide.p_value == narrow.p_value
    # Pairs that all differ by the same make a point.
    same = paired_difference([0.1 + 0.2, 0.6], [0.3, 0.6])  # 0.1 + 0.2 is not 0.3 in a computer
    assert (same.p_value, same.low) == (1.0, same.high)
    apart = paired_difference([0.8, 0.7], [0.5, 0.4])
    assert (apart.low, apart.high, apart.p_value) == pytest.approx((0.3, 0.3, 0.0))


@given(pairs)
def test_it_agrees_with_scipy(drawn):
    a, b = (np.array(side) for side in zip(*drawn, strict=True))
    assume(np.ptp(a - b) > 1e-6)
    assume(np.ptp(a) > 1e-6)
    assume(np.ptp(b) > 1e-6)
    theirs = scipy.stats.ttest_rel(a, b)
    ours = paired_difference(a, b)
    assert ours.p_value == pytest.approx(theirs.pvalue)
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs.confidence_interval()))
    welch = scipy.stats.ttest_ind(a, b, equal_var=False)
    assert unpaired_difference(a, b).p_value == pytest.approx(welch.pvalue)


@pytest.mark.parametrize("difference", [paired_difference, unpaired_difference])
@given(drawn=pairs, shift=st.integers(-5, 5))
def test_swapping_turns_the_sign_and_shifting_changes_nothing(difference, drawn, shift):
    a, b = (np.array(side) for side in zip(*drawn, strict=True))
    there, back = difference(a, b), difference(b, a)
    assert (there.mean, there.low, there.high) == pytest.approx(
        (-back.mean, -back.high, -back.low), abs=1e-9
    )
    assert there.p_value == pytest.approx(back.p_value, abs=1e-9)
    moved = difference(a + shift, b + shift)
    assert (moved.low, moved.high) == pytest.approx((there.low, there.high), abs=1e-6)
    same = difference(a, a)
    assert (same.mean, same.p_value) == (0.0, pytest.approx(1.0))
    # A claim and an interval without 0 are the same thing.
    if abs(there.p_value - 0.05) > 1e-9:
        assert (there.p_value < 0.05) == (there.low > 0 or there.high < 0)


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ([1.0], [2.0], "a must have at least 2 numbers, not 1"),
        ([1.0, 2.0], [2.0, 3.0, 4.0], "same length to be paired, not 2 and 3"),
        ([1.0, math.nan], [2.0, 3.0], "finite"),
        ([[1.0, 2.0]], [2.0, 3.0], "a list of numbers"),
    ],
)
def test_what_cannot_be_paired_is_refused(a, b, said):
    with pytest.raises(ConfigurationError, match=said):
        paired_difference(a, b)
    with pytest.raises(ConfigurationError, match="confidence must be a number from"):
        paired_difference([1, 2], [3, 5], confidence=95)


def test_by_hand():
    # 0.01 · 4, 0.02 · 3, 0.022 · 2 is below that and takes its place, 0.9 · 1
    assert holm([0.9, 0.022, 0.01, 0.02]) == pytest.approx([0.9, 0.06, 0.04, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_what_must_hold(p_values):
    corrected = holm(p_values)
    assert all(p <= c <= 1 for p, c in zip(p_values, corrected, strict=True))
    assert min(corrected) == min(1.0, len(p_values) * min(p_values))
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    assert [corrected[i] for i in order] == sorted(corrected)


def test_ties_zeros_and_few_pairs():
    # Differences 0, -1, 2, 2, 3: the 0 goes, ranks 1, 2.5, 2.5 and 4. Of 16 ways to give signs the
    # smaller sum is at most 1 in 4: all plus, all minus, only rank 1 against the rest, both ways.
    found = wilcoxon([5, 4, 7, 7, 8], [5, 5, 5, 5, 5])
    assert (found.wins, found.losses, found.statistic, found.p_value) == (3, 1, 1.0, 4 / 16)
    # Few pairs never show a difference.
    least = [wilcoxon(np.arange(1, n + 1), np.zeros(n)).p_value for n in range(1, 8)]
    assert [p < 0.05 for p in least] == [n >= LEAST_PAIRS for n in range(1, 8)]


@given(st.lists(st.integers(-40, 40), min_size=1, max_size=7))
def test_every_outcome_is_counted(change):
    ranks = scipy.stats.rankdata(np.abs([d for d in change if d]))
    signs = list(product((0, 1), repeat=len(ranks)))
    sums = [min(np.dot(s, ranks), ranks.sum() - np.dot(s, ranks)) for s in signs]
    found = wilcoxon(change, np.zeros(len(change)))
    assert found.p_value == pytest.approx(np.mean([s <= found.statistic for s in sums]))


@given(st.lists(st.integers(-400, 400), min_size=10, max_size=60, unique_by=abs))
def test_signed_ranks_agree_with_scipy(change):
    change = [d for d in change if d]
    ours = wilcoxon(change, np.zeros(len(change)))
    method = "exact" if len(change) <= 50 else "asymptotic"
    theirs = scipy.stats.wilcoxon(change, method=method)
    assert ours.statistic == theirs.statistic
    assert ours.p_value == pytest.approx(theirs.pvalue)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_swapping_swaps_wins_and_losses(drawn):
    a, b = zip(*drawn, strict=True)
    there, back = wilcoxon(a, b), wilcoxon(b, a)
    assert (there.wins, there.losses) == (back.losses, back.wins)
    assert (there.statistic, there.p_value) == (back.statistic, back.p_value)
    assert wilcoxon(a, a).p_value == 1.0
