"""How good predictions were before their labels came, and the alarm that they are worse now.

Whatever else is to be watched (new classes in numbers, a queue that grows) is told by metrics, and
``deploy/prometheus-rules.yaml`` alerts on them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, variance
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.core.label_space import THRESHOLD, Kind
from evergraph.training.learner import part_of

log = logging.getLogger(__name__)

METRICS: dict[Kind, str] = {
    "class": "accuracy", "labels": "micro F1", "numbers": "mean absolute error"
}  # fmt: skip
"""What the quotient of right and asked is called."""


class Point(TypedDict):
    """A stretch of deltas that brought labels.

    Attributes:
        seq: the number of the last of them.
        nodes: in the graph then.
        classes: known then.
        asked: labels that were predicted before they were learned.
        right: how many of these predictions were right; see ``Prequential.add`` for what stands
            here where nodes have several labels or numbers.
    """

    seq: int
    nodes: int
    classes: int
    asked: int
    right: int | float


class Prequential:
    """Predict, then learn: every labelled node is first asked for, and only then counted in.

    A curve has a point for a delta that brought answers. When it is full, neighbouring points
    become one, so that it stays as long as it was and shows all of the past. Of single predictions
    the latest alone are kept. No point knows a node.

    Args:
        points: how many points the curve has at most.
        latest: how many predictions are kept.

    >>> record = Prequential(points=4)
    >>> for seq in range(1, 6):
    ...     _ = record.count(seq, 10 * seq, 2, torch.tensor([0, 1]), torch.tensor([0, 0]))
    >>> record.accuracy, [point["asked"] for point in record.curve()]
    (0.5, [4, 4, 2])
    """

    def __init__(self, *, points: int = 512, latest: int = 2048) -> None:
        check_integer("points", points, least=2)
        check_integer("latest", latest, least=1)
        self.points = points
        self.latest = latest
        self.curve_ = torch.zeros(0, len(Point.__annotations__), dtype=torch.int64)
        self.pairs_ = torch.zeros(0, 2, dtype=torch.int64)  # the right class, the predicted one
        self.totals_ = torch.zeros(2, dtype=torch.int64)  # asked, right

    def count(
        self, seq: int, nodes: int, classes: int, predicted: Tensor, labels: Tensor
    ) -> tuple[int, int]:
        """Write down what was predicted for nodes whose classes are now known.

        predicted, labels: int64 [n]; -> how many were asked for, and how many were right
        """
        if not len(labels):
            return 0, 0
        asked, right = len(labels), int((predicted == labels).sum())
        self.add(seq, nodes, classes, asked, right)
        pairs = torch.stack([labels, predicted], dim=1)
        self.pairs_ = torch.cat([self.pairs_, pairs])[-self.latest :]
        return asked, right

    def add(self, seq: int, nodes: int, classes: int, asked: int, right: float) -> None:
        """Write down sums whose quotient is the measure: right answers of those asked for.

        Of several labels 2 tp of 2 tp + fp + fn, so that it is micro F1, however points are joined;
        of numbers Σ |y - ŷ| of how many: the mean absolute error.

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
            pairs = curve[:even].reshape(-1, 2, curve.shape[1])
            joined = torch.cat([pairs[:, 1, :3], pairs[:, :, 3:].sum(1)], dim=1)
            curve = torch.cat([joined, curve[even:]])
        self.curve_ = curve
        self.totals_ = self.totals_ + point[0, 3:]

    @property
    def asked(self) -> int:
        """How many predictions were made so far."""
        return int(self.totals_[0])

    @property
    def accuracy(self) -> float | None:
        """The share of right ones among all predictions so far; None before the first."""
        asked, right = self.totals_.tolist()
        return right / asked if asked else None

    def curve(self) -> list[Point]:
        """Return the points, oldest first: what was known then, asked and right since the last."""
        return [
            Point(
                seq=int(seq), nodes=int(nodes), classes=int(classes), asked=int(asked), right=right
            )
            for seq, nodes, classes, asked, right in self.curve_.tolist()
        ]

    def confusion(self, classes: Sequence[int]) -> list[list[int]]:
        """Return how nodes of some classes were classified, among the latest predictions.

        -> one row a class: how often its nodes were classified as each of them and, last, as any
        other class

        >>> record = Prequential()
        >>> _ = record.count(1, 3, 3, torch.tensor([1, 0, 2]), torch.tensor([2, 2, 2]))
        >>> record.confusion([1, 2])  # 2 was once called 1, once right, once another
        [[0, 0, 0], [1, 1, 1]]
        """
        if not classes:
            return []
        wanted = torch.tensor(list(classes), dtype=torch.int64)
        rows = self.pairs_[torch.isin(self.pairs_[:, 0], wanted)]
        same = rows[:, :, None] == wanted  # [pairs, 2, wanted]
        columns = torch.where(same[:, 1].any(1), same[:, 1].int().argmax(1), len(wanted))
        width = len(wanted) + 1
        cells = same[:, 0].int().argmax(1) * width + columns
        counts = torch.bincount(cells, minlength=len(wanted) * width)
        found: list[list[int]] = counts.reshape(-1, width).tolist()
        return found

    def state(self) -> dict[str, Tensor]:
        """Return everything written down, by name."""
        return {"curve": self.curve_, "pairs": self.pairs_, "totals": self.totals_}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self.curve_, self.pairs_ = state["curve"], state["pairs"]
        self.totals_ = state["totals"]


@dataclass(frozen=True, eq=False)
class Tallies:
    """How predictions of several labels, or of numbers, compare with what came, node by node.

    Attributes:
        asked, right: what ``Prequential.add`` is told, each node's part of it.  [n]
        faultless: whether all of a node's labels are those predicted.  int64 [n]
    """

    asked: Tensor
    right: Tensor
    faultless: Tensor

    @classmethod
    def joined(cls, parts: Sequence[Tallies]) -> Tallies:
        """Return those of several pieces as one."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*map(torch.cat, columns))

    def total(self, mine: Tensor) -> tuple[int, int | float, int]:
        """Return what ``Prequential.add`` is told of some nodes, and how many have no fault.

        mine: which, bool [n]
        """
        right = self.right[mine].sum().item()
        return int(self.asked[mine].sum()), right, int(self.faultless[mine].sum())


def tallies(given: Tensor, right: Tensor, kind: Kind) -> Tallies:
    """Return how predictions compare with what nodes have.

    given: probabilities of labels, or numbers, [n, targets]; right: what nodes have; it may have
    more labels, which came too late to be predicted.

    Of three labels given or there, two are the same one: 2 of 3.

    >>> everybody = torch.tensor([True])
    >>> tallies(torch.tensor([[0.9, 0.8]]), torch.tensor([[1., 0.]]), "labels").total(everybody)
    (3, 2, 0)
    >>> tallies(torch.tensor([[1.5]]), torch.tensor([[2.]]), "numbers").total(everybody)
    (1, 0.5, 0)
    """
    if kind == "numbers":
        ones = torch.ones(len(right), dtype=torch.int64)
        return Tallies(ones, (given - right).abs().flatten(), torch.zeros_like(ones))
    given = torch.nn.functional.pad(given, (0, right.shape[1] - given.shape[1]))
    found, there = given > THRESHOLD, right == 1
    hits, wrong = (found & there).sum(1), (found != there).sum(1)
    return Tallies(2 * hits + wrong, 2 * hits, (wrong == 0).long())


class PredictionRecord:
    """Compares predictions with the labels that came, and keeps the record of it.

    Attributes:
        prequential: how often predictions were right.
        watch: raises an alarm where the record is no longer as it was.

    >>> record = PredictionRecord("class")
    >>> guesses, labels = torch.tensor([0, 1]), torch.tensor([0, 0])
    >>> record.count(guesses, labels, torch.tensor([True, True]), seq=1, nodes=2, classes=2)
    (2, 1)
    >>> record.prequential.accuracy
    0.5
    """

    def __init__(self, kind: Kind) -> None:
        self.prequential = Prequential()
        self.watch = Watch(kind)

    @property
    def parts(self) -> dict[str, Prequential | Watch]:
        """What keeps a state of its own, by name."""
        return {"prequential": self.prequential, "alarms": self.watch}

    def count(
        self,
        guesses: Tensor | Tallies | None,
        labels: Tensor,
        mine: Tensor,
        *,
        seq: int,
        nodes: int,
        classes: int,
    ) -> tuple[int, int]:
        """Compare what was predicted with the labels of one delta, and write it down.

        guesses: classes, int64 [n], or how several labels or numbers compare; None where nothing
        was known to predict from. labels: numbered answers of nodes that had none, int64 [n]; mine:
        which are of this delta, bool [n]; seq: of the delta; nodes, classes: how many are known
        with it. -> how many predictions there were, and how many were right: of several labels all
        of a node's, of numbers none
        """
        predicted = 0 if guesses is None else int(mine.sum())
        if guesses is None or not predicted:
            return 0, 0
        if isinstance(guesses, Tallies):
            asked, amount, right = guesses.total(mine)
            if asked:
                self.prequential.add(seq, nodes, classes, asked, amount)
        else:
            asked, right = self.prequential.count(seq, nodes, classes, guesses[mine], labels[mine])
            amount = right
        self.watch.see(seq, asked, amount)
        return predicted, right


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


class Verdict(NamedTuple):
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


class Watch:
    """Raises an alarm while predictions are worse than they were: is the newest window like those
    before it?

    Answers are put into windows of at least ``window``; a delta is never cut. With K windows of
    means x₁...x_K before it, mean μ and variance s², and x the mean of a new one with n answers,

        t = ± (x - μ) / √((1 + 1/K) max(s², p (1 - p) / n))

    raises an alarm above the quantile of Student's t of K - 1 degrees of freedom that a steady
    stream of Gaussian means passes once in 1 / ``level`` windows, if the difference is also one
    that matters: 0.05 of shares, a tenth of μ of errors. p = (Σ amounts + 1) / (Σ answers + 2) over
    the windows before: shares have the spread of shares at least, errors of numbers (which must not
    rise, where shares must not fall) none but their own. Windows that raise an alarm are not
    counted among the past. It is over with the first window below the quantile of level 0.05, or
    when there were 20 of them: these are the past then, since nothing will be again as it was.

    It follows from the deltas alone, so a learner that is recovered has the same alarm.

    Args:
        kind: what nodes are said to be.
        window, level: as above.

    >>> watch = Watch("class", window=100)
    >>> for seq in range(1, 12):
    ...     _ = watch.see(seq, 100, 90 if seq < 11 else 10)
    >>> [(alarm.seq, alarm.value) for alarm in watch.alarms()]
    [(11, 0.1)]
    """

    def __init__(self, kind: Kind, *, window: int = WINDOW, level: float = LEVEL) -> None:
        self.kind: Kind = kind
        self.window = window
        self.level = level
        self.past_: list[Window] = []
        self.unusual_: list[Window] = []  # since the alarm was raised
        self.open_: Window = (0.0, 0.0)  # the window that is not full
        self._raised: tuple[int, Verdict] | None = None  # by which delta, and what it said

    def see(self, seq: int, answers: int, amount: float) -> Verdict | None:
        """Look at what a delta's labels say, once it is done.

        answers, amount: what ``Prequential`` was told: how many were asked for, how many right. ->
        what a window says that they fill, if it can tell
        """
        self.open_ = (self.open_[0] + answers, self.open_[1] + amount)
        if self.open_[0] < self.window:
            return None
        full, self.open_ = self.open_, (0.0, 0.0)
        if len(self.past_) < LEAST:
            self.past_.append(full)
            return None
        said = self._judged(full)
        self._raised = (self._raised or (seq, said)) if said.on else None
        return said

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
        difference = full[1] / full[0] - mean
        if self.kind == "numbers":
            matters = 0.1 * mean
        else:
            difference, matters = -difference, 0.05
            asked, amount = (sum(column) for column in zip(*self.past_, strict=True))
            p = (amount + 1) / (asked + 2)
            spread = max(spread, p * (1 - p) / full[0])
        quantile = float(stdtrit(known - 1, 1 - level))
        return difference >= matters and difference > quantile * sqrt((1 + 1 / known) * spread)

    def alarms(self) -> tuple[Alarm, ...]:
        """Return the alarm while it is raised, else nothing."""
        if self._raised is None:
            return ()
        seq, said = self._raised
        now, usual = (
            f"{value:.4g}" if self.kind == "numbers" else f"{100 * value:.1f} %"
            for value in (said.value, said.expected)
        )
        message = (
            f"{METRICS[self.kind]} of the last {said.answers:,} predictions is {now}: expected "
            f"about {usual}"
        )
        return (Alarm(seq, message, said.value, said.expected),)

    def state(self) -> dict[str, Tensor]:
        """Return everything seen, by name.  float64: whole numbers are exact to 2⁵³"""
        rows = [] if self._raised is None else [[self._raised[0], *self._raised[1][1:]]]
        parts = {"past": self.past_, "unusual": self.unusual_, "open": [self.open_]}
        kept = {
            f"accuracy.{name}": torch.tensor(windows, dtype=torch.float64).reshape(-1, 2)
            for name, windows in parts.items()
        }
        return kept | {"raised": torch.tensor(rows, dtype=torch.float64).reshape(-1, 4)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned; nothing where a snapshot is older than alarms."""
        if kept := part_of(state, "accuracy."):
            self.past_, self.unusual_, (self.open_,) = (
                [(answers, amount) for answers, amount in kept[name].tolist()]
                for name in ("past", "unusual", "open")
            )
        rows = state["raised"].tolist() if "raised" in state else []
        # Older ones have a log of alarms of several kinds, 0 of accuracy, -1 while not over.
        for kind, seq, cleared, value, expected, _, answers in state.get("log.entries", ()):
            if (int(kind), int(cleared)) == (0, -1):
                rows.append([seq, value, expected, answers])
        for seq, value, expected, answers in rows:
            self._raised = int(seq), Verdict(True, float(value), float(expected), int(answers))


def _means(windows: Sequence[Window]) -> list[float]:
    return [amount / answers for answers, amount in windows]


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
