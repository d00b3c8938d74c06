"""Which nodes are the landmarks of a head, and when others are to be chosen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

# Up to FEW labelled nodes are all landmarks, chosen anew with every change. Landmarks are also
# chosen anew when less than LEFT of the chosen ones are left, or when more than LATE of the nodes
# are of classes that came afterwards.
FEW, LEFT, LATE = 1 << 8, 0.75, 0.2


def _none() -> Tensor:
    return torch.zeros(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class LandmarkNodes:
    """The nodes whose copies are landmarks, and of what they were chosen.

    Attributes:
        nodes: positions, -1 for erased ones.  int64 [landmarks]
        counts: labelled nodes of each class when they were chosen.  int64 [classes]

    >>> four = LandmarkNodes(torch.tensor([7, 3, 9, 4]), torch.tensor([300]))
    >>> four.places(torch.tensor([9, 8]))
    tensor([ 2, -1])
    >>> three, erased = four.without(torch.tensor([3, 8]))
    >>> three.nodes, erased
    (tensor([ 7, -1,  9,  4]), tensor([1]))
    >>> [three.have_drifted(torch.tensor([count]), changed=True) for count in (599, 600)]
    [False, True]
    """

    nodes: Tensor = field(default_factory=_none)
    counts: Tensor = field(default_factory=_none)

    def have_drifted(self, counts: Tensor, *, changed: bool, late: bool = True) -> bool:
        """Return whether others are to be chosen for the labelled nodes that there are now.

        counts: of each class, int64 [classes]; changed: whether any of these nodes came, moved or
        went; late: whether nodes of classes that came later count
        """
        labelled = int(counts.sum())
        if labelled >= 2 * int(self.counts.sum()) or (changed and labelled <= FEW):
            return True
        later = counts.clone()
        later[: len(self.counts)][self.counts > 0] = 0
        left = int((self.nodes >= 0).sum())
        too_few = left < LEFT * min(len(self.nodes), labelled)
        return too_few or (late and int(later.sum()) > LATE * labelled)

    def without(self, nodes: Tensor) -> tuple[LandmarkNodes, Tensor]:
        """Return them without some nodes, and the places of these.  int64 [n] -> .., int64 [k]"""
        places = torch.isin(self.nodes, nodes).nonzero().flatten()
        return replace(self, nodes=self.nodes.index_fill(0, places, -1)), places

    def places(self, nodes: Tensor) -> Tensor:
        """Return which landmark each of some nodes is, -1 for none.  int64 [n] -> int64 [n]"""
        if not len(self.nodes):
            return torch.full_like(nodes, -1)
        known, places = self.nodes.sort()
        found = torch.searchsorted(known, nodes).clamp_max(len(known) - 1)
        return places[found].where(known[found] == nodes, -1)
