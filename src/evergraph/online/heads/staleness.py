"""When landmarks are chosen, scores solved and sums recomputed again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from evergraph.online.arrays import Saved

# Up to FEW labelled nodes are all landmarks, chosen anew with every change. Landmarks are also
# chosen anew when less than LEFT of the chosen ones are left, or when more than LATE of the nodes
# are of classes that came afterwards, which have no landmarks: see docs/decisions/0116.
FEW, LEFT, LATE = 1 << 8, 0.75, 0.05
SMALL = 1024  # with fewer labelled nodes, scores are solved after every change
SHARE = 1 / 16  # of the labelled nodes; once more have changed, scores are solved
# Sums may shrink by this factor before they are recomputed: 4 of the 16 digits of float64 are lost.
LOSS = 1e4


def _no_nodes() -> Tensor:
    return torch.zeros(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class LandmarkNodes:
    """The nodes whose copies are landmarks, and the class sizes when they were chosen.

    Attributes:
        nodes: positions, -1 for erased ones.  int64 [landmarks]
        counts: labelled nodes of each class when they were chosen.  int64 [classes]

    >>> four = LandmarkNodes(torch.tensor([7, 3, 9, 4]), torch.tensor([300]))
    >>> four.places(torch.tensor([9, 8]))
    tensor([ 2, -1])
    >>> three, erased = four.without(torch.tensor([3, 8]))
    >>> three.nodes, erased
    (tensor([ 7, -1,  9,  4]), tensor([1]))
    >>> [three.must_change(torch.tensor([count]), changed=True) for count in (599, 600)]
    [False, True]
    """

    nodes: Tensor = field(default_factory=_no_nodes)
    counts: Tensor = field(default_factory=_no_nodes)

    def must_change(self, counts: Tensor, *, changed: bool, late: bool = True) -> bool:
        """Return whether landmarks must be chosen again for the nodes that are labelled now.

        counts: labelled nodes of each class, int64 [classes]; changed: whether any of these nodes
        was added, moved or removed; late: whether nodes of classes that appeared since count
        """
        labelled = int(counts.sum())
        if labelled >= 2 * int(self.counts.sum()) or (changed and labelled <= FEW):
            return True
        later = counts.clone()
        later[: len(self.counts)][self.counts > 0] = 0
        alive = int((self.nodes >= 0).sum())
        too_few = alive < LEFT * min(len(self.nodes), labelled)
        return too_few or (late and int(later.sum()) > LATE * labelled)

    def without(self, nodes: Tensor) -> tuple[LandmarkNodes, Tensor]:
        """Return this without some nodes, and the landmarks that they were.  -> .., int64 [k]"""
        places = torch.isin(self.nodes, nodes).nonzero().flatten()
        return replace(self, nodes=self.nodes.index_fill(0, places, -1)), places

    def places(self, nodes: Tensor) -> Tensor:
        """Return which landmark each of some nodes is, -1 for none.  int64 [n] -> int64 [n]"""
        if not len(self.nodes):
            return torch.full_like(nodes, -1)
        ascending, places = self.nodes.sort()
        nearest = torch.searchsorted(ascending, nodes).clamp_max(len(ascending) - 1)
        return places[nearest].where(ascending[nearest] == nodes, -1)


class Solving(Saved):
    """Decides after every change whether to solve for the scores now, or to wait for more changes.

    Scores are solved at once if it is ``urgent`` (a class appeared or vanished, a node was
    forgotten, a label was removed, a class became large enough to be held back from), if there are
    fewer than ``SMALL`` labelled nodes, or if more than ``SHARE`` of these were counted since the
    last solution; and at the latest after ``patience`` changes. The decision never depends on time,
    so that a replay of the same changes solves at the same points.

    Args:
        patience: changes after which scores are solved at the latest; 1 solves after every change.

    >>> solving = Solving(patience=3)
    >>> [solving.due(10, known=100_000) for _ in range(4)]
    [False, False, True, False]
    >>> solving.due(10, known=100_000, urgent=True), solving.behind
    (True, False)
    >>> solving.due(0, known=100_000), solving.behind  # nothing to wait for
    (False, False)
    """

    def __init__(self, *, patience: int) -> None:
        self.patience = patience
        self._changes = 0
        self._counted = 0

    @property
    def behind(self) -> bool:
        """Whether something was counted since scores were last solved."""
        return self._counted > 0

    def due(self, counted: int, *, known: int, urgent: bool = False) -> bool:
        """Record a change; return whether scores must be solved now.

        counted: how many nodes it counted; known: how many labelled nodes there are.
        """
        self._counted += counted
        self._changes += self._counted > 0
        small = known < SMALL or self._counted > SHARE * known
        due = urgent or (self.behind and (small or self._changes >= self.patience))
        if due:
            self._counted = self._changes = 0
        return due

    def state(self) -> dict[str, Tensor]:
        """Return the changes and nodes since the last solution."""
        return {"waiting": torch.tensor([self._changes, self._counted])}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._changes, self._counted = state["waiting"].tolist()


class RoundingLoss(Saved):
    """Tracks the peak size of sums, which bounds the rounding error left in them.

    A sum that has held a term t is off by about 1e-16 t after t is subtracted. Vectors of unit
    length have no large terms. But without normalisation an outlier may be 1e8 times as long as the
    rest, and its square takes all digits: after it is subtracted, more rounding than signal is
    left. Sums below 1 / ``LOSS`` of their peak must therefore be recomputed.

    Attributes:
        peak_: the largest size since sums were last recomputed.  float64 [sums]

    >>> loss = RoundingLoss()
    >>> [loss.too_high(torch.tensor([size])) for size in (5.0, 1e6, 10.0)]
    [False, False, True]
    >>> loss.reset(torch.tensor([10.0]))
    >>> loss.too_high(torch.tensor([9.0]))
    False
    """

    def __init__(self) -> None:
        self.peak_ = torch.zeros(0, dtype=torch.float64)

    def too_high(self, sizes: Tensor) -> bool:
        """Record sums of squares; return whether they must be recomputed.  [sums], 0 if empty"""
        sizes = sizes.double()
        if len(self.peak_) != len(sizes):  # other sums than before
            self.reset(sizes)
            return not bool(sizes.isfinite().all())
        # Written so that NaN, and sizes that rounding has made negative, count as lost.
        if not bool((sizes * LOSS >= self.peak_).all()):
            return True
        self.peak_ = torch.maximum(self.peak_, sizes)
        return False

    def reset(self, sizes: Tensor) -> None:
        """Start over with recomputed sums."""
        self.peak_ = sizes.double().clone()

    def state(self) -> dict[str, Tensor]:
        """Return the peaks."""
        return {"peak": self.peak_}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.peak_ = state["peak"]
