"""Labels that were predicted before they were learned."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from evergraph.online.alarms import Watch
from evergraph.online.heads import OnlineHead
from evergraph.online.prequential import Prequential, Tallies


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


class Foretold:
    """Compares predictions with the labels that came, and keeps the record of it.

    Attributes:
        prequential: how often predictions were right.
        watch: raises alarms where the record is no longer as it was.

    >>> from evergraph.online.heads import FusedHead
    >>> import torch
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
        before = self.prequential.totals_
        self._write(compared, (seq, nodes, classes))
        asked, right = (self.prequential.totals_ - before).tolist()
        self._watch(compared.labels, seq, (int(asked), right), classes)

    def _write(self, compared: Compared, place: tuple[int, int, int]) -> None:
        guesses = compared.guesses
        if isinstance(guesses, Tallies):
            asked, right, _ = guesses.total
            if asked:
                self.prequential.add(*place, asked, right)
        elif guesses is not None:
            self.prequential.count(*place, guesses, compared.labels)

    def _watch(self, labels: Tensor, seq: int, answers: tuple[int, float], known: int) -> None:
        if self.head.kind != "labels":
            self.watch.see(seq, labels, answers=answers, known=known)
            return
        owners, columns = self.head.labels_of(labels)
        self.watch.see(seq, columns, answers=answers, known=known, owners=owners, nodes=len(labels))
