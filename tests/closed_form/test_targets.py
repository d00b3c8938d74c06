"""Sums and heads of several labels or numbers, of which single values may be missing."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form.target_heads import (
    TargetWeights,
    choose_target_regularisation,
    fitted_sigmoid,
    squared_errors,
    target_ridge,
)
from evergraph.closed_form.targets import MOST_PATTERNS, TargetStatistics
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.memory import MemoryUsage

NAN = float("nan")


def counted(features: Tensor, values: Tensor, weights: Tensor | None = None) -> TargetStatistics:
    statistics = TargetStatistics(features.shape[1], targets=values.shape[1])
    statistics.add(features, values, torch.ones(len(features)) if weights is None else weights)
    return statistics


def drawn(seed: int, nodes: int = 12, targets: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Return features, values of which a third is missing, and weights."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(nodes, targets, generator=generator)
    values[torch.rand(nodes, targets, generator=generator) < 0.3] = NAN
    return torch.randn(nodes, 3, generator=generator), values, torch.ones(nodes)


def summed(statistics: TargetStatistics) -> list[Tensor]:
    found = []
    for target in range(statistics.targets):
        part = statistics.moments([target])
        found += [part.gram.tril(), part.sums, part.cross, part.totals, part.squares]
        found.append(torch.tensor([part.count]))
    return found


def alike(one: TargetStatistics, other: TargetStatistics) -> bool:
    pairs = zip(summed(one), summed(other), strict=True)
    return all(torch.allclose(a.double(), b.double(), atol=1e-9) for a, b in pairs)


def test_sums_by_hand():
    features = torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0]])
    statistics = counted(
        features, torch.tensor([[2.0, NAN], [4.0, 1.0], [NAN, NAN]]), torch.ones(3)
    )
    assert [*statistics.patterns_] == [(True, False), (True, True)]
    assert list(statistics.groups()) == [[0], [1]]
    first, second = statistics.moments([0]), statistics.moments([1])
    assert first.gram.tril().tolist() == [[10.0, 0.0], [2.0, 4.0]]  # of nodes 0 and 1
    assert first.cross.flatten().tolist() == [14.0, 4.0]
    assert (first.count, first.totals.item(), first.squares.item()) == (2.0, 6.0, 20.0)
    assert second.sums.tolist() == [3.0, 0.0]
    assert statistics.mass_.tolist() == [2.0, 1.0]
    # of each pattern 3 values of G, 2 sums of features and 8 with values; its mass and its count
    assert statistics.usage == MemoryUsage(statistics=2 * 13, bytes=2 * 8 * (13 + 2))


@given(st.integers(0, 10**6), st.integers(0, 12))
def test_sums_add_up_in_parts_and_go_as_they_came(seed, cut):
    features, values, weights = drawn(seed)
    whole = counted(features, values, weights)
    one = counted(features[:cut], values[:cut], weights[:cut])
    two = counted(features[cut:], values[cut:], weights[cut:])
    if whole.patterns_ and min(whole.mass_) > 0:
        assert alike(one.merged(two), whole)
    both = one.merged(two)
    both.add(features[cut:], values[cut:], weights[cut:], -1)
    assert both.patterns_.keys() == one.patterns_.keys()
    if one.patterns_ and min(one.mass_) > 0:
        assert alike(both, one)


def test_all_that_is_made_of_sums_is_of_the_same_nodes():
    features, values, weights = drawn(7)
    statistics = counted(features, values, weights)
    again = TargetStatistics(3, targets=2)
    again.restore(statistics.state())
    assert alike(again, statistics)
    assert again.usage == statistics.usage
    assert alike(statistics.narrowed(2), counted(features[:, :2], values, weights))
    matrix = torch.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 1.0]]).double()
    statistics.transform(matrix)
    assert alike(statistics, counted((features.double() @ matrix).float(), values, weights))
    with pytest.raises(ConfigurationError, match="2 and 3 targets"):
        TargetStatistics(1, targets=2).merged(TargetStatistics(1, targets=3))


def test_too_many_patterns_are_refused_before_anything_is_counted():
    values = torch.ones(2**7, 7)
    for row in range(len(values)):
        values[row, [t for t in range(7) if row >> t & 1]] = NAN
    statistics = TargetStatistics(1, targets=7)
    with pytest.raises(DataError, match=f"at most {MOST_PATTERNS} combinations.*not 127"):
        statistics.add(torch.ones(len(values), 1), values, torch.ones(len(values)))
    assert not statistics.patterns_


# ------------------------------------------------------------------ heads


def test_a_head_by_hand():
    # φ = 1, 3 and y = 2, 8: G = 10, M = 26; less means: G = 2, M = 6
    statistics = counted(torch.tensor([[1.0], [3.0]]), torch.tensor([[2.0], [8.0]]))
    plain = target_ridge(statistics, 0.5, centred=False)  # λ = 5
    assert plain.weights.item() == pytest.approx(26 / 15)
    assert plain.offsets.item() == 0.0
    centred = target_ridge(statistics, 0.5, centred=True)  # λ = 1
    assert centred.weights.item() == pytest.approx(6 / 3)
    assert centred.offsets.item() == pytest.approx(5 - 2 * 2)
    # (2 - 3)² + (8 - 7)², and Σ (y - ȳ)² = 18
    assert squared_errors(statistics, centred).item() == pytest.approx(2.0)
    assert squared_errors(statistics, centred, relative=True).item() == pytest.approx(2 / 18)


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_it_is_the_ridge_of_scikit_learn(seed, centred, gaps):
    linear = pytest.importorskip("sklearn.linear_model")
    generator = torch.Generator().manual_seed(seed)
    features = torch.rand(30, 6, generator=generator)
    values = 100 + 20 * torch.randn(30, 2, generator=generator)
    if gaps:
        values[torch.rand(30, 2, generator=generator) < 0.3] = NAN
    head = target_ridge(counted(features, values), 0.01, centred=centred)
    for target in range(2):
        known = ~values[:, target].isnan()
        phi = features[known].double().numpy()
        shown = phi - phi.mean(0) if centred else phi
        strength = 0.01 * np.square(shown).sum() / shown.shape[1]
        theirs = linear.Ridge(alpha=strength, fit_intercept=centred)
        theirs.fit(phi, values[known, target].double().numpy())
        ours = phi @ head.weights[:, target].numpy() + head.offsets[target].item()
        assert np.allclose(ours, theirs.predict(phi), rtol=1e-4)


def test_the_error_in_closed_form_is_that_of_the_answers():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(20, 4, generator=generator)
    values = torch.randn(20, 2, generator=generator)
    values[3, 0] = NAN
    offsets = torch.tensor([0.5, -1.0]).double()
    head = TargetWeights(torch.randn(4, 2, generator=generator).double(), offsets)
    answers = features.double() @ head.weights + head.offsets
    expected = (answers - values).square().nansum(0)
    assert torch.allclose(squared_errors(counted(features, values), head), expected)


def test_regularisation_is_chosen_on_other_nodes():
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(40, 30, generator=generator)
    noise = counted(features[:20], torch.randn(20, 1, generator=generator))
    others = counted(features[20:], torch.randn(20, 1, generator=generator))
    ladder = (10.0, 0.1, 0.001)
    assert choose_target_regularisation(noise, others, ladder, centred=True) == 10.0
    clear = features[:, :1] * 3
    known, asked = counted(features[:20], clear[:20]), counted(features[20:], clear[20:])
    assert choose_target_regularisation(known, asked, ladder, centred=True) < 10.0


def test_how_sure_a_label_is_by_hand():
    # Scores 1 and 3 with the label, 0 and -2 and -1 without: means 2 and -1, variance (2 + 2) / 5
    features = torch.tensor([[1.0], [3.0], [0.0], [-2.0], [-1.0]])
    labels = torch.tensor([[1.0], [1.0], [0.0], [0.0], [0.0]])
    head = TargetWeights(torch.ones(1, 1).double(), torch.zeros(1).double())
    slope, shift = fitted_sigmoid(counted(features, labels), head)
    assert slope.item() == pytest.approx(3 / 0.8)
    assert shift.item() == pytest.approx(math.log(2 / 3) - 3 / 0.8 * 0.5)
    # scores that do not differ at all count as 0.001 apart: means 1 and 0, variance 1e-6
    labels = torch.tensor([[1.0], [0.0]])
    slope, shift = fitted_sigmoid(counted(torch.tensor([[1.0], [0.0]]), labels), head)
    assert (slope.item(), shift.item()) == pytest.approx((1e6, -0.5e6))
    # a label that nobody lacks, that nobody has or whose nodes score lower has the fixed sigmoid
    for values in ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]):
        found = counted(torch.tensor([[3.0], [2.0], [1.0]]), torch.tensor(values)[:, None])
        slope, shift = fitted_sigmoid(found, head)
        assert (slope.item(), shift.item()) == (10.0, -5.0)
