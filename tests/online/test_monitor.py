"""The record of predictions and its alarm: by hand, of streams that are known, of a learner."""

import logging
from math import sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.targets import target_of
from evergraph.online import ContinualNodeClassifier, Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.monitor import Prequential, Watch
from growth import bits


def recorded(counts, **parameters) -> Prequential:
    record = Prequential(**parameters)
    for seq, (asked, right) in enumerate(counts, 1):
        predicted = torch.arange(asked).ge(right).long()  # wrong: 1, right: 0
        pairs = torch.stack([torch.zeros_like(predicted), predicted], dim=1)
        record.add(seq, 10 * seq, seq, asked, right, pairs)
    return record


COUNTS = st.lists(st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))


@given(COUNTS, st.integers(2, 7))
def test_a_curve_is_short_adds_up_and_goes_on_after_a_restore(counts, points):
    record, twin = recorded(counts, points=points, latest=4), Prequential(points=points, latest=4)
    curve, right = record.curve(), sum(right for _, right in counts)
    assert len(curve) <= points
    assert sum(point["asked"] for point in curve) == record.asked == sum(a for a, _ in counts)
    assert sum(point["right"] for point in curve) == right
    assert record.accuracy == (right / record.asked if counts else None)
    assert [point["seq"] for point in curve] == sorted(point["seq"] for point in curve)
    assert not counts or curve[-1]["seq"] == len(counts)
    twin.restore(record.state())
    for one in (record, twin):
        one.add(99, 1, 1, 1, 0, torch.tensor([[0, 1]]))
    assert (twin.curve(), twin.confusion([0, 1])) == (record.curve(), record.confusion([0, 1]))


def test_confusion_by_hand():
    record = Prequential(latest=4)
    # The first pair is too old to count.
    record.add(1, 5, 3, 5, 2, torch.tensor([[2, 2], [2, 0], [1, 1], [1, 2], [1, 0]]))
    assert record.confusion([1, 2]) == [[1, 1, 1], [0, 0, 1]]
    assert record.confusion([]) == []


STEADY = [80, 75, 80, 85, 80, 80, 75, 85]  # mean 0.8, variance 0.01 / 7


def seen(values, kind="class", window=100) -> tuple[list[bool], Watch]:
    """Return whether the alarm is raised after each window of so many answers."""
    watch, raised = Watch(target_of(kind), window=window), []
    for seq, value in enumerate(values, 1):
        watch.see(seq, window, value)
        raised.append(bool(watch.alarms()))
    return raised, watch


def test_the_quantile_by_hand():
    # p (1 - p) / n = 0.0016 is more than 0.01 / 7 = 0.00143; t of 7 degrees at 0.9999 is 7.0634.
    share = (640 + 1) / (800 + 2)
    fall = 7.0634 * sqrt((1 + 1 / 8) * share * (1 - share) / 100)
    assert fall == pytest.approx(0.299, abs=2e-3)
    assert not any(seen([*STEADY, 80 - 100 * fall + 0.1])[0])
    raised, watch = seen([*STEADY, 80 - 100 * fall - 0.1])
    assert raised == [False] * 8 + [True]
    (alarm,) = watch.alarms()
    assert (alarm.seq, alarm.expected) == (9, pytest.approx(0.8))
    assert "of the last 100 predictions" in alarm.message


ERRORS = [50.0, 51.0, 49.0, 50.0, 50.0, 51.0, 49.0, 50.0]  # variance of means 4/7 · 10⁻⁴


@pytest.mark.parametrize(
    ("kind", "past", "value", "on"),
    [
        # The spread between windows counts where it is larger: 0.745 / (0.262 √1.125) is 2.68.
        ("class", [50, 99] * 4, 0, False),
        ("class", STEADY, 100, False),  # a rise is no alarm
        # Numbers have their own spread: 7.0634 · √(9/8 · 4/7) = 5.66.
        ("numbers", ERRORS, 54.0, False),
        ("numbers", ERRORS, 56.6, True),
        ("numbers", [50 + (e - 50) / 10 for e in ERRORS], 54.9, False),  # less than a tenth
        ("numbers", [50 + (e - 50) / 10 for e in ERRORS], 55.1, True),
    ],
)
def test_what_raises_an_alarm(kind, past, value, on):
    assert seen([*past, value], kind)[0][-1] is on


def test_it_clears_when_a_window_is_as_before_and_small_differences_are_never_alarming():
    # Of a million answers either is a hundred times the spread, but the first is 4 points only.
    for right, on in ((760_000, False), (740_000, True)):
        assert seen([800_000] * 8 + [right], window=1_000_000)[0][-1] is on
    # 68 would not raise it, but does not clear it either: t is 2.8, the quantile of 0.05 is 1.89.
    raised, watch = seen([*STEADY, 40, 45, 68, 79, 80])
    assert raised[8:] == [True, True, True, False, False]
    assert [right for _, right in watch.past_] == [*STEADY, 79, 80]  # those between are no past
    raised, watch = seen([*STEADY, *[40] * 22])
    assert raised[8:] == [True] * 19 + [False] * 3
    assert {right for _, right in watch.past_} == {40}  # what stays is the new past


BATCH = 20


class Stream:
    """Deltas of labels of which a share is predicted."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.watch = Watch(target_of("class"))
        self.seq = 0

    def deltas(self, count: int, *, right: float = 0.8) -> None:
        for _ in range(count):
            self.seq += 1
            self.watch.see(self.seq, BATCH, int(self.random.binomial(BATCH, right)))


@pytest.mark.parametrize("seed", range(5))
def test_worse_predictions_are_noticed_within_two_windows(seed):
    stream = Stream(seed)
    stream.deltas(200)
    stream.deltas(2 * 200 // BATCH, right=1 / 8)  # as when labels are permuted
    (alarm,) = stream.watch.alarms()
    assert alarm.seq <= 200 + 2 * 200 // BATCH
    assert alarm.value < 0.3 < 0.75 < alarm.expected
    assert alarm.message.startswith("accuracy of the last 200 predictions is ")
    stream.deltas(20)
    assert stream.watch.alarms() == ()


def test_errors_of_numbers_are_told_as_they_are_and_a_delta_is_never_cut():
    watch = Watch(target_of("class"), window=100)
    for seq in range(4):
        watch.see(seq, 60, 30)
    assert watch.past_ == [(120.0, 60.0), (120.0, 60.0)]
    watch = Watch(target_of("numbers"), window=100)
    for seq, error in enumerate([*ERRORS, 100.0], 1):
        watch.see(seq, 100, error)
    (alarm,) = watch.alarms()
    message = "mean absolute error of the last 100 predictions is 1: expected about 0.5"
    assert (alarm.seq, alarm.message) == (9, message)


@pytest.mark.parametrize("cut", [3, 205, 212])
def test_a_watch_that_is_restored_goes_on_bit_for_bit(cut):
    whole, restored = Stream(0), Stream(0)
    for stream in (whole, restored):
        for part in (cut, 225 - cut):
            for _ in range(part):
                stream.deltas(1, right=0.8 if stream.seq < 200 else 0.2)
            if stream is restored:
                state = {name: value.clone() for name, value in stream.watch.state().items()}
                stream.watch = Watch(target_of("class"))
                stream.watch.restore(state)
    assert whole.watch.alarms() == restored.watch.alarms() != ()
    kept = restored.watch.state()
    assert all(torch.equal(value, kept[name]) for name, value in whole.watch.state().items())


def rows(number: int) -> dict:
    """Two hundred nodes of two classes, told apart by one feature; from delta 10 on swapped."""
    classes = torch.arange(200) % 2
    labels = ["xy"[c] for c in ((classes + (number >= 10)) % 2).tolist()]
    return {
        "nodes": [f"{number}-{i}" for i in range(200)],
        "features": torch.eye(2)[classes],
        "labels": labels,
    }


def test_the_callback_is_called_once_an_alarm_and_may_fail(caplog):
    told = []

    def tell(alarm):
        told.append(alarm)
        raise RuntimeError("no pager")

    model = ContinualNodeClassifier(head="analytic", width=16, on_alarm=tell)
    for number in range(12):
        model.partial_fit(**rows(number), key=str(number))
        model.partial_fit(**rows(number), key=str(number))
    assert [alarm.seq for alarm in told] == [11]
    assert (model.alarms(), model.status().seq) == (tuple(told), 12)
    assert "is 0.0 %: expected about 100.0 %" in told[0].message
    assert "no pager" in caplog.text


def make() -> OnlineLearner:
    return OnlineLearner(head=AnalyticHead(width=16))


def test_a_folder_logs_alarms_once_and_never_again(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    with LearnerFolder.open(tmp_path, make=make) as folder:
        for number in range(11):
            folder.submit(Delta(**rows(number)))
            if number == 4:
                folder.compact()
        kept, left = folder.learner.alarms(), bits(folder.learner)
    assert [r.message for r in caplog.records] == [f"alarm: {kept[0].message}"]
    for readonly in (False, True):
        with LearnerFolder.open(tmp_path, make=make, readonly=readonly) as folder:
            assert (folder.learner.alarms(), bits(folder.learner)) == (kept, left)
    assert len(caplog.records) == 1
