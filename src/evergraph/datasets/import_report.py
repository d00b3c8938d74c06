"""What an import made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ImportReport:
    """What an import made.

    Attributes:
        nodes: how many nodes.
        edges: how many edges were listed.
        doubles: how many of them were listed before, in an undirected graph also the other way.
        loops: how many of them joined a node to itself.
        entries: how many the adjacency holds; of an undirected graph two for every edge.
        classes: one more than the largest label.
        features: how wide the features are.
        checksum: one SHA-256 of all arrays.
        seconds: how long it took, earlier processes included.
        new: whether anything was made, or the same graph was there already.
    """

    nodes: int
    edges: int
    doubles: int
    loops: int
    entries: int
    classes: int
    features: int
    checksum: str
    seconds: float
    new: bool = True
