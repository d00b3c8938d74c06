"""A record of the learned nodes with their classes and weights, and guesses that may join them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.closed_form.node_sample import in_classes
from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph

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


def ids_holding(ids: Tensor, graph: Graph, known_as: Tensor | None) -> Tensor:
    """Return the id of each node of a graph; raise unless it holds the nodes to forget.

    known_as: their ids, if these are not their positions.  int64 [nodes]
    """
    known_as = torch.arange(graph.num_nodes) if known_as is None else known_as
    strangers = ids[~torch.isin(ids, known_as)]
    if len(strangers):
        raise ConfigurationError(
            f"graph must hold the nodes to forget, but node {int(strangers[0])} is missing"
        )
    return known_as


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


# Predictions used per labelled node of a class.
TIMES = 6
# Unlabelled nodes per labelled one from which self-training can help.
PLENTY = 3


def certain(chances: Tensor, counts: Tensor, *, times: int = TIMES) -> tuple[Tensor, Tensor]:
    """Return the most confident predictions of each class, ``times`` its number of labelled nodes.

    Self-training (Scudder 1965; Lee 2013) with a quota for each class, so that easy classes do not
    crowd out the rest.

    chances: probability of every class.  [n, classes]; counts: labelled nodes.  int64 [classes]
    -> positions, grouped by class, and the predicted classes.  int64 each

    >>> chances = torch.tensor([[.9, .1], [.8, .2], [.6, .4], [.3, .7]])
    >>> certain(chances, torch.tensor([1, 1]), times=2)
    (tensor([0, 1, 3]), tensor([0, 0, 1]))
    """
    sure, guessed = (found.cpu() for found in chances.max(dim=1))
    order, rank = in_classes(guessed, sure.argsort(descending=True, stable=True))
    places = order[rank < times * counts.cpu()[guessed[order]]]
    return places, guessed[places]


def guessed(scores: Tensor, ids: Tensor, train: LedgerEntries) -> LedgerEntries:
    """Return confidently classified nodes, each weighted as a training node of its class is.

    scores: of nodes that are not labelled.  [n, classes]; ids: int64 [n]
    """
    counts = torch.bincount(train.labels, minlength=scores.shape[1])
    scores = scores.masked_fill((counts == 0).to(scores.device), -torch.inf)
    places, labels = certain(scores.softmax(1), counts)
    weights = torch.zeros(len(counts)).index_add_(0, train.labels, train.weights) / counts
    return LedgerEntries(ids[places], labels, weights[labels])
