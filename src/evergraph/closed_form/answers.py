"""Nodes whose answers are known, to choose penalties and the mixture of views by."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.closed_form.node_sample import first_of_each
from evergraph.closed_form.views import ViewRows

# Most scores of answers held back, nodes x classes x views, that the mixture is fitted to.
MOST_SCORES = 1 << 26


@dataclass(frozen=True, eq=False)
class Answers:
    """Nodes whose answers are known, to choose penalties and the mixture of views by.

    They were counted, and are left out in turn, or they are held back from the sums.

    Attributes:
        rows: what they are counted as.  float32 [n, dims], or rows of the views
        labels: int64 [n]; of those that were counted, of classes with two nodes or more
        landmarks: the landmark that a node is, or -1.  int64 [n]; None if they are held back
        allowed: the classes that each may have; None for all that there are.  bool [n, classes]
    """

    rows: Tensor | ViewRows
    labels: Tensor
    landmarks: Tensor | None = None
    allowed: Tensor | None = None

    @classmethod
    def none(cls) -> Answers:
        """Return no answers."""
        nothing = torch.zeros(0, dtype=torch.int64)
        return cls(torch.zeros(0, 0), nothing, nothing)

    @property
    def held_back(self) -> bool:
        """Whether they are not in the sums."""
        return self.landmarks is None

    def asked(self, scores: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return scores, labels and allowed classes of those that the mixture is fitted to.

        These are equally many of a class, if there are too many. A node may have the classes with
        nodes, of its task; None if all may have any.

        scores: [n, classes, views]; counts: nodes of each class that were counted, int64 [classes]
        -> [k, classes, views], int64 [k], bool [k or 1, classes] | None
        """
        labels, allowed, met = self.labels, self.allowed, (counts > 0)[None].cpu()
        if self.held_back:
            met = met.index_fill(1, labels, True)
        nodes, classes, views = scores.shape
        most = max(MOST_SCORES // max(classes * views, 1), 1)
        if nodes > most:
            per_class = max(most // int(labels.unique().numel()), 1)
            few = first_of_each(torch.arange(nodes), labels, per_class)
            scores, labels = scores[few], labels[few]
            allowed = None if allowed is None else allowed[few]
        if allowed is None:
            return scores, labels, None if bool(met.all()) else met
        return scores, labels, allowed & met
