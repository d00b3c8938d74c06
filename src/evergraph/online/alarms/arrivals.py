"""Which classes labels were of: those that are new, and those that no longer come."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
import torch
from torch import Tensor

from evergraph.online.alarms.measure import LEVEL, WINDOW

KNOWN = 20  # labels of a class before it can fade
FIRST, END, COUNT, LONGEST = range(4)


@dataclass(frozen=True)
class Fading:
    """A class that no longer comes: how many labels came since, and in how many one was due."""

    number: int
    since: int
    every: float


class Arrivals:
    """When labels of each class came, counted in labels of all classes.

    All labels of a delta come at once: in which order it lists them is no matter.

    A label is *new* while its class was first met less than ``window`` labels before. A class with
    k ≥ 20 labels that come once in 1/p labels *fades* when it has been missing from g labels,

        g > ln(level / window) / ln(1 - p),    p = (k - 3 √k) / (labels from its first to its last)

    and twice as long as ever before. 3 √k makes p smaller than it is in all likelihood, and a
    class that comes by chance as often as before misses so many labels once in window / level of
    its own: over all classes at most once in 1 / ``level`` windows.

    >>> arrivals = Arrivals(window=10)
    >>> arrivals.add(torch.tensor([0, 1, 0]), 3, 2)  # labels 0 to 2, all of them of new classes
    3
    >>> arrivals.add(torch.ones(10).long(), 10, 2), arrivals.add(torch.tensor([1, 2]), 2, 3)
    (10, 1)
    """

    def __init__(self, *, window: int = WINDOW, level: float = LEVEL) -> None:
        self.window = window
        self.level = level
        self.seen_ = 0
        self.classes_ = np.zeros((4, 0), np.int64)  # first, end, count, longest gap

    def add(self, classes: Tensor, labels: int, known: int, owners: Tensor | None = None) -> int:
        """Count the labels of a delta; return how many of them are new.

        classes: int64 [n]; labels: of how many nodes; known: how many classes there are; owners:
        the place of each class's node among them, if a node may have several.  int64 [n]
        """
        given = classes.numpy()
        self._grow(known)
        counts = np.bincount(given, minlength=known)
        here, table = counts > 0, self.classes_
        fresh = here & (table[COUNT] == 0)
        table[FIRST, fresh] = self.seen_
        again = here & ~fresh
        table[LONGEST, again] = np.maximum(table[LONGEST, again], self.seen_ - table[END, again])
        young = self.seen_ - table[FIRST, given] < self.window
        self.seen_ += labels
        table[END, here] = self.seen_
        table[COUNT] += counts
        return int(young.sum()) if owners is None else len(np.unique(owners.numpy()[young]))

    def _grow(self, known: int) -> None:
        """Make room for classes; a new array, since what ``state`` gave away stays as it was."""
        wider = np.zeros((4, max(known, self.classes_.shape[1])), np.int64)
        wider[:, : self.classes_.shape[1]] = self.classes_
        self.classes_ = wider

    def fading(self) -> list[Fading]:
        """Return the classes that no longer come, by number."""
        known = np.flatnonzero(self.classes_[COUNT] >= KNOWN)
        first, end, count, longest = self.classes_[:, known]
        share = (count - 3 * np.sqrt(count)) / np.maximum(end - first, 1)
        due = log(self.level / self.window) / np.log1p(-share.clip(1e-12, 0.999))
        since = self.seen_ - end
        gone = (since > due) & (since > 2 * longest)
        found = zip(known[gone], since[gone], ((end - first) / count)[gone], strict=True)
        return [Fading(int(number), int(missed), float(mean)) for number, missed, mean in found]

    def state(self) -> dict[str, Tensor]:
        """Return everything counted, by name."""
        return {"seen": torch.tensor([self.seen_]), "classes": torch.from_numpy(self.classes_)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self.seen_, self.classes_ = int(state["seen"][0]), state["classes"].numpy()
