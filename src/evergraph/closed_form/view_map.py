"""φ: from the parts of a node to the features of every view, for batches and live alike.

``ViewMap`` is all that heads know of φ; ``RandomMap`` is the one there is. Another one, such as
kernel values to some nodes, is a subclass that says how wide its features are and computes them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.closed_form.views import CODE_HOPS, CODES, RELATIONS, View, ViewRows
from evergraph.graphs.kernels.row_ranges import tiled_product

if TYPE_CHECKING:
    from typing_extensions import Self

# Values projected at a time: see ``evergraph.nn.random_features``.
BLOCK_VALUES = 1 << 21
GPU_BLOCK_VALUES = 1 << 26

Parts = Mapping[int, Tensor]  # a row for each node: of a part, or what was computed of it
Product = Callable[[Tensor, Tensor], Tensor]
Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ViewMap(ABC):
    """φ_v(x) of some views v, in two steps.

    What all views share is computed of every part of a node once (``projected``); of these the
    features of a view are made (``features``). Nothing is trained, and all a worker has to be told
    is in the record.

    Attributes:
        views: what features are made of, in this order.
    """

    views: tuple[View, ...]

    @property
    @abstractmethod
    def width(self) -> int:
        """m, how many features a view has."""

    @property
    @abstractmethod
    def sizes(self) -> Mapping[int, int]:
        """How wide each part is that there is, in the order in which live vectors hold them."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where features are computed."""

    @abstractmethod
    def projected(self, parts: Parts, product: Product = tiled_product) -> Parts:
        """Return what views need of each of some parts.  [n, part dims] each -> [n, ...] each

        product: multiplies matrices, such as one by which the bits of a row do not depend on which
        others are there: a node then leaves sums with the very features it came with.
        """

    @abstractmethod
    def features(self, view: View, projected: Parts) -> Tensor:
        """Return φ_v, in new memory.  -> [n, m]"""

    def scores(self, view: View, projected: Parts, weights: Tensor) -> Tensor:
        """Return φ_v Vᵀ.  weights: V, [classes, m] -> [n, classes]"""
        return self.features(view, projected) @ weights.t()

    @abstractmethod
    def narrowed(self, width: int) -> Self:
        """Return the first features of every view, as they are among all."""

    def slopes(self, view: View, projected: Parts, weights: Tensor, parts: Parts) -> Parts | None:
        """Return ∂(Wᵀφ_v)/∂x_b of one node and every part b, where these times x give Wᵀφ_v.

        weights: W, [m, classes]; parts: x -> [classes, part dims] each; None where they do not
        """
        return None

    def by_numpy(self, weights: Sequence[Tensor]) -> FewRows | None:
        """Return what computes Σ_v W_vᵀφ_v of a handful of nodes sooner, if anything does."""
        return None

    def only(self, views: Iterable[View]) -> Self:
        """Return the map of some of the views."""
        return replace(self, views=tuple(views))

    def needed(self, *views: View) -> tuple[int, ...]:
        """Return the parts that some views are made of, each once, where there are such."""
        there = self.sizes
        named = dict.fromkeys(part for view in views for part in view.parts)
        return tuple(part for part in named if part in there)

    def __call__(self, rows: ViewRows) -> Iterator[Tensor]:
        """Yield the features of one view after the other; without codes of those that need none.

        -> [n, m] each
        """
        seen = [view for view in self.views if rows.codes is not None or not view.codes]
        projected = self.seen_of(rows, seen)
        for view in seen:
            yield self.features(view, projected)

    def seen_of(self, rows: ViewRows, views: Sequence[View]) -> Parts:
        """Return what some views need of rows, see ``projected``."""
        parts = rows.taken(self.device).parts([part for part in self.sizes if part >= 0])
        needed = self.needed(*views)
        assert parts.keys() >= set(needed), "the graph that was learned from has relations"
        return self.projected({part: parts[part] for part in needed})

    def blocks(self, rows: ViewRows) -> Iterator[ViewRows]:
        """Yield rows in parts whose features are of a size that pays."""
        return rows.split(self.at_a_time)

    @property
    def at_a_time(self) -> int:
        """How many rows have features of a size that pays."""
        values = BLOCK_VALUES if self.device.type == "cpu" else GPU_BLOCK_VALUES
        return max(values // self.width, 1)

    @property
    def places(self) -> dict[int, tuple[int, int]]:
        """Where each part begins and ends in a vector that has them side by side."""
        found, begin = {}, 0
        for part, size in self.sizes.items():
            found[part] = begin, begin + size
            begin += size
        return found

    def cut(self, vectors: Tensor) -> dict[int, Tensor]:
        """Return the parts that views need of vectors that have all side by side.

        Class codes may be left out of vectors where no label is nearby: they are zeros.

        [n, dims] -> [n, part dims] each
        """
        missing = sum(self.sizes.values()) - vectors.shape[1]
        vectors = torch.nn.functional.pad(vectors, (0, missing)) if missing else vectors
        places = self.places
        return {part: vectors[:, slice(*places[part])] for part in self.needed(*self.views)}


@dataclass(frozen=True, eq=False)
class RandomMap(ViewMap):
    """φ_v(x) = √(2/m) max(0, Σ_{b ∈ v} x_b R_b / √|v|): the ReLU features of each view v.

    x_b are the parts that a view is made of, hops, relations and class codes; |v| is of how many
    vectors of unit length they are. A part has one random matrix R_b whatever the views it is in:
    every part of a node is projected once for all views. R_b ~ N(0, 1).

    Attributes:
        matrices: R of every part that there is.  float32 [part dims, m] each
        units: of how many vectors of unit length a part is, where of several.
        total: m, where these are the first of more features; else their own number.

    >>> one = RandomMap((View((0,)), View((0,), True)),
    ...                 {0: torch.tensor([[1., -1.]]), CODES: torch.tensor([[1., 3.]])}, {CODES: 1})
    >>> [f.tolist() for f in one(ViewRows(torch.tensor([[1.]]), torch.tensor([[1.]])))]
    [[[1.0, 0.0]], [[1.4142..., 1.4142...]]]
    """

    matrices: Parts
    units: Mapping[int, int] = field(default_factory=lambda: {CODES: CODE_HOPS, RELATIONS: 3})
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
        """How many features of a view."""
        return next(iter(self.matrices.values())).shape[1]

    @property
    def sizes(self) -> Mapping[int, int]:
        """How wide each part is."""
        return {part: len(matrix) for part, matrix in self.matrices.items()}

    @property
    def device(self) -> torch.device:
        """Where R is."""
        return next(iter(self.matrices.values())).device

    def narrowed(self, width: int) -> Self:
        """Return the first features of every view, as they are among all."""
        first = {part: matrix[:, :width] for part, matrix in self.matrices.items()}
        return replace(self, matrices=first, total=self.total or self.width)

    def projected(self, parts: Parts, product: Product = tiled_product) -> Parts:
        """Return x_b R_b of each of some parts.  -> [n, m] each"""
        return {part: product(rows, self.matrices[part]) for part, rows in parts.items()}

    def features(self, view: View, projected: Parts) -> Tensor:
        """Return φ_v.  -> [n, m]"""
        return self._summed(view, projected).relu_().mul_(self.scale(view))

    def scale(self, view: View) -> float:
        """Return √(2/(m|v|))."""
        count = sum(self.units.get(part, 1) for part in self.needed(view))
        return math.sqrt(2 / ((self.total or self.width) * count))

    def _summed(self, view: View, projected: Parts) -> Tensor:
        first, *others = (projected[part] for part in self.needed(view))
        total = first + others[0] if others else first.clone()
        for other in others[1:]:
            total += other
        return total

    def slopes(self, view: View, projected: Parts, weights: Tensor, parts: Parts) -> Parts:
        """Return Wᵀ diag(Σ_b x_b R_b > 0) R_bᵀ of every part, with the scale of φ_v."""
        passed = self._summed(view, projected) > 0  # [1, m]
        through = (weights.t() * passed).mul_(self.scale(view))  # [classes, m]
        return {part: through @ self.matrices[part].t() for part in self.needed(view)}

    def by_numpy(self, weights: Sequence[Tensor]) -> FewRows:
        """Return what computes Σ_v W_vᵀφ_v of a handful of nodes.  weights: [m, classes] each"""
        places, pairs = self.places, zip(self.views, weights, strict=True)
        return FewRows(
            tuple((part, *places[part], m.numpy()) for part, m in self.matrices.items()),
            tuple((self.needed(v), (w * self.scale(v)).numpy()) for v, w in pairs),
        )


@dataclass(frozen=True, eq=False)
class FewRows:
    """Σ_v W_vᵀφ_v(x) in about ten calls of numpy, a fifth of what torch takes for a row.

    The sums are those of ``RandomMap`` up to rounding.

    Attributes:
        parts: each with its place in a vector and R_b.
        views: the parts of each, and W_v with the scale of φ_v.  [m, classes]

    >>> one = RandomMap((View((0,)),), {0: torch.tensor([[1., -1.]])})
    >>> few = one.by_numpy([torch.tensor([[3.], [5.]])])
    >>> few(np.array([[2.]], np.float32))  # √(2/2) max(0, [2, -2]) [3, 5]ᵀ
    array([[6.]], dtype=float32)
    """

    parts: tuple[tuple[int, int, int, Matrix], ...]
    views: tuple[tuple[tuple[int, ...], Matrix], ...]

    def __call__(self, vectors: Matrix) -> Matrix:
        """Return the scores.  [n, dims] -> [n, classes]"""
        projected = {
            part: vectors[:, start:stop] @ matrix
            for part, start, stop, matrix in self.parts
            if start < vectors.shape[1]  # where class codes are left out, no label is nearby
        }
        said: Matrix | None = None
        for needed, weights in self.views:
            first, *others = (projected[part] for part in needed if part in projected)
            total = sum(others[1:], first + others[0]) if others else first.copy()
            scores = np.maximum(total, 0, out=total) @ weights
            said = scores if said is None else np.add(said, scores, out=said)
        assert said is not None, "there is a view"
        return said
