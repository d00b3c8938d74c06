"""Alarms on histories whose changes are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from evergraph.online.alarms import AlarmLog, Watch
from evergraph.online.alarms.alarm import MOST

BATCH, CLASSES = 20, 8
NAMES = (*"abcdefgh", "new")


class Stream:
    """Deltas of labels, drawn by shares, of which a share is predicted."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.shares = self.random.dirichlet(np.ones(CLASSES))
        self.watch = Watch("class")
        self.seq = 0

    def deltas(self, count: int, *, right: float = 0.8, shares=None, known: int = CLASSES) -> None:
        for _ in range(count):
            self.seq += 1
            shares_now = self.shares if shares is None else shares
            labels = self.random.choice(len(shares_now), size=BATCH, p=shares_now)
            answers = BATCH, int(self.random.binomial(BATCH, right))
            self.watch.see(self.seq, torch.from_numpy(labels), answers=answers, known=known)

    @property
    def raised(self) -> list[tuple[str, int | None]]:
        return [(alarm.kind, alarm.cleared) for alarm in self.watch.alarms(NAMES)]


def test_fifty_steady_streams_raise_none():
    # 50 streams of 30 windows of 200 labels: at 1 in 10,000 a window and kind, 0.45 are expected
    # if Student's quantiles fit, and fewer since shares have at least the spread of shares.
    for seed in range(50):
        stream = Stream(seed)
        stream.deltas(300)
        assert stream.raised == [], seed


@pytest.mark.parametrize("seed", range(5))
def test_worse_predictions_are_noticed_within_two_windows(seed):
    stream = Stream(seed)
    stream.deltas(200)
    stream.deltas(2 * 200 // BATCH, right=1 / CLASSES)  # as when labels are permuted
    (alarm,) = stream.watch.alarms(NAMES)
    assert (alarm.kind, alarm.cleared) == ("accuracy", None)
    assert alarm.seq <= 200 + 2 * 200 // BATCH
    assert alarm.value < 0.3 < 0.75 < alarm.expected
    assert alarm.message.startswith("accuracy of the last 200 predictions is ")
    stream.deltas(20)
    assert [alarm.cleared is not None for alarm in stream.watch.alarms(NAMES)] == [True]


@pytest.mark.parametrize("seed", range(5))
def test_a_new_class_everywhere_is_noticed_and_gets_old(seed):
    stream = Stream(seed)
    stream.deltas(400)
    half = np.append(stream.shares / 2, 0.5)
    stream.deltas(200 // BATCH, shares=half, known=CLASSES + 1)
    assert stream.raised == [("novelty", None)]
    stream.deltas(200 // BATCH, shares=half, known=CLASSES + 1)
    assert stream.raised == [("novelty", stream.seq)]


@pytest.mark.parametrize("seed", range(5))
def test_a_class_that_stops_coming_fades_until_it_comes_again(seed):
    stream = Stream(seed)
    stream.shares = np.full(CLASSES, 1 / CLASSES)
    stream.deltas(100)
    without = np.append(0, np.full(CLASSES - 1, 1 / (CLASSES - 1)))
    stream.deltas(20, shares=without)
    (alarm,) = stream.watch.alarms(NAMES)
    assert (alarm.kind, alarm.about, alarm.cleared) == ("fading", "a", None)
    assert alarm.message.startswith("'a' has not come with the last ")
    stream.deltas(1, shares=np.eye(CLASSES)[0])
    assert stream.raised == [("fading", stream.seq)]


def test_errors_of_numbers_are_watched_and_nothing_else():
    watch, random = Watch("numbers"), np.random.default_rng(0)
    for seq in range(1, 12):
        error = float(np.abs(random.normal(scale=2 if seq == 11 else 1, size=200)).sum())
        watch.see(seq, torch.zeros(200, 1), answers=(200, error), known=0)
    (alarm,) = watch.alarms(())
    assert (alarm.kind, alarm.seq) == ("accuracy", 11)
    assert alarm.message.startswith("mean absolute error of the last 200 predictions is 1.")


def test_several_labels_a_node():
    watch = Watch("labels")
    both = torch.tensor([[True, True], [True, False]]).repeat(50, 1)
    owners, labels = both.nonzero().t()
    for seq in range(1, 10):
        watch.see(seq, labels, answers=(150, 120), known=2, owners=owners, nodes=100)
    every = torch.arange(100)
    for seq in range(10, 16):
        watch.see(seq, every * 0, answers=(100, 80), known=2, owners=every, nodes=100)
    assert [(alarm.kind, alarm.about) for alarm in watch.alarms(("a", "b"))] == [("fading", "b")]


@pytest.mark.parametrize("cut", [3, 11, 205, 212])
def test_a_watch_that_is_restored_goes_on_bit_for_bit(cut):
    whole, restored = Stream(0), Stream(0)
    for stream in (whole, restored):
        for part in (cut, 225 - cut):
            for _ in range(part):
                stream.deltas(1, right=0.8 if stream.seq < 200 else 0.2)
            if stream is restored:
                state = {name: value.clone() for name, value in stream.watch.state().items()}
                stream.watch = Watch("class")
                stream.watch.restore(state)
    assert whole.raised == restored.raised != []
    assert whole.watch.alarms(NAMES) == restored.watch.alarms(NAMES)
    kept = restored.watch.state()
    assert all(torch.equal(value, kept[name]) for name, value in whole.watch.state().items())


def test_a_snapshot_without_alarms_begins_anew():
    watch = Watch("class")
    watch.restore({})
    assert watch.alarms(()) == ()


def test_only_the_latest_that_are_over_are_kept():
    log = AlarmLog()
    for seq in range(0, 2 * MOST + 20, 2):
        log.set(0, seq=seq, on=True)
        log.set(0, seq=seq + 1, on=False)
    log.set(1, seq=1000, on=True)
    assert len(log.entries) == MOST + 1
    assert log.entries[0].seq == 20


@pytest.mark.parametrize("batch", [50, 200, 256])
def test_a_dump_that_is_sorted_by_class_makes_classes_fade(batch: int) -> None:
    """Each once the next has begun; accuracy has no steady past to fall from."""
    watch, known = Watch("class"), 0
    for seq, labels in enumerate(torch.arange(5).repeat_interleave(200).split(batch), 1):
        right = int((labels < known).sum())
        known = int(labels.max()) + 1
        watch.see(seq, labels, answers=(len(labels), right), known=known)
    alarms = watch.alarms("abcde")
    assert {alarm.kind for alarm in alarms} == {"fading"}
    assert {alarm.about for alarm in alarms} >= {"a", "b", "c"}
