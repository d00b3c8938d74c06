"""Kernel values to landmark nodes: a memory of real nodes as the basis of every view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.closed_form.kept_nodes import NodeSample, draw_order
from evergraph.closed_form.kernel_map import KernelMap
from evergraph.closed_form.view_features import ViewFeatures
from evergraph.closed_form.view_map import RandomMap
from evergraph.closed_form.views import ViewRows
from evergraph.core.component import integer
from evergraph.graphs.csr import ROWS_AT_A_TIME, in_groups
from evergraph.nn.backbone import backbones
from evergraph.topology.cached import Storage

VIEWS = ("0|1|2|4|r|s+y", "0|s", "0", "4", "2|r", "0|1+y")
"""A node's own features, near and far neighbourhoods, and labels nearby; the best pair first."""
# Up to so many columns have equal weights: each of a few may matter together with others.
FEW_COLUMNS = 64
# Number of landmarks: see docs/decisions/0082 and 0092.
FEW, SHARE = 1024, 19


def column_weights(rows: ViewRows, labels: Tensor, *, dims: int) -> Tensor:
    """Return the weight of each feature column.  -> float32 [dims], about 1

    w = (b / mean b)^(1/4), with b the variance of a column's class means over its variance, all
    classes having equal weight: columns that separate classes count more. With exponent 1 instead
    of 1/4, a few columns would dominate wide features. Up to ``FEW_COLUMNS`` columns have equal weights.

    rows: labelled nodes, of which the first stored hop is used; dims: width of a hop

    >>> rows = torch.tensor([[1., 0.], [1., 1.], [0., 0.], [0., 1.]]).repeat(1, 50)
    >>> weights = column_weights(ViewRows({(0,): rows}), torch.tensor([0, 0, 1, 1]), dims=100)
    >>> weights[:2]  # every second column separates nothing
    tensor([1.1892, 0.0316])
    """
    if not len(labels) or dims <= FEW_COLUMNS:
        return torch.ones(dims)
    labels = labels.to(rows.hops.device)
    counts = torch.bincount(labels).float()
    sums = rows.hops.new_zeros(len(counts), dims, dtype=torch.float32)
    squares = torch.zeros_like(sums)
    nodes = torch.arange(len(rows)) if rows.nodes is None else rows.nodes
    for block in torch.arange(len(labels), device=labels.device).split(ROWS_AT_A_TIME):
        values = rows.hops[nodes.to(rows.hops.device)[block], :dims].to(sums)
        sums.index_add_(0, labels[block], values)
        squares.index_add_(0, labels[block], values.square_())
    nonempty = counts > 0
    means = sums[nonempty] / counts[nonempty, None]
    centre = means.mean(0)
    variance = (squares[nonempty] / counts[nonempty, None]).mean(0) - centre.square()
    between = (means - centre).square().mean(0)
    share = between / variance.clamp_min(1e-9 * float(variance.mean()) + 1e-30)
    return (share / share.mean().clamp_min(1e-30)).clamp_min(1e-6).pow(0.25)


class Landmarks(NodeSample):
    """Training nodes used as landmarks: equally many per class, at most ``most`` in all.

    Places that a small class leaves free go to the others. The choice depends on ids and classes
    alone, see ``NodeSample``. Up to ``FEW`` labelled nodes are all landmarks, which makes the
    kernel exact; of more nodes one in ``SHARE`` is, and at least ``FEW``.

    >>> few = Landmarks(4)
    >>> few.keep(ViewRows({(0,): torch.rand(9, 2)}), labels=torch.tensor([0] * 8 + [1]),
    ...          nodes=torch.arange(9))
    >>> sorted(few.labels_.tolist())
    [0, 0, 0, 1]
    """

    def __init__(self, most: int) -> None:
        super().__init__(per_class=most)
        self.most = most
        self._total = most

    def keep(self, rows: ViewRows, *, labels: Tensor, nodes: Tensor) -> None:
        """Consider all nodes, and set the number of landmarks from their number."""
        self._total = min(self.most, max(FEW, len(nodes) // SHARE))
        super().keep(rows, labels=labels, nodes=nodes)

    def fill(self, rows: ViewRows, *, labels: Tensor, nodes: Tensor) -> None:
        """Add other nodes if there is room left, see ``certain``."""
        first = draw_order(nodes).argsort()[: max(self._total - len(self), 0)]
        self._extend(rows, labels, nodes, first)

    def _first(self, nodes: Tensor, labels: Tensor) -> Tensor:
        first, rank = in_groups(labels, draw_order(nodes).argsort())
        if len(first) > self._total:  # the most of each class that fit, or one
            quota = int(rank.kthvalue(self._total + 1).values)
            first = first[rank < max(quota, 1)]
        # In random order, so that the first few include all classes. If there are more classes
        # than landmarks, some classes have none.
        return first[draw_order(nodes[first]).argsort()[: self._total]]


@backbones.register
@dataclass(kw_only=True, eq=False, repr=False)
class LandmarkFeatures(ViewFeatures):
    """Kernel values to landmark nodes with one linear head per view: s(x) = Σ_v W_v φ_v(x).

    See ``KernelMap`` for φ. Method ``auto`` chooses the landmarks (``use_landmarks``) while the graph
    is available, so that all nodes can be counted again when they change. For methods that choose
    none, the features are random. Hops are not projected, however wide they are.

    Args:
        views: see ``ViewFeatures``; ``s`` is a node's number of neighbours and the length of its
            features.
        width: maximum number of landmarks, see ``Landmarks``.
    """

    name = "landmark-features"
    widest = None
    on_landmarks = True
    statistics_share = 0.4  # landmarks take as much again

    views: Sequence[str] = VIEWS
    width: int = integer(2560, least=1)
    storage: Storage = "float16"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._map: KernelMap | None = None
        self.columns = torch.empty(0)

    def use_landmarks(self, rows: ViewRows, columns: Tensor) -> None:
        """Use nodes as landmarks; they need class codes if a view has codes.

        columns: weight of each column of a hop, see ``column_weights``; none for equal weights.
        Without any landmark, as when all nodes were forgotten, features are random.
        """
        self.columns, self._map = columns, None
        if len(rows):
            weights = columns.to(self.device) if len(columns) else None
            self._map = self.kernel_map(self.parsed, rows, columns=weights)

    def expansion(self) -> RandomMap | KernelMap:
        """Return φ of all views; random features until landmarks are chosen."""
        return super().expansion() if self._map is None else self._map
