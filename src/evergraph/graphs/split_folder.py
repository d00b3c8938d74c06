"""A graph cut into ranges of rows, each in a folder of its own, on machines of their own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evergraph.core.checks import check_integer
from evergraph.core.errors import DataError
from evergraph.core.mapped import disk_is_enough
from evergraph.core.resources import Resources
from evergraph.core.written_aside import written_aside
from evergraph.graphs.graph import Graph
from evergraph.graphs.graph_folder import (
    GraphFolderWriter,
    arrays_of,
    graph_of_arrays,
    is_graph_folder,
    names_in,
    open_graph_folder,
    read_facts,
)
from evergraph.graphs.row_parts import POINTED, balanced_ranges, joined, rows_of

SPLIT = "split.json"
FORMAT = 1
PART = "part"  # what ``about`` of a part's graph.json tells: which rows of which graph

OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class PartFacts:
    """One part of a split graph.

    Attributes:
        index: which one.
        start, stop: its rows.
        entries: how many its rows hold.
        path: its folder, which need not be on this machine.
        checksum: of all of its arrays.
    """

    index: int
    start: int
    stop: int
    entries: int
    path: Path
    checksum: str

    def open(self, *, verify: bool = False) -> Graph:
        """Return the rows; neighbours have the numbers that they have in the whole.

        Sizes are checked always; ``verify`` reads everything and compares checksums as well.
        """
        if not is_graph_folder(self.path):
            raise DataError(
                f"{self.path}: part {self.index}, rows {self.start:,} to {self.stop:,}, is not on "
                "this machine: copy it here, or work where it is"
            )
        if read_facts(self.path)["sha256"] != self.checksum:
            raise DataError(
                f"{self.path}: is not the part that {SPLIT} beside it tells of: split it again"
            )
        return open_graph_folder(self.path, verify=verify)


@dataclass(frozen=True)
class SplitFolder:
    """A graph whose rows lie in several folders, of which a machine may hold some alone.

    ``FOLDER/split.json`` is on every machine. ``FOLDER/part-00000`` and so on are graph folders of
    some rows each: pointers begin at 0, neighbours have the numbers that they have in the whole.

    Attributes:
        folder: where it is.
        nodes, entries, features: how many the whole has.
        undirected: whether every edge is there both ways.
        parts: in the order of their rows.
        named: as in ``graph.json``.
        about: kept as it was given.

    >>> import tempfile, torch
    >>> path = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), features=torch.eye(3),
    ...                         labels=torch.tensor([0, 0, 1]), undirected=True)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     split = write_split(path, Path(place), parts=2)
    ...     [(part.start, part.stop, part.entries) for part in split.parts]
    ...     SplitFolder.open(Path(place)).whole()
    [(0, 2, 3), (2, 3, 1)]
    Graph(nodes=3, edges=4, features=3, classes=2)
    """

    folder: Path
    nodes: int
    entries: int
    features: int
    undirected: bool
    parts: tuple[PartFacts, ...]
    named: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path) -> SplitFolder:
        """Read ``split.json``; no part need be here."""
        try:
            facts: dict[str, Any] = json.loads((folder / SPLIT).read_text("utf-8"))
        except FileNotFoundError:
            raise DataError(
                f"{folder}: holds no finished split graph: {SPLIT} is missing, split it again"
            ) from None
        except (OSError, ValueError) as error:
            raise DataError(f"{folder / SPLIT}: cannot be read ({error})") from None
        if facts.get("format") != FORMAT:
            raise DataError(
                f"{folder}: is split in format {facts.get('format')!r}, this version reads "
                f"{FORMAT}: split it again, or use the version that made it"
            )
        parts = tuple(
            PartFacts(**part, path=part_path(folder, part["index"])) for part in facts["parts"]
        )
        known = {name: facts[name] for name in ("nodes", "entries", "features", "undirected")}
        return cls(folder, **known, parts=parts, named=facts["named"], about=facts["about"])

    @property
    def checksum(self) -> str:
        """One SHA-256 of all of it."""
        sums = "".join(f"{part.start} {part.stop} {part.checksum}\n" for part in self.parts)
        return hashlib.sha256(sums.encode()).hexdigest()

    def save(self) -> None:
        """Write ``split.json``, with which it is whole."""
        parts = [{k: v for k, v in asdict(part).items() if k != "path"} for part in self.parts]
        facts = {
            "format": FORMAT,
            "nodes": self.nodes,
            "entries": self.entries,
            "features": self.features,
            "undirected": self.undirected,
            "named": dict(self.named),
            "sha256": self.checksum,
            "parts": parts,
            "about": dict(self.about),
        }
        with disk_is_enough(self.folder), written_aside(self.folder / SPLIT) as file:
            file.write(json.dumps(facts, indent=2).encode())

    def whole(self, *, verify: bool = False, resources: Resources | None = None) -> Graph:
        """Return the graph of all parts, which must be at hand.

        Arrays that do not fit in memory are put in files without a name.
        """
        resources = Resources() if resources is None else resources
        opened = [arrays_of(part.open(verify=verify)) for part in self.parts]
        arrays = {
            name: joined([part[name] for part in opened], resources, pointers=name in POINTED)
            for name in opened[0]
        }
        return graph_of_arrays(self.named, arrays, undirected=self.undirected)


def is_split_folder(folder: Path) -> bool:
    """Whether a folder holds a finished split graph."""
    return (folder / SPLIT).is_file()


def part_path(folder: Path, index: int) -> Path:
    """Return the folder of a part.

    >>> part_path(Path("papers"), 3).name
    'part-00003'
    """
    return folder / f"part-{index:05d}"


def write_split(
    graph: Graph,
    out: Path,
    *,
    parts: int,
    about: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> SplitFolder:
    """Write a graph as ``parts`` folders of about as many entries each, and open it.

    What lies in files is copied piece by piece. A part that an earlier call wrote whole, of the
    same graph folder, is left as it is. about: kept in ``split.json``.
    """
    check_integer("parts", parts, least=1)
    (out / SPLIT).unlink(missing_ok=True)  # from now on it is no graph
    source = None if graph.folder is None else read_facts(graph.folder)["sha256"]
    ranges, found = balanced_ranges(graph.indptr, parts), []
    for index, rows in enumerate(ranges):
        if on_progress is not None:
            on_progress("split", rows.start, graph.num_nodes)
        found.append(_write_part(graph, rows, part_path(out, index), index, source))
    split = SplitFolder(
        out,
        graph.num_nodes,
        graph.num_edges,
        graph.num_features,
        graph.undirected,
        tuple(found),
        names_in(graph),
        dict(about or {}),
    )
    split.save()
    return split


def _write_part(graph: Graph, rows: slice, path: Path, index: int, source: str | None) -> PartFacts:
    part = rows_of(graph, rows)
    about = {PART: {"start": rows.start, "stop": rows.stop, "of": graph.num_nodes, "in": source}}
    if source is None or not _written(path, about):
        writer = GraphFolderWriter(path)
        for name, array in arrays_of(part).items():
            writer.copy(name, array)
        writer.finish(undirected=graph.undirected, about=about, named=names_in(graph))
    checksum = read_facts(path)["sha256"]
    return PartFacts(index, rows.start, rows.stop, part.num_edges, path, checksum)


def _written(path: Path, about: Mapping[str, Any]) -> bool:
    """Whether a part is there already, and whole as far as sizes tell."""
    if not is_graph_folder(path) or read_facts(path)["about"] != about:
        return False
    open_graph_folder(path)
    return True
