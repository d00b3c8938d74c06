"""Sums for targets of which single values are missing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form.targets import MOST_PATTERNS, TargetStatistics
from evergraph.core.errors import ConfigurationError, DataError

NAN = float("nan")


def drawn(seed: int, nodes: int = 12, targets: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Return features, values of which a third is missing, and weights."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(nodes, targets, generator=generator)
    values[torch.rand(nodes, targets, generator=generator) < 0.3] = NAN
    return torch.randn(nodes, 3, generator=generator), values, torch.ones(nodes)


def counted(features: Tensor, values: Tensor, weights: Tensor) -> TargetStatistics:
    statistics = TargetStatistics(features.shape[1], targets=values.shape[1], precise=True)
    statistics.add(features, values, weights)
    return statistics


def summed(statistics: TargetStatistics) -> list[Tensor]:
    """Return all sums of every target."""
    found = []
    for target in range(statistics.targets):
        part = statistics.moments([target])
        found += [part.gram.tril(), part.sums, part.cross, part.totals, part.squares]
        found.append(torch.tensor([part.count]))
    return found


def alike(one: TargetStatistics, other: TargetStatistics) -> bool:
    pairs = zip(summed(one), summed(other), strict=True)
    return all(torch.allclose(a.double(), b.double(), atol=1e-9) for a, b in pairs)


def test_sums_by_hand() -> None:
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


@given(st.integers(0, 10**6), st.integers(0, 12))
def test_sums_add_up_in_parts_and_go_as_they_came(seed: int, cut: int) -> None:
    features, values, weights = drawn(seed)
    whole = counted(features, values, weights)
    one = counted(features[:cut], values[:cut], weights[:cut])
    two = counted(features[cut:], values[cut:], weights[cut:])
    if whole.patterns_ and min(whole.mass_) > 0:
        assert alike(one.merged(two), whole)
    both = one.merged(two)
    both.remove(features[cut:], values[cut:], weights[cut:])
    assert both.patterns_.keys() == one.patterns_.keys()
    if one.patterns_ and min(one.mass_) > 0:
        assert alike(both, one)


def test_the_state_brings_everything_back() -> None:
    statistics = counted(*drawn(3))
    again = TargetStatistics(3, targets=2, precise=True)
    again.restore(statistics.state())
    assert alike(again, statistics)
    assert again.usage == statistics.usage


def test_the_first_features_alone() -> None:
    features, values, weights = drawn(5)
    narrow = counted(features, values, weights).narrowed(2)
    assert alike(narrow, counted(features[:, :2], values, weights))


def test_a_change_of_features_is_carried_through() -> None:
    features, values, weights = drawn(7)
    matrix = torch.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 1.0]]).double()
    statistics = counted(features, values, weights)
    statistics.transform(matrix)
    assert alike(statistics, counted((features.double() @ matrix).float(), values, weights))


def test_too_many_patterns_are_refused_before_anything_is_counted() -> None:
    values = torch.ones(2**7, 7)
    for row in range(len(values)):
        values[row, [t for t in range(7) if row >> t & 1]] = NAN
    statistics = TargetStatistics(1, targets=7)
    with pytest.raises(DataError, match=f"at most {MOST_PATTERNS} combinations.*not 127"):
        statistics.add(torch.ones(len(values), 1), values, torch.ones(len(values)))
    assert not statistics.patterns_


def test_other_targets_cannot_be_merged() -> None:
    with pytest.raises(ConfigurationError, match="2 and 3 targets"):
        TargetStatistics(1, targets=2).merged(TargetStatistics(1, targets=3))
