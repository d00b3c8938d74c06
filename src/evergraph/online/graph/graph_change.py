"""What a change of a growing graph concerns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]


def no_nodes() -> Tensor:
    """Return an empty list of positions.  int64 [0]"""
    return torch.empty(0, dtype=torch.int64)


class Entries(NamedTuple):
    """Entries of an adjacency that weigh more or less than before.

    Attributes:
        rows: who gathers.  int64 [entries]
        columns: from whom.  int64 [entries]
        differences: by how much more; an entry that came weighed 0 before, one that went weighs 0
            now.  float32 [entries]
    """

    rows: Array
    columns: Array
    differences: Array

    @property
    def owners(self) -> Array:
        """The rows that are others now, ascending, each once.  int64 [owners]"""
        distinct: Array = np.unique(self.rows)
        return distinct

    def and_(self, *later: Entries) -> Entries:
        """Return these and others: differences of an entry that stands twice add up."""
        return Entries(*(np.concatenate(parts) for parts in zip(self, *later, strict=True)))

    def below(self, position: int) -> Entries:
        """Return those of rows and columns before a position."""
        kept = (self.rows < position) & (self.columns < position)
        return Entries(*(part[kept] for part in self))


def no_entries() -> Entries:
    """Return none."""
    nobody = np.empty(0, np.int64)
    return Entries(nobody, nobody, np.empty(0, np.float32))


@dataclass(frozen=True, eq=False)
class GraphChange:
    """Positions that a change concerns, each list ascending.

    Attributes:
        new: nodes that came.  int64 [new]
        touched: nodes that were there before and gather from more or fewer now, or with other
            weights.  int64 [touched]
        removed: nodes that went.  int64 [removed]
        renewed: nodes that were there before and have other features now.  int64 [renewed]
        entries: in what the rows of touched nodes differ, entries of new nodes left out; None
            where that is not known.
        former: what the features of renewed nodes were, None where that is not known.
            float32 [renewed, d]
    """

    new: Tensor = field(default_factory=no_nodes)
    touched: Tensor = field(default_factory=no_nodes)
    removed: Tensor = field(default_factory=no_nodes)
    renewed: Tensor = field(default_factory=no_nodes)
    entries: Entries | None = None
    former: Tensor | None = None

    def __repr__(self) -> str:
        renewed = f", {len(self.renewed)} renewed" if len(self.renewed) else ""
        return (
            f"GraphChange({len(self.new)} new, {len(self.touched)} touched, "
            f"{len(self.removed)} removed{renewed})"
        )

    def then(self, later: GraphChange) -> GraphChange:
        """Return this change and one that came right after it, which brought no nodes, as one."""
        assert not len(later.new) + len(self.removed) + len(later.removed)
        first = int(self.new[0]) if len(self.new) else np.iinfo(np.int64).max
        touched = torch.cat([self.touched, later.touched]).unique()
        renewed, former = self._renewed_before(later, first)
        entries = None
        if self.known_entries is not None and later.known_entries is not None:
            entries = self.known_entries.and_(later.known_entries.below(first))
        return GraphChange(
            self.new, touched[touched < first], renewed=renewed, entries=entries, former=former
        )

    @property
    def known_entries(self) -> Entries | None:
        """In what the rows of touched nodes differ, if that is known or there are none."""
        return self.entries if self.entries is not None or len(self.touched) else no_entries()

    def _renewed_before(self, later: GraphChange, first: int) -> tuple[Tensor, Tensor | None]:
        """Return who was renewed by either, and what features were before both."""
        both = (self, later)
        nodes, places = np.unique(torch.cat([c.renewed for c in both]).numpy(), return_index=True)
        old = nodes < first
        renewed = torch.from_numpy(nodes[old])
        if any(len(change.renewed) and change.former is None for change in both):
            return renewed, None
        kept = [change.former for change in both if change.former is not None]
        return renewed, torch.cat(kept)[torch.from_numpy(places[old])] if kept else None


class EmbeddingUpdate:
    """Whose embeddings are others now; what they were and are is made when somebody asks.

    Mostly nobody does, and a change may be felt by most of a graph.

    Args:
        nodes: positions, ascending, new nodes among them; removed ones are not.  int64 [k]
        before: makes what the embeddings were, zeros for new nodes; good until the next change.
        after: makes what they are; good until then, too.

    >>> import torch
    >>> update = EmbeddingUpdate(torch.tensor([3]), lambda: torch.zeros(1, 2),
    ...                          lambda: torch.ones(1, 2))
    >>> update.nodes, update.after
    (tensor([3]), tensor([[1., 1.]]))
    """

    def __init__(
        self, nodes: Tensor, before: Callable[[], Tensor], after: Callable[[], Tensor]
    ) -> None:
        self.nodes = nodes
        self._before, self._after = before, after

    @cached_property
    def before(self) -> Tensor:
        """What the embeddings were.  float32 [k, dims]"""
        return self._before()

    @cached_property
    def after(self) -> Tensor:
        """What they are.  float32 [k, dims]"""
        return self._after()
