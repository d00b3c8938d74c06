"""Sufficient statistics of a linear head: the sums that least squares needs, and counting them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.views import ViewRows
from evergraph.core.errors import ConfigurationError
from evergraph.core.resources import Resources, fixed_sums
from evergraph.graphs.kernels.row_ranges import row_tiles, spread
from evergraph.memory.budget import MemoryUsage

# Columns of the lower triangle multiplied at a time, and of its corners on the diagonal: above the
# diagonal, only the part inside a corner's panels is computed needlessly.
PANEL = 512
CORNER = 128
# Rows multiplied at a time: rounding grows with the number of blocks, not of rows.
ROWS_PER_BLOCK = 4096
# Values of a row-wise computation of many passes that stay in a CPU's cache between two of them.
CACHED = 1 << 16
# Nodes counted by a worker. The size does not depend on the number of workers, so the sums do not
# either. At a width of 4,096 a block is seconds of work for 34 MB of statistics.
BLOCK_ROWS = 1 << 15

Features = Tensor | Iterable[Tensor]


def row_blocks(features: Features) -> Iterator[tuple[Tensor, slice]]:
    """Yield features a few rows at a time, each block with its place among all rows.

    >>> [place for _, place in row_blocks([torch.zeros(3, 2), torch.zeros(2, 2)])]
    [slice(0, 3, None), slice(3, 5, None)]
    """
    start = 0
    for rows in features.split(ROWS_PER_BLOCK) if isinstance(features, Tensor) else features:
        yield rows, slice(start, start + len(rows))
        start += len(rows)


def few_rows(values: Tensor) -> Iterator[slice]:
    """Yield slices of as many rows as a CPU's cache holds; all of them on another device."""
    count, width = values.shape
    step = max(CACHED // max(width, 1), 1) if values.device.type == "cpu" else max(count, 1)
    return (slice(start, start + step) for start in range(0, count, step))


def over_few_rows(work: Callable[[slice], object], values: Tensor) -> None:
    """Process a few rows at a time, on a CPU each time by one thread.

    Torch would split every one of a dozen short operations, and its threads would wait for each
    other after each: most of the CPU time where another process keeps a core busy.
    """
    if values.device.type != "cpu":
        work(slice(None))
        return
    with fixed_sums():
        spread(work, few_rows(values))


class ClassStatistics:
    """Weighted Gram matrix and class sums of features, from which a head is solved.

    G = Σ_i w_i φ_i φ_iᵀ, and for each class c: s_c = Σ_{i∈c} w_i φ_i, its mass Σ w_i and count.
    Sums do not depend on their order: statistics of two sets of nodes add up to those of both
    (``merged``), and a node can be removed (``add`` with a negative sign).

    G is kept in float32, and only its lower triangle is computed and stored: the rounding is a few
    1e-7 of it, far below the regularisation. Sums are added in float64. ``precise`` computes and
    keeps G in float64 as well, so that removed nodes leave no visible trace, however many they are.

    Args:
        width: m, the length of a feature vector.
        precise: count in float64, for many removals. Pass features in float64 too: those in
            float32 may differ in the last digit from one batch to another.

    Attributes:
        gram_: G; values above the diagonal are undefined.  float [m, m]
        sums_: float64 [classes, m]
        mass_: float64 [classes]
        counts_: int64 [classes]

    >>> statistics = ClassStatistics(2)
    >>> statistics.add(torch.tensor([[1., 2.]]), torch.tensor([0]), torch.tensor([0.5]))
    >>> statistics.gram_.tril()
    tensor([[0.5000, 0.0000],
            [1.0000, 2.0000]])
    """

    def __init__(
        self, width: int, *, precise: bool = False, device: torch.device | str = "cpu"
    ) -> None:
        self.width = width
        self.precise = precise
        dtype = torch.float64 if precise else torch.float32
        self.gram_ = torch.zeros(width, width, dtype=dtype, device=device)
        self.sums_ = torch.zeros(0, width, dtype=torch.float64, device=device)
        self.mass_ = torch.zeros(0, dtype=torch.float64, device=device)
        self.counts_ = torch.zeros(0, dtype=torch.int64, device=device)

    @property
    def num_classes(self) -> int:
        """Number of classes allocated."""
        return len(self.counts_)

    def clear(self) -> None:
        """Remove all nodes, and any rounding left; allocated classes stay."""
        for sums in (self.gram_, self.sums_, self.mass_, self.counts_):
            sums.zero_()

    def erase(self, places: Tensor) -> None:
        """Set features to 0 for all nodes."""
        self.gram_[places] = 0.0
        self.gram_[:, places] = 0.0
        self.sums_[:, places] = 0.0

    def clear_rounding(self) -> None:
        """Clear the sums of classes without nodes, which hold rounding only."""
        self.sums_[self.counts_ == 0] = 0.0
        if not bool(self.counts_.any()):
            self.gram_.zero_()

    def grow(self, classes: int) -> None:
        """Allocate classes."""
        more = max(classes - self.num_classes, 0)
        self.sums_ = torch.cat([self.sums_, self.sums_.new_zeros(more, self.width)])
        self.mass_ = torch.cat([self.mass_, self.mass_.new_zeros(more)])
        self.counts_ = torch.cat([self.counts_, self.counts_.new_zeros(more)])

    def add(self, features: Features, labels: Tensor, weights: Tensor, sign: int = 1) -> None:
        """Add nodes, or remove them if the sign is -1, with features and weights as when added.

        features: [n, m], or an iterable of blocks of their rows, held one at a time; labels: int64
        [n]; weights: positive [n]
        """
        if not len(labels):
            return
        self.grow(int(labels.max()) + 1)
        for rows, part in row_blocks(features):
            self._count_rows(rows, labels[part], weights[part], sign)
        self.mass_.index_add_(0, labels, sign * weights.double())
        self.counts_.index_add_(0, labels, torch.full_like(labels, sign))

    def exchange(
        self, before: Tensor, after: Tensor, labels: Tensor, weights: Tensor | None = None
    ) -> None:
        """Replace the features of nodes.  [n, m] each; int64 [n]; weights: [n], 1 by default

        ΨᵀΨ - ΦᵀΦ = SᵀD + DᵀS with S = (Φ + Ψ) / 2 and D = Ψ - Φ: one half is the transpose of the
        other, so it takes four fifths of the time of removing and adding.

        >>> statistics, label = ClassStatistics(2), torch.tensor([0])
        >>> statistics.add(torch.tensor([[1., 2.]]), label, torch.ones(1))
        >>> statistics.exchange(torch.tensor([[1., 2.]]), torch.tensor([[3., 2.]]), label)
        >>> statistics.gram_.tril().tolist(), statistics.sums_.tolist()
        ([[9.0, 0.0], [6.0, 4.0]], [[3.0, 2.0]])
        """
        old, new = before.to(self.gram_.dtype), after.to(self.gram_.dtype)
        difference, mean = new - old, (old + new).mul_(0.5)
        if weights is not None:
            difference *= weights.to(difference.dtype)[:, None]
        for start in range(0, self.width, PANEL):
            stop = min(start + PANEL, self.width)
            panel = slice(start, stop)
            corner = mean[:, panel].t() @ difference[:, panel]
            self.gram_[panel, panel].add_(corner).add_(corner.t())
            below = self.gram_[stop:, panel]
            below.addmm_(mean[:, stop:].t(), difference[:, panel])
            below.addmm_(difference[:, stop:].t(), mean[:, panel])
        self.sums_.index_add_(0, labels, difference.double())

    def _count_rows(self, rows: Tensor, labels: Tensor, weights: Tensor, sign: int) -> None:
        """Add to G and the sums."""
        rows = rows.to(self.gram_.dtype)
        scaled = rows * weights.to(rows.dtype).sqrt()[:, None]
        multiply = partial(self._multiply_panel, scaled, sign)
        panels = [
            slice(start, min(start + PANEL, self.width)) for start in range(0, self.width, PANEL)
        ]
        if scaled.device.type == "cpu" and len(row_tiles(len(rows), self.width**2)) > 1:
            with fixed_sums():
                spread(multiply, panels)
        else:
            for panel in panels:
                multiply(panel)
        # Row by row, not as a product with a class matrix: the same cost for 2 and 1,000 classes.
        weights = (sign * weights.double())[:, None]
        with fixed_sums():
            for part in few_rows(rows):
                self.sums_.index_add_(0, labels[part], rows[part].double() * weights[part])

    @torch.no_grad()
    def _multiply_panel(self, scaled: Tensor, sign: int, panel: slice) -> None:
        """Add to some columns of G: the part below a corner, then the corner."""
        parts = [(slice(panel.stop, None), panel)]
        for start in range(panel.start, panel.stop, CORNER):
            parts.append((slice(start, panel.stop), slice(start, min(start + CORNER, panel.stop))))
        for rows, columns in parts:
            part = self.gram_[rows, columns]
            part.addmm_(scaled[:, rows].t(), scaled[:, columns], alpha=sign)

    def transform(self, matrix: Tensor) -> None:
        """Replace every φ by Wᵀφ: WᵀGW and s_c W.  matrix: W, float64 [m, m]

        >>> statistics = ClassStatistics(2)
        >>> statistics.add(torch.tensor([[1., 2.]]), torch.tensor([0]), torch.ones(1))
        >>> statistics.transform(torch.tensor([[0., 1.], [1., 0.]], dtype=torch.float64))
        >>> statistics.sums_.tolist(), statistics.gram_.diagonal().tolist()
        ([[2.0, 1.0]], [4.0, 1.0])
        """
        gram = matrix.t() @ mirrored(self.gram_).double() @ matrix
        self.gram_ = gram.to(self.gram_.dtype)
        self.sums_ = self.sums_ @ matrix

    def merged(self, other: ClassStatistics, classes: Tensor | None = None) -> ClassStatistics:
        """Return the statistics of the nodes of both.

        classes: the class here for each class of ``other``; the same numbers by default.
        """
        if other.width != self.width:
            raise ConfigurationError(
                f"statistics can be merged if they are equally wide, not {self.width} and "
                f"{other.width}"
            )
        if classes is None:
            classes = torch.arange(other.num_classes)
        # Where nothing was counted, as of validation nodes that decide nothing, no class is known.
        classes = classes[: other.num_classes].to(self.counts_.device)
        precise = self.precise or other.precise
        device = self.gram_.device
        merged = ClassStatistics(self.width, precise=precise, device=device)
        merged.grow(max(self.num_classes, int(classes.max()) + 1 if len(classes) else 0))
        merged.gram_ = self.gram_ + other.gram_.to(device)  # float64 if either is
        for name in ("sums_", "mass_", "counts_"):
            total = getattr(merged, name)
            total[: self.num_classes] += getattr(self, name)
            total.index_add_(0, classes, getattr(other, name).to(total.device))
        return merged

    def narrowed(self, width: int) -> ClassStatistics:
        """Return the statistics of the first features alone."""
        narrow = ClassStatistics(width, precise=self.precise, device=self.gram_.device)
        narrow.gram_ = self.gram_[:width, :width]
        narrow.sums_ = self.sums_[:, :width]
        narrow.mass_, narrow.counts_ = self.mass_, self.counts_
        return narrow

    @property
    def usage(self) -> MemoryUsage:
        """Number of values in G and the sums, and the bytes of everything kept."""
        triangle = self.width * (self.width + 1) // 2
        others = sum(tensor.nbytes for tensor in (self.sums_, self.mass_, self.counts_))
        return MemoryUsage(
            statistics=triangle + self.sums_.numel(),
            bytes=triangle * self.gram_.element_size() + others,
        )

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name."""
        state = {"sums": self.sums_, "mass": self.mass_, "counts": self.counts_}
        return state | {"gram": packed(self.gram_)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        device = self.gram_.device
        self.sums_ = state["sums"].to(device)
        self.mass_, self.counts_ = state["mass"].to(device), state["counts"].to(device)
        self.gram_ = unpacked(state["gram"], self.width).to(device, self.gram_.dtype)


def mirrored(lower: Tensor) -> Tensor:
    """Return the symmetric matrix of a lower triangle, whatever is above it.  [m, m]"""
    return lower.tril() + lower.tril(-1).t()


def packed(matrix: Tensor) -> Tensor:
    """Return the lower triangle of a matrix, row after row.  [m, m] -> [m (m + 1) / 2]

    Row by row with NumPy, since a mask takes fifteen times as long.

    >>> packed(torch.tensor([[1., 9.], [2., 3.]]))
    tensor([1., 2., 3.])
    """
    rows = [row[: place + 1] for place, row in enumerate(matrix.cpu().numpy())]
    values = np.concatenate(rows) if rows else np.empty(0)
    return torch.from_numpy(values).to(matrix.device, matrix.dtype)


def unpacked(triangle: Tensor, width: int) -> Tensor:
    """Return the matrix of a lower triangle, zeros above it, on the CPU.  -> [m, m]"""
    matrix = torch.zeros(width, width, dtype=triangle.dtype)
    values, start = triangle.cpu().numpy(), 0
    for place, row in enumerate(matrix.numpy()):
        row[: place + 1] = values[start : start + place + 1]
        start += place + 1
    return matrix


class FeatureMap(Protocol):
    """φ of some nodes, without trained parameters: of every view, or of embeddings."""

    def blocks(self, rows: Any, /) -> Iterable[Any]:
        """Return rows in blocks of an efficient size."""

    def __call__(self, rows: Any, /) -> Any:
        """Return features, [n, m], or yield those of every view."""


def count_views(
    statistics: Sequence[Any],
    rows: ViewRows | Tensor,
    labels: Tensor,
    weights: Tensor,
    *,
    expand: FeatureMap,
    resources: Resources | None = None,
    sign: int = 1,
) -> list[Any]:
    """Return statistics of every view with more nodes added; those given may be changed.

    Every node is projected once for all views. G = Σ_b G_b over blocks b of nodes, and likewise the
    sums: a worker computes a block's features and returns their statistics, which are merged in the
    order of the blocks. So the result is the same to the last bit for any number of workers,
    including none, if each has as many threads. A single block, rows on a GPU, and targets instead
    of classes are counted in this process, as is everything without ``resources``.

    statistics: of classes, or of targets; rows: of the views, or embeddings or whole vectors,
    [n, dims]; labels: int64 [n], or targets [n, targets]; weights: positive [n]; expand: φ of the
    views, or of a single one; sign: -1 removes.
    """
    many = rows.device.type == "cpu" and len(labels) > BLOCK_ROWS
    if resources is None or not many or not isinstance(statistics[0], ClassStatistics):
        _count(statistics, rows, labels, weights, expand, sign)
        return list(statistics)
    sizes = [(sums.width, sums.precise) for sums in statistics]
    shared: dict[str, Any] = {"rows": rows, "labels": labels, "weights": weights}
    shared |= {"expand": expand, "sign": sign, "sizes": sizes}
    blocks = [(start, start + BLOCK_ROWS) for start in range(0, len(labels), BLOCK_ROWS)]
    totals = _empty(sizes)
    for states in resources.engine.map(count_block, blocks, shared=shared):
        for view, (counted, state) in enumerate(zip(_empty(sizes), states, strict=True)):
            counted.restore(state)
            totals[view] = totals[view].merged(counted)
    return [sums.merged(total) for sums, total in zip(statistics, totals, strict=True)]


def count_block(
    part: tuple[int, int],
    *,
    rows: ViewRows | Tensor,
    labels: Tensor,
    weights: Tensor,
    expand: FeatureMap,
    sign: int,
    sizes: Sequence[tuple[int, bool]],
) -> list[dict[str, Tensor]]:
    """Return the state of the statistics of some nodes, one for each size; a pure function.

    sizes: width, and whether sums are in float64
    """
    block, counted = slice(*part), _empty(sizes)
    _count(counted, rows[block], labels[block], weights[block], expand, sign)
    return [sums.state() for sums in counted]


def _empty(sizes: Sequence[tuple[int, bool]]) -> list[ClassStatistics]:
    return [ClassStatistics(width, precise=precise) for width, precise in sizes]


def _count(
    statistics: Sequence[Any],
    rows: Any,
    labels: Tensor,
    weights: Tensor,
    expand: FeatureMap,
    sign: int,
) -> None:
    start = 0
    for block in expand.blocks(rows):
        part, features = slice(start, start + len(block)), expand(block)
        # The features of one map are counted at once, those of views a few rows at a time.
        if isinstance(features, Tensor):
            features = [[features[:, : statistics[0].width]]]
        for sums, of_view in zip(statistics, features, strict=True):
            sums.add(of_view, labels[part], weights[part], sign)
        start = part.stop
