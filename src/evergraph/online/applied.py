"""What a delta did to a learner."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Applied:
    """What became of a delta, in numbers that JSON can hold: it is kept beside the delta's key.

    Attributes:
        seq: how many deltas have been applied, this one included.
        new_nodes: how many nodes came with it.
        classes: how many classes are known now.
        recomputed: how many embeddings were computed anew, those of new nodes included.
        predicted: for how many nodes a class was predicted before their label was learned.
        right: how many of these predictions were right.

    >>> Applied(seq=1, new_nodes=2, classes=1, recomputed=2)
    Applied(seq=1, new_nodes=2, classes=1, recomputed=2, predicted=0, right=0)
    """

    seq: int
    new_nodes: int = 0
    classes: int = 0
    recomputed: int = 0
    predicted: int = 0
    right: int = 0
