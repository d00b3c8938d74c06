"""Import of node and edge tables of any size into a graph folder: nodes, edges, sort."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import TypeAdapter

from evergraph.core.errors import DataError, check_choice, say
from evergraph.core.packages import require
from evergraph.core.resources import Resources
from evergraph.core.safe_files import disk_is_enough, one_at_a_time, written_aside
from evergraph.datasets.importing.edge_table import EdgeTable
from evergraph.datasets.importing.nodes import NodesRead, import_nodes
from evergraph.graphs.graph_folder import (
    RELATION_ARRAYS,
    GraphFolderWriter,
    is_graph_folder,
    open_graph_folder,
    read_facts,
)
from evergraph.graphs.relations import MOST_RELATIONS, Relations
from evergraph.graphs.validation import REPEATED, say_repeated
from evergraph.tables.arrow import pa
from evergraph.tables.choices import Columns
from evergraph.tables.chunks import InputFile, columns_of, read_chunks
from evergraph.tables.columns import RELATION, WEIGHT
from evergraph.tables.edges import UNKNOWN_EDGES, read_edges, say_edges_unread, say_skipped
from evergraph.tables.names import ENDS, ColumnNames, of_edges, of_nodes
from evergraph.tables.sources import Source, named, naming

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger(__name__)
OnProgress = Callable[[str, int, int], None]
MIN_MEMORY = 32_000_000  # fewest bytes with which an import can start
PROGRESS = "progress.json"
_LARGEST_PIECE = 64_000_000
_BYTES_A_BYTE = 12  # of memory per byte of a table: text, columns, positions
_BYTES_A_RELATED_EDGE = 300  # while relations are sorted: measured, 280 to 305
FORMAT = 4  # of the progress file; an import with another version starts again


@dataclass(frozen=True)
class ImportReport:
    """The result of an import."""

    nodes: int  # number of nodes
    edges: int  # number of edges listed
    # edges listed before, in an undirected graph also in reverse, or of weight 0; between two nodes
    # joined by several relations, all edges but one
    doubles: int
    loops: int  # edges that join a node to itself
    entries: int  # entries of the adjacency; two per edge in an undirected graph
    classes: int  # one more than the largest label
    features: int  # width of the features
    checksum: str  # SHA-256 over all arrays
    seconds: float  # duration, including earlier processes
    new: bool = True  # whether a graph was made, or the same graph existed already
    # how each column was read, unless all are plain numbers
    columns: list[dict[str, str]] = field(default_factory=list)
    unknown_edges: int = 0  # edges that were skipped because they join an unknown node
    repeats: int = 0  # rows that list an edge again, which ``repeated`` is about


@dataclass(frozen=True)
class Inputs:
    """What a graph is made from; the same inputs make the same graph."""

    nodes: InputFile
    edges: InputFile
    undirected: bool
    columns: dict[str, Any] = field(default_factory=dict)
    unknown_edges: str = "refuse"
    repeated: str = "last"


@dataclass(frozen=True)
class EdgesRead:
    """The content of the edge table."""

    rows: int  # number of edges listed
    loops: int  # edges that join a node to itself
    weighted: bool  # whether the table has weights
    relations: list[str] | None  # names of relations by number; None without that column
    unknown: int  # rows skipped because they join an unknown node
    repeats: int = 0  # rows that list an edge again
    entries: int | None = None  # entries of the adjacency, once it is written


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
            progress = TypeAdapter(cls).validate_python(values)
        except (OSError, ValueError, TypeError):  # a ValidationError is a ValueError
            return cls(inputs)
        if values.get("format") != FORMAT:
            return cls(inputs)
        if progress.inputs == inputs:
            return progress
        if (progress.inputs.nodes, progress.inputs.columns) == (inputs.nodes, inputs.columns):
            return cls(inputs, nodes=progress.nodes)  # only the edges are read again
        return cls(inputs)


@dataclass
class _Stages:
    """The stages of an import; stages that an earlier process finished are skipped."""

    folder: Path
    progress: ImportProgress
    resources: Resources
    on_progress: OnProgress
    columns: Columns | None

    def __post_init__(self) -> None:
        self._began = time.monotonic() - self.progress.seconds
        self._ids = self.folder / "ids.arrow"
        self.resources.check(MIN_MEMORY, "an import")
        if self.progress.nodes is not None:
            logger.info("%s: resuming an earlier import", self.folder)
        self.writer = GraphFolderWriter(self.folder / "graph")

    def read_nodes(self, path: Source) -> NodesRead:
        """Write the content of the node table."""
        if self.progress.nodes is not None:
            return self.progress.nodes
        nodes_read = import_nodes(
            path,
            self.writer.folder,
            self._ids,
            size=_piece(self.resources.left),
            on_piece=lambda piece: self.on_progress("nodes", piece.done, piece.total),
            columns=self.columns,
        )
        self._save(nodes=nodes_read)
        return nodes_read

    def read_edges(self, path: Source, nodes_path: Source, nodes: NodesRead) -> EdgesRead:
        """Put the edges into a database by node number; raise unless ids are unique."""
        if self.progress.edges is not None:
            return self.progress.edges
        with naming(path):
            columns = columns_of(path)
        optional = tuple(name for name in (WEIGHT, RELATION) if name in columns)
        inputs = self.progress.inputs
        weighed = WEIGHT in optional or inputs.repeated in ("sum", "count")
        stored = [WEIGHT] * weighed + [RELATION] * (RELATION in optional)
        with closing(self._table(nodes, fresh=True, columns=stored)) as table:
            with naming(nodes_path), pa.memory_map(str(self._ids)) as file:
                table.set_ids(pa.ipc.open_file(file).read_all().column("id"))
                table.check_distinct()
            with naming(path):
                size = _piece(self.resources.left // 2)
                rows = 0
                for piece in read_chunks(path, (*ENDS, *optional), size=size, only_needed=True):
                    listed = read_edges(piece.table, before=piece.before)
                    if weighed and listed.weights is None:
                        listed = replace(listed, weights=torch.ones(piece.table.num_rows))
                    table.add_named(piece.before, listed, skip=inputs.unknown_edges == "skip")
                    rows = piece.after
                    self.on_progress("edges", piece.done, piece.total)
                known, loops = table.counts()
                repeats = table.combine(inputs.repeated)
                names = table.relations() if RELATION in optional else None
                if names is not None and len(names) > MOST_RELATIONS:
                    raise DataError(
                        f"column {RELATION!r} holds {len(names):,} names: at most "
                        f"{MOST_RELATIONS:,} are supported"
                    )
        edges_read = EdgesRead(rows, loops, weighed, names, unknown=rows - known, repeats=repeats)
        self._save(edges=edges_read)
        return edges_read

    def sort(self, nodes: NodesRead, edges: EdgesRead) -> int:
        """Write the adjacency, and the relations if there are any; return its entries."""
        if edges.entries is not None:
            return edges.entries
        with closing(self._table(nodes, fresh=False)) as table:
            self.on_progress("sort", 0, 1)
            on_part = partial(self.on_progress, "sort")
            entries = table.write(self.writer, weighted=edges.weighted, on_part=on_part)
            for array in RELATION_ARRAYS:  # of an earlier import
                (self.writer.folder / f"{array}.npy").unlink(missing_ok=True)
            if edges.relations is not None:
                self._relate(table, edges, nodes)
        self._save(edges=replace(edges, entries=entries))
        return entries

    def _relate(self, table: EdgeTable, edges: EdgesRead, nodes: NodesRead) -> None:
        count = edges.rows - edges.unknown
        self.resources.check(_BYTES_A_RELATED_EDGE * count, f"sorting {count:,} edges by relation")
        columns = table.listed(weighted=edges.weighted)
        listed = {name: torch.from_numpy(values) for name, values in columns.items()}
        ends = torch.stack([listed["source"], listed["target"]])
        weights = listed.get("weight")
        relations = Relations.of(
            ends, listed["kind"], edges.relations or (), nodes=nodes.nodes, weights=weights
        )
        arrays = (relations.indptr, relations.indices, relations.kinds, relations.weights)
        for name, values in zip(RELATION_ARRAYS, arrays, strict=True):
            if values is not None:
                self.writer.copy(name, values)

    def finish(self, nodes: NodesRead, edges: EdgesRead, entries: int, out: Path) -> ImportReport:
        """Complete the graph folder and move it to its destination."""
        self.on_progress("checksum", 0, 1)
        inputs = self.progress.inputs
        distinct = entries // 2 if inputs.undirected else entries
        report = {
            "nodes": nodes.nodes,
            "edges": edges.rows,
            "doubles": edges.rows - edges.unknown - edges.loops - distinct,
            "loops": edges.loops,
            "entries": entries,
            "classes": nodes.classes,
            "features": nodes.features,
            "seconds": round(time.monotonic() - self._began, 3),
            "unknown_edges": edges.unknown,
            "repeats": edges.repeats,
        }
        about: dict[str, Any] = {
            "inputs": asdict(inputs),
            "report": report,
            "dominant": nodes.dominant,
        }
        if nodes.columns is not None:
            about["columns"] = nodes.columns
        if nodes.class_names:
            about["class_names"] = nodes.class_names
        parts = {"targets": nodes.targets, "types": nodes.types, "relations": edges.relations}
        self.writer.finish(undirected=inputs.undirected, about=about, named=parts)
        (self.folder / PROGRESS).unlink()  # so that no process resumes in a removed folder
        if out.exists():
            shutil.rmtree(self.folder / "replaced", ignore_errors=True)
            out.rename(self.folder / "replaced")
        self.writer.folder.rename(out)
        shutil.rmtree(self.folder)
        self.on_progress("checksum", 1, 1)
        return _report(out, new=True)

    def _table(self, nodes: NodesRead, *, fresh: bool, columns: Sequence[str] = ()) -> EdgeTable:
        return EdgeTable(
            self.folder / "edges",
            nodes=nodes.nodes,
            undirected=self.progress.inputs.undirected,
            memory=max(self.resources.left // 2, MIN_MEMORY),
            fresh=fresh,
            columns=columns,
        )

    def _save(self, **done: NodesRead | EdgesRead) -> None:
        seconds = time.monotonic() - self._began
        self.progress = replace(self.progress, seconds=seconds, **done)  # type: ignore[arg-type]
        self.progress.save(self.folder / PROGRESS)


def _piece(memory: int) -> int:
    return min(max(memory, MIN_MEMORY) // _BYTES_A_BYTE, _LARGEST_PIECE)


def _report(out: Path, *, new: bool) -> ImportReport:
    """Return the report of a finished import, as its ``graph.json`` has it."""
    facts = read_facts(out)
    about = facts["about"]
    scheme = about.get("columns") or {"columns": []}
    columns = [dict(column["told"]) for column in scheme["columns"]]
    return ImportReport(**about["report"], checksum=facts["sha256"], new=new, columns=columns)


def import_graph(  # noqa: PLR0913
    edges: Source,
    nodes: Source,
    out: Path,
    *,
    undirected: bool = True,
    resources: Resources | None = None,
    on_progress: OnProgress | None = None,
    overwrite: bool = False,
    columns: Columns | None = None,
    unknown_edges: str = "refuse",
    repeated: str = "last",
    **names: Unpack[ColumnNames],
) -> ImportReport:
    """Make a graph folder from a table of edges and one of nodes, in bounded memory.

    The tables and the resulting graph are those of ``read_table_folder``; each table may be
    ``.csv``, ``.csv.gz`` or ``.parquet``. Work is done in ``out`` with the suffix ``.partial``.
    After a crash, the same call resumes with the first unfinished stage, and the result is the same
    to the bit.

    Args:
        edges: the table of edges, or a database query for it; a CSV with another dialect is a
            ``CsvTable``.
        nodes: the table of nodes, likewise.
        out: the folder to make.
        undirected: whether to add the reverse of every edge.
        resources: memory to use.
        on_progress: called with the stage, the amount done and the total.
        overwrite: whether to replace an existing graph.
        columns: how to read columns of nodes that should not be guessed.
        unknown_edges: for edges to nodes that are not in the table: ``refuse`` raises, ``skip``
            leaves them out and counts them.
        repeated: for edges that are listed several times, as in ``load``.
        names: of columns, as ``id="customer_id"``; ``label``, ``source``, ``target``, ``weight``
            likewise.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     tables = Path(place)
    ...     _ = (tables / "n.csv").write_text("id,label,x\\na,art,1\\nb,art,2\\nc,music,3\\n")
    ...     _ = (tables / "e.csv").write_text("source,target\\na,b\\nb,a\\nc,b\\nc,c\\n")
    ...     report = import_graph(tables / "e.csv", tables / "n.csv", tables / "graph")
    ...     report.nodes, report.edges, report.doubles, report.loops, report.entries
    ...     open_graph_folder(tables / "graph")
    (3, 4, 1, 1, 4)
    Graph(nodes=3, edges=4, features=1, classes=2)
    """
    for name in ("pyarrow", "duckdb"):
        require(name, extra="tables", why=f"importing {nodes}")
    nodes, edges = named(nodes, of_nodes(names)), named(edges, of_edges(names))
    if columns is not None:
        columns.check_fill("an import", "it reads a table in chunks")
    chosen_columns = {} if columns is None or columns == Columns() else columns.to_json()
    check_choice("unknown_edges", unknown_edges, UNKNOWN_EDGES)
    check_choice("repeated", repeated, REPEATED)
    inputs_of = partial(
        Inputs,
        undirected=undirected,
        columns=chosen_columns,
        unknown_edges=unknown_edges,
        repeated=repeated,
    )
    inputs = inputs_of(InputFile.of(nodes), InputFile.of(edges))
    if not overwrite and out.exists():
        return _there_already(out, inputs)
    if out.exists() and not is_graph_folder(out):
        raise DataError(f"{out}: is not a graph folder, so it is not replaced")
    folder = out.with_name(f"{out.name}.partial")
    with one_at_a_time(folder):
        report_progress = on_progress or (lambda stage, done, total: None)
        progress = ImportProgress.load(folder / PROGRESS, inputs)
        stages = _Stages(folder, progress, resources or Resources(), report_progress, columns)
        with naming(nodes):
            nodes_read = stages.read_nodes(nodes)
        edges_read = stages.read_edges(edges, nodes, nodes_read)
        entries = stages.sort(nodes_read, edges_read)
        if inputs != inputs_of(InputFile.of(nodes), InputFile.of(edges)):
            raise DataError(f"{nodes} or {edges} changed while it was read: import them again")
        report = stages.finish(nodes_read, edges_read, entries, out)
    say_edges_unread(edges, columns_of(edges))
    say_skipped(edges, report.unknown_edges)
    say_repeated(edges, report.repeats, report.edges - report.unknown_edges, repeated)
    if nodes_read.dominant is not None:
        say(nodes, nodes_read.dominant)
    return report


def _there_already(out: Path, inputs: Inputs) -> ImportReport:
    about = read_facts(out).get("about", {}) if is_graph_folder(out) else {}
    if "inputs" not in about or TypeAdapter(Inputs).validate_python(about["inputs"]) != inputs:
        raise DataError(
            f"{out}: exists and is not a graph of these tables: choose another folder, or "
            "replace it with --overwrite"
        )
    open_graph_folder(out)  # checks that it is complete, judging by sizes
    shutil.rmtree(out.with_name(f"{out.name}.partial"), ignore_errors=True)
    logger.info("%s: already holds the graph of these tables", out)
    return _report(out, new=False)
