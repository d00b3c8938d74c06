"""The record of predictions stays short and keeps its totals."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.online.prequential import Prequential


def filled(counts, **parameters) -> Prequential:
    record = Prequential(**parameters)
    for seq, (asked, right) in enumerate(counts, 1):
        predicted = torch.arange(asked).ge(right).long()  # wrong: 1, right: 0
        record.count(seq, 10 * seq, seq, predicted, torch.zeros(asked, dtype=torch.int64))
    return record


COUNTS = st.lists(st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))


@given(COUNTS, st.integers(2, 7))
def test_a_curve_is_short_and_adds_up(counts, points):
    record = filled(counts, points=points)
    curve = record.curve()
    assert len(curve) <= points
    assert sum(point["asked"] for point in curve) == record.asked == sum(a for a, _ in counts)
    right = sum(right for _, right in counts)
    assert sum(point["right"] for point in curve) == right
    assert record.accuracy == (right / record.asked if counts else None)
    assert [point["seq"] for point in curve] == sorted(point["seq"] for point in curve)
    if counts:
        assert curve[-1]["seq"] == len(counts)


@given(COUNTS)
def test_round_trip(counts):
    record, twin = filled(counts, points=3, latest=4), Prequential(points=3, latest=4)
    twin.restore(record.state())
    for one in (record, twin):
        one.count(99, 1, 1, torch.tensor([1]), torch.tensor([0]))
    assert twin.curve() == record.curve()
    assert twin.confusion([0, 1]) == record.confusion([0, 1])


def test_confusion_by_hand():
    record = Prequential(latest=4)
    # The first pair is too old to count.
    record.count(1, 5, 3, torch.tensor([2, 0, 1, 2, 0]), torch.tensor([2, 2, 1, 1, 1]))
    found = record.confusion([1, 2])
    assert found.counts == ((1, 1, 1), (0, 0, 1))
    assert record.confusion([]).counts == ()


def test_nothing_asked_is_nothing_counted():
    record = Prequential()
    nothing = torch.empty(0, dtype=torch.int64)
    assert record.count(1, 5, 3, nothing, nothing) == (0, 0)
    assert record.curve() == []
