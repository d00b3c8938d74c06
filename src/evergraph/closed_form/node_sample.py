"""Some nodes of every class, stored as rows of the views."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.closed_form.views import ViewRows

MIX = (-7046029254386353131, -4658895280553007687, -7723592293110705685)  # constants of splitmix64


def draw_order(ids: Tensor) -> Tensor:
    """Return a pseudo-random number for each id that depends on the id alone.  int64 [n]"""
    mixed = ids * MIX[0]
    for factor, shift in zip(MIX[1:], (30, 27), strict=True):
        mixed = (mixed ^ ((mixed >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return mixed ^ ((mixed >> 31) & ((1 << 33) - 1))


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
        self.rows_ = ViewRows(torch.empty(0, 0, dtype=torch.float16))
        self.labels_ = self.nodes_ = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.labels_)

    def keep(self, rows: ViewRows, *, labels: Tensor, nodes: Tensor) -> None:
        """Consider nodes; the first of each class stay, among these and those kept before."""
        self._extend(rows, labels.cpu(), nodes.cpu(), self._first(nodes.cpu(), labels.cpu()))
        self._take(self._first(self.nodes_, self.labels_))

    def _extend(self, rows: ViewRows, labels: Tensor, nodes: Tensor, some: Tensor) -> None:
        """Add some of the nodes given."""
        seen = torch.arange(len(rows)) if rows.nodes is None else rows.nodes
        taken = rows.of(seen[some.to(seen.device)]).taken(torch.device("cpu"), torch.float16)
        self.rows_ = self.rows_.joined(taken) if len(self) else taken
        self.labels_ = torch.cat([self.labels_, labels[some]])
        self.nodes_ = torch.cat([self.nodes_, nodes[some]])

    def _take(self, some: Tensor) -> None:
        self.rows_ = self.rows_.of(some).taken(torch.device("cpu"), torch.float16)
        self.labels_, self.nodes_ = self.labels_[some], self.nodes_[some]

    def _first(self, nodes: Tensor, labels: Tensor) -> Tensor:
        """Return the positions of the first nodes of each class, by class.  int64 [kept]"""
        return first_of_each(nodes, labels, self.per_class)

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
        rows = dict(state)
        self.labels_, self.nodes_ = rows.pop("labels"), rows.pop("nodes")
        self.rows_ = ViewRows.restored(rows)


def first_of_each(nodes: Tensor, labels: Tensor, count: int) -> Tensor:
    """Return the positions of the first nodes of each class by ``draw_order``, class by class.

    nodes: ids, int64 [n]; labels: int64 [n]; count: nodes of a class -> int64
    """
    order, rank = in_classes(labels, draw_order(nodes).argsort())
    return order[rank < count]


def in_classes(labels: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Return an order class by class, and how many of its class come before each of it.

    labels: int64 [n]; order: positions, int64 [n] -> int64 [n] each

    >>> in_classes(torch.tensor([1, 0, 1]), torch.tensor([2, 1, 0]))
    (tensor([1, 2, 0]), tensor([0, 0, 1]))
    """
    order = order[labels[order].argsort(stable=True)]
    counts = torch.bincount(labels)
    return order, torch.arange(len(order)) - (counts.cumsum(0) - counts)[labels[order]]
