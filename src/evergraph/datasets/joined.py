"""Several graphs as one that grows by a graph at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.datasets.base import Dataset, datasets
from evergraph.datasets.loading import load
from evergraph.graphs import Graph
from evergraph.graphs.disjoint import disjoint_union


def join(graphs: Sequence[Graph]) -> Graph:
    """Return the graphs side by side in one, the time of a node being the number of its graph.

    They share one feature space and one set of classes: class k means the same in all of them. A
    stream cut by time then meets one graph, a domain, after the other.

    >>> from evergraph.datasets.generated.synthetic import Synthetic
    >>> spring, autumn = (Synthetic(nodes=60, classes=3, features=8, seed=s).load(Path())
    ...                   for s in (0, 1))
    >>> year = join([spring, autumn])
    >>> year, year.time[[0, 59, 60]]
    (Graph(nodes=120, edges=1200, features=8, classes=3), tensor([0, 0, 1]))
    """
    if not graphs:
        raise DataError("no graph was given to join: at least one is needed")
    for number, graph in enumerate(graphs):
        if graph.num_features != graphs[0].num_features:
            raise DataError(
                f"graph {number} has {graph.num_features} features and graph 0 has "
                f"{graphs[0].num_features}: joined graphs need the same"
            )
    nodes = torch.tensor([graph.num_nodes for graph in graphs])
    return replace(
        disjoint_union(graphs), time=torch.repeat_interleave(torch.arange(len(graphs)), nodes)
    )


@datasets.register
class Joined(Dataset):
    """Several graphs side by side, the time of a node being the number of its graph; see ``join``.

    Args:
        parts: names of datasets or paths of graphs, in the order in which they arrive.
    """

    name = "joined"

    def __init__(self, *, parts: Sequence[str] = ()) -> None:
        if isinstance(parts, str) or not parts or not all(isinstance(p, str) for p in parts):
            raise ConfigurationError(
                f"parts must be one name or path of a graph or more, in a list, not {parts!r}"
            )
        self.parts = parts

    def load(self, cache: Path) -> Graph:
        """Load every part, edges as listed, and join them."""
        return join([load(part, undirected=False, cache=cache) for part in self.parts])
