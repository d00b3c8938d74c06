"""Prototypes: vectors that stand for all that are close enough to them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize


def unit(vectors: Tensor) -> Tensor:
    """Return vectors of length 1; gradients pass, zeros stay.  [..., d] -> [..., d]"""
    return normalize(vectors, dim=-1, eps=1e-6)


def nearest(vectors: Tensor, prototypes: Tensor) -> Tensor:
    """Return which prototype has the largest cosine with each vector.  -> int64 [n]

    vectors: of length 1 or 0.  [n, d]; prototypes: of length 1, at least one.  [p, d]

    >>> nearest(torch.tensor([[.6, .8], [1., 0.]]), torch.eye(2))
    tensor([1, 0])
    """
    return (vectors @ prototypes.t()).argmax(1)


def unmatched(vectors: Tensor, prototypes: Tensor, threshold: float, *, most: int) -> Tensor:
    """Return which vectors become new prototypes, in order.  -> int64 [new]

    A vector that has no prototype, old or new, with a cosine of at least ``threshold`` becomes one
    itself. So no two of those established at one go, nor one of them and an old one, are as close
    as ``threshold``: however many vectors come, there is room for so many on the sphere and no
    more (a spherical code). Zeros match nothing and are left out.

    vectors: [n, d]; prototypes: [p, d]; most: how many new ones at most

    >>> line = torch.tensor([[1., 0.], [.8, .6], [0., 1.], [0., 0.]])
    >>> unmatched(line, torch.empty(0, 2), .7, most=9)
    tensor([0, 2])
    >>> unmatched(line, torch.tensor([[1., 0.]]), .9, most=9)
    tensor([1, 2])
    """
    left = vectors.any(1)
    if len(prototypes):
        left &= (vectors @ prototypes.t()).amax(1) < threshold
    rows, found = left.nonzero().flatten(), list[Tensor]()
    while len(rows) and len(found) < most:
        found.append(rows[:1])
        rows = rows[1:][vectors[rows[1:]] @ vectors[rows[0]] < threshold]
    return torch.cat(found) if found else rows[:0]


def stand_in(vectors: Tensor, prototypes: Tensor) -> Tensor:
    """Return every vector's nearest prototype; zeros, and all where there is none, stay.

    A gradient with respect to the prototype goes to the vector that it stands for, so that what
    makes vectors is trained, and prototypes are not.  [n, d], [p, d] -> [n, d]

    >>> stand_in(torch.tensor([[.6, .8], [0., 0.]]), torch.eye(2))
    tensor([[0., 1.],
            [0., 0.]])
    """
    if not len(prototypes):
        return vectors
    with torch.no_grad():
        shift = prototypes[nearest(vectors, prototypes)] - vectors
        shift *= vectors.any(1)[:, None]
    return vectors + shift


@dataclass(frozen=True)
class Thresholds:
    """The cosine from which on a prototype matches, level by level.

    Attributes:
        atomic, node, cls: t_A, t_N, t_C of the paper.
    """

    atomic: float
    node: float
    cls: float


@dataclass(frozen=True, eq=False)
class Level:
    """Nodes on one level.

    Attributes:
        extracted: what was found of them, of length 1, or 0 where there is nothing.  [n, d]
        standing: the prototypes that stand for it.  [n, d]
    """

    extracted: Tensor
    standing: Tensor

    @property
    def distance(self) -> Tensor:
        """How far what was extracted is from its prototypes, the mean of 1 - cosine.  []

        >>> found, prototype = torch.tensor([[.6, .8]]), torch.tensor([[1., 0.]])
        >>> Level(found, prototype).distance
        tensor(0.4000)
        """
        return (1 - (self.extracted * self.standing.detach()).sum(1)).mean()


@dataclass(frozen=True, eq=False)
class Levels:
    """Nodes on all levels.

    Attributes:
        atomic: all of a node's atomic embeddings one after another.  [n atoms, d_A]
        node, cls: [n, d_N], [n, d_C]
    """

    atomic: Level
    node: Level
    cls: Level

    @property
    def states(self) -> Tensor:
        """The prototypes of all levels side by side.  [n, atoms d_A + d_N + d_C]"""
        made = self.atomic.standing.reshape(len(self.node.standing), -1)
        return torch.cat([made, self.node.standing, self.cls.standing], dim=1)

    @property
    def distance(self) -> Tensor:
        """The distances on the levels, added up.  []"""
        return self.atomic.distance + self.node.distance + self.cls.distance


def level_of(extracted: Tensor, prototypes: Tensor) -> Level:
    """Return nodes on a level, prototypes in their places.  [n, d], [p, d] -> ..."""
    return Level(extracted, stand_in(extracted, prototypes))
