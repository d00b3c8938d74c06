"""A graph folder in which embeddings take the place of the features: begun, filled, finished."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.mapped import MappedTensor, map_array
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import (
    GraphFolderWriter,
    arrays_of,
    is_graph_folder,
    names_in,
    read_facts,
)
from evergraph.graphs.row_parts import POINTED
from evergraph.graphs.split_folder import PART, PartFacts, SplitFolder, is_split_folder
from evergraph.topology.column_blocks import put_columns
from evergraph.topology.part_step import Step, next_state
from evergraph.topology.parted_graph import open_rows

Nodes = Literal["all", "labelled"]
NODES: tuple[Nodes, ...] = get_args(Nodes)
EMBEDDING = "embedding"  # what ``about`` tells of embeddings: how they were made


def embedding_in(folder: Path) -> dict[str, Any] | None:
    """Return of what and how the features of a graph in a folder were embedded, None if not.

    A path that holds no graph folder holds no embeddings.
    """
    if is_graph_folder(folder):
        about = read_facts(folder)["about"]
    elif is_split_folder(folder):
        about = SplitFolder.open(folder).about
    else:
        return None
    found: dict[str, Any] | None = about.get(EMBEDDING)
    return found


@dataclass(frozen=True)
class Target:
    """Where the embeddings of a part go.

    Attributes:
        folder: the graph folder.
        first: which of its rows is the part's first.
        nodes: of which nodes they are kept.
    """

    folder: Path
    first: int
    nodes: Nodes

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "features.npy"


def has_labels(graph: Graph) -> Tensor:
    """Return which nodes have a class, or a target that is known.  bool [nodes]"""
    return graph.labels >= 0 if graph.targets is None else graph.targets.known.any(1)


def rows_kept(part: PartFacts, *, graph: Graph | None, nodes: Nodes) -> int:
    """Return of how many nodes of a part embeddings are kept."""
    if nodes == "all":
        return part.stop - part.start
    return int(has_labels(open_rows(part, graph)).sum())


def lay_out(graph: Graph, folder: Path, *, width: int, nodes: Nodes) -> None:
    """Write all of a graph but its features, and make room for embeddings.

    Of labelled nodes alone no edges are kept: what they say is in the embeddings.
    """
    writer, arrays = GraphFolderWriter(folder), arrays_of(graph)
    del arrays["features"]
    if nodes == "labelled":
        arrays = _without_edges(arrays, has_labels(graph).nonzero().flatten())
    for name, array in arrays.items():
        writer.copy(name, array)
    writer.create("features", (len(arrays["labels"]), width), torch.float32)


def _without_edges(arrays: Mapping[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    joining = {*POINTED, *(name for names in POINTED.values() for name in names)}
    kept = {name: array[rows] for name, array in arrays.items() if name not in joining}
    nothing = torch.zeros(0, dtype=torch.int32)
    return {**kept, "indptr": torch.zeros(len(rows) + 1, dtype=torch.int32), "indices": nothing}


def names_kept(named: Mapping[str, Any], nodes: Nodes) -> dict[str, Any]:
    """Return the names that still mean something; without edges there are no relations."""
    dropped = ("relations",) if nodes == "labelled" else ()
    return {name: value for name, value in named.items() if name not in dropped}


def lay_out_part(part: PartFacts, *, folder: Path, width: int, nodes: Nodes) -> None:
    """Lay out the folder of one part of a split graph."""
    lay_out(part.open(), folder / part.path.name, width=width, nodes=nodes)


def is_laid_out(folder: Path, *, width: int) -> bool:
    """Whether there is room for embeddings of a width, as an earlier process has made it."""
    try:
        found = map_array(folder / "features.npy").shape
    except DataError:
        return False
    return len(found) == 2 and found[1] == width


def part_is_laid_out(part: PartFacts, *, folder: Path, width: int) -> bool:
    """Whether there is room for the embeddings of one part of a split graph."""
    return is_laid_out(folder / part.path.name, width=width)


def write_rows(
    item: tuple[Step, Target], *, columns: tuple[int, int], wide: int, **given: Any
) -> None:
    """Compute the embeddings of a part from some columns, and write them to their file.

    given: as for ``next_state``
    """
    step, target = item
    found = next_state(step, **given)
    if target.nodes == "labelled":
        found = found[has_labels(open_rows(step.part, given["graph"]))]
    file: MappedTensor = map_array(target.path, writable=True)
    put_columns(file, found, columns, wide, at=target.first)
    assert file.file is not None
    os.fsync(file.file.fileno())  # before anybody is told that it is written


def finish(
    graph: Graph, folder: Path, *, nodes: Nodes, about: Mapping[str, Any]
) -> tuple[str, int]:
    """Declare a folder a graph; return its checksum and how many entries it has."""
    writer = GraphFolderWriter(folder)
    bare = nodes == "labelled"
    checksum = writer.finish(
        undirected=bare or graph.undirected, about=about, named=names_kept(names_in(graph), nodes)
    )
    return checksum, 0 if bare else graph.num_edges


def finish_part(
    item: tuple[PartFacts, slice], *, folder: Path, nodes: Nodes, about: Mapping[str, Any], of: int
) -> PartFacts:
    """Declare the folder of a part whole, whose rows are known now; return its facts.

    of: how many nodes all parts have
    """
    part, rows = item
    path = folder / part.path.name
    told = {**about, PART: {"start": rows.start, "stop": rows.stop, "of": of}}
    checksum, entries = finish(part.open(), path, nodes=nodes, about=told)
    return PartFacts(part.index, rows.start, rows.stop, entries, path, checksum)


def save_split(part: PartFacts, *, split: SplitFolder) -> None:
    """Write ``split.json`` where a part is."""
    assert read_facts(part.path)["sha256"] == part.checksum
    split.save()
