"""A graph whose rows are worked on in parts, whether it is split or lies in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import names_in, read_facts
from evergraph.graphs.row_parts import balanced_ranges, rows_of
from evergraph.graphs.split_folder import PartFacts, SplitFolder


@dataclass(frozen=True, eq=False)
class PartedGraph:
    """What is to be known of a graph to have others work on its rows.

    Attributes:
        parts: ranges of rows, each for one worker; of a split graph, its own.
        graph: the graph itself, None where it is split.
        nodes, entries, features, undirected, named: as of ``SplitFolder``.
        known_by: tells one graph from another.
    """

    parts: Sequence[PartFacts]
    graph: Graph | None
    nodes: int
    entries: int
    features: int
    undirected: bool
    named: Mapping[str, Any]
    known_by: str

    @property
    def near(self) -> list[Path | None]:
        """The folder that each part lies in, where each has its own."""
        return [part.path if self.graph is None else None for part in self.parts]


def parted(source: Graph | SplitFolder, *, workers: int, name: str = "") -> PartedGraph:
    """Return a graph in parts: those of a split one, else as many as there are workers.

    name: by which a graph that lies in no folder is known again

    >>> import torch
    >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.eye(2),
    ...                         labels=torch.tensor([0, 0]), undirected=True)
    >>> [(part.start, part.stop) for part in parted(pair, workers=2).parts]
    [(0, 1), (1, 2)]
    """
    if isinstance(source, SplitFolder):
        return PartedGraph(
            source.parts,
            None,
            source.nodes,
            source.entries,
            source.features,
            source.undirected,
            source.named,
            source.checksum,
        )
    folder = source.folder
    known_by = f"{name} {source!r}" if folder is None else read_facts(folder)["sha256"]
    ranges = balanced_ranges(source.indptr, max(min(workers, source.num_nodes), 1))
    return PartedGraph(
        [PartFacts(i, rows.start, rows.stop) for i, rows in enumerate(ranges)],
        source,
        source.num_nodes,
        source.num_edges,
        source.num_features,
        source.undirected,
        names_in(source),
        known_by,
    )


def open_rows(part: PartFacts, graph: Graph | None) -> Graph:
    """Return the rows of a part: of a graph that is there, or from the part's own folder."""
    return part.open() if graph is None else rows_of(graph, slice(part.start, part.stop))
