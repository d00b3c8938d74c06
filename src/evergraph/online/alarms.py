"""One alarm: predictions are worse than they were, before their labels came.

Whatever else is to be watched (new classes in numbers, a queue that grows) is told by metrics, and
``deploy/prometheus-rules.yaml`` alerts on them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, variance

import torch
from torch import Tensor

from evergraph.core.label_space import Kind
from evergraph.training.learner import part_of

log = logging.getLogger(__name__)

LEVEL = 1e-4  # how often a window of a steady stream raises an alarm, at most
BACK = 0.05  # a window that would raise one at this level does not clear it
WINDOW = 200  # answers
REFERENCE = 20  # windows that the newest is compared with, at most
LEAST = 8  # windows before any alarm

Window = tuple[float, float]
"""How many answers it has, and the sum of what is measured of each."""


@dataclass(frozen=True)
class Alarm:
    """Predictions are worse than they were; of several labels their F1, of numbers their error.

    Attributes:
        seq: the number of the delta that raised it.
        message: what is wrong, in one sentence.
        value: what was measured.
        expected: what the past let expect.
        kind: ``accuracy``, the only one.
    """

    seq: int
    message: str
    value: float
    expected: float
    kind: str = "accuracy"


@dataclass(frozen=True)
class Verdict:
    """What a window says.

    Attributes:
        on: whether it raises an alarm, or leaves one raised.
        value: its mean.
        expected: the mean of the windows before it.
        answers: how many it has.
    """

    on: bool
    value: float
    expected: float
    answers: int


class Measure:
    """A mean that is watched: does the newest window still belong to those before it?

    Answers are put into windows of at least ``window``; a delta is never cut. With K windows of
    means x₁...x_K before it, mean μ and variance s², and x the mean of a new one with n answers,

        t = ± (x - μ) / √((1 + 1/K) max(s², p (1 - p) / n))

    raises an alarm above the quantile of Student's t of K - 1 degrees of freedom that a steady
    stream of Gaussian means passes once in 1 / ``level`` windows, if the difference is also at
    least ``least``; p = (Σ amounts + 1) / (Σ answers + 2) over the windows before. Windows that
    raise one are not counted among the past. It is over with the first window below the quantile
    of level 0.05, or when there were 20 of them: these are the past then, since nothing will be
    again as it was. Shares have the spread of shares at least; numbers (``share`` false) have none
    but their own.

    Args:
        rises: whether a rise is bad, not a fall.
        share: whether amounts are counts of the answers.
        least: the smallest difference that matters: of shares as it is, of others relative to μ.
        window, level: as above.

    >>> accuracy = Measure(rises=False, window=100)
    >>> said = [accuracy.add(100, right) for right in (80, 75, 80, 85, 80, 80, 75, 85, 80, 40)]
    >>> [verdict.on for verdict in said if verdict is not None]
    [False, True]
    """

    def __init__(
        self,
        *,
        rises: bool,
        share: bool = True,
        least: float = 0.05,
        window: int = WINDOW,
        level: float = LEVEL,
    ) -> None:
        self.rises = rises
        self.share = share
        self.least = least
        self.window = window
        self.level = level
        self.past_: list[Window] = []
        self.unusual_: list[Window] = []  # since the alarm was raised
        self.open_: Window = (0.0, 0.0)  # the window that is not full

    def add(self, answers: int, amount: float) -> Verdict | None:
        """Count a delta's answers; return what a window says that they fill, if it can tell."""
        self.open_ = (self.open_[0] + answers, self.open_[1] + amount)
        if self.open_[0] < self.window:
            return None
        full, self.open_ = self.open_, (0.0, 0.0)
        if len(self.past_) < LEAST:
            self.past_.append(full)
            return None
        return self._judged(full)

    def _judged(self, full: Window) -> Verdict:
        on = self._beyond(full, BACK if self.unusual_ else self.level)
        expected = fmean(_means(self.past_))
        if on:
            self.unusual_.append(full)
        if len(self.unusual_) == REFERENCE:  # this is how it is now
            self.past_, on = self.unusual_, False
        elif not on:
            self.past_ = [*self.past_, full][-REFERENCE:]
        if not on:
            self.unusual_ = []
        return Verdict(on, full[1] / full[0], expected, int(full[0]))

    def _beyond(self, full: Window, level: float) -> bool:
        from scipy.special import stdtrit

        means = _means(self.past_)
        mean, spread, known = fmean(means), variance(means), len(means)
        difference = (full[1] / full[0] - mean) * (1 if self.rises else -1)
        if self.share:
            asked, amount = (sum(column) for column in zip(*self.past_, strict=True))
            p = (amount + 1) / (asked + 2)
            spread = max(spread, p * (1 - p) / full[0])
        matters = self.least if self.share else self.least * mean
        quantile = float(stdtrit(known - 1, 1 - level))
        return difference >= matters and difference > quantile * sqrt((1 + 1 / known) * spread)

    def state(self) -> dict[str, Tensor]:
        """Return everything counted, by name.  float64 [windows, 2]"""
        parts = {"past": self.past_, "unusual": self.unusual_, "open": [self.open_]}
        return {
            name: torch.tensor(rows, dtype=torch.float64).reshape(-1, 2)
            for name, rows in parts.items()
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self.past_, self.unusual_, (self.open_,) = (
            [(answers, amount) for answers, amount in state[name].tolist()]
            for name in ("past", "unusual", "open")
        )


def _means(windows: Sequence[Window]) -> list[float]:
    return [amount / answers for answers, amount in windows]


class Watch:
    """Raises an alarm while predictions are worse than they were; see ``Measure`` for the rule.

    It follows from the deltas alone, so a learner that is recovered has the same alarm.

    Args:
        kind: what nodes are said to be; of numbers the error must not rise.
        metric: what is measured, for the sentence.
        window: answers that are looked at together.
        level: false alarms a window, at most.

    >>> watch = Watch("class", "accuracy", window=100)
    >>> for seq in range(1, 12):
    ...     watch.see(seq, 100, 90 if seq < 11 else 10)
    >>> [(alarm.seq, alarm.value) for alarm in watch.alarms()]
    [(11, 0.1)]
    """

    def __init__(
        self, kind: Kind, metric: str, *, window: int = WINDOW, level: float = LEVEL
    ) -> None:
        self.metric = metric
        numbers = kind == "numbers"
        self._measure = Measure(
            rises=numbers,
            share=not numbers,
            least=0.1 if numbers else 0.05,
            window=window,
            level=level,
        )
        self._raised: tuple[int, Verdict] | None = None  # by which delta, and what it said

    def see(self, seq: int, answers: int, amount: float) -> None:
        """Look at what a delta's labels say, once it is done.

        answers, amount: what ``Prequential`` was told: how many were asked for, how many right.
        """
        said = self._measure.add(answers, amount) if answers else None
        if said is not None:
            self._raised = (self._raised or (seq, said)) if said.on else None

    def alarms(self) -> tuple[Alarm, ...]:
        """Return the alarm while it is raised, else nothing."""
        if self._raised is None:
            return ()
        seq, said = self._raised
        plain = self.metric == "mean absolute error"
        now, usual = (
            f"{value:.4g}" if plain else f"{100 * value:.1f} %"
            for value in (said.value, said.expected)
        )
        message = (
            f"{self.metric} of the last {said.answers:,} predictions is {now}: expected about "
            f"{usual}"
        )
        return (Alarm(seq, message, said.value, said.expected),)

    def state(self) -> dict[str, Tensor]:
        """Return everything seen, by name.  float64: whole numbers are exact to 2⁵³"""
        rows = []
        if self._raised is not None:
            seq, said = self._raised
            rows = [[seq, said.value, said.expected, said.answers]]
        kept = {f"accuracy.{name}": value for name, value in self._measure.state().items()}
        return kept | {"raised": torch.tensor(rows, dtype=torch.float64).reshape(-1, 4)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned; nothing where a snapshot is older than alarms."""
        if kept := part_of(state, "accuracy."):
            self._measure.restore(kept)
        rows = state["raised"].tolist() if "raised" in state else []
        # Older ones have a log of alarms of several kinds, 0 of accuracy, -1 while not over.
        for kind, seq, cleared, value, expected, _, answers in state.get("log.entries", ()):
            if (int(kind), int(cleared)) == (0, -1):
                rows.append([seq, value, expected, answers])
        for seq, value, expected, answers in rows:
            self._raised = int(seq), Verdict(True, float(value), float(expected), int(answers))


OnAlarm = Callable[[Alarm], object]


def tell(alarms: Iterable[Alarm], call: OnAlarm, *, after: int) -> None:
    """Call a function with each alarm that was raised after a delta, so that each is told once.

    What a recovery finds or raises again is not news. That the function fails is no reason to think
    that a delta did.
    """
    for alarm in alarms:
        if alarm.seq > after:
            try:
                call(alarm)
            except Exception:
                log.exception("the function that is told of alarms failed with %r", alarm)


def warn(alarm: Alarm) -> None:
    """Write an alarm to the log."""
    log.warning("alarm (%s): %s", alarm.kind, alarm.message)
