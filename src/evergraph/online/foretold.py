"""Labels that were predicted before they were learned."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.online.alarms import Watch
from evergraph.online.heads import OnlineHead
from evergraph.online.prequential import Prequential, tally


@dataclass(frozen=True, eq=False)
class Compared:
    """What was predicted of the nodes whose labels came with a delta, and what they are.

    Attributes:
        labels: numbered answers of nodes that had none.  int64 [n]
        guesses: classes, or values of all targets, None where nothing was known to predict from.
            int64 [n] or float32 [n, targets]
        predicted: how many there were to predict.
        right: how many predictions were right; of several labels all of a node's, of numbers none.
    """

    labels: Tensor
    guesses: Tensor | None = None
    predicted: int = 0
    right: int = 0


class Foretold:
    """Compares predictions with the labels that came, and keeps the record of it.

    Attributes:
        prequential: how often predictions were right.
        watch: raises alarms where the record is no longer as it was.

    >>> from evergraph.online.heads import FusedHead
    >>> foretold = Foretold(FusedHead())
    >>> guesses, labels = torch.tensor([0, 1]), torch.tensor([0, 0])
    >>> found = foretold.compared(guesses, labels, torch.tensor([True, True]))
    >>> found.predicted, found.right
    (2, 1)
    >>> foretold.count(found, seq=1, nodes=2, classes=2)
    >>> foretold.prequential.accuracy
    0.5
    """

    def __init__(self, head: OnlineHead) -> None:
        self.head = head
        self.prequential = Prequential()
        self.watch = Watch(head.kind)

    @property
    def parts(self) -> dict[str, Prequential | Watch]:
        """What keeps a state of its own, by name."""
        return {"prequential": self.prequential, "alarms": self.watch}

    def compared(self, guesses: Tensor | None, labels: Tensor, mine: Tensor) -> Compared:
        """Compare those of one delta among others.  mine: which these are, bool [labels]"""
        labels = labels[mine]
        if guesses is None or not len(labels):
            return Compared(labels)
        guesses = guesses[mine]
        if self.head.kind == "class":
            return Compared(labels, guesses, len(labels), int((guesses == labels).sum()))
        values = self.head.values(labels)
        # Labels that came with this delta were not there to be guessed.
        guesses = torch.nn.functional.pad(guesses, (0, values.shape[1] - guesses.shape[1]))
        return Compared(labels, guesses, len(labels), tally(guesses, values, self.head.kind)[2])

    def count(self, compared: Compared, *, seq: int, nodes: int, classes: int) -> None:
        """Write a comparison down, and let the watch look at it.

        seq: of the delta; nodes, classes: how many are known with it.
        """
        before = self.prequential.totals_
        self._write(compared, (seq, nodes, classes))
        asked, right = (self.prequential.totals_ - before).tolist()
        answers = int(asked), right
        self.watch.see(seq, self._told(compared.labels), answers=answers, known=classes)

    def _write(self, compared: Compared, place: tuple[int, int, int]) -> None:
        labels, guesses = compared.labels, compared.guesses
        if guesses is None:
            return
        if self.head.kind == "class":
            self.prequential.count(*place, guesses, labels)
            return
        asked, right, _ = tally(guesses, self.head.values(labels), self.head.kind)
        if asked:
            self.prequential.add(*place, asked, right)

    def _told(self, labels: Tensor) -> Tensor:
        """Return classes, or which labels answers stand for, bool [n, labels], or numbers."""
        if self.head.kind == "class" or not len(labels):
            return labels
        values = self.head.values(labels)
        return values == 1 if self.head.kind == "labels" else values
