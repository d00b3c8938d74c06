"""Which nodes have been learned, and how they counted."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError

PARTS = ("train", "validation")


@dataclass(frozen=True, eq=False)
class Entries:
    """Learned nodes.

    Attributes:
        ids: which nodes of the dataset.  int64 [n]
        labels: their classes.  int64 [n]; or their targets.  float32 [n, targets]
        weights: how much each counted.  float32 [n]
    """

    ids: Tensor
    labels: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Tensor) -> Entries:
        """Return some of the entries."""
        return Entries(self.ids[rows], self.labels[rows], self.weights[rows])


def check_held(ids: Tensor, known_as: Tensor) -> None:
    """Raise unless a graph whose nodes are ``known_as`` holds the nodes to forget."""
    strangers = ids[~torch.isin(ids, known_as)]
    if len(strangers):
        raise ConfigurationError(
            f"graph must hold the nodes to forget, but node {int(strangers[0])} is not there"
        )


class LearnedNodes:
    """The nodes behind statistics, so that single ones can be counted out again.

    >>> ledger = LearnedNodes()
    >>> ledger.enter(torch.tensor([7, 9]), torch.tensor([0, 1]), torch.ones(2), "train")
    >>> ledger.strike(torch.tensor([9]))["train"].labels, len(ledger.part("train"))
    (tensor([1]), 1)
    """

    def __init__(self) -> None:
        nothing = torch.empty(0, dtype=torch.int64)
        self._parts = {part: Entries(nothing, nothing, torch.empty(0)) for part in PARTS}

    def part(self, part: str) -> Entries:
        """Return the training or the validation nodes."""
        return self._parts[part]

    def enter(self, ids: Tensor, labels: Tensor, weights: Tensor, part: str) -> None:
        """Write nodes down."""
        old = self._parts[part]
        self._parts[part] = Entries(
            torch.cat([old.ids, ids.cpu()]),
            torch.cat([old.labels, labels.cpu()]),
            torch.cat([old.weights, weights.cpu().float()]),
        )

    def strike(self, ids: Tensor) -> dict[str, Entries]:
        """Strike nodes out; return those that were there."""
        struck = {}
        for part, entries in self._parts.items():
            named = torch.isin(entries.ids, ids.cpu())
            struck[part] = entries.take(named)
            self._parts[part] = entries.take(~named)
        return struck

    def copy_from(self, other: LearnedNodes, classes: Tensor | None = None) -> None:
        """Write down all that another has; ``classes``: what its classes are called here."""
        for part in PARTS:
            theirs = other.part(part)
            labels = theirs.labels if classes is None else classes.cpu()[theirs.labels]
            self.enter(theirs.ids, labels, theirs.weights, part)

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return sum(tensor.nbytes for tensor in self.state().values())

    def state(self) -> dict[str, Tensor]:
        """Return everything written down, by name."""
        return {
            f"{part}.{name}": tensor
            for part, entries in self._parts.items()
            for name, tensor in vars(entries).items()
            if len(entries)
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        for part in PARTS:
            if f"{part}.ids" in state:
                fields = (state[f"{part}.{name}"] for name in ("ids", "labels", "weights"))
                self._parts[part] = Entries(*fields)
