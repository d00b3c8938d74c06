"""How good predictions were before their answers came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.core.label_space import THRESHOLD, Kind
from evergraph.online.alarms import Watch


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


METRICS: dict[Kind, str] = {
    "class": "accuracy", "labels": "micro F1", "numbers": "mean absolute error"
}  # fmt: skip
"""What the quotient of right and asked is called."""
COLUMNS = tuple(Point.__annotations__)


@dataclass(frozen=True)
class Confusion:
    """How nodes of some classes were classified, among the latest predictions.

    Attributes:
        classes: numbers of the classes, newest last.
        counts: one row per class: how often its nodes were classified as each of them and, last, as
            any other class.
    """

    classes: tuple[int, ...]
    counts: tuple[tuple[int, ...], ...]


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
        self.curve_ = torch.zeros(0, len(COLUMNS), dtype=torch.int64)
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
        self.curve_ = _shortened(torch.cat([self.curve_, point]), self.points)
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

    def confusion(self, classes: Sequence[int]) -> Confusion:
        """Return how nodes of these classes were classified lately.

        >>> record = Prequential()
        >>> _ = record.count(1, 3, 3, torch.tensor([1, 0, 2]), torch.tensor([2, 2, 2]))
        >>> record.confusion([1, 2]).counts  # 2 was once called 1, once right, once another
        ((0, 0, 0), (1, 1, 1))
        """
        if not classes:
            return Confusion((), ())
        wanted = torch.tensor(list(classes), dtype=torch.int64)
        rows = self.pairs_[torch.isin(self.pairs_[:, 0], wanted)]
        same = rows[:, :, None] == wanted  # [pairs, 2, wanted]
        columns = torch.where(same[:, 1].any(1), same[:, 1].int().argmax(1), len(wanted))
        width = len(wanted) + 1
        cells = same[:, 0].int().argmax(1) * width + columns
        counts = torch.bincount(cells, minlength=len(wanted) * width).reshape(-1, width)
        return Confusion(tuple(classes), tuple(map(tuple, counts.tolist())))

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

    def of(self, mine: Tensor) -> Tallies:
        """Return those of some nodes.  bool [n]"""
        return Tallies(self.asked[mine], self.right[mine], self.faultless[mine])

    @property
    def total(self) -> tuple[int, int | float, int]:
        """What ``Prequential.add`` is told, and how many nodes were answered without fault."""
        right = self.right.sum().item()
        return int(self.asked.sum()), right, int(self.faultless.sum())


def tallies(given: Tensor, right: Tensor, kind: Kind) -> Tallies:
    """Return how predictions compare with what nodes have.

    given: probabilities of labels, or numbers, [n, targets]; right: what nodes have; it may have
    more labels, which came too late to be predicted.

    Of three labels given or there, two are the same one: 2 of 3.

    >>> tallies(torch.tensor([[0.9, 0.8]]), torch.tensor([[1., 0.]]), "labels").total
    (3, 2, 0)
    >>> tallies(torch.tensor([[1.5]]), torch.tensor([[2.]]), "numbers").total
    (1, 0.5, 0)
    """
    if kind == "numbers":
        ones = torch.ones(len(right), dtype=torch.int64)
        return Tallies(ones, (given - right).abs().flatten(), torch.zeros_like(ones))
    given = torch.nn.functional.pad(given, (0, right.shape[1] - given.shape[1]))
    found, there = given > THRESHOLD, right == 1
    hits, wrong = (found & there).sum(1), (found != there).sum(1)
    return Tallies(2 * hits + wrong, 2 * hits, (wrong == 0).long())


def _shortened(curve: Tensor, points: int) -> Tensor:
    """Return the curve with neighbours joined, all but an odd last one, if it is too long."""
    if len(curve) <= points:
        return curve
    even = len(curve) // 2 * 2
    pairs = curve[:even].reshape(-1, 2, curve.shape[1])
    joined = torch.cat([pairs[:, 1, :3], pairs[:, :, 3:].sum(1)], dim=1)
    return torch.cat([joined, curve[even:]])


@dataclass(frozen=True, eq=False)
class Compared:
    """What was predicted of the nodes whose labels came with a delta, and what they are.

    Attributes:
        labels: numbered answers of nodes that had none.  int64 [n]
        guesses: classes, int64 [n], or how several labels or numbers compare; None where nothing
            was known to predict from.
        predicted: how many there were to predict.
        right: how many predictions were right; of several labels all of a node's, of numbers none.
    """

    labels: Tensor
    guesses: Tensor | Tallies | None = None
    predicted: int = 0
    right: int = 0


class PredictionRecord:
    """Compares predictions with the labels that came, and keeps the record of it.

    Attributes:
        prequential: how often predictions were right.
        watch: raises alarms where the record is no longer as it was.

    >>> record = PredictionRecord("class")
    >>> guesses, labels = torch.tensor([0, 1]), torch.tensor([0, 0])
    >>> found = record.compared(guesses, labels, torch.tensor([True, True]))
    >>> found.predicted, found.right
    (2, 1)
    >>> record.count(found, seq=1, nodes=2, classes=2)
    >>> record.prequential.accuracy
    0.5
    """

    def __init__(self, kind: Kind) -> None:
        self.prequential = Prequential()
        self.watch = Watch(kind, METRICS[kind])

    @property
    def parts(self) -> dict[str, Prequential | Watch]:
        """What keeps a state of its own, by name."""
        return {"prequential": self.prequential, "alarms": self.watch}

    def compared(self, guesses: Tensor | Tallies | None, labels: Tensor, mine: Tensor) -> Compared:
        """Compare those of one delta among others.  mine: which these are, bool [labels]"""
        labels = labels[mine]
        if guesses is None or not len(labels):
            return Compared(labels)
        if isinstance(guesses, Tallies):
            found = guesses.of(mine)
            return Compared(labels, found, len(labels), found.total[2])
        given = guesses[mine]
        return Compared(labels, given, len(labels), int((given == labels).sum()))

    def count(self, compared: Compared, *, seq: int, nodes: int, classes: int) -> None:
        """Write a comparison down, and let the watch look at it.

        seq: of the delta; nodes, classes: how many are known with it.
        """
        guesses, asked, right = compared.guesses, 0, 0.0
        if isinstance(guesses, Tallies):
            asked, right, _ = guesses.total
            if asked:
                self.prequential.add(seq, nodes, classes, asked, right)
        elif guesses is not None:
            asked, right = self.prequential.count(seq, nodes, classes, guesses, compared.labels)
        self.watch.see(seq, asked, right)
