"""The node table of an import: features, labels, times and ids, each in its own file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.core.errors import DataError
from evergraph.core.mapped import AppendedArray, map_array
from evergraph.core.safe_files import disk_is_enough
from evergraph.graphs.validation import UNLABELLED, check_labels
from evergraph.tables import labels
from evergraph.tables.arrow import pa
from evergraph.tables.choices import Columns
from evergraph.tables.chunks import Chunk, columns_of, first_rows, read_chunks
from evergraph.tables.columns import (
    TYPE,
    column,
    column_peaks,
    dominant_column,
    ids,
    is_number,
    is_typed,
)
from evergraph.tables.fitting import SAMPLE, fit_scheme, say_zeros
from evergraph.tables.hashed import MOST_KEPT
from evergraph.tables.names import say_replaced
from evergraph.tables.nodes import NodeRoles, NodeTable, read_nodes, say_index, texts_of
from evergraph.tables.scheme import Scheme, say_new
from evergraph.tables.sources import Renamed, Source
from evergraph.tables.values import texts

_BLOCK = 1 << 20
_VALUES = 1 << 19  # features encoded at a time
_MOST_TYPES = 2**15  # their numbers are int16


@dataclass(frozen=True)
class NodesRead:
    """The content of the node table."""

    nodes: int
    features: int
    classes: int
    dominant: str | None = None  # warning about a feature column that dominates the others
    columns: dict[str, Any] | None = None  # the scheme as JSON, None for plain numbers
    targets: dict[str, Any] | None = None  # their kind and names, if any in place of classes
    types: list[str] | None = None  # names of node types, if there are any
    class_names: list[str] = field(default_factory=list)  # by number, if labels are texts


def import_nodes(
    path: Source,
    graph: Path,
    ids_file: Path,
    *,
    size: int,
    on_piece: Callable[[Chunk], None],
    columns: Columns | None = None,
) -> NodesRead:
    """Write ``features``, ``labels``, ``time``, ``targets`` and ``types``, and the ids separately.

    size: bytes per chunk of the table; columns: choices for feature columns that are not
    guessed.
    """
    roles = _roles(path, size)
    scheme = _scheme(path, size, columns or Columns(), roles)
    target_columns = [] if roles.targets == [labels.LABELS] else roles.targets
    kinds = {} if scheme is None or target_columns else scheme.kinds
    pieces = read_chunks(
        path,
        ("id",) if roles.targets else ("id", "label"),
        size=size,
        text=[*texts_of(scheme), *([TYPE] if roles.types else [])],
        numbers=target_columns,
        perhaps=[name for name, kind in kinds.items() if kind in ("number", "raw")],
    )
    first = next(pieces)
    files = _NodeFiles(path, graph, ids_file, roles, scheme)
    step = max(_VALUES // max(files.width, 1), 1)  # encoded texts are larger than texts
    with disk_is_enough(ids_file):
        with files.open(first.table):
            for piece in chain([first], pieces):
                # An empty chunk has types.
                for start in range(0, max(piece.table.num_rows, 1), step):
                    rows = piece.table.slice(start, step)
                    before = piece.before + start
                    node_table = read_nodes(
                        rows, scheme, where=path, roles=roles, before=before, piece=True
                    )
                    files.append(node_table, before)
                on_piece(piece)
        return files.finish()


class _Numbering:
    """Numbers names in order of appearance; first: the row in which each appeared."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.first: list[int] = []

    def codes(self, values: pa.Array, before: int = 0) -> NDArray[np.int64]:
        """Return the number of each value, null among them.  int64 [rows]"""
        coded = values.dictionary_encode(null_encoding="encode")
        order: NDArray[np.int64] = coded.indices.to_numpy(zero_copy_only=False)
        names = coded.dictionary.to_pylist()
        first = np.unique(order, return_index=True)[1]
        for name, row in zip(names, first.tolist(), strict=True):
            if name not in self.numbers:
                self.numbers[name] = len(self.numbers)
                self.first.append(before + row)
        return np.array([self.numbers[name] for name in names], np.int64)[order]


class _NodeFiles:
    """Writes the chunks of a table and collects statistics.

    Whether labels are numbers or names depends on all of them, and names are numbered in sorted
    order, so neither is known before the last row: until then labels are numbered in order of
    appearance. Several labels per node are kept as such numbers in a file of their own, since the
    width of ``targets`` is not known either.
    """

    def __init__(
        self, path: Source, graph: Path, ids_file: Path, roles: NodeRoles, scheme: Scheme | None
    ) -> None:
        self._path = path
        self._graph = graph
        self._ids_file = ids_file
        self._roles, self._scheme = roles, scheme
        self._has_label_lists = roles.targets == [labels.LABELS]
        self._codes_file = ids_file.with_name("label_codes.arrow")
        self._names = roles.features if scheme is None else scheme.names
        self.width = len(self._names)
        self._peaks = torch.zeros(self.width)
        self._new_categories: dict[str, set[str]] = {name: set() for name in roles.features}
        # By column: gaps, rows with new categories, gaps that no flag shows.
        self._counts = {name: np.zeros(3, np.int64) for name in roles.features}
        self._classes, self._types = _Numbering(), _Numbering()
        self._label_numbers: dict[str, int] = {}  # of several labels
        self._label_kind: Any = None
        self._missing: dict[str, int] = {}  # labels by spelling
        self._has_dates: bool | None = None

    @contextmanager
    def open(self, first: pa.Table) -> Iterator[None]:
        """Create the files, and complete them at the end.  first: the first rows"""
        dtypes: dict[str, tuple[type[np.number], int | None]] = {
            "features": (np.float32, self.width),
            "labels": (np.int64, None),
        }
        if "time" in first.column_names:
            dtypes["time"] = np.int64, None
        if self._roles.types:
            dtypes["types"] = np.int16, None
        if self._roles.targets and not self._has_label_lists:
            dtypes["targets"] = np.float32, len(self._roles.targets)
        for optional in ("time", "targets", "types"):  # of an earlier import
            (self._graph / f"{optional}.npy").unlink(missing_ok=True)
        self._arrays: dict[str, AppendedArray] = {}
        with ExitStack() as stack:
            for name, (dtype, width) in dtypes.items():
                file = AppendedArray(self._graph / f"{name}.npy", dtype, width=width)
                self._arrays[name] = stack.enter_context(file)

            def stored(path: Path, name: str, dtype: pa.DataType) -> Any:
                file = pa.ipc.new_file(str(path), pa.schema([(name, dtype)]))
                return stack.enter_context(closing(file))

            self._ids = stored(self._ids_file, "id", ids(first, "id").type)
            if self._has_label_lists:
                self._codes = stored(self._codes_file, "codes", pa.list_(pa.int32()))
            yield

    def append(self, node_table: NodeTable, before: int) -> None:
        """Append some rows; before: number of earlier rows."""
        rows = len(node_table.ids)
        arrays = self._arrays
        self._ids.write_table(pa.table({"id": node_table.ids}))
        if rows:
            torch.maximum(self._peaks, column_peaks(node_table.features.features), out=self._peaks)
            arrays["features"].append(node_table.features.features.numpy())
        for name, block in node_table.features.blocks.items():
            self._counts[name] += (block.gaps.sum(), block.new_rows, block.unflagged)
            if len(self._new_categories[name]) < MOST_KEPT:
                self._new_categories[name].update(block.new)
        if node_table.labels is None:
            arrays["labels"].append(np.full(rows, UNLABELLED))
        else:
            self._label_kind = node_table.labels.type
            arrays["labels"].append(self._classes.codes(node_table.labels, before))
            for text, count in node_table.missing.items():
                self._missing[text] = self._missing.get(text, 0) + count
        if node_table.lists is not None:
            number = self._label_numbers.setdefault
            codes = [
                None if row is None else [number(label, len(self._label_numbers)) for label in row]
                for row in node_table.lists
            ]
            self._codes.write_table(pa.table({"codes": pa.array(codes, pa.list_(pa.int32()))}))
        if node_table.numbers is not None:
            arrays["targets"].append(node_table.numbers)
        if node_table.types is not None:
            arrays["types"].append(self._types.codes(node_table.types))
            if len(self._types.numbers) > _MOST_TYPES:
                raise DataError(
                    f"column {TYPE!r} holds {len(self._types.numbers):,} names by row "
                    f"{before + rows:,}: at most {_MOST_TYPES:,} are supported"
                )
        if node_table.times is not None and rows:
            if self._has_dates not in (None, node_table.dated):
                kinds = ("a whole number", "a date or a timestamp")
                raise DataError(
                    f"row {before + 1} has {kinds[node_table.dated]} in column 'time': expected "
                    f"{kinds[not node_table.dated]} like those before it"
                )
            self._has_dates = node_table.dated
            arrays["time"].append(node_table.times.numpy())

    def finish(self) -> NodesRead:
        """Write what depends on all rows, report new categories and gaps, return statistics."""
        roles = self._roles
        targets = None
        count = 0
        class_names: tuple[str, ...] = ()
        if self._has_label_lists:
            targets = {"kind": "labels", "names": self._write_targets()}
        elif roles.targets:
            targets = {"kind": "numbers", "names": labels.called(roles.targets)}
        else:
            count, class_names = self._number_classes()
        labels.say_missing(self._path, self._missing)
        labels.say_alike(self._path, class_names or (targets or {}).get("names", ()))
        gaps = {}
        for name, counts in self._counts.items():
            gaps[name], rows, unflagged = counts.tolist()
            say_new(self._path, name, sorted(self._new_categories[name]), rows, unflagged)
        scheme_json = None if self._scheme is None else self._scheme.with_gaps(gaps).to_json()
        return NodesRead(
            nodes=self._arrays["labels"].length,
            features=self.width,
            classes=count,
            class_names=list(class_names),
            dominant=dominant_column(self._peaks, self._names),
            columns=scheme_json,
            targets=targets,
            types=list(self._types.numbers) if roles.types else None,
        )

    def _number_classes(self) -> tuple[int, tuple[str, ...]]:
        """Write classes in place of provisional numbers; return how many there are, and names."""
        values = pa.array(list(self._classes.numbers), self._label_kind)
        if self._path.suffix != ".parquet":  # a CSV has no types
            first = np.array(self._classes.first, np.int64)
            values = labels.label_values(values, guess=True, rows=first)
        table = labels.numbered(values)
        mapped = map_array(self._graph / "labels.npy", writable=True)
        for start in range(0, len(mapped), _BLOCK):
            mapped[start : start + _BLOCK] = table[mapped[start : start + _BLOCK]]
        check_labels(mapped)
        return int(mapped.max()) + 1 if len(mapped) else 0, labels.class_names(values)

    def _write_targets(self) -> list[str]:
        """Write a row of 0 and 1 for every node, NaN if unknown; return the labels, sorted."""
        names = sorted(self._label_numbers)
        if not names:
            raise DataError(f"column {labels.LABELS!r} holds no label: expected one or more")
        new_numbers = np.empty(len(names), np.int64)
        new_numbers[[self._label_numbers[name] for name in names]] = np.arange(len(names))
        step = max(_VALUES // len(names), 1)
        targets = AppendedArray(self._graph / "targets.npy", np.float32, width=len(names))
        with targets, pa.memory_map(str(self._codes_file)) as file:
            for batch in pa.ipc.open_file(file).read_all().to_batches(max_chunksize=step):
                codes = batch.column(0)
                counts = codes.value_lengths().to_numpy(zero_copy_only=False)  # NaN if unknown
                label_counts = np.nan_to_num(counts).astype(np.int64)
                values = np.where(np.isnan(counts)[:, None], np.nan, np.zeros(len(names)))
                rows = np.repeat(np.arange(len(codes)), label_counts)
                values[rows, new_numbers[codes.flatten().to_numpy()]] = 1.0
                targets.append(values)
        self._codes_file.unlink()
        return names


def _roles(path: Source, size: int) -> NodeRoles:
    """Return the roles of a table's columns, judging by its first rows."""
    column_names = columns_of(path, ("id",))
    if not labels.target_names(column_names):
        columns_of(path, ("label",))
    if isinstance(path, Renamed):
        say_replaced(path, columns_of(path.source), path.names)
    has_types = TYPE in column_names
    if has_types:  # unless it holds numbers, and is a feature
        other_columns = [name for name in column_names if name != TYPE]
        with suppress(DataError):  # numbers followed by something else
            first = first_rows(path, size=min(size, _BLOCK), rows=SAMPLE, text=other_columns)
            has_types = is_typed(first)
    return NodeRoles.of(column_names, types=has_types)


def _scheme(path: Source, size: int, columns: Columns, roles: NodeRoles) -> Scheme | None:
    """Return the scheme fitted on the first rows; None without features or rows."""
    read_first = partial(first_rows, path, size=min(size, _BLOCK))
    has_column_types = path.suffix == ".parquet"
    names = roles.features
    other_columns = [*roles.targets, *([TYPE] if roles.types else [])]  # read elsewhere
    try:
        first_table = read_first(rows=SAMPLE, text=other_columns)
        all_numbers = all(is_number(column(first_table, name).type) for name in names)
        all_numbers = all_numbers and not columns.reads_texts
    except DataError:  # numbers followed by something else
        all_numbers = False
    columns.check_names(names)
    if not all_numbers:
        first_table = read_first(rows=SAMPLE, text=[*names, *other_columns])
    say_index(path, first_table.column_names)
    if not names or not first_table.num_rows:
        return None
    label_column = None if roles.targets else column(first_table, "label")
    # Invalid labels raise later, where labels are read.
    is_readable = label_column is not None and not pa.types.is_nested(label_column.type)
    known_labels = texts(label_column, "label") if is_readable else None
    scheme = fit_scheme(
        first_table, names, columns, typed=has_column_types, labels=known_labels, where=path
    )
    if not has_column_types:
        say_zeros(path, path, scheme, columns)
    return scheme
