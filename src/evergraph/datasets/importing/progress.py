"""How far an import has come, and what it made."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from evergraph.core.errors import DataError
from evergraph.core.mapped import disk_is_enough
from evergraph.core.written_aside import written_aside
from evergraph.tables.sources import CsvTable, Query, Source, StoredFile


@dataclass(frozen=True)
class ImportReport:
    """What an import made.

    Attributes:
        nodes: how many nodes.
        edges: how many edges were listed.
        doubles: how many of them were listed before, in an undirected graph also the other way, or
            weigh nothing; of two nodes that several relations join, all edges but one.
        loops: how many of them joined a node to itself.
        entries: how many the adjacency holds; of an undirected graph two for every edge.
        classes: one more than the largest label.
        features: how wide the features are.
        checksum: one SHA-256 of all arrays.
        seconds: how long it took, earlier processes included.
        new: whether anything was made, or the same graph was there already.
        columns: how each was read, where they are not all plain numbers.
        unknown_edges: how many of the edges listed join a node that is not there: they are skipped.
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
    columns: list[dict[str, str]] = field(default_factory=list)
    unknown_edges: int = 0


FORMAT = 3  # of how far an import has come; one of another version begins again


@dataclass(frozen=True)
class InputFile:
    """A file as it was when the import began."""

    path: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Source) -> InputFile:
        """Look at a file, or at that of a database; what a server holds is another every time."""
        if isinstance(path, Query):
            return cls(f"{path.kind}:{_resolved(path)}: {path.sql}", *_state(path))
        if isinstance(path, StoredFile):
            return cls(path.address, *path.state())
        written = path.written if isinstance(path, CsvTable) else ""
        path = path.path if isinstance(path, CsvTable) else path
        if not path.is_file():
            raise DataError(f"{path}: no such file")
        about = path.stat()
        return cls(f"{path.resolve()}{written}", about.st_size, about.st_mtime_ns)


def _resolved(query: Query) -> str:
    """Return where a database is, without a server's address, which may hold a password."""
    return str(query).split(":")[1] if query.file is None else str(query.file.resolve())


def _state(query: Query) -> tuple[int, int]:
    """Return size and time of the files of a database: what was written last may lie beside it."""
    if query.file is None:
        return 0, query.asked
    if not query.file.is_file():
        raise DataError(f"{query.file}: no such file")
    beside = (query.file.with_name(f"{query.file.name}{end}") for end in ("", "-wal", ".wal"))
    found = [path.stat() for path in beside if path.is_file()]
    return sum(one.st_size for one in found), max(one.st_mtime_ns for one in found)


@dataclass(frozen=True)
class Inputs:
    """What a graph is made from; the same inputs make the same graph."""

    nodes: InputFile
    edges: InputFile
    undirected: bool
    columns: dict[str, Any] = field(default_factory=dict)
    unknown_edges: str = "refuse"


@dataclass(frozen=True)
class NodesRead:
    """What the node table was found to hold.

    loud: what is to be said of a feature column that drowns the others, if there is one;
    columns: the scheme by which they were read, as JSON; None where they are plain numbers;
    targets: their kind and names, where there are some in place of classes; types: names of the
    types of nodes, where they have any; class_names: by number, where labels were texts.
    """

    nodes: int
    features: int
    classes: int
    loud: str | None = None
    columns: dict[str, Any] | None = None
    targets: dict[str, Any] | None = None
    types: list[str] | None = None
    class_names: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class EdgesRead:
    """What the edge table was found to hold.

    Attributes:
        rows: how many edges are listed.
        loops: how many of them join a node to itself.
        weighted: whether the table has weights.
        relations: what edges stand for, by number; None where the table does not say.
        unknown: how many of the rows were skipped, since they join a node that is not there.
        entries: how many the adjacency has, once it is written.
    """

    rows: int
    loops: int
    weighted: bool
    relations: list[str] | None
    unknown: int
    entries: int | None = None


@dataclass(frozen=True)
class Progress:
    """Which stages of an import are done, and what they found; a stage is done whole or again."""

    inputs: Inputs
    nodes: NodesRead | None = None
    edges: EdgesRead | None = None
    seconds: float = 0.0

    def save(self, path: Path) -> None:
        """Keep it in a file."""
        with disk_is_enough(path), written_aside(path) as file:
            file.write(json.dumps({"format": FORMAT} | asdict(self)).encode())

    @classmethod
    def load(cls, path: Path, inputs: Inputs) -> Progress:
        """Return how far an import of these inputs has come, which may be nowhere."""
        try:
            found = _of(json.loads(path.read_text("utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            return cls(inputs)
        if (found.inputs.nodes, found.inputs.columns) != (inputs.nodes, inputs.columns):
            return cls(inputs)
        if found.inputs != inputs:  # only the edges are others: the nodes need not be read again
            return replace(cls(inputs), nodes=found.nodes)
        return found


def _of(values: dict[str, Any]) -> Progress:
    if values["format"] != FORMAT:
        raise ValueError(f"format {values['format']} is not {FORMAT}")
    nodes, edges = values["nodes"], values["edges"]
    return Progress(
        inputs=inputs_of(values["inputs"]),
        nodes=None if nodes is None else NodesRead(**nodes),
        edges=None if edges is None else EdgesRead(**edges),
        seconds=values["seconds"],
    )


def inputs_of(values: dict[str, Any]) -> Inputs:
    """Return inputs from what ``asdict`` made of them."""
    nodes, edges = (InputFile(**values[name]) for name in ("nodes", "edges"))
    unknown = values.get("unknown_edges", "refuse")
    return Inputs(nodes, edges, values["undirected"], values.get("columns", {}), unknown)
