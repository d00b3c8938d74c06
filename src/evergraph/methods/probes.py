"""Validation nodes kept to weigh heads by."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.nn.view_expansion import ViewRows

MIX = (-7046029254386353131, -4658895280553007687, -7723592293110705685)  # of splitmix64


def draw_order(ids: Tensor) -> Tensor:
    """Return a number for each id that looks random and depends on nothing else.  int64 [n]

    >>> draw_order(torch.tensor([3, 4])).equal(draw_order(torch.tensor([4, 3])).flip(0))
    True
    """
    mixed = ids * MIX[0]
    for factor, shift in zip(MIX[1:], (30, 27), strict=True):
        mixed = (mixed ^ ((mixed >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return mixed ^ ((mixed >> 31) & ((1 << 33) - 1))


class Probes:
    """Some validation nodes of every class, as views see them.

    Which ones depends on their ids alone, so neither on the order in which they came nor on who
    was kept before: of every class those that are first by ``draw_order``. Values are kept in
    float16.

    Args:
        per_class: how many at most.

    Attributes:
        hops_, codes_, relations_: see ``ViewRows``; codes are zeros where none were seen, relations
            have no columns.  float16 [kept, dims]
        labels_: their classes.  int64 [kept]
        nodes_: which nodes of the dataset they are.  int64 [kept]
    """

    def __init__(self, per_class: int) -> None:
        self.per_class = per_class
        self.hops_ = torch.empty(0, 0, dtype=torch.float16)
        self.codes_ = torch.empty(0, 0, dtype=torch.float16)
        self.relations_ = torch.empty(0, 0, dtype=torch.float16)
        self.labels_ = torch.empty(0, dtype=torch.int64)
        self.nodes_ = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.labels_)

    def keep(self, rows: ViewRows, *, labels: Tensor, nodes: Tensor) -> None:
        """Consider nodes; of these and those kept before, the first of each class stay."""
        first = self._first(nodes.cpu(), labels.cpu())
        seen = rows.nodes if rows.nodes is not None else torch.arange(len(rows))
        taken = rows.of(seen[first.to(seen.device)]).taken(CPU)
        self._extend(taken, labels.cpu()[first], nodes.cpu()[first])
        self._shrink()

    def _extend(self, rows: ViewRows, labels: Tensor, nodes: Tensor) -> None:
        for name, values in (
            ("hops", rows.hops),
            ("codes", rows.codes),
            ("relations", rows.relations),
        ):
            old = getattr(self, f"{name}_")
            if values is None:
                values = rows.hops.new_zeros(len(rows), old.shape[1])
            both = torch.cat([old.reshape(len(self), values.shape[1]), values.half()])
            setattr(self, f"{name}_", both)
        self.labels_ = torch.cat([self.labels_, labels])
        self.nodes_ = torch.cat([self.nodes_, nodes])

    def _shrink(self) -> None:
        first = self._first(self.nodes_, self.labels_)
        for name in KEPT:
            setattr(self, f"{name}_", getattr(self, f"{name}_")[first])

    def _first(self, nodes: Tensor, labels: Tensor) -> Tensor:
        """Return the places of those who are first of each class, by class.  int64 [kept]"""
        order = draw_order(nodes).argsort()
        order = order[labels[order].argsort(stable=True)]
        counts = torch.bincount(labels)
        starts = counts.cumsum(0) - counts
        rank = torch.arange(len(order)) - starts[labels[order]]
        return order[rank < self.per_class]

    def rows(self) -> ViewRows:
        """Return what views see of them."""
        codes, relations = (t if t.shape[1] else None for t in (self.codes_, self.relations_))
        return ViewRows(self.hops_, codes, relations=relations)

    def drop(self, nodes: Tensor) -> None:
        """Let some of them go."""
        stay = ~torch.isin(self.nodes_, nodes.cpu())
        for name in KEPT:
            setattr(self, f"{name}_", getattr(self, f"{name}_")[stay])

    def clear(self) -> None:
        """Let all of them go."""
        fresh = Probes(self.per_class)
        for name in KEPT:
            setattr(self, f"{name}_", getattr(fresh, f"{name}_"))

    def copy_from(self, other: Probes, classes: Tensor | None = None) -> None:
        """Consider those of another; ``classes``: what its classes are called here."""
        labels = other.labels_ if classes is None else classes.cpu()[other.labels_]
        new = ~torch.isin(other.nodes_, self.nodes_)
        rows = other.rows().of(new.nonzero().flatten())
        self.keep(rows, labels=labels[new], nodes=other.nodes_[new])

    @property
    def values(self) -> int:
        """How many values are kept of them all."""
        return sum(part.numel() for part in (self.hops_, self.codes_, self.relations_))

    @property
    def nbytes(self) -> int:
        """How many bytes are kept."""
        return sum(tensor.nbytes for tensor in self.state().values())

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name."""
        return {name: getattr(self, f"{name}_") for name in KEPT}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        for name in KEPT:
            if name in state:  # relations are not, where an earlier version wrote it
                setattr(self, f"{name}_", state[name])


KEPT = ("hops", "codes", "relations", "labels", "nodes")
CPU = torch.device("cpu")
