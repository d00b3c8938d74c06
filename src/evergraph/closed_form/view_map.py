"""Maps φ from the parts of a node to the features of every view, for batch and live learning.

Heads use only the interface of ``ViewMap``. ``RandomMap`` computes random features, and
``KernelMap`` kernel values to landmarks. Both compute them in two ways: of the rows of a graph part
by part, on any device, and of the whole vectors of live nodes row by row.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.statistics import over_few_rows
from evergraph.closed_form.views import UNITS, WORDS, View, ViewRows
from evergraph.graphs.kernels.row_ranges import spread, tiled_product
from evergraph.topology.rowwise import Matrix, RowProduct

if TYPE_CHECKING:
    from typing_extensions import Self

# Values projected at a time: see ``evergraph.nn.random_features``.
BLOCK_VALUES = 1 << 21
GPU_BLOCK_VALUES = 1 << 26
ROWS_PER_BLOCK = 64  # of whole vectors, whose features stay in the cache

Parts = Mapping[int, Tensor]  # part -> rows of nodes, or values computed from them
Places = Mapping[int, tuple[int, int]]  # part -> start and end in a whole vector
Multiplier = Callable[[Matrix], Matrix]  # multiplies rows by a fixed matrix, each row alone
Rows = TypeVar("Rows", ViewRows, Tensor)


@dataclass(frozen=True, eq=False)
class ViewMap(ABC):
    """The features φ_v(x) of some views v.

    Of rows of the views they are computed in two steps: ``projected`` computes the part of the work
    that all views share, once per part of a node, and ``features`` those of a view from it. Of
    whole vectors ``rowwise`` computes them such that no bit of a row depends on the other rows: a
    live node is removed from sums with exactly the features it was added with. Nothing is trained,
    and the record holds everything that a worker needs.

    Attributes:
        views: the views, in order.
    """

    views: tuple[View, ...]
    words_alone = True

    @property
    @abstractmethod
    def width(self) -> int:
        """m, the number of features per view."""

    @property
    @abstractmethod
    def sizes(self) -> Mapping[int, int]:
        """Width of each existing part, in the order of live vectors."""

    @property
    def nbytes(self) -> int:
        """Number of bytes that do not follow from a seed."""
        return 0

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Device on which features are computed."""

    @abstractmethod
    def projected(self, parts: Parts) -> Parts:
        """Return the shared values of some parts.  [n, part dims] each -> [n, ...] each"""

    @abstractmethod
    def features(self, view: View, projected: Parts) -> Tensor:
        """Return φ_v, in new memory.  -> [n, m]"""

    def scores(self, view: View, projected: Parts, weights: Tensor) -> Tensor:
        """Return φ_v Vᵀ.  weights: V, [classes, m] -> [n, classes]"""
        return self.features(view, projected) @ weights.t()

    def scores_of(self, rows: ViewRows, heads: Sequence[Tensor]) -> Tensor:
        """Return scores of nodes by every V.  heads: [m, classes] each -> [n, classes, views]"""
        parts = [torch.empty(0, heads[0].shape[1], len(heads), device=self.device)]
        for block in self.blocks(rows):
            projected = self.projected_rows(block, self.views)
            pairs = zip(self.views, heads, strict=True)
            scores = [self.scores(view, projected, head.t()) for view, head in pairs]
            parts.append(torch.stack(scores, dim=2))
        return torch.cat(parts)

    def add_scores(self, scores: Tensor, rows: ViewRows, heads: Mapping[View, Tensor]) -> Tensor:
        """Return scores plus Σ_v φ_v Vᵀ over some views.  heads: V, [classes, m] each"""
        if heads:
            projected = self.projected_rows(rows, tuple(heads))
            for view, head in heads.items():
                scores = scores + self.scores(view, projected, head)
        return scores

    @abstractmethod
    def narrowed(self, width: int) -> Self:
        """Return the map of the first features of every view, with unchanged values."""

    @abstractmethod
    def rowwise(self, vectors: Matrix) -> Matrix:
        """Return φ of all views; no bit of a row depends on other rows.

        Computed by NumPy, which for a few rows is done before torch has begun.

        [n, dims] -> [n, views, m]
        """

    @abstractmethod
    def slopes(self, vector: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """Return ∂s/∂x of s(x) = Σ_v W_vᵀφ_v(x), which is this times x: φ is homogeneous.

        vector: x, [dims]; weights: W of every view, [m, classes] each -> [classes, dims]
        """

    @abstractmethod
    def multiplier(self, parts: Sequence[int]) -> Multiplier:
        """Return what multiplies rows of adjacent parts with directions or landmarks."""

    @cached_property
    def _groups(self) -> list[tuple[slice, Multiplier, list[int]]]:
        """Adjacent parts that the same views need, which are multiplied together."""

        def readers(part: int) -> tuple[list[int], bool]:
            views = [index for index, v in enumerate(self.views) if part in self.needed(v)]
            return views, part == WORDS

        places, groups = self.places, []
        for (views, _), adjacent in groupby(self.sizes, readers):
            parts = list(adjacent)
            if views:
                columns = slice(places[parts[0]][0], places[parts[-1]][1])
                groups.append((columns, self.multiplier(parts), views))
        return groups

    def totals(self, vectors: Matrix) -> Matrix:
        """Return the products of each view's parts with directions or landmarks, summed.

        [n, dims] -> [n, views, m]
        """
        totals = np.zeros((len(vectors), len(self.views), self.width), np.float32)
        for columns, multiplied, views in self._groups:
            products = multiplied(vectors[:, columns])
            for view in views:
                totals[:, view] += products
        return totals

    def needed(self, *views: View) -> tuple[int, ...]:
        """Return the existing parts that some views need, each once."""
        existing = self.sizes
        wanted = dict.fromkeys(part for view in views for part in view.parts)
        if WORDS in existing and self.words_alone:  # hop 0 is an estimate of them
            wanted.pop(0, None)
        return tuple(part for part in wanted if part in existing)

    def units(self, view: View) -> int:
        """Return the number of unit vectors in the parts of a view."""
        return sum(UNITS.get(part, 1) for part in self.needed(view))

    def __call__(self, rows: ViewRows | Tensor) -> Iterator[Tensor]:
        """Yield the features of each view; without codes, only of views that need none.

        rows: of the views, or whole vectors -> [n, m] each
        """
        if isinstance(rows, Tensor):
            yield from self.of_vectors(rows)
            return
        usable = [view for view in self.views if rows.codes is not None or not view.codes]
        projected = self.projected_rows(rows, usable)
        for view in usable:
            yield self.features(view, projected)

    def of_vectors(self, vectors: Tensor) -> Tensor:
        """Return φ of whole vectors, see ``rowwise``.  [n, dims] -> [views, n, m]"""
        features = torch.empty(len(self.views), len(vectors), self.width)
        by_row = features.numpy().transpose(1, 0, 2)

        def work(rows: slice) -> None:
            by_row[rows] = self.rowwise(vectors.numpy()[rows])

        starts = range(0, len(vectors), ROWS_PER_BLOCK)
        spread(work, (slice(start, start + ROWS_PER_BLOCK) for start in starts))
        return features

    def changes(
        self, before: Tensor, after: Tensor
    ) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
        """Yield features before and after of the nodes with other vectors, for every view.

        [n, dims] each -> view, rows among the n, int64 [k], and their φ, [k, m] each
        """
        for block in self.slices(len(before)):
            old, new = before[block], after[block]
            old_features, new_features = self.of_vectors(old), self.of_vectors(new)
            differ = {
                part: rows_that_differ(old[:, slice(*ends)], new[:, slice(*ends)])
                for part, ends in self.places.items()
            }
            for index, view in enumerate(self.views):
                changed = torch.stack([differ[part] for part in self.needed(view)]).any(0)
                rows = changed.nonzero().flatten()
                if len(rows):
                    features = old_features[index, rows], new_features[index, rows]
                    yield index, block.start + rows, *features

    def projected_rows(self, rows: ViewRows, views: Sequence[View]) -> Parts:
        """Return the shared values that some views need of rows, see ``projected``."""
        needed = self.needed(*views)
        rows = rows if WORDS in needed else replace(rows, words=None)
        parts = rows.taken(self.device).parts()
        assert parts.keys() >= set(needed), "rows must have the relations of the training graph"
        return self.projected({part: parts[part] for part in needed})

    def blocks(self, rows: Rows) -> Iterable[Rows]:
        """Yield rows in blocks of an efficient size."""
        return (rows[part] for part in self.slices(len(rows)))

    def slices(self, rows: int) -> Iterator[slice]:
        """Yield slices of this many rows that make blocks of an efficient size."""
        step = self.at_a_time
        return (slice(start, start + step) for start in range(0, rows, step))

    @property
    def at_a_time(self) -> int:
        """Number of rows in an efficient block."""
        values = BLOCK_VALUES if self.device.type == "cpu" else GPU_BLOCK_VALUES
        return max(values // self.width, 1)

    @property
    def places(self) -> Places:
        """Start and end of each part in a concatenated vector."""
        places: dict[int, tuple[int, int]] = {}
        start = 0
        for part, size in self.sizes.items():
            places[part] = start, start + size
            start += size
        return places


def rows_that_differ(before: Tensor, after: Tensor) -> Tensor:
    """Return which rows differ, by NumPy in a fifth of torch's time.  [n, dims] each -> bool [n]"""
    return torch.from_numpy((before.numpy() != after.numpy()).any(1))


@dataclass(frozen=True, eq=False)
class RandomMap(ViewMap):
    """ReLU random features of each view v: φ_v(x) = √(2/m) max(0, Σ_{b ∈ v} x_b R_b / √|v|).

    x_b are the parts of a view: hops, relations and class codes; |v| is their number of unit
    vectors. A part has the same random matrix R_b in all views, so every part of a node is
    projected once for all of them. R_b ~ N(0, 1).

    Attributes:
        matrices: R of every part.  float32 [part dims, m] each
        total: m, if these are the first of more features; else their own number.

    >>> from evergraph.closed_form.views import SHAPE
    >>> two = RandomMap((View((0,)), View((0,), shaped=True)),
    ...                 {0: torch.tensor([[1., -1.]]), SHAPE: torch.tensor([[1., 3.]])})
    >>> rows = ViewRows({(0,): torch.tensor([[1.]]), (SHAPE,): torch.tensor([[1.]])})
    >>> [f.tolist() for f in two(rows)]
    [[[1.0, 0.0]], [[1.4142..., 1.4142...]]]
    """

    matrices: Parts
    total: int | None = None

    @classmethod
    def drawn(
        cls,
        views: Sequence[View],
        sizes: Mapping[int, int],
        *,
        width: int,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> RandomMap:
        """Draw R of every part, in the order of ``sizes``; the same numbers on every device."""
        generator = torch.Generator().manual_seed(seed)
        return cls(
            tuple(views),
            {
                part: torch.randn(size, width, generator=generator).to(device)
                for part, size in sizes.items()
            },
        )

    @property
    def width(self) -> int:
        return next(iter(self.matrices.values())).shape[1]

    @property
    def sizes(self) -> Mapping[int, int]:
        return {part: len(matrix) for part, matrix in self.matrices.items()}

    @property
    def device(self) -> torch.device:
        return next(iter(self.matrices.values())).device

    def narrowed(self, width: int) -> Self:
        first = {part: matrix[:, :width] for part, matrix in self.matrices.items()}
        return replace(self, matrices=first, total=self.total or self.width)

    def projected(self, parts: Parts) -> Parts:
        """Return x_b R_b of each of some parts.  -> [n, m] each"""
        return {part: tiled_product(rows, self.matrices[part]) for part, rows in parts.items()}

    def features(self, view: View, projected: Parts) -> Tensor:
        first, *others = (projected[part] for part in self.needed(view))
        out, scale = torch.empty_like(first), self.scale(view)

        @torch.no_grad()  # applies to one thread
        def work(rows: slice) -> None:
            total = out[rows].copy_(first[rows])
            for other in others:
                total += other[rows]
            total.relu_().mul_(scale)

        over_few_rows(work, out)
        return out

    def multiplier(self, parts: Sequence[int]) -> Multiplier:
        return RowProduct.of(torch.cat([self.matrices[part] for part in parts]))

    def scale(self, view: View) -> float:
        """Return √(2/(m|v|))."""
        return math.sqrt(2 / ((self.total or self.width) * self.units(view)))

    def rowwise(self, vectors: Matrix) -> Matrix:
        features = self.totals(vectors)
        np.maximum(features, 0, out=features)
        features *= self._scales
        return features

    def slopes(self, vector: Tensor, weights: Sequence[Tensor]) -> Tensor:
        active = torch.from_numpy(self.totals(vector.numpy()[None])[0]) > 0  # [views, m]
        slopes = torch.zeros(weights[0].shape[1], len(vector))
        for view, view_active, view_weights in zip(self.views, active, weights, strict=True):
            active_weights = view_weights.t() * view_active * self.scale(view)  # [classes, m]
            for part in self.needed(view):
                slopes[:, slice(*self.places[part])] += active_weights @ self.matrices[part].t()
        return slopes

    @cached_property
    def _scales(self) -> Matrix:
        return np.array([[self.scale(view)] for view in self.views], np.float32)
