"""What a change did to a growing graph."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


def no_nodes() -> Tensor:
    """Return an empty list of positions.  int64 [0]"""
    return torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class Change:
    """Positions that a change concerns, each list ascending.

    Attributes:
        new: nodes that came.  int64 [new]
        touched: nodes that were there before and gather from more or fewer now.  int64 [touched]
        removed: nodes that went.  int64 [removed]
    """

    new: Tensor = field(default_factory=no_nodes)
    touched: Tensor = field(default_factory=no_nodes)
    removed: Tensor = field(default_factory=no_nodes)

    def __repr__(self) -> str:
        return (
            f"Change({len(self.new)} new, {len(self.touched)} touched, {len(self.removed)} removed)"
        )
