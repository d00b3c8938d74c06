"""A graph with what its nodes and classes were called where it came from."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.display import Shown, listed
from evergraph.core.errors import DataError
from evergraph.graphs import UNLABELLED, Graph


@dataclass(frozen=True, eq=False, repr=False)
class NamedGraph(Shown):
    """A graph, and what nodes and classes are called.

    Attributes:
        graph: the graph.
        ids: of its nodes, in their order; None where they are numbered.
        classes: their names, where labels are names; None where they are numbers.

    >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.eye(2),
    ...                         labels=torch.tensor([1, 0]))
    >>> NamedGraph(pair, ids=["ada", "bob"], classes=("art", "music"))
    NamedGraph(graph=Graph(nodes=2, edges=1, features=2, classes=2), named=True,
    classes=('art', 'music'))
    """

    graph: Graph
    ids: Sequence[Hashable] | None = None
    classes: Sequence[str] | None = None

    def _repr_facts(self) -> dict[str, object]:
        return {"graph": self.graph, "named": self.ids is not None, "classes": self.classes}

    def _repr_table(self) -> dict[str, object]:
        first = {} if self.ids is None else {"ids": listed(self.ids)}
        return self.graph._repr_facts() | first | self.graph.more_facts(self.classes)


def numbered_labels(labels: Sequence[Any]) -> tuple[Tensor, tuple[str, ...] | None]:
    """Return labels as classes, and their names if they are texts, which are numbered in order.

    None and NaN are no label, and among numbers -1 is none.

    labels: [nodes] -> int64 [nodes]

    >>> numbered_labels(["b", None, "a"])
    (tensor([ 1, -1,  0]), ('a', 'b'))
    >>> numbered_labels([2, None, -1.0])
    (tensor([ 2, -1, -1]), None)
    """
    known = [None if _missing(label) else label for label in labels]
    given = [label for label in known if label is not None]
    if given and all(isinstance(label, str) for label in given):
        names = tuple(sorted(set(given)))
        place = {name: number for number, name in enumerate(names)}
        return torch.tensor([place.get(label, UNLABELLED) for label in known]), names
    return torch.tensor([_whole(label) for label in known], dtype=torch.int64), None


def _missing(label: Any) -> bool:
    return label is None or type(label).__name__ in ("NAType", "NaTType") or label != label


def _whole(label: Any) -> int:
    if label is None:
        return UNLABELLED
    number = label.item() if isinstance(label, np.generic | Tensor) else label
    if isinstance(number, bool) or not isinstance(number, int | float) or number != int(number):
        raise DataError(f"label {label!r} must be a whole number, or all labels text")
    return int(number)
