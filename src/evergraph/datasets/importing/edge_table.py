"""Edges in a database on disk, joined to nodes and sorted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.core.errors import DataError, ResourceError
from evergraph.core.mapped import AppendedArray, put
from evergraph.core.packages import require
from evergraph.core.safe_files import disk_is_enough
from evergraph.graphs.csr import pointer_type
from evergraph.graphs.graph_folder import GraphFolderWriter
from evergraph.graphs.validation import MOST_WEIGHT, ONCE, WEIGHT_RULE, check_count
from evergraph.tables.arrow import pa, pc
from evergraph.tables.edges import EdgeRows, numeric_places, places_of, unknown_end
from evergraph.tables.names import ENDS
from evergraph.tables.sources import arrow_reader

Ends = NDArray[np.integer]
_BATCH = 1 << 20  # pairs written at a time
# Rows and pairs sorted at a time. A sort reports nothing before its end: in parts, progress can be
# reported, and the degrees of a part fit in memory for any number of nodes.
_PART_NODES = 1 << 22
_PART_PAIRS = 1 << 25
_BYTES_AN_ID = 64  # memory per id while numeric ids are looked up
_A_THREAD = 128_000_000  # bytes that DuckDB needs per sorting thread

# Every edge is selected as listed and, in undirected graphs, in reverse. A key is
# target * 2^32 + source, so that the order of keys is that of compressed rows.
_LISTED = """
    SELECT target::BIGINT << 32 | source AS key {listed} FROM edges
    WHERE source <> target AND target >= {first} AND target < {stop}"""
_REVERSED = """
    UNION ALL SELECT source::BIGINT << 32 | target AS key {reversed} FROM edges
    WHERE source <> target AND source >= {first} AND source < {stop}"""
# The last weight of an edge listed twice counts, and a listed edge takes its own weight rather than
# that of its reverse, as in Graph.to_undirected. An edge of weight 0 is dropped.
_WEIGHED = """
    WITH lasting AS (
        SELECT key, listed, arg_max(weight, row) AS weight FROM ({selection}) GROUP BY key, listed
    )
    SELECT key, arg_max(weight, listed) AS weight FROM lasting
    WHERE weight > 0 GROUP BY key ORDER BY key"""
# Only what is asked for later is stored: columns of nulls would take longer than all others.
_TYPES = {
    "row": "BIGINT",
    "source": "INTEGER",
    "target": "INTEGER",
    "weight": "FLOAT",
    "relation": "VARCHAR",
}
_UNWEIGHED = "SELECT key FROM ({selection}) ORDER BY key"  # duplicates are dropped while writing
# The weight of an edge that is listed several times, as in ``graphs.validation``.
_TOTAL, _ROWS = "sum(weight::DOUBLE ORDER BY row)", "count(*) FILTER (weight > 0)"
_COMBINED = {"sum": _TOTAL, "count": _ROWS, "mean": f"{_TOTAL} / greatest({_ROWS}, 1)"}


class EdgeTable:
    """Collects edges in any order and writes the compressed rows of a graph in bounded memory.

    DuckDB stores them in a file, sorts, and spills to disk what does not fit; it also finds nodes
    by id, unless these are numbers.

    Args:
        folder: folder for the database and its spilled data only.
        nodes: number of nodes.
        undirected: whether to add the reverse of every edge.
        memory: bytes to use.
        fresh: whether to start empty, or with the edges of an earlier process.
        columns: of ``weight`` and ``relation``, those that edges have.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int,
        undirected: bool,
        memory: int,
        fresh: bool = True,
        columns: Sequence[str] = (),
    ) -> None:
        require("duckdb", extra="tables", why="sorting edges on disk")
        check_count(nodes)
        self.folder = folder
        self.nodes = nodes
        self.undirected = undirected
        self._memory = memory
        self._columns = ["row", *ENDS, *columns] if columns else [*ENDS]  # rows order the others
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        with disk_is_enough(folder):
            folder.mkdir(parents=True, exist_ok=True)

    @cached_property
    def _database(self) -> Any:  # opened when it is needed: loading DuckDB takes its time
        import duckdb

        config: dict[str, Any] = {
            "memory_limit": f"{self._memory // 1000}KB",
            "temp_directory": str(self.folder / "spilled"),
            "threads": min(torch.get_num_threads(), max(self._memory // _A_THREAD, 1)),
            "preserve_insertion_order": False,
        }
        with self._translated_errors():
            database = duckdb.connect(str(self.folder / "edges.duckdb"), config=config)
            listed = ", ".join(f"{name} {_TYPES[name]}" for name in self._columns)
            database.execute(f"CREATE TABLE IF NOT EXISTS edges ({listed})")
            return database

    def add(self, sources: Ends, targets: Ends) -> None:
        """Add edges between nodes by number.  integer [edges], integer [edges]"""
        for ends in (sources, targets):
            if len(ends) and not 0 <= int(ends.min()) <= int(ends.max()) < self.nodes:
                wrong = int(ends.min()) if int(ends.min()) < 0 else int(ends.max())
                raise DataError(f"an edge ends at node {wrong}: expected 0 to {self.nodes - 1}")
        self._insert(pa.table({"source": pa.array(sources), "target": pa.array(targets)}))

    def set_ids(self, ids: pa.Array) -> None:
        """Set the ids of nodes, by which later edges are named."""
        positions = pa.array(np.arange(len(ids), dtype=np.int32))
        self._id_table = pa.table({"id": ids, "place": positions})
        self._id_type = ids.type
        fits = len(ids) * _BYTES_AN_ID < self._memory // 4
        self._positions = numeric_places(ids) if fits else None

    def check_distinct(self) -> None:
        """Raise unless ids are unique."""
        if self._positions is not None:
            return
        self._database.register("ids", self._id_table)
        duplicates = self._ask(
            "SELECT id, min(place), min(place, 2)[2] AS again FROM ids WHERE id IN "
            "(SELECT id FROM ids GROUP BY id HAVING count(*) > 1) "
            "GROUP BY id ORDER BY again LIMIT 1"
        )
        for name, first, again in duplicates:
            message = f"row {again + 1} repeats id {name!r} of row {first + 1}: expected unique ids"
            raise DataError(message)

    def add_named(self, before: int, listed: EdgeRows, *, skip: bool = False) -> None:
        """Add edges between nodes by id.

        before: number of earlier rows of edges; skip: whether to leave out edges to unknown nodes
        instead of raising.
        """
        ends = dict(zip(ENDS, listed.ends, strict=True))
        rows = np.arange(before, before + len(ends["source"]))
        weights = None if listed.weights is None else listed.weights.numpy()
        columns = {"row": rows, **ends, "weight": weights, "relation": listed.relations}
        piece = pa.table({name: column for name, column in columns.items() if column is not None})
        end_positions = [places_of(side, self._positions) for side in listed.ends]
        if end_positions[0] is not None and end_positions[1] is not None:
            unknown = (end_positions[0] < 0) | (end_positions[1] < 0)
            if unknown.any() and not skip:
                row = int(unknown.argmax())
                end = ENDS[int(end_positions[0][row] >= 0)]
                raise unknown_end(before + row, end, ends[end][row])
            for name, positions in zip(ENDS, end_positions, strict=True):
                column = piece.column_names.index(name)
                piece = piece.set_column(column, name, pa.array(positions))
            self._insert(piece.filter(pa.array(~unknown)) if unknown.any() else piece)
            return
        # If one file has numbers and the other texts, ids are compared as text.
        same_type = ends["source"].type == self._id_type == ends["target"].type
        as_one = "{}" if same_type else "{}::VARCHAR"
        known_id, source, target = map(as_one.format, ("id", "piece.source", "piece.target"))
        join = "JOIN" if skip else "LEFT JOIN"
        self._database.register("ids", self._id_table)
        self._database.register("piece", piece)
        with self._translated_errors():
            answer = self._database.sql(
                f"""SELECT piece.* REPLACE (s.place AS source, t.place AS target) FROM piece
                {join} (SELECT {known_id} AS id, place FROM ids) s ON {source} = s.id
                {join} (SELECT {known_id} AS id, place FROM ids) t ON {target} = t.id"""
            )
            joined = arrow_reader(answer, _BATCH).read_all()
        unknown = pc.or_(pc.is_null(joined["source"]), pc.is_null(joined["target"]))
        if pc.any(unknown).as_py():
            first = joined.filter(unknown).sort_by("row").slice(0, 1).to_pylist()[0]
            end = ENDS[first["source"] is not None]
            raise unknown_end(first["row"], end, ends[end][first["row"] - before])
        self._insert(joined)

    def counts(self) -> tuple[int, int]:
        """Return the number of edges, and the number of self-loops among them."""
        ((edges, loops),) = self._ask(
            "SELECT count(*), count(*) FILTER (WHERE source = target) FROM edges"
        )
        return edges, loops

    def combine(self, repeated: str) -> int:
        """Keep one row of each edge that is listed several times; return the number of others.

        It is ``graphs.validation.combined`` in the words of the database, but with ``last`` all rows
        stay until they are sorted.
        """
        related, weighed = "relation" in self._columns, "weight" in self._columns
        relation = ", relation" if related else ""
        same = f"source, target{relation}"
        if repeated in _COMBINED and weighed:
            before, loops = self.counts()
            if self.undirected and not related:
                same = "least(source, target), greatest(source, target)"
            self._ask(
                "CREATE TABLE combined AS SELECT min(row) AS row, arg_min(source, row) AS source, "
                f"arg_min(target, row) AS target, {_COMBINED[repeated]}::FLOAT AS weight"
                f"{relation} FROM edges GROUP BY {same}"
            )
            self._ask("DROP TABLE edges; ALTER TABLE combined RENAME TO edges")
            after, left = self.counts()
            repeats = before - loops - (after - left)
            ((most,),) = self._ask("SELECT max(weight) FROM edges")
            if (most or 0) > MOST_WEIGHT:
                raise DataError(f"an edge has weight {most!r} in all: expected {WEIGHT_RULE}")
        else:
            ((repeats,),) = self._ask(
                "SELECT sum(rows) - count(*) FROM (SELECT count(*) AS rows FROM edges "
                f"WHERE source <> target GROUP BY {same})"
            )
        if repeats and repeated == "refuse":
            raise DataError(f"rows list an edge again {repeats:,} times: {ONCE}")
        return int(repeats or 0)

    def relations(self) -> list[str]:
        """Return the relations of edges, in order of appearance."""
        rows = self._ask("SELECT relation FROM edges GROUP BY relation ORDER BY min(row)")
        return [name for (name,) in rows]

    def listed(self, *, weighted: bool) -> dict[str, NDArray[Any]]:
        """Return ``source``, ``target``, ``kind`` and perhaps ``weight`` of all edges, in order.

        kind: index of the edge's relation in ``relations``.
        """
        weight = ", weight" if weighted else ""
        with self._translated_errors():
            columns: dict[str, NDArray[Any]] = self._database.execute(
                "WITH names AS (SELECT relation, row_number() OVER (ORDER BY min(row)) - 1 AS kind "
                f"FROM edges GROUP BY relation) SELECT source, target, kind {weight} "
                "FROM edges JOIN names USING (relation) ORDER BY row"
            ).fetchnumpy()
            return columns

    def write(
        self,
        writer: GraphFolderWriter,
        *,
        weighted: bool = False,
        on_part: Callable[[int, int], None] | None = None,
    ) -> int:
        """Write ``indptr``, ``indices`` and optionally ``weights``; return the number of entries.

        on_part: called with the number of nodes whose rows are written and the number of all nodes.
        """
        edges, loops = self.counts()
        total = (edges - loops) * (2 if self.undirected else 1)
        indptr = writer.create("indptr", (self.nodes + 1,), pointer_type(total))
        parts = max(-(-self.nodes // _PART_NODES), -(-total // _PART_PAIRS), 1)
        step = max(-(-self.nodes // parts), 1)
        (writer.folder / "weights.npy").unlink(missing_ok=True)  # left by an earlier import
        with ExitStack() as stack:
            dtypes = {"indices": np.int32} | ({"weights": np.float32} if weighted else {})
            arrays = [
                stack.enter_context(AppendedArray(writer.folder / f"{name}.npy", dtype))
                for name, dtype in dtypes.items()
            ]
            for first in range(0, self.nodes, step):
                before = arrays[0].length
                stop = min(first + step, self.nodes)
                degrees = np.zeros(stop - first, np.int64)
                batches = self._sorted(first, stop, weighted=weighted)
                for keys, *weights in batches:
                    degrees += np.bincount((keys >> 32) - first, minlength=stop - first)
                    columns = keys.astype(np.int32)  # the lower half of a key
                    for array, values in zip(arrays, (columns, *weights), strict=True):
                        array.append(values)
                put(indptr, first + 1, torch.from_numpy(before + degrees.cumsum()))
                if on_part is not None:
                    on_part(stop, self.nodes)
        return arrays[0].length

    def _sorted(self, first: int, stop: int, *, weighted: bool) -> Iterator[list[NDArray[Any]]]:
        """Yield the keys of some rows in order without duplicates, with weights if wanted."""
        selection = _LISTED + (_REVERSED if self.undirected else "")
        weight_columns = ", {} AS listed, row, weight" if weighted else ""
        selection = selection.format(
            first=first,
            stop=stop,
            listed=weight_columns.format(1),
            reversed=weight_columns.format(0),
        )
        with self._translated_errors():
            # execute() would hold all rows at once
            answer: Any = self._database.sql(
                (_WEIGHED if weighted else _UNWEIGHED).format(selection=selection)
            )
            last = -1
            for batch in arrow_reader(answer, _BATCH):
                columns = [values.to_numpy(zero_copy_only=False) for values in batch.columns]
                is_new = np.diff(columns[0], prepend=last) != 0
                last = columns[0][-1]
                yield columns if is_new.all() else [values[is_new] for values in columns]

    def close(self) -> None:
        """Close the database once all edges are on disk; another process can continue."""
        if "_database" in vars(self):
            with self._translated_errors():
                self._database.close()

    def discard(self) -> None:
        """Close and remove all files."""
        if "_database" in vars(self):
            self._database.close()
        shutil.rmtree(self.folder)

    def _insert(self, piece: pa.Table) -> None:
        """Store the kept columns of edges between nodes by number."""
        self._database.register("piece", piece.select(self._columns))
        self._ask("INSERT INTO edges SELECT * FROM piece")
        self._database.unregister("piece")

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        with self._translated_errors():
            rows: list[tuple[Any, ...]] = self._database.execute(query).fetchall()
            return rows

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Translate DuckDB errors about memory, disk and interrupts."""
        import duckdb

        try:
            with disk_is_enough(self.folder):
                yield
        except RuntimeError as error:
            if str(error) != "Query interrupted":  # DuckDB's translation of Ctrl-C
                raise
            raise KeyboardInterrupt from None
        except duckdb.Error as error:
            message = str(error).partition("\n")[0]
            if "No space left" in message:  # from a write, a commit or a spill
                raise ResourceError(f"{self.folder}: the disk is full ({message})") from None
            if isinstance(error, duckdb.OutOfMemoryException):
                raise ResourceError(
                    f"{self.folder}: sorting edges needs more memory than the limit allows, or "
                    f"more disk space than is free ({message})"
                ) from None
            if isinstance(error, duckdb.IOException):
                raise DataError(f"{self.folder}: {message}: start the import again") from None
            raise
