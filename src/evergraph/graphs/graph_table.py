"""What a notebook shows of a graph beside its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from evergraph.graphs.validation import UNLABELLED

if TYPE_CHECKING:
    from evergraph.graphs.graph import Graph

LISTED = 12  # names or classes; of more it is said how many


def more_facts(graph: Graph, classes: Sequence[str] | None = None) -> dict[str, object]:
    """Return how large classes are, when nodes came, what edges and nodes are called.

    classes: their names, numbers unless given.
    """
    found: dict[str, object] = {}
    if graph.targets is None and graph.num_classes:
        sizes = torch.bincount(graph.labels[graph.labels >= 0], minlength=graph.num_classes)
        names = range(len(sizes)) if classes is None else classes
        if (sizes == 0).any():
            found["classes with nodes"] = int((sizes > 0).sum())
        pairs = zip(names, sizes.tolist(), strict=False)  # names of classes without a node
        # A part of a graph keeps the numbers of its classes.
        found["nodes by class"] = listed([f"{name}: {size}" for name, size in pairs if size])
        found["nodes without a class"] = int((graph.labels == UNLABELLED).sum())
    if graph.time is not None and graph.num_nodes:
        found["time"] = f"{int(graph.time.min())} to {int(graph.time.max())}"
    if graph.relations is not None:
        found["relations"] = listed(graph.relations.names)
    if graph.types is not None:
        found["types"] = listed(graph.types.names)
    edges = ["both ways" if graph.undirected else "one way"]
    return found | {"edges run": ", ".join(edges + ["weighted"] * (graph.weights is not None))}


def listed(names: Sequence[object]) -> str:
    """Return names with commas between them, and how many more there are.

    >>> listed("ab"), listed(range(14))
    ('a, b', '0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more')
    """
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(str(name) for name in names[:LISTED]) + more
