"""Nodes that are kept: how many, some of every class with their rows, and a record of all."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.views import ViewRows
from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import splitmix64
from evergraph.graphs import Graph
from evergraph.graphs.csr import first_of_each_row, in_groups

# Training nodes kept in all, where embeddings are narrow and where they are wide: random features
# estimate wide kernels worse. And the share of ``memory`` that these nodes may take.
EMBEDDINGS, WIDE_EMBEDDINGS, EMBEDDING_SHARE = 1024, 2048, 0.2
LEAST_EMBEDDINGS = 8  # of a class: fewer are worth less than as many probes
WIDE = 8192  # values of a node


def nodes_per_class(
    memory: int | None,
    *,
    classes: int,
    dims: int,
    views: int,
    width: int,
    landmarks: int | None = None,
) -> tuple[int, int]:
    """Return how many embeddings and how many probes of every class may be kept.

    They are what fits beside the statistics, at least one probe; without a limit, what is worth its
    time. They depend on the number of classes, not on their order: nodes of known classes are
    dropped when others arrive.

    dims: values per node over all views, two bytes each; views, width: of statistics;
    landmarks: nodes kept besides, in place of embeddings; None where features are random

    >>> nodes_per_class(5_000_000, classes=10, dims=767, views=1, width=1216)
    (64, 61)
    """
    most = (WIDE_EMBEDDINGS if dims >= WIDE else EMBEDDINGS) // classes
    most = max(most, 1) if landmarks is None else 0
    if memory is None:
        return most, sys.maxsize
    node = 2 * dims + 16
    embeddings = min(most, int(EMBEDDING_SHARE * memory) // node // classes)
    embeddings = embeddings if embeddings >= LEAST_EMBEDDINGS else 0
    sums = views * (2 * width * (width + 1) + classes * (8 * width + 16))
    nodes = (memory - sums) // node - (landmarks or 0)
    return embeddings, max(nodes // classes - embeddings, 1)


def draw_order(ids: Tensor) -> Tensor:
    """Return a pseudo-random number for each id that depends on the id alone.  int64 [n]"""
    return torch.from_numpy(splitmix64(ids.numpy().view(np.uint64)).view(np.int64))


class NodeSample:
    """Some nodes of every class, stored as rows of the views.

    The choice depends on their ids alone, neither on their order of arrival nor on earlier
    choices: in every class, the first by ``draw_order``. Values are kept in float16.

    Args:
        per_class: maximum number per class.

    Attributes:
        rows_: their view rows; codes are zeros if none were shown.  float16
        labels_: their classes.  int64 [kept]
        nodes_: their ids in the dataset.  int64 [kept]
    """

    def __init__(self, per_class: int) -> None:
        self.per_class = per_class
        self.clear()

    def clear(self) -> None:
        """Remove all nodes."""
        self.rows_ = ViewRows({(0,): torch.empty(0, 0, dtype=torch.float16)})
        self.labels_ = self.nodes_ = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.labels_)

    def keep(self, rows: ViewRows, *, labels: Tensor, nodes: Tensor) -> None:
        """Consider nodes; the first of each class stay, among these and those kept before."""
        self._extend(rows, labels.cpu(), nodes.cpu(), self._first(nodes.cpu(), labels.cpu()))
        self._take(self._first(self.nodes_, self.labels_))

    def _extend(self, rows: ViewRows, labels: Tensor, nodes: Tensor, positions: Tensor) -> None:
        """Add the nodes at some positions."""
        row_numbers = torch.arange(len(rows)) if rows.nodes is None else rows.nodes
        chosen = rows.of(row_numbers[positions.to(row_numbers.device)])
        new_rows = chosen.taken(torch.device("cpu"), torch.float16)
        self.rows_ = self.rows_.joined(new_rows) if len(self) else new_rows
        self.labels_ = torch.cat([self.labels_, labels[positions]])
        self.nodes_ = torch.cat([self.nodes_, nodes[positions]])

    def _take(self, positions: Tensor) -> None:
        """Keep the nodes at some positions alone."""
        self.rows_ = self.rows_.of(positions).taken(torch.device("cpu"), torch.float16)
        self.labels_, self.nodes_ = self.labels_[positions], self.nodes_[positions]

    def _first(self, nodes: Tensor, labels: Tensor) -> Tensor:
        """Return the positions of the first nodes of each class, by class.  int64 [kept]"""
        return first_of_each_row(labels, draw_order(nodes), self.per_class)

    def drop(self, nodes: Tensor) -> None:
        """Remove some of them."""
        self._take((~torch.isin(self.nodes_, nodes.cpu())).nonzero().flatten())

    def copy_from(self, other: NodeSample, classes: Tensor | None = None) -> None:
        """Consider those of another; ``classes`` maps its classes to the classes here."""
        labels = other.labels_ if classes is None else classes.cpu()[other.labels_]
        new = (~torch.isin(other.nodes_, self.nodes_)).nonzero().flatten()
        self.keep(other.rows_.of(new), labels=labels[new], nodes=other.nodes_[new])

    @property
    def values(self) -> int:
        """Number of values kept."""
        return sum(rows.numel() for rows in self.rows_.stored().values())

    @property
    def nbytes(self) -> int:
        """Number of bytes kept."""
        return sum(tensor.nbytes for tensor in self.state().values())

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name."""
        return {"labels": self.labels_, "nodes": self.nodes_, **self.rows_.stored()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        tensors = dict(state)
        self.labels_, self.nodes_ = tensors.pop("labels"), tensors.pop("nodes")
        self.rows_ = ViewRows.restored(tensors)


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
    """Return the id of each node of a graph; raise unless the nodes to forget are among them.

    known_as: their ids, if these are not their positions.  int64 [nodes]
    """
    known_as = torch.arange(graph.num_nodes) if known_as is None else known_as
    missing = ids[~torch.isin(ids, known_as)]
    if len(missing):
        raise ConfigurationError(
            f"graph must hold the nodes to forget, but node {int(missing[0])} is missing"
        )
    return known_as


class LearnedNodes:
    """The nodes behind statistics, recorded so that single ones can be removed again.

    >>> ledger = LearnedNodes()
    >>> entries = LedgerEntries(torch.tensor([7, 9]), torch.tensor([0, 1]), torch.ones(2))
    >>> ledger.enter(entries, "train")
    >>> ledger.strike(torch.tensor([9]))["train"].labels, len(ledger.part("train"))
    (tensor([1]), 1)
    """

    def __init__(self) -> None:
        nothing = torch.empty(0, dtype=torch.int64)
        self._parts = {part: LedgerEntries(nothing, nothing, torch.empty(0)) for part in PARTS}

    def part(self, part: str) -> LedgerEntries:
        """Return the training or the validation nodes."""
        return self._parts[part]

    @property
    def ids(self) -> Tensor:
        """Ids of all of them.  int64 [n]"""
        return torch.cat([entries.ids for entries in self._parts.values()])

    def among(self, ids: Tensor) -> dict[str, LedgerEntries]:
        """Return the recorded nodes with these ids."""
        return {
            part: entries.take(torch.isin(entries.ids, ids.cpu()))
            for part, entries in self._parts.items()
        }

    def enter(self, entries: LedgerEntries, part: str) -> None:
        """Add nodes."""
        old = self._parts[part]
        self._parts[part] = LedgerEntries(
            torch.cat([old.ids, entries.ids.cpu()]),
            torch.cat([old.labels, entries.labels.cpu()]),
            torch.cat([old.weights, entries.weights.cpu().float()]),
        )

    def strike(self, ids: Tensor) -> dict[str, LedgerEntries]:
        """Remove nodes; return those that were recorded."""
        struck = self.among(ids)
        for part, entries in self._parts.items():
            self._parts[part] = entries.take(~torch.isin(entries.ids, ids.cpu()))
        return struck

    def copy_from(self, other: LearnedNodes, classes: Tensor | None = None) -> None:
        """Add all nodes of another record; ``classes`` maps its classes to the classes here."""
        for part in PARTS:
            entries = other.part(part)
            labels = entries.labels if classes is None else classes.cpu()[entries.labels]
            self.enter(LedgerEntries(entries.ids, labels, entries.weights), part)

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


# Predictions of a class that are learned from, per labelled node of it.
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
    best, classes = (tensor.cpu() for tensor in chances.max(dim=1))
    order, rank = in_groups(classes, best.argsort(descending=True, stable=True))
    positions = order[rank < times * counts.cpu()[classes[order]]]
    return positions, classes[positions]


def guessed(scores: Tensor, ids: Tensor, train: LedgerEntries) -> LedgerEntries:
    """Return confidently classified nodes, each weighted as a training node of its class is.

    scores: of nodes that are not labelled.  [n, classes]; ids: int64 [n]
    """
    counts = torch.bincount(train.labels, minlength=scores.shape[1])
    scores = scores.masked_fill((counts == 0).to(scores.device), -torch.inf)
    positions, labels = certain(scores.softmax(1), counts)
    weights = torch.zeros(len(counts)).index_add_(0, train.labels, train.weights) / counts
    return LedgerEntries(ids[positions], labels, weights[labels])
