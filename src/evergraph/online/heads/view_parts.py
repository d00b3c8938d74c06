"""Random features of the views that a live vector holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.closed_form.views import View
from evergraph.topology import MixHop, TopologyEncoder
from evergraph.topology.rowwise import block_product

# The names of class codes, of what comes along relations, and of class codes along these among the
# parts of a vector; others are hops.
CODES, RELATIONS, RELATION_CODES = -1, -2, -3
BLOCK_VALUES = 1 << 21  # see ``evergraph.nn.random_features``
CODE_HOPS = 2
UNITS = {CODES: CODE_HOPS, RELATIONS: 3}  # of how many vectors of unit length a part is; others 1

Projected = Mapping[int, Tensor]


def hops_in(topology: TopologyEncoder) -> tuple[int, ...]:
    """Return the hops that stand side by side in an embedding; one where they are mixed.

    >>> hops_in(MixHop(hops=2, keep=(0, 2)))
    (0, 2)
    """
    return tuple(topology.kept) if isinstance(topology, MixHop) else (topology.hops,)


def default_views(hops: Sequence[int], *, related: bool = False) -> tuple[View, ...]:
    """Return all hops side by side, and these with class codes, and the furthest hop alone.

    related: whether what comes along relations stands beside all hops.

    >>> [str(view) for view in default_views((0, 2))]
    ['2', '0|2', '0|2+y']
    """
    every = tuple(hops)
    sides = View(every, related=related), View(every, codes=True, related=related)
    views = (View((max(every),)), *sides)
    return tuple(dict.fromkeys(views))


@dataclass(frozen=True, eq=False)
class ViewParts:
    """φ_v(x) = √(2/(m|v|)) max(0, Σ_{b ∈ v} x_b R_b) of x = [hops | relations | class codes].

    As ``ViewExpansion`` has it, for vectors whose parts lie side by side. Every part is projected
    once for all views. Unless told otherwise, the bits of a row do not depend on which others are
    there: a node leaves sums with the very features it came with.

    Attributes:
        places: where each part begins and ends in a vector: hops by number, and where there are
            such, ``RELATIONS``, ``CODES`` and ``RELATION_CODES``.
        matrices: R_b of each part.  [part dims, m]

    >>> parts = ViewParts({0: (0, 1), CODES: (1, 2)}, {0: torch.tensor([[1., -1.]]),
    ...                                                CODES: torch.tensor([[1., 3.]])})
    >>> parts.features(View((0,), True), parts.projected(torch.tensor([[1., 1.]])))
    tensor([[1.1547, 1.1547]])
    """

    places: Mapping[int, tuple[int, int]]
    matrices: Mapping[int, Tensor]

    @classmethod
    def drawn(
        cls,
        hops: Sequence[int],
        dims: int,
        *,
        codes: int,
        width: int,
        seed: int,
        relations: tuple[int, int] = (0, 0),
    ) -> ViewParts:
        """Draw R from a seed.

        hops: those in an embedding; dims: of the embedding; codes: of the class codes, both hops
        together; width: m; relations: how wide what comes along them is, and class codes along
        them
        """
        generator = torch.Generator().manual_seed(seed)
        size = dims // len(hops)
        places = {hop: (place * size, (place + 1) * size) for place, hop in enumerate(hops)}
        begin = dims
        for part, size in zip(
            (RELATIONS, CODES, RELATION_CODES), (relations[0], codes, relations[1]), strict=True
        ):
            if size:
                places[part] = begin, begin + size
            begin += size
        matrices = {
            part: torch.randn(stop - start, width, generator=generator)
            for part, (start, stop) in places.items()
        }
        return cls(places, matrices)

    @property
    def width(self) -> int:
        """m, how many features of a view."""
        return next(iter(self.matrices.values())).shape[1]

    def needed(self, view: View) -> tuple[int, ...]:
        """Return the parts that a view is made of."""
        wanted: list[int] = list(view.hops)
        wanted += [RELATIONS] if view.related else []
        wanted += [CODES, RELATION_CODES] if view.codes else []
        return tuple(part for part in wanted if part in self.places)

    @property
    def dims(self) -> int:
        """How long a vector with all its parts is."""
        return max(stop for _, stop in self.places.values())

    def part(self, vectors: Tensor, part: int) -> Tensor:
        """Return one part of vectors.  [n, dims] -> [n, part dims]"""
        start, stop = self.places[part]
        return vectors[:, start:stop]

    def projected(self, vectors: Tensor, *, together: bool = False) -> Projected:
        """Return x_b R_b of every part.

        together: faster for few, where bits may depend on other rows.
        """
        found = {}
        for part, matrix in self.matrices.items():
            rows = self.part(vectors, part)
            found[part] = rows @ matrix if together else block_product(rows, matrix)
        return found

    def reprojected(
        self, projected: Projected, vectors: Tensor, other: Mapping[int, Tensor]
    ) -> Projected:
        """Return x_b R_b where only some rows are others than those projected before.

        other: of every part, which rows are.  bool [n]
        """
        found = dict(projected)
        for part, rows in other.items():
            if bool(rows.any()):
                found[part] = projected[part].clone()
                found[part][rows] = block_product(
                    self.part(vectors, part)[rows], self.matrices[part]
                )
        return found

    def scale(self, view: View) -> float:
        """Return √(2/(m|v|)); |v| counts what is of unit length: class codes are two, and so on."""
        count = sum(UNITS.get(part, 1) for part in self.needed(view))
        return math.sqrt(2 / (self.width * count))

    def features(self, view: View, projected: Projected) -> Tensor:
        """Return φ_v.  -> [n, m]"""
        first, *others = (projected[part] for part in self.needed(view))
        total = first + others[0] if others else first.clone()
        for other in others[1:]:
            total += other
        return total.relu_().mul_(self.scale(view))

    @property
    def rows(self) -> int:
        """How many rows at a time have features of a size that pays."""
        return max(BLOCK_VALUES // self.width, 1)

    def blocks(self, rows: int) -> Iterator[slice]:
        """Yield slices of so many rows, a few at a time."""
        return (slice(start, start + self.rows) for start in range(0, rows, self.rows))
