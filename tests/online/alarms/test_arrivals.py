"""New classes and classes that fade, by hand."""

from __future__ import annotations

from math import log, sqrt

import pytest
import torch

from evergraph.online.alarms.arrivals import Arrivals, Fading


def test_a_class_is_new_for_one_window():
    arrivals = Arrivals(window=10)
    told = [arrivals.add(torch.tensor([0, 0, 1, 0, 0]), 5, 2) for _ in range(3)]
    assert told == [5, 5, 0]


def test_of_several_labels_a_node_counts_once():
    arrivals = Arrivals(window=10)
    owners, classes = torch.tensor([[True, True], [False, False], [True, False]]).nonzero().t()
    assert arrivals.add(classes, 3, 2, owners) == 2
    assert arrivals.seen_ == 3


def test_fading_by_hand():
    arrivals = Arrivals(window=10, level=0.01)
    for _ in range(25):
        arrivals.add(torch.tensor([0, 1]), 2, 2)
    # k = 25 of 50 labels: p = (25 - 3 · 5) / 50 = 0.2, so that ln(0.001) / ln(0.8) = 30.96 pass.
    assert log(0.001) / log(1 - (25 - 3 * sqrt(25)) / 50) == pytest.approx(30.96, abs=0.01)
    arrivals.add(torch.ones(30).long(), 30, 2)
    assert arrivals.fading() == []
    arrivals.add(torch.ones(1).long(), 1, 2)
    assert arrivals.fading() == [Fading(number=0, since=31, every=2.0)]
    arrivals.add(torch.tensor([0]), 1, 2)
    assert arrivals.fading() == []
    # It was missing for 31 labels, so it may be for 62.
    arrivals.add(torch.ones(62).long(), 62, 2)
    assert arrivals.fading() == []
    arrivals.add(torch.ones(1).long(), 1, 2)
    assert [found.number for found in arrivals.fading()] == [0]


def test_a_class_with_few_labels_does_not_fade():
    arrivals = Arrivals(window=10)
    arrivals.add(torch.zeros(19).long(), 19, 2)
    arrivals.add(torch.ones(10_000).long(), 10_000, 2)
    assert arrivals.fading() == []


def test_the_order_within_a_delta_is_no_matter():
    one, other = Arrivals(window=10), Arrivals(window=10)
    sorted_ones = torch.tensor([0] * 50 + [1] * 50)
    for _ in range(3):
        assert one.add(sorted_ones, 100, 2) == other.add(sorted_ones.flip(0), 100, 2)
    assert (one.classes_ == other.classes_).all()
    assert one.fading() == []
