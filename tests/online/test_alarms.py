"""The alarm: a window against those before it, by hand, and histories whose changes are known."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
import torch

from evergraph.online.alarms import Measure, Watch


def filled(values, **parameters) -> tuple[Measure, list]:
    measure = Measure(window=100, **parameters)
    return measure, [measure.add(100, value) for value in values]


STEADY = [80, 75, 80, 85, 80, 80, 75, 85]  # mean 0.8, variance 0.01 / 7


def test_the_quantile_by_hand():
    # p (1 - p) / n = 0.0016 is more than 0.01 / 7 = 0.00143; t of 7 degrees at 0.9999 is 7.0634.
    share = (640 + 1) / (800 + 2)
    fall = 7.0634 * sqrt((1 + 1 / 8) * share * (1 - share) / 100)
    assert fall == pytest.approx(0.299, abs=2e-3)
    measure, _ = filled(STEADY, rises=False)
    assert measure.add(100, 80 - 100 * fall + 0.1).on is False
    measure, said = filled(STEADY, rises=False)
    assert said == [None] * 8
    verdict = measure.add(100, 80 - 100 * fall - 0.1)
    assert (verdict.on, verdict.expected, verdict.answers) == (True, pytest.approx(0.8), 100)


def test_the_spread_between_windows_counts_where_it_is_larger():
    wild = [50, 99, 50, 99, 50, 99, 50, 99]
    measure, _ = filled(wild, rises=False)
    assert measure.add(100, 0).on is False  # 0.745 / (0.262 √1.125) is 2.68


def test_a_rise_of_what_should_fall_is_no_alarm():
    measure, _ = filled(STEADY, rises=False)
    assert measure.add(100, 100).on is False


def test_small_differences_are_never_alarming():
    # Of a million answers either is a hundred times the spread, but the first is 4 points only.
    for right, on in ((760_000, False), (740_000, True)):
        measure = Measure(window=1_000_000, rises=False)
        for _ in range(8):
            measure.add(1_000_000, 800_000)
        assert measure.add(1_000_000, right).on is on


def test_numbers_are_compared_with_their_own_spread():
    errors = [50.0, 51.0, 49.0, 50.0, 50.0, 51.0, 49.0, 50.0]  # variance of means 4/7 · 10⁻⁴
    for error, on in ((54.0, False), (56.6, True)):  # 7.0634 · √(9/8 · 4/7) = 5.66
        measure, _ = filled(errors, rises=True, share=False, least=0.1)
        assert measure.add(100, error).on is on
    measure, _ = filled([100 * error for error in errors], rises=True, share=False, least=0.2)
    assert measure.add(100, 5660.0).on is False  # that is 13 %


def test_it_clears_when_a_window_is_as_before():
    measure, _ = filled(STEADY, rises=False)
    said = [measure.add(100, value).on for value in (40, 45, 68, 79, 80)]
    # 68 would not raise it, but does not clear it either: t is 2.8, the quantile of 0.05 is 1.89.
    assert said == [True, True, True, False, False]
    assert len(measure.past_) == 10  # the three windows in between are not the past


def test_what_stays_is_the_new_past():
    measure, _ = filled(STEADY, rises=False)
    said = [measure.add(100, 40).on for _ in range(21)]
    assert said == [True] * 19 + [False, False]
    assert measure.add(100, 40).expected == pytest.approx(0.4)


def test_a_delta_is_never_cut():
    measure = Measure(window=100, rises=False)
    assert [measure.add(60, 30) for _ in range(4)] == [None] * 4
    assert measure.past_ == [(120.0, 60.0), (120.0, 60.0)]


BATCH = 20


class Stream:
    """Deltas of labels of which a share is predicted."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.watch = Watch("class", "accuracy")
        self.seq = 0

    def deltas(self, count: int, *, right: float = 0.8) -> None:
        for _ in range(count):
            self.seq += 1
            self.watch.see(self.seq, BATCH, int(self.random.binomial(BATCH, right)))


def test_fifty_steady_streams_raise_none():
    # 50 streams of 30 windows of 200 labels: at 1 in 10,000 a window, 0.15 are expected if
    # Student's quantiles fit, and fewer since shares have at least the spread of shares.
    for seed in range(50):
        stream = Stream(seed)
        stream.deltas(300)
        assert stream.watch.alarms() == (), seed


@pytest.mark.parametrize("seed", range(5))
def test_worse_predictions_are_noticed_within_two_windows(seed):
    stream = Stream(seed)
    stream.deltas(200)
    stream.deltas(2 * 200 // BATCH, right=1 / 8)  # as when labels are permuted
    (alarm,) = stream.watch.alarms()
    assert (alarm.kind, alarm.seq <= 200 + 2 * 200 // BATCH) == ("accuracy", True)
    assert alarm.value < 0.3 < 0.75 < alarm.expected
    assert alarm.message.startswith("accuracy of the last 200 predictions is ")
    stream.deltas(20)
    assert stream.watch.alarms() == ()


def test_errors_of_numbers_are_watched():
    watch, random = Watch("numbers", "mean absolute error"), np.random.default_rng(0)
    for seq in range(1, 12):
        error = float(np.abs(random.normal(scale=2 if seq == 11 else 1, size=200)).sum())
        watch.see(seq, 200, error)
    (alarm,) = watch.alarms()
    assert alarm.seq == 11
    assert alarm.message.startswith("mean absolute error of the last 200 predictions is 1.")


@pytest.mark.parametrize("cut", [3, 11, 205, 212])
def test_a_watch_that_is_restored_goes_on_bit_for_bit(cut):
    whole, restored = Stream(0), Stream(0)
    for stream in (whole, restored):
        for part in (cut, 225 - cut):
            for _ in range(part):
                stream.deltas(1, right=0.8 if stream.seq < 200 else 0.2)
            if stream is restored:
                state = {name: value.clone() for name, value in stream.watch.state().items()}
                stream.watch = Watch("class", "accuracy")
                stream.watch.restore(state)
    assert whole.watch.alarms() == restored.watch.alarms() != ()
    kept = restored.watch.state()
    assert all(torch.equal(value, kept[name]) for name, value in whole.watch.state().items())


def test_of_an_older_log_the_alarm_of_accuracy_is_taken_that_is_not_over():
    entries = [[2, 3, -1, 9.0, 2.0, 4, 18], [0, 5, 8, 0.3, 0.8, -1, 200]]
    watch = Watch("class", "accuracy")
    watch.restore({"log.entries": torch.tensor(entries, dtype=torch.float64)})
    assert watch.alarms() == ()
    entries.append([0, 9, -1, 0.2, 0.7, -1, 200])
    watch.restore({"log.entries": torch.tensor(entries, dtype=torch.float64)})
    assert [(alarm.seq, alarm.value) for alarm in watch.alarms()] == [(9, 0.2)]
