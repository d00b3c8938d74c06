"""Kernel values to landmarks without whitening, for sums from which landmarks can be removed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.landmarks import JITTER, LandmarkMap
from evergraph.closed_form.view_map import Parts
from evergraph.closed_form.views import CODE_HOPS, CODES, LENGTH, RELATIONS, View
from evergraph.topology.rowwise import Matrix, Panels

# The least value added to K's diagonal, relative to its mean: two of a few landmarks may be equal
# up to rounding, and the head must not fit the rounding error.
LEAST = 1e-4
# The constant beside a node's own columns, relative to the usual length of these.
LEVEL = 8.0
_ONE, _TINY = np.float32(1), np.float32(1e-12)


@dataclass(frozen=True, eq=False)
class KernelMap(LandmarkMap):
    """Kernel values of a node to the landmarks Z without whitening: φ_v(x) = k_v(x, Z).

    Ridge regression on whitened features W = L⁻ᵀ with penalty λ‖V‖² equals ridge regression on
    these with penalty λ VᵀK(Z, Z)V (``penalty``): the same scores at half the cost of counting a
    node, and a landmark is one row and column of every sum, which can be zeroed (``without``).

    Unit length loses the magnitude of a node's own features x, which a few measured columns need:
    two rows on one line through 0 would be equal. Where their length is a part, a constant c stands
    beside them before they are scaled: [x, c] / √(‖x‖² + c²). c is the ``level``.

    >>> one = KernelMap.of((View((0,)),), {0: torch.eye(2)})
    >>> one.features(View((0,)), one.projected({0: torch.tensor([[0., 2.]])})).round(decimals=3)
    tensor([[0.6370, 2.0000]])
    """

    level: float | None = None

    @classmethod
    def of(cls, views: Sequence[View], parts: Parts, *, level: float | None = None) -> KernelMap:
        """Return the map of some landmarks.

        parts: [landmarks, part dims] each; level: c, if their own features have it beside them
        already, see ``beside_constant``
        """
        kept = {part: rows.contiguous() for part, rows in parts.items()}
        squares = {part: cls.squared(rows) for part, rows in kept.items()}
        units = {CODES: CODE_HOPS, RELATIONS: 3, LENGTH: 0}  # 0: of one unit vector with hop 0
        return cls(tuple(views), kept, {}, squares, units, level=level)

    @property
    def width(self) -> int:
        """Number of landmarks."""
        return len(next(iter(self.landmarks.values())))

    @staticmethod
    def squared(rows: Tensor) -> Tensor:
        """Return squared lengths whose bits do not depend on other rows.  [n, dims] -> [n]"""
        values = rows.numpy()
        return torch.from_numpy(np.add.reduce(values * values, axis=1))

    def cut(self, vectors: Tensor) -> dict[int, Tensor]:
        """Return the parts that views need from concatenated vectors, with the constant."""
        return beside_constant(super().cut(vectors), self.level)

    def with_constant(self, vectors: Matrix) -> Matrix:
        """Return whole vectors with the constant.  [n, dims] -> [n, dims]"""
        if self.level is None:
            return vectors
        (start, stop), (length, _) = self.places[0], self.places[LENGTH]
        lengths = vectors[:, length]
        whole, found = np.hypot(lengths, np.float32(self.level)), vectors.copy()
        found[:, start:stop] *= (lengths / whole)[:, None]
        found[:, length] = np.float32(self.level) / whole
        return found

    def features(self, view: View, projected: Parts) -> Tensor:
        """Return k_v(x, Z).  -> [n, landmarks]"""
        return self.kernel(view, projected)

    def scores(self, view: View, projected: Parts, weights: Tensor) -> Tensor:
        """Return φ_v Vᵀ.  weights: V, [classes, landmarks]"""
        return self.kernel(view, projected) @ weights.t()

    def penalty(self, view: View) -> Tensor:
        """Return K(Z, Z) plus a small diagonal; removed landmarks have 1 on the diagonal.

        -> float32 [landmarks, landmarks]
        """
        found = self.kernel(view, self.projected(self.landmarks, torch.matmul))
        own = found.diagonal()
        own[own == 0] = 1.0
        own += max(JITTER * len(own), LEAST) * float(own.mean())
        return found

    def rowwise(self, vectors: Matrix) -> Matrix:
        """Return φ of all views; no bit of a row depends on other rows.

        π k(x, z) / ‖x‖‖z‖ = sin t + cos t (π - t) for the angle t between x and z. With c = -cos t,
        as arccos c = π - t, this is √(1 - c²) - c arccos c.

        [n, dims] -> [n, views, landmarks]
        """
        vectors = self.with_constant(vectors)
        shares, scales, lengths = self._lengths
        own = np.sqrt(shares(np.square(vectors)))[:, :, None]
        turned = self.totals(vectors)
        turned *= scales
        turned /= np.maximum(own, _TINY)
        turned.clip(-_ONE, _ONE, out=turned)
        angle = torch.from_numpy(turned).acos().numpy()  # in half of NumPy's time
        angle *= turned
        np.multiply(turned, turned, out=turned)
        np.sqrt(np.subtract(_ONE, turned, out=turned), out=turned)
        turned -= angle
        turned *= own
        turned *= lengths
        return turned

    @cached_property
    def _lengths(self) -> tuple[Panels, Matrix, Matrix]:
        """What gives ‖x‖² of squares, and -1/‖z‖ and ‖z‖/π of all views.  [views, landmarks]"""
        places = self.places
        shares = torch.zeros(sum(self.sizes.values()), len(self.views))
        scales, lengths = [], []
        for at, view in enumerate(self.views):
            count, theirs = self.together(view)
            for part in self.needed(view):
                shares[slice(*places[part]), at] = 1 / count
            scales.append(theirs.clamp_min(1e-12).mul(-count).reciprocal())
            lengths.append(theirs / math.pi)
        return Panels.of(shares), torch.stack(scales).numpy(), torch.stack(lengths).numpy()

    def without(self, places: Tensor) -> KernelMap:
        """Return the map with zeros for some landmarks, so that every node's value to them is 0.

        The others keep their positions, so sums over them stay the same to the bit.
        """
        return replace(
            self,
            landmarks={
                part: rows.index_fill(0, places, 0) for part, rows in self.landmarks.items()
            },
            squares={part: each.index_fill(0, places, 0) for part, each in self.squares.items()},
        )

    def slopes(self, view: View, projected: Parts, weights: Tensor, parts: Parts) -> Parts:
        """Return ∂(Wᵀφ_v)/∂x_b of one node and every part b.

        ∂k(x, z)/∂x = ((π - t) z + sin t ‖z‖/‖x‖ x) / π. Kernel values are homogeneous in x, so
        these times x are the scores themselves (Euler).
        """
        needed, (count, theirs) = self.needed(view), self.together(view)
        total = sum((projected[part] for part in needed[1:]), projected[needed[0]])[0] / count
        mine = total[-1].sqrt().clamp_min(1e-12)
        cosine = (total[:-1] / (mine * theirs).clamp_min(1e-12)).clamp(-1.0, 1.0)
        along = (math.pi - cosine.acos()) / (math.pi * count)
        across = (1 - cosine.square()).clamp_min(0.0).sqrt() * theirs / (mine * math.pi * count)
        turned, spread = (weights * along[:, None]).t(), across @ weights  # [classes, m], [classes]
        return {p: turned @ self.landmarks[p] + spread[:, None] * parts[p] for p in needed}


def level_of(lengths: Tensor) -> float:
    """Return c for landmarks with these lengths: about ``LEVEL`` times the usual, 1 for none.

    A power of two, so that it tells little about a landmark that is forgotten later.

    >>> level_of(torch.tensor([[1.5], [0.0], [2.2], [2.1]]))
    16.0
    """
    known = lengths[lengths > 0]
    if not len(known):
        return 1.0
    return 2.0 ** round(math.log2(LEVEL * float(known.median())))


def beside_constant(parts: Parts, level: float | None) -> dict[int, Tensor]:
    """Return parts with [x, c] / √(‖x‖² + c²) in place of x / ‖x‖ and ‖x‖.

    >>> here = {0: torch.tensor([[0.6, 0.8]]), LENGTH: torch.tensor([[3.0]])}
    >>> [rows.tolist() for rows in beside_constant(here, 4.0).values()]  # [1.8, 2.4, 4] / 5
    [[[0.36..., 0.48...]], [[0.8...]]]
    """
    if level is None or not {0, LENGTH} <= parts.keys():
        return dict(parts)
    lengths = parts[LENGTH]
    whole = torch.hypot(lengths, torch.full_like(lengths, level))
    return {**parts, 0: parts[0] * (lengths / whole), LENGTH: level / whole}
