"""Nodes that are chosen by hash: those left out in turn, landmarks, and when these are others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.kept_nodes import in_classes
from evergraph.graphs import UNLABELLED
from evergraph.online.delta import NodeId
from evergraph.online.graph.growing_array import GrowingArray, KeptArrays

# Up to FEW labelled nodes are all landmarks, chosen anew with every change. Landmarks are also
# chosen anew when less than LEFT of the chosen ones are left, or when more than LATE of the nodes
# are of classes that came afterwards, which have no landmarks: see docs/decisions/0116.
FEW, LEFT, LATE = 1 << 8, 0.75, 0.05


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


def lot(node: NodeId) -> int:
    """Return a pseudo-random number that depends only on a node's id.  64 bits, signed"""
    drawn = blake2b(repr(node).encode(), digest_size=8).digest()
    return int.from_bytes(drawn, "big", signed=True)


class HeldBack(KeptArrays):
    """A number for every node, by which nodes are chosen: those left out in turn, and landmarks.

    All of them are learned from; the prediction for one that is left out is made as if it alone had
    not been (leave-one-out in closed form). A choice depends only on the ids and classes of all
    labelled nodes, not on the order in which they came.

    >>> held = HeldBack()
    >>> held.extend(range(32))
    >>> len(held.first(torch.zeros(32).long(), 64)), len(held.first(torch.arange(32), 64, least=2))
    (32, 0)
    """

    def __init__(self) -> None:
        self._lots = GrowingArray(dtype=np.int64)
        self.kept = {"lots": self._lots}

    def extend(self, ids: Sequence[NodeId]) -> None:
        """Add nodes."""
        start = len(self._lots)
        self._lots.extend(len(ids))
        self._lots.array[start:] = [lot(node) for node in ids]

    def first(self, labels: Tensor, most: int, *, least: int = 1, balanced: bool = True) -> Tensor:
        """Return at most ``most`` nodes: the first by ``lot`` of every class, then the second, ...

        They come in the order of lots, so that the first few are of all classes. The last round, if
        it has too many, is cut by ``lot`` too. Unless ``balanced``, the first by lot overall are
        returned: classes have their shares in the graph.

        labels: of all positions, int64 [positions]; least: nodes of a class before any is chosen
        -> int64 [most or fewer]
        """
        known = (labels != UNLABELLED).nonzero().flatten()
        nodes = known[torch.bincount(labels[known])[labels[known]] >= least]
        if len(nodes) > most:
            turns = self._lots.tensor[nodes]
            if balanced:
                order, turns = in_classes(labels[nodes], turns.argsort())
                nodes = nodes[order]
            early = turns <= turns.kthvalue(most).values
            nodes, turns = nodes[early], turns[early]
            drawn = self._lots.array[nodes.numpy()]
            nodes = nodes[torch.from_numpy(np.lexsort((nodes, drawn, turns))[:most])]
        return nodes[torch.from_numpy(np.lexsort((nodes, self._lots.array[nodes.numpy()])))]

    def wipe(self, nodes: Tensor) -> None:
        """Erase the lots of removed nodes."""
        self._lots.array[nodes.numpy()] = 0
