"""What happens to a growing graph at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

NodeId = str | int
Label = str | int


@dataclass(frozen=True, eq=False)
class Delta:
    """New nodes and edges, labels that came late, and nodes to be forgotten, in that order.

    It is applied whole or not at all. Ids are the user's own.

    Attributes:
        nodes: ids of new nodes.
        features: of the new nodes.  float32 [nodes, dims]
        labels: of the new nodes, None where the class is not known (yet).
        edges: pairs of ids, known or new with this delta.
        late: ids of known nodes and the labels they turn out to have.
        forgotten: ids of nodes that go, with their edges and their influence.
        key: names the delta; a delta whose key was applied before is not applied again.

    >>> Delta(nodes=("a", "b"), features=torch.eye(2), labels=("x", None), edges=(("a", "b"),))
    Delta(2 nodes, 1 edges)
    """

    nodes: Sequence[NodeId] = ()
    features: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    labels: Sequence[Label | None] = ()
    edges: Sequence[tuple[NodeId, NodeId]] = ()
    late: Sequence[tuple[NodeId, Label]] = ()
    forgotten: Sequence[NodeId] = ()
    key: str | None = None

    def __repr__(self) -> str:
        parts = [("nodes", self.nodes), ("edges", self.edges), ("late labels", self.late)]
        parts.append(("forgotten", self.forgotten))
        return f"Delta({', '.join(f'{len(part)} {name}' for name, part in parts if len(part))})"
