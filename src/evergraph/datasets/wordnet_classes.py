"""What a class of WordNet can be: a lexicographer file, a part of speech, or a depth."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.graphs.relations import NodeTypes, Relations
from evergraph.graphs.validation import UNLABELLED

CLASSES = ("files", "parts-of-speech", "depth")
PARTS = ("noun", "verb", "adjective", "satellite", "adverb")  # in the order of their classes
UPWARD = ("hypernym", "instance-of")  # relations that lead to something more general
DEEPEST = 13  # the last class: so deep and deeper


def by_part_of_speech(types: NodeTypes) -> Tensor:
    """Return the place of each node's part of speech in ``PARTS``.  int64 [nodes]

    >>> by_part_of_speech(NodeTypes(("adjective", "noun"), torch.tensor([1, 0], dtype=torch.int16)))
    tensor([0, 2])
    """
    places = torch.tensor([PARTS.index(name) for name in types.names])
    return places[types.numbers.long()]


def by_depth(relations: Relations, types: NodeTypes, *, deepest: int = DEEPEST) -> Tensor:
    """Return how many steps up lead from each node to one without a step up.  int64 [nodes]

    depth(root) = 0 and depth(x) = 1 + min over x's hypernyms, no more than ``deepest``. Only nouns
    and verbs have hypernyms: the other parts of speech are without a class.

    >>> up = Relations.of(torch.tensor([[1, 2, 3, 3], [0, 1, 2, 0]]), torch.zeros(4).long(),
    ...                   ("hypernym",), nodes=5)
    >>> kinds = torch.tensor([0, 0, 0, 0, 1], dtype=torch.int16)
    >>> by_depth(up, NodeTypes(("noun", "adverb"), kinds))
    tensor([ 0,  1,  2,  1, -1])
    """
    children, parents = _upward(relations)
    hanging = [place for place, name in enumerate(types.names) if name in ("noun", "verb")]
    depth = torch.full((len(types.numbers),), UNLABELLED)
    depth[torch.isin(types.numbers.long(), torch.tensor(hanging))] = 0
    depth[children] = UNLABELLED  # until a parent's depth is known
    level = 0
    while len(found := children[(depth[parents] == level) & (depth[children] < 0)]):
        level += 1
        depth[found] = level
    return depth.clamp_max(deepest)


def _upward(relations: Relations) -> tuple[Tensor, Tensor]:
    """Return every step up: who takes it, and where to.  int64 [steps], [steps]"""
    ends, numbers = relations.edges()
    steps = [place for place, name in enumerate(relations.names) if name in UPWARD]
    children, parents = ends[:, torch.isin(numbers, torch.tensor(steps))]
    return children, parents
