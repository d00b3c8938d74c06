"""Prequential evaluation (predict, then learn), and the accuracy alarm.

Anything else worth watching, such as many new classes or a growing queue, is exported as metrics;
``deploy/prometheus-rules.yaml`` alerts on these.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, variance
from typing import TypedDict

import torch
from torch import Tensor

from evergraph.core.targets import Tallies, Target
from evergraph.online.arrays import Packing, Saved

log = logging.getLogger(__name__)


class Point(TypedDict):
    """A point of the prequential curve: one or more deltas with labels."""

    seq: int  # the number of the last of these deltas
    nodes: int  # in the graph after it
    classes: int  # known after it
    asked: int  # labels that were predicted before they were learned
    right: int | float  # how many of these were correct, see ``Prequential.add``


class Prequential(Saved):
    """Record of predictions that were made before their labels were learned.

    The curve has a point for every delta with labels. When it is full, neighbouring points are
    joined, so that it still covers the whole past. Single predictions are kept for the latest only.
    Nothing in the record identifies a node.

    >>> record = Prequential(points=4)
    >>> for seq in range(1, 6):
    ...     record.add(seq, 10 * seq, 2, asked=2, right=1)
    >>> record.accuracy, [point["asked"] for point in record.curve()]
    (0.5, [4, 4, 2])
    """

    def __init__(self, *, points: int = 512, latest: int = 2048) -> None:
        self.points, self.latest = points, latest
        self.curve_ = torch.zeros(0, len(Point.__annotations__), dtype=torch.int64)
        self.pairs_ = torch.zeros(0, 2, dtype=torch.int64)  # the right class, the predicted one
        self.totals_ = torch.zeros(2, dtype=torch.int64)  # asked, right

    def add(
        self,
        seq: int,
        nodes: int,
        classes: int,
        asked: int,
        right: float,
        pairs: Tensor | None = None,
    ) -> None:
        """Record two sums whose quotient right / asked is the metric, see ``Tallies``.

        pairs: right and predicted classes, if there are any, int64 [n, 2]

        >>> record = Prequential()
        >>> record.add(1, 3, 0, 2, 0.5)
        >>> record.accuracy
        0.25
        """
        dtype = torch.int64 if isinstance(right, int) else torch.float64
        point = torch.tensor([[seq, nodes, classes, asked, right]], dtype=dtype)
        curve = torch.cat([self.curve_, point])
        if len(curve) > self.points:  # neighbours become one, all but an odd last point
            even = len(curve) // 2 * 2
            two = curve[:even].reshape(-1, 2, curve.shape[1])
            joined = torch.cat([two[:, 1, :3], two[:, :, 3:].sum(1)], dim=1)
            curve = torch.cat([joined, curve[even:]])
        self.curve_ = curve
        self.totals_ = self.totals_ + point[0, 3:]
        if pairs is not None:
            self.pairs_ = torch.cat([self.pairs_, pairs])[-self.latest :]

    @property
    def asked(self) -> int:
        """How many predictions were made so far."""
        return int(self.totals_[0])

    @property
    def accuracy(self) -> float | None:
        """The metric over all predictions so far; None before the first."""
        asked, right = self.totals_.tolist()
        return right / asked if asked else None

    def curve(self) -> list[Point]:
        """Return the points, oldest first; asked and right count since the previous point."""
        return [
            Point(seq=int(seq), nodes=int(nodes), classes=int(known), asked=int(asked), right=right)
            for seq, nodes, known, asked, right in self.curve_.tolist()
        ]

    def confusion(self, classes: Sequence[int]) -> list[list[int]]:
        """Return the confusion matrix of some classes, over the latest predictions.

        -> one row per class: how often its nodes were classified as each of these classes and,
        last, as any other

        >>> record = Prequential()
        >>> record.add(1, 3, 3, 3, 1, torch.tensor([[2, 1], [2, 0], [2, 2]]))
        >>> record.confusion([1, 2])  # 2 was once called 1, once right, once another
        [[0, 0, 0], [1, 1, 1]]
        """
        pairs = Counter(map(tuple, self.pairs_.tolist()))
        rows = [[pairs[right, given] for given in classes] for right in classes]
        totals = Counter(self.pairs_[:, 0].tolist())
        return [[*row, totals[right] - sum(row)] for right, row in zip(classes, rows, strict=True)]

    def state(self) -> dict[str, Tensor]:
        return {"curve": self.curve_, "pairs": self.pairs_, "totals": self.totals_}

    def packed(self, nodes: Packing, classes: Packing) -> dict[str, Tensor]:
        return self.state() | {"pairs": classes.places[self.pairs_]}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.curve_, self.pairs_, self.totals_ = (state[n] for n in ("curve", "pairs", "totals"))


class PredictionRecord:
    """Keeps the record of predictions, and raises the alarm."""

    def __init__(self, target: Target) -> None:
        self.prequential, self.watch = Prequential(), Watch(target)

    def count(
        self, guesses: Tallies | None, mine: Tensor, *, seq: int, nodes: int, classes: int
    ) -> tuple[int, int]:
        """Record the predictions of one delta; return their number, and that of correct ones.

        guesses: None if nothing was learned before; mine: which of them are of this delta, bool [n]
        """
        if guesses is None:
            return 0, 0
        asked, amount = int(guesses.asked[mine].sum()), guesses.right[mine].sum().item()
        if asked:
            pairs = guesses.pairs[mine] if guesses.pairs.shape[1] else None
            self.prequential.add(seq, nodes, classes, asked, amount, pairs)
            self.watch.see(seq, asked, amount)
        return int(mine.sum()), int(guesses.faultless[mine].sum())


ALARM_LEVEL = 1e-4  # false alarms per window of a steady stream, at most
END_LEVEL = 0.05  # level below which a window clears the alarm
WINDOW_SIZE = 200  # predictions
MAX_WINDOWS = 20  # windows that the newest is compared with, at most
MIN_WINDOWS = 8  # windows before any alarm

Window = tuple[float, float]
"""Number of predictions, and the sum of ``right``."""


@dataclass(frozen=True)
class Alarm:
    """Predictions have become worse: their accuracy, F1 of labels, or error of numbers."""

    seq: int  # the number of the delta that raised it
    message: str  # one sentence
    value: float  # the metric in the window that raised it
    expected: float  # the metric before


class Watch(Saved):
    """Raises the alarm while the newest window of predictions is worse than those before it.

    Predictions are grouped into windows of at least ``window``; a delta is never split. With K
    windows of means x₁...x_K before it, mean μ and variance s², and x the mean of a new window with
    n predictions,

        t = ± (x - μ) / √((1 + 1/K) max(s², p (1 - p) / n))

    raises the alarm above the quantile of Student's t with K - 1 degrees of freedom that a steady
    stream of Gaussian means exceeds once in 1 / ``ALARM_LEVEL`` windows, provided that the difference is
    relevant: 0.05 for shares, a tenth of μ for errors. The variance of shares is at least the
    binomial one, with p = (Σ amounts + 1) / (Σ answers + 2) over the earlier windows; errors of
    numbers (which must not rise, where shares must not fall) have no such bound. Windows that raise
    the alarm are not added to the past. The alarm ends with the first window below the quantile of
    level 0.05, or after 20 windows: these then become the past, as the change is permanent.

    The alarm depends on the deltas only, so a recovered learner has the same one.

    >>> from evergraph.core.targets import target_of
    >>> watch = Watch(target_of("class"), window=100)
    >>> for seq in range(1, 12):
    ...     watch.see(seq, 100, 90 if seq < 11 else 10)
    >>> [(alarm.seq, alarm.value) for alarm in watch.alarms()]
    [(11, 0.1)]
    """

    def __init__(self, target: Target, *, window: int = WINDOW_SIZE) -> None:
        self.target, self.window = target, window
        self.past_: list[Window] = []
        self.unusual_: list[Window] = []  # since the alarm was raised
        self.open_: Window = (0.0, 0.0)  # the window being filled
        # Number of the delta, mean of its window, mean before it, and predictions in the window.
        self._raised: tuple[int, float, float, int] | None = None

    def see(self, seq: int, answers: int, amount: float) -> None:
        """Add the predictions of a delta.  answers, amount: ``asked`` and ``right`` of the record"""
        self.open_ = (self.open_[0] + answers, self.open_[1] + amount)
        if self.open_[0] < self.window:
            return
        full, self.open_ = self.open_, (0.0, 0.0)
        if len(self.past_) < MIN_WINDOWS:
            self.past_.append(full)
            return
        means = [total / count for count, total in self.past_]
        expected = fmean(means)
        on = self._beyond(full, means, END_LEVEL if self.unusual_ else ALARM_LEVEL)
        if on:
            self.unusual_.append(full)
        if len(self.unusual_) == MAX_WINDOWS:  # the change is permanent
            self.past_, on = self.unusual_, False
        elif not on:
            self.past_ = [*self.past_, full][-MAX_WINDOWS:]
        if not on:
            self.unusual_ = []
        raised = seq, full[1] / full[0], expected, int(full[0])
        self._raised = (self._raised or raised) if on else None

    def _beyond(self, full: Window, means: Sequence[float], level: float) -> bool:
        from scipy.special import stdtrit

        mean, spread, known = fmean(means), variance(means), len(means)
        difference = full[1] / full[0] - mean
        if self.target.rises:
            matters = 0.1 * mean
        else:
            difference, matters = -difference, 0.05
            asked, amount = (sum(column) for column in zip(*self.past_, strict=True))
            p = (amount + 1) / (asked + 2)
            spread = max(spread, p * (1 - p) / full[0])
        quantile = float(stdtrit(known - 1, 1 - level))
        return difference >= matters and difference > quantile * sqrt((1 + 1 / known) * spread)

    def alarms(self) -> tuple[Alarm, ...]:
        """Return the alarm while it is raised, else ()."""
        if self._raised is None:
            return ()
        seq, value, expected, answers = self._raised
        now, usual = self.target.shown(value), self.target.shown(expected)
        sentence = f"{self.target.running} of the last {answers:,} predictions is {now}"
        return (Alarm(seq, f"{sentence}: expected about {usual}", value, expected),)

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name.  float64: whole numbers are exact to 2⁵³"""
        rows = [] if self._raised is None else [self._raised]
        parts = {"past": self.past_, "unusual": self.unusual_, "open": [self.open_]}
        kept = {
            f"accuracy.{name}": torch.tensor(windows, dtype=torch.float64).reshape(-1, 2)
            for name, windows in parts.items()
        }
        return kept | {"raised": torch.tensor(rows, dtype=torch.float64).reshape(-1, 4)}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.past_, self.unusual_, (self.open_,) = (
            [(answers, amount) for answers, amount in state[f"accuracy.{name}"].tolist()]
            for name in ("past", "unusual", "open")
        )
        for seq, value, expected, answers in state["raised"].tolist():
            self._raised = int(seq), value, expected, int(answers)


OnAlarm = Callable[[Alarm], object]


def report(alarms: Iterable[Alarm], call: OnAlarm, *, after: int) -> None:
    """Call a function with each alarm that was raised after delta ``after``, so once per alarm."""
    # A recovery must not report alarms again. If the function fails, the delta has succeeded.
    for alarm in alarms:
        if alarm.seq > after:
            try:
                call(alarm)
            except Exception:
                log.exception("the alarm callback failed with %r", alarm)


def warn(alarm: Alarm) -> None:
    """Write an alarm to the log."""
    log.warning("alarm: %s", alarm.message)
