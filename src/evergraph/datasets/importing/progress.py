"""The progress and the result of an import."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from evergraph.core.errors import DataError
from evergraph.core.mapped import disk_is_enough
from evergraph.core.written_aside import written_aside
from evergraph.tables.sources import CsvTable, Query, Source, StoredFile


@dataclass(frozen=True)
class ImportReport:
    """The result of an import.

    Attributes:
        nodes: number of nodes.
        edges: number of edges listed.
        doubles: edges listed before, in an undirected graph also in reverse, or of weight 0;
            between two nodes joined by several relations, all edges but one.
        loops: edges that join a node to itself.
        entries: entries of the adjacency; two per edge in an undirected graph.
        classes: one more than the largest label.
        features: width of the features.
        checksum: SHA-256 over all arrays.
        seconds: duration, including earlier processes.
        new: whether a graph was made, or the same graph existed already.
        columns: how each column was read, unless all are plain numbers.
        unknown_edges: edges that were skipped because they join an unknown node.
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


FORMAT = 3  # of the progress file; an import with another version starts again


@dataclass(frozen=True)
class InputFile:
    """The state of a file when the import started."""

    path: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Source) -> InputFile:
        """Return the state of a file or database file; that of a server differs every time."""
        if isinstance(path, Query):
            # Without a server's address, which may contain a password.
            place = str(path).split(":")[1] if path.file is None else str(path.file.resolve())
            return cls(f"{path.kind}:{place}: {path.sql}", *_state(path))
        if isinstance(path, StoredFile):
            return cls(path.address, *path.state())
        written = path.written if isinstance(path, CsvTable) else ""
        path = path.path if isinstance(path, CsvTable) else path
        if not path.is_file():
            raise DataError(f"{path}: no such file")
        about = path.stat()
        return cls(f"{path.resolve()}{written}", about.st_size, about.st_mtime_ns)


def _state(query: Query) -> tuple[int, int]:
    """Return size and time of a database's files, including a write-ahead log beside it."""
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
    """The content of the node table.

    loud: warning about a feature column that dominates the others, if there is one; columns: the
    scheme as JSON, None for plain numbers; targets: kind and names of the targets, if there are
    any in place of classes; types: names of node types, if there are any; class_names: by number,
    if labels are texts.
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
    """The content of the edge table.

    Attributes:
        rows: number of edges listed.
        loops: edges that join a node to itself.
        weighted: whether the table has weights.
        relations: names of relations by number; None without that column.
        unknown: rows skipped because they join an unknown node.
        entries: entries of the adjacency, once it is written.
    """

    rows: int
    loops: int
    weighted: bool
    relations: list[str] | None
    unknown: int
    entries: int | None = None


@dataclass(frozen=True)
class ImportProgress:
    """The finished stages of an import and their results; an unfinished stage is repeated."""

    inputs: Inputs
    nodes: NodesRead | None = None
    edges: EdgesRead | None = None
    seconds: float = 0.0

    def save(self, path: Path) -> None:
        """Save it to a file."""
        with disk_is_enough(path), written_aside(path) as file:
            file.write(json.dumps({"format": FORMAT} | asdict(self)).encode())

    @classmethod
    def load(cls, path: Path, inputs: Inputs) -> ImportProgress:
        """Return the progress of an import of these inputs, which may be none."""
        try:
            values = json.loads(path.read_text("utf-8"))
            found = TypeAdapter(cls).validate_python(values)
        except (OSError, ValueError, TypeError):  # a ValidationError is a ValueError
            return cls(inputs)
        same_nodes = (found.inputs.nodes, found.inputs.columns) == (inputs.nodes, inputs.columns)
        if values.get("format") != FORMAT or not same_nodes:
            return cls(inputs)
        # If only the edges differ, the nodes need not be read again.
        return found if found.inputs == inputs else cls(inputs, nodes=found.nodes)
