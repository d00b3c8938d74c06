"""What a reader holds on to while deltas come: the last page, and all that belongs to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from evergraph.online.delta import NodeId
from evergraph.online.graph.growing_array import FrozenRows
from evergraph.online.identifiers import GoneNames, IdTable
from evergraph.online.page import Page
from evergraph.online.published import Published


@dataclass(frozen=True, eq=False)
class Pinned:
    """A page with vectors, names and graph as they were when it was the last.

    Attributes:
        page: the page.
        positions: of the nodes that were asked for.  int64 [n]
        copied: the vectors of all positions; None where only one thread reads, which asks the page.
        ids: names of all positions.
        gone: the last link of names that went.
    """

    page: Page
    positions: Tensor
    copied: FrozenRows | None
    ids: IdTable
    gone: GoneNames

    @cached_property
    def published(self) -> Published:
        """The graph, labels and codes."""
        assert self.page.publish is not None, "a node is known, so something is published"
        return self.page.publish()

    def vectors(self, positions: Tensor) -> Tensor:
        """Return the vectors of some nodes.  int64 [n] -> float32 [n, dims]"""
        if self.copied is not None:
            return torch.from_numpy(self.copied.of(positions.numpy()))
        if self.page.vectors is None:
            return torch.zeros(0, 0)
        return self.page.vectors(positions)

    def names(self, positions: Sequence[int]) -> list[NodeId]:
        """Return the ids of some nodes."""
        return self.ids.named(positions, self.gone)
