"""Kernel values to landmark nodes: a memory of real nodes as the basis of every view."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from evergraph.closed_form.fusing import Probes, draw_order
from evergraph.closed_form.statistics import over_few_rows
from evergraph.closed_form.view_features import ViewFeatures
from evergraph.closed_form.view_map import (
    BLOCK_VALUES,
    GPU_BLOCK_VALUES,
    Parts,
    Product,
    ViewMap,
)
from evergraph.closed_form.views import CODE_HOPS, CODES, FAR, RELATIONS, View, ViewRows
from evergraph.core.component import formerly, integer
from evergraph.graphs.csr import ROWS_AT_A_TIME
from evergraph.graphs.kernels.row_ranges import tiled_product
from evergraph.nn.backbone import backbones
from evergraph.topology.cached import Storage

if TYPE_CHECKING:
    from typing_extensions import Self

VIEWS = ("0|1|2|4|r|s+y", "0|s", "0", "4", "2|r", "0|1+y")
"""A node's own features, near and far neighbourhoods, and labels nearby; the best pair first."""
# Up to so many columns weigh alike: each of a few may matter together with others.
FEW_COLUMNS = 64
# Added to K's diagonal, as a share of its trace, so that nearly equal landmarks count as one.
JITTER = 1e-7
PANEL = 128
# Number of landmarks: see docs/decisions/0082 and 0092.
FEW, SHARE = 1024, 19


@dataclass(frozen=True, eq=False)
class LandmarkMap(ViewMap):
    """Whitened kernel values of a node to the landmarks Z: φ_v(x) = W_vᵀ k_v(x, Z).

    k(a, b) = ‖a‖‖b‖ (sin t + (π - t) cos t) / π with t the angle between a and b, which the
    features of ``RandomMap`` estimate (Cho and Saul 2009). A view's vectors are its concatenated
    parts divided by the root of their number, so parts are multiplied once for all views. W = L⁻ᵀ
    with L Lᵀ = K(Z, Z): inner products of features then equal the kernel among landmarks, and its
    Nyström approximation elsewhere (Williams and Seeger 2001).

    Attributes:
        landmarks: Z, one entry per part.  float32 [landmarks, part dims] each
        whitening: W of every view.  float32 [landmarks, m] each
        squares: squared lengths of Z's parts.  [landmarks] each
        units: number of unit vectors in a part, if more than one.
        columns: weight of each column of a hop, see ``column_weights``; None for equal
            weights.  float32 [d] | None

    >>> here = ViewRows(torch.eye(2), None)
    >>> one = LandmarkMap.on((View((0,)),), here, (0,))
    >>> features, = one(here)
    >>> (features @ features.t()).round(decimals=3)  # k of two orthogonal vectors
    tensor([[1.0000, 0.3180],
            [0.3180, 1.0000]])
    """

    landmarks: Parts
    whitening: Mapping[View, Tensor]
    squares: Parts
    units: Mapping[int, int] = field(default_factory=lambda: {CODES: CODE_HOPS, RELATIONS: 3})
    columns: Tensor | None = None

    @classmethod
    def on(
        cls,
        views: Sequence[View],
        rows: ViewRows,
        hops: Sequence[int],
        *,
        units: Mapping[int, int] | None = None,
        columns: Tensor | None = None,
        device: torch.device | str = "cpu",
    ) -> LandmarkMap:
        """Return the map of some landmarks; hops: the hops that ``rows`` hold."""
        parts = rows.taken(torch.device(device)).parts(hops)
        columns = None if columns is None else columns.to(device)
        weighed = {part: _weighed(part, found, columns) for part, found in parts.items()}
        squares = {part: cls.squared(found) for part, found in weighed.items()}
        counts = {CODES: CODE_HOPS, RELATIONS: 3, **(units or {})}
        made = cls(tuple(views), weighed, {}, squares, counts, columns)
        projected = made.projected(parts)
        return replace(made, whitening={v: _whitening(made.kernel(v, projected)) for v in views})

    @property
    def width(self) -> int:
        """Number of features per view."""
        return next(iter(self.whitening.values())).shape[1]

    @property
    def sizes(self) -> Mapping[int, int]:
        """Width of each part."""
        return {part: rows.shape[1] for part, rows in self.landmarks.items()}

    @property
    def directions(self) -> Parts:
        """Zᵀ of every part."""
        return {part: rows.t() for part, rows in self.landmarks.items()}

    @property
    def device(self) -> torch.device:
        """Device of the landmarks."""
        return next(iter(self.landmarks.values())).device

    @property
    def at_a_time(self) -> int:
        """Number of rows processed at a time, limited by the width of features and rows."""
        values = 4 * (BLOCK_VALUES if self.device.type == "cpu" else GPU_BLOCK_VALUES)
        return min(super().at_a_time, max(values // sum(self.sizes.values()), 1))

    def narrowed(self, width: int) -> Self:
        """Return the first features of every view, which use the first landmarks only."""
        return replace(
            self,
            landmarks={part: rows[:width] for part, rows in self.landmarks.items()},
            whitening={view: matrix[:width, :width] for view, matrix in self.whitening.items()},
            squares={part: lengths[:width] for part, lengths in self.squares.items()},
        )

    def projected(self, parts: Parts, product: Product = tiled_product) -> Parts:
        """Return inner products with every landmark, then the row's own.  -> [n, landmarks + 1]"""
        found = {}
        for part, rows in parts.items():
            rows = _weighed(part, rows, self.columns)
            own = self.squared(rows)[:, None]
            found[part] = torch.cat([product(rows, self.landmarks[part].t()), own], 1)
        return found

    @staticmethod
    def squared(rows: Tensor) -> Tensor:
        """Return squared lengths.  [n, dims] -> [n]"""
        return rows.square().sum(1)

    def together(self, view: View) -> tuple[int, Tensor]:
        """Return how many unit vectors a view has, and the length of every landmark in it."""
        needed = self.needed(view)
        count = sum(self.units.get(part, 1) for part in needed)
        return count, torch.stack([self.squares[p] for p in needed]).sum(0).div(count).sqrt()

    def kernel(self, view: View, projected: Parts) -> Tensor:
        """Return k_v(x, Z).  -> [n, landmarks]"""
        count, theirs = self.together(view)
        first, *others = (projected[part] for part in self.needed(view))
        out = first.new_empty(len(first), len(theirs))

        @torch.no_grad()  # applies to one thread
        def work(rows: slice) -> None:
            total = sum((part[rows] for part in others), first[rows]) / count
            lengths = total[:, -1:].sqrt() * theirs
            cosine = torch.div(total[:, :-1], lengths.clamp_min(1e-12), out=out[rows])
            cosine.clamp_(-1.0, 1.0)
            angle = cosine.acos()
            # sin t is the root of 1 - cos² t, which saves one function per pair of nodes.
            sine = cosine.square().neg_().add_(1).clamp_min_(0.0).sqrt_()
            cosine.mul_(angle.neg_().add_(math.pi)).add_(sine).mul_(lengths).div_(math.pi)

        over_few_rows(work, out)
        return out

    def features(self, view: View, projected: Parts) -> Tensor:
        """Return φ_v.  -> [n, m]"""
        kernel, whitening = self.kernel(view, projected), self.whitening[view]
        # W is zero below its diagonal: a panel of columns needs no landmark beyond its last.
        panels = (
            tiled_product(kernel[:, : start + PANEL], part[: start + PANEL])
            for start, part in zip(
                range(0, whitening.shape[1], PANEL), whitening.split(PANEL, 1), strict=True
            )
        )
        return torch.cat([*panels], dim=1)

    def scores(self, view: View, projected: Parts, weights: Tensor) -> Tensor:
        """Return φ_v Vᵀ without computing φ_v: W is multiplied with the head.

        weights: V, [classes, m or more]; columns beyond m have no landmark
        """
        head = self.whitening[view] @ weights[:, : self.width].t()
        return tiled_product(self.kernel(view, projected), head)


def _weighed(part: int, rows: Tensor, columns: Tensor | None) -> Tensor:
    """Return a near hop's rows with weighted columns, scaled to unit length again."""
    if columns is None or not 0 <= part <= FAR:
        return rows
    rows = rows * columns
    return rows.div_(rows.norm(dim=1, keepdim=True).clamp_min_(1e-12))


def column_weights(rows: ViewRows, labels: Tensor, *, dims: int) -> Tensor:
    """Return the weight of each feature column.  -> float32 [dims], about 1

    w = (b / mean b)^(1/4), with b the variance of a column's class means over its variance, all
    classes having equal weight: columns that separate classes count more. With exponent 1 instead
    of 1/4, a few columns would dominate wide features. Up to ``FEW_COLUMNS`` columns weigh alike.

    rows: labelled nodes, of which the first stored hop is used; dims: width of a hop

    >>> rows = torch.tensor([[1., 0.], [1., 1.], [0., 0.], [0., 1.]]).repeat(1, 50)
    >>> found = column_weights(ViewRows(rows, None), torch.tensor([0, 0, 1, 1]), dims=100)
    >>> found[:2]  # every second column separates nothing
    tensor([1.1892, 0.0316])
    """
    if not len(labels) or dims <= FEW_COLUMNS:
        return torch.ones(dims)
    labels = labels.to(rows.hops.device)
    counts = torch.bincount(labels).float()
    sums = rows.hops.new_zeros(len(counts), dims, dtype=torch.float32)
    squares = torch.zeros_like(sums)
    nodes = torch.arange(len(rows)) if rows.nodes is None else rows.nodes
    for some in torch.arange(len(labels), device=labels.device).split(ROWS_AT_A_TIME):
        found = rows.hops[nodes.to(rows.hops.device)[some], :dims].to(sums)
        sums.index_add_(0, labels[some], found)
        squares.index_add_(0, labels[some], found.square_())
    met = counts > 0
    means = sums[met] / counts[met, None]
    centre = means.mean(0)
    spread = (squares[met] / counts[met, None]).mean(0) - centre.square()
    between = (means - centre).square().mean(0)
    share = between / spread.clamp_min(1e-9 * float(spread.mean()) + 1e-30)
    return (share / share.mean().clamp_min(1e-30)).clamp_min(1e-6).pow(0.25)


def _whitening(kernel: Tensor) -> Tensor:
    """Return L⁻ᵀ with L Lᵀ = K plus a small diagonal.  [landmarks, landmarks] -> float32, same"""
    kernel = kernel.double()
    eye = torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device)
    # If a view is empty for every landmark, its kernel is zero and so are its features.
    added = JITTER * (float(kernel.trace()) or 1.0)
    factor, failed = torch.linalg.cholesky_ex(kernel + added * eye)
    while int(failed):  # many landmarks are equal up to rounding, as in a dense graph
        added *= 10
        factor, failed = torch.linalg.cholesky_ex(kernel + added * eye)
    inverse: Tensor = torch.linalg.solve_triangular(factor, eye, upper=False)
    return inverse.t().float().contiguous()


class Landmarks(Probes):
    """Training nodes used as landmarks: equally many per class, at most ``most`` in all.

    Places that a small class leaves free go to the others. The choice depends on ids and classes
    alone, see ``Probes``. Up to ``FEW`` labelled nodes are all landmarks, which makes the kernel
    exact; of more nodes one in ``SHARE`` is, and at least ``FEW``.

    >>> few = Landmarks(4)
    >>> few.keep(ViewRows(torch.rand(9, 2), None), labels=torch.tensor([0] * 8 + [1]),
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
        assert rows.nodes is not None
        self._extend(
            rows.of(rows.nodes[first]).taken(torch.device("cpu")), labels[first], nodes[first]
        )

    def _first(self, nodes: Tensor, labels: Tensor) -> Tensor:
        counts, total = torch.bincount(labels), self._total
        least, most = 1, max(int(counts.max()), 1) if len(counts) else 1
        while least < most:  # the largest quota that keeps no more than ``total``
            middle = (least + most + 1) // 2
            fits = int(counts.clamp_max(middle).sum()) <= total
            least, most = (middle, most) if fits else (least, middle - 1)
        self.per_class = least
        first = super()._first(nodes, labels)
        # In random order, so that the first few include all classes. If there are more classes
        # than landmarks, some classes have none.
        return first[draw_order(nodes[first]).argsort()[:total]]


@backbones.register
@formerly(rows="dtype")
@dataclass(kw_only=True, eq=False, repr=False)
class LandmarkFeatures(ViewFeatures):
    """Kernel values to landmark nodes with one linear head per view: s(x) = Σ_v W_v φ_v(x).

    See ``LandmarkMap`` for φ. Method ``auto`` chooses the landmarks (``stand_on``) while the graph
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
        self._map: LandmarkMap | None = None
        self.columns = torch.empty(0)

    def stand_on(self, rows: ViewRows, columns: Tensor) -> None:
        """Use nodes as landmarks; they need class codes if a view has codes.

        columns: weight of each column of a hop, see ``column_weights``; none for equal weights.
        Without any landmark, as when all nodes were forgotten, features are random.
        """
        self.columns = columns
        self._map = None if not len(rows) else LandmarkMap.on(
            self.parsed, rows, (*self.near, *self.far),
            units={CODES: 3} if self.sees_relations else None,
            columns=columns if len(columns) else None, device=self.device,
        )  # fmt: skip

    def expansion(self) -> ViewMap:
        """Return φ of all views; random features until landmarks are chosen."""
        return super().expansion() if self._map is None else self._map
