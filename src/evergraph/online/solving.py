"""When scores are brought up to date with what was counted."""

from __future__ import annotations

import torch
from torch import Tensor

SMALL = 1024  # labelled nodes: with fewer, scores follow every change
SHARE = 1 / 16  # of what is known; when more has been counted, scores follow


class Solving:
    """Decides after every change whether scores are solved now or wait for more.

    They are solved at once where that cannot wait (``urgent``: a class is new or gone, a node was
    forgotten, a label taken back, a class has enough nodes for a say in the mixture), where fewer
    than ``SMALL`` labelled nodes are known, and where what was counted since they were last solved
    passes ``SHARE`` of these; and at the latest with the change number ``patience`` since then.
    Nothing else counts, least of all the time: the same changes are solved at the same points by
    whoever applies them again.

    Args:
        patience: how many changes at most scores may be behind, the last one included; with 1 they
            never are.

    >>> solving = Solving(patience=3)
    >>> [solving.due(10, known=100_000) for _ in range(4)]
    [False, False, True, False]
    >>> solving.due(10, known=100_000, urgent=True), solving.behind
    (True, False)
    >>> solving.due(0, known=100_000), solving.behind  # nothing to wait for
    (False, False)
    """

    def __init__(self, *, patience: int) -> None:
        self.patience = patience
        self._changes = 0
        self._counted = 0

    @property
    def behind(self) -> bool:
        """Whether something was counted that scores do not know of."""
        return self._counted > 0

    def due(self, counted: int, *, known: int, urgent: bool = False) -> bool:
        """Note a change; return whether scores are to be solved with it.

        counted: how many nodes it has counted; known: how many labelled nodes there are.
        """
        self._counted += counted
        self._changes += self._counted > 0
        small = known < SMALL or self._counted > SHARE * known
        due = urgent or (self.behind and (small or self._changes >= self.patience))
        if due:
            self._counted = self._changes = 0
        return due

    def state(self) -> dict[str, Tensor]:
        """Return what is waiting."""
        return {"waiting": torch.tensor([self._changes, self._counted])}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self._changes, self._counted = state["waiting"].tolist()
