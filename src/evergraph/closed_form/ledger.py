"""A record of the learned nodes with their classes and weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError

PARTS = ("train", "validation")


@dataclass(frozen=True, eq=False)
class LedgerEntries:
    """Learned nodes.

    Attributes:
        ids: their ids in the dataset.  int64 [n]
        labels: their classes.  int64 [n]; or their targets.  float32 [n, targets]
        weights: their weights in the statistics.  float32 [n]
    """

    ids: Tensor
    labels: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Tensor) -> LedgerEntries:
        """Return some of the entries."""
        return LedgerEntries(self.ids[rows], self.labels[rows], self.weights[rows])


def check_held(ids: Tensor, known_as: Tensor) -> None:
    """Raise unless a graph whose nodes are ``known_as`` holds the nodes to forget."""
    strangers = ids[~torch.isin(ids, known_as)]
    if len(strangers):
        raise ConfigurationError(
            f"graph must hold the nodes to forget, but node {int(strangers[0])} is missing"
        )


class LearnedNodes:
    """The nodes behind statistics, recorded so that single ones can be removed again.

    >>> ledger = LearnedNodes()
    >>> ledger.enter(torch.tensor([7, 9]), torch.tensor([0, 1]), torch.ones(2), "train")
    >>> ledger.strike(torch.tensor([9]))["train"].labels, len(ledger.part("train"))
    (tensor([1]), 1)
    """

    def __init__(self) -> None:
        nothing = torch.empty(0, dtype=torch.int64)
        self._parts = {part: LedgerEntries(nothing, nothing, torch.empty(0)) for part in PARTS}

    def part(self, part: str) -> LedgerEntries:
        """Return the training or the validation nodes."""
        return self._parts[part]

    def enter(self, ids: Tensor, labels: Tensor, weights: Tensor, part: str) -> None:
        """Add nodes."""
        old = self._parts[part]
        self._parts[part] = LedgerEntries(
            torch.cat([old.ids, ids.cpu()]),
            torch.cat([old.labels, labels.cpu()]),
            torch.cat([old.weights, weights.cpu().float()]),
        )

    def strike(self, ids: Tensor) -> dict[str, LedgerEntries]:
        """Remove nodes; return those that were recorded."""
        struck = {}
        for part, entries in self._parts.items():
            named = torch.isin(entries.ids, ids.cpu())
            struck[part] = entries.take(named)
            self._parts[part] = entries.take(~named)
        return struck

    def copy_from(self, other: LearnedNodes, classes: Tensor | None = None) -> None:
        """Add all nodes of another record; ``classes`` maps its classes to the classes here."""
        for part in PARTS:
            theirs = other.part(part)
            labels = theirs.labels if classes is None else classes.cpu()[theirs.labels]
            self.enter(theirs.ids, labels, theirs.weights, part)

    @property
    def nbytes(self) -> int:
        """Number of bytes kept."""
        return sum(tensor.nbytes for tensor in self.state().values())

    def state(self) -> dict[str, Tensor]:
        """Return all entries, by name."""
        return {
            f"{part}.{name}": tensor
            for part, entries in self._parts.items()
            for name, tensor in vars(entries).items()
            if len(entries)
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        for part in PARTS:
            if f"{part}.ids" in state:
                fields = (state[f"{part}.{name}"] for name in ("ids", "labels", "weights"))
                self._parts[part] = LedgerEntries(*fields)
