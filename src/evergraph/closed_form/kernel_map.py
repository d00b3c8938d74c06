"""Kernel values to landmark nodes: the map φ of every view on a memory of real nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.own_features import WordProducts, Words, word_values
from evergraph.closed_form.statistics import over_few_rows
from evergraph.closed_form.view_map import (
    BLOCK_VALUES,
    GPU_BLOCK_VALUES,
    Multiplier,
    Parts,
    Places,
    ViewMap,
)
from evergraph.closed_form.views import FAR, LENGTH, WORDS, View
from evergraph.graphs.kernels.row_ranges import tiled_product
from evergraph.topology.rowwise import Matrix, RowProduct

if TYPE_CHECKING:
    from typing_extensions import Self

# Added to K's diagonal relative to its mean, for every landmark and at least: some landmarks may be
# equal up to rounding, and the head must not fit the rounding error.
JITTER, LEAST = 1e-7, 1e-4
# The constant beside a node's own columns, relative to the usual length of these.
LEVEL = 8.0
_ONE, _TINY = np.float32(1), np.float32(1e-12)


@dataclass(frozen=True, eq=False)
class KernelMap(ViewMap):
    """Kernel values of a node to the landmarks Z: φ_v(x) = k_v(x, Z).

    k(a, b) = ‖a‖‖b‖ (sin t + (π - t) cos t) / π with t the angle between a and b, which the
    features of ``RandomMap`` estimate (Cho and Saul 2009). A view's vectors are its concatenated
    parts divided by the root of their number, so parts are multiplied once for all views.

    Ridge regression on whitened features L⁻¹k(Z, x), L Lᵀ = K(Z, Z), with penalty λ‖V‖² (Nyström's
    approximation, Williams and Seeger 2001) equals ridge regression on these with penalty
    λ VᵀK(Z, Z)V (``penalty``): the same scores at half the cost of counting a node, and a landmark
    is one row and column of every sum, which can be zeroed (``without``).

    Unit length loses the magnitude of a node's own features x, which a few measured columns need:
    two rows on one line through 0 would be equal. Where their length is a part, a constant c stands
    beside them before they are scaled: [x, c] / √(‖x‖² + c²).

    Attributes:
        landmarks: Z, one entry per part.  float32 [landmarks, part dims] each
        columns: weight of each column of a hop, see ``column_weights``; None for equal
            weights.  float32 [d] | None
        level: c; None without it.
        words_alone: whether own words stand for hop 0, or beside it.

    >>> kernels = KernelMap.of((View((0,)),), {0: torch.eye(2)})
    >>> kernels.features(View((0,)), kernels.projected({0: torch.tensor([[0., 2.]])})).round(decimals=3)
    tensor([[0.6370, 2.0000]])
    """

    landmarks: Parts
    columns: Tensor | None = None
    level: float | None = None
    words_alone: bool = True

    @classmethod
    def of(
        cls,
        views: Sequence[View],
        parts: Parts,
        *,
        columns: Tensor | None = None,
        level: float | None = None,
        words_alone: bool = True,
    ) -> Self:
        """Return the map of some landmarks.

        parts: [landmarks, part dims] each; level: c, if own features have it beside them already,
        see ``with_constant``
        """
        landmarks = {part: _column_weighted(part, rows, columns) for part, rows in parts.items()}
        for part in landmarks.keys() - {WORDS}:
            landmarks[part] = landmarks[part].contiguous()
        return cls(tuple(views), landmarks, columns, level, words_alone)

    @property
    def width(self) -> int:
        """Number of landmarks."""
        return len(next(iter(self.landmarks.values())))

    @property
    def sizes(self) -> Mapping[int, int]:
        return {part: rows.shape[1] for part, rows in self.landmarks.items()}

    @property
    def device(self) -> torch.device:
        return next(iter(self.landmarks.values())).device

    @property
    def nbytes(self) -> int:
        """Number of bytes of landmarks, with the kernel matrix of every view, if it is needed."""
        rows = sum(rows.nbytes for rows in self.landmarks.values())
        return rows + 4 * len(self.views) * self.width**2

    @property
    def at_a_time(self) -> int:
        """Number of rows processed at a time, limited by the width of features and rows."""
        values = 4 * (BLOCK_VALUES if self.device.type == "cpu" else GPU_BLOCK_VALUES)
        return min(super().at_a_time, max(values // sum(self.sizes.values()), 1))

    def narrowed(self, width: int) -> Self:
        return replace(self, landmarks={part: z[:width] for part, z in self.landmarks.items()})

    def without(self, places: Tensor) -> Self:
        """Return the map with zeros for some landmarks, so that every node's value to them is 0.

        The others keep their positions, so sums over them stay the same to the bit.
        """
        landmarks = {part: z.index_fill(0, places, 0) for part, z in self.landmarks.items()}
        return replace(self, landmarks=landmarks)

    def projected(self, parts: Parts) -> Parts:
        """Return inner products with every landmark, then the row's own.  -> [n, landmarks + 1]"""
        projected = {}
        for part, rows in parts.items():
            landmarks, rows = self.landmarks[part], _column_weighted(part, rows, self.columns)
            if part != WORDS:
                products = tiled_product(rows, landmarks.t())
            elif isinstance(rows, Tensor):
                products = torch.from_numpy(self._words(rows.numpy()))
            else:
                products = torch.from_numpy((rows @ landmarks.T).toarray())
            projected[part] = torch.cat([products, _squared(part, rows)[:, None]], 1).to(
                self.device
            )
        return projected

    @cached_property
    def _words(self) -> WordProducts:
        """Products with the words of live landmarks, which are packed."""
        return WordProducts.of(self.landmarks[WORDS])

    def multiplier(self, parts: Sequence[int]) -> Multiplier:
        if WORDS in parts:
            return self._words
        return RowProduct.of(torch.cat([self.landmarks[part] for part in parts], dim=1).t())

    def _landmark_lengths(self, view: View) -> tuple[int, Tensor]:
        """Return how many unit vectors a view has, and the length of every landmark in it."""
        count, squares = self.units(view), [self._squares[part] for part in self.needed(view)]
        return count, torch.stack(squares).sum(0).div(count).sqrt()

    @cached_property
    def _squares(self) -> Parts:
        squares = {part: _squared(part, rows) for part, rows in self.landmarks.items()}
        return {part: squared.to(self.device) for part, squared in squares.items()}

    def features(self, view: View, projected: Parts) -> Tensor:
        """Return k_v(x, Z).  -> [n, landmarks]"""
        count, landmark_lengths = self._landmark_lengths(view)
        first, *others = (projected[part] for part in self.needed(view))
        out = first.new_empty(len(first), len(landmark_lengths))

        @torch.no_grad()  # applies to one thread
        def work(rows: slice) -> None:
            total = sum((part[rows] for part in others), first[rows]) / count
            lengths = total[:, -1:].sqrt() * landmark_lengths
            cosine = torch.div(total[:, :-1], lengths.clamp_min(1e-12), out=out[rows])
            cosine.clamp_(-1.0, 1.0)
            angle = cosine.acos()
            # sin t is the root of 1 - cos² t, which saves one function per pair of nodes.
            sine = cosine.square().neg_().add_(1).clamp_min_(0.0).sqrt_()
            cosine.mul_(angle.neg_().add_(math.pi)).add_(sine).mul_(lengths).div_(math.pi)

        over_few_rows(work, out)
        return out

    def scores(self, view: View, projected: Parts, weights: Tensor) -> Tensor:
        """Return φ_v Vᵀ.  weights: V, [classes, m or more]; columns beyond m have no landmark"""
        return tiled_product(self.features(view, projected), weights[:, : self.width].t())

    def penalties(self) -> dict[View, Tensor]:
        """Return K(Z, Z) of every view, plus a small diagonal; removed landmarks have 1 there.

        -> float32 [landmarks, landmarks] each
        """
        unweighted = replace(self, columns=None)  # the landmarks' columns are weighted already
        projected = unweighted.projected(self.landmarks)
        grams = {view: self.features(view, projected) for view in self.views}
        for gram in grams.values():
            diagonal = gram.diagonal()
            diagonal[diagonal == 0] = 1.0
            diagonal += max(JITTER * len(diagonal), LEAST) * float(diagonal.mean())
        return grams

    def rowwise(self, vectors: Matrix) -> Matrix:
        """Return φ of all views.

        π k(x, z) / ‖x‖‖z‖ = sin t + cos t (π - t) for the angle t between x and z. With c = -cos t,
        as arccos c = π - t, this is √(1 - c²) - c arccos c.
        """
        values, lengths = self._cosines(with_constant(vectors, self.places, self.level))
        product = np.arccos(values)
        product *= values  # c arccos c
        np.multiply(values, values, out=values)
        np.sqrt(np.subtract(_ONE, values, out=values), out=values)  # √(1 - c²)
        values -= product
        values *= lengths
        values *= self._lengths[2]
        return values

    def _cosines(self, vectors: Matrix) -> tuple[Matrix, Matrix]:
        """Return c = -cos t, and ‖x‖.  [n, dims] -> [n, views, landmarks], [n, views, 1]"""
        mean_square, scales, _ = self._lengths
        lengths = np.sqrt(mean_square(np.square(vectors)))[:, :, None]
        values = self.totals(vectors)
        values *= scales
        values /= np.maximum(lengths, _TINY)
        np.minimum(np.maximum(values, -_ONE, out=values), _ONE, out=values)
        return values, lengths

    @cached_property
    def _lengths(self) -> tuple[RowProduct, Matrix, Matrix]:
        """A product that sums squares to ‖x‖², and -1/‖z‖ and ‖z‖/π of all views.

        -> product with a matrix [dims, views], [views, landmarks], [views, landmarks]
        """
        places = self.places
        shares = torch.zeros(sum(self.sizes.values()), len(self.views))
        scales, lengths = [], []
        for column, view in enumerate(self.views):
            count, landmark_lengths = self._landmark_lengths(view)
            for part in self.needed(view):
                start, stop = places[part]
                stop = (start + stop) // 2 if part == WORDS else stop  # columns follow values
                shares[start:stop, column] = 1 / count
            scales.append(landmark_lengths.clamp_min(1e-12).mul(-count).reciprocal())
            lengths.append(landmark_lengths / math.pi)
        return RowProduct.of(shares), torch.stack(scales).numpy(), torch.stack(lengths).numpy()

    def slopes(self, vector: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """Return ∂s/∂x.

        ∂k(x, z)/∂x = ((π - t) z + sin t ‖z‖/‖x‖ x) / π. Kernel values are homogeneous in x, so
        these times x are the scores themselves (Euler).
        """
        places, given = self.places, vector.numpy()
        x = with_constant(given[None], places, self.level)
        values, lengths = self._cosines(x)
        cosines = torch.from_numpy(values[0])  # -cos t
        ratios = torch.from_numpy(self._lengths[2] / np.maximum(lengths[0], _TINY))  # ‖z‖/‖x‖π
        along_landmarks = cosines.acos() / math.pi
        along_node = (1 - cosines.square()).sqrt() * ratios
        slopes = torch.zeros(weights[0].shape[1], len(vector))
        for index, view in enumerate(self.views):
            count, _ = self._landmark_lengths(view)
            landmark_weights = weights[index].t() * along_landmarks[index] / count  # [classes, m]
            node_weights = along_node[index] @ weights[index] / count  # [classes]
            for part in self.needed(view):
                start, stop = places[part]
                row = torch.from_numpy(x[:, start:stop])
                if part == WORDS:
                    slopes[:, start:stop] += self._words.slopes(landmark_weights, row)
                    row = word_values(row)
                else:
                    slopes[:, start:stop] += landmark_weights @ self.landmarks[part]
                slopes[:, start : start + row.shape[1]] += node_weights[:, None] * row
        # These are times the vector with the constant, so far.
        ratio = np.divide(x[0], given, np.ones_like(given), where=given != 0)
        return slopes * torch.from_numpy(ratio)


def level_of(lengths: Tensor) -> float:
    """Return c for landmarks with these lengths: about ``LEVEL`` times the usual, 1 for none.

    A power of two, so that it tells little about a landmark that is forgotten later.

    >>> level_of(torch.tensor([[1.5], [0.0], [2.2], [2.1]]))
    16.0
    """
    positive = lengths[lengths > 0]
    if not len(positive):
        return 1.0
    return 2.0 ** round(math.log2(LEVEL * float(positive.median())))


def with_constant(vectors: Matrix, places: Places, level: float | None) -> Matrix:
    """Return whole vectors with [x, c] / √(‖x‖² + c²) in place of x / ‖x‖ and ‖x‖.

    places: start and end of every part; level: c, None for the same vectors

    >>> row = np.array([[0.6, 0.8, 3]], np.float32)  # [1.8, 2.4, 4] / 5
    >>> with_constant(row, {0: (0, 2), LENGTH: (2, 3)}, 4.0).round(2)
    array([[0.36, 0.48, 0.8 ]], dtype=float32)
    """
    if level is None:
        return vectors
    (start, stop), (length, _) = places[0], places[LENGTH]
    lengths = vectors[:, length]
    lengths_with_constant = np.hypot(lengths, np.float32(level))
    scaled = vectors.copy()
    scaled[:, start:stop] *= (lengths / lengths_with_constant)[:, None]
    scaled[:, length] = np.float32(level) / lengths_with_constant
    return scaled


def _squared(part: int, rows: Tensor | Words) -> Tensor:
    """Return squared lengths; on a CPU their bits do not depend on other rows.  [n, d] -> [n]"""
    if isinstance(rows, Tensor) and part == WORDS:
        rows = word_values(rows)
    if not isinstance(rows, Tensor):
        return torch.from_numpy(np.asarray(rows.multiply(rows).sum(1))).flatten().float()
    if rows.device.type != "cpu":
        return rows.square().sum(1)
    values = rows.numpy()
    return torch.from_numpy(np.add.reduce(values * values, axis=1))


def _column_weighted(part: int, rows: Tensor, columns: Tensor | None) -> Tensor:
    """Return a near hop's rows with weighted columns, scaled to unit length again."""
    if columns is None or not 0 <= part <= FAR:
        return rows
    rows = rows * columns
    return rows.div_(rows.norm(dim=1, keepdim=True).clamp_min_(1e-12))
