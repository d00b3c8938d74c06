"""Signed ranks by hand, against scipy, and Demšar's example."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evergraph.evaluation.statistics import LEAST_PAIRS, wilcoxon


def test_ties_and_zeros_by_hand() -> None:
    # Differences 0, -1, 2, 2, 3: the 0 goes, ranks 1, 2.5, 2.5 and 4. Of 16 ways to give signs the
    # smaller sum is at most 1 in 4: all plus, all minus, only rank 1 against the rest, both ways.
    found = wilcoxon([5, 4, 7, 7, 8], [5, 5, 5, 5, 5])
    assert (found.wins, found.losses, found.statistic, found.p_value) == (3, 1, 1.0, 4 / 16)


def test_few_pairs_never_show_a_difference() -> None:
    least = [wilcoxon(np.arange(1, n + 1), np.zeros(n)).p_value for n in range(1, 8)]
    assert [p < 0.05 for p in least] == [n >= LEAST_PAIRS for n in range(1, 8)]


def test_demsars_example() -> None:
    # C4.5 and C4.5+m on 14 datasets (Demšar 2006, table 2). Pairs without a difference are shared
    # out there and left out here; both ways p is below 0.05.
    plain = [0.763, 0.599, 0.954, 0.628, 0.882, 0.936, 0.661, 0.583, 0.775, 1, 0.940, 0.619,
             0.972, 0.957]  # fmt: skip
    pruned = [0.768, 0.591, 0.971, 0.661, 0.888, 0.931, 0.668, 0.583, 0.838, 1, 0.962, 0.666,
              0.981, 0.978]  # fmt: skip
    found = wilcoxon(pruned, plain)
    assert (found.wins, found.losses) == (10, 2)
    assert found.p_value < 0.05


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(-40, 40), min_size=1, max_size=7))
def test_every_outcome_is_counted(change: list[int]) -> None:
    ranks = stats.rankdata(np.abs([d for d in change if d]))
    signs = list(product((0, 1), repeat=len(ranks)))
    sums = [min(np.dot(s, ranks), ranks.sum() - np.dot(s, ranks)) for s in signs]
    found = wilcoxon(change, np.zeros(len(change)))
    assert found.p_value == pytest.approx(np.mean([s <= found.statistic for s in sums]))


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(-400, 400), min_size=10, max_size=60, unique_by=abs))
def test_it_agrees_with_scipy(change: list[int]) -> None:
    change = [d for d in change if d]
    ours = wilcoxon(change, np.zeros(len(change)))
    method = "exact" if len(change) <= 50 else "asymptotic"
    theirs = stats.wilcoxon(change, method=method)
    assert ours.statistic == theirs.statistic
    assert ours.p_value == pytest.approx(theirs.pvalue)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_swapping_swaps_wins_and_losses(drawn: list[tuple[int, int]]) -> None:
    a, b = zip(*drawn, strict=True)
    there, back = wilcoxon(a, b), wilcoxon(b, a)
    assert (there.wins, there.losses) == (back.losses, back.wins)
    assert (there.statistic, there.p_value) == (back.statistic, back.p_value)
    assert wilcoxon(a, a).p_value == 1.0
