"""The node table of an import: features, labels, times and ids, each into its own file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.mapped import disk_is_enough, map_array
from evergraph.datasets.columns.choices import Columns
from evergraph.datasets.columns.fitting import SAMPLE, fit_scheme
from evergraph.datasets.columns.hashed import MOST_KEPT
from evergraph.datasets.columns.scheme import Scheme, say_new, say_unflagged
from evergraph.datasets.columns.values import texts
from evergraph.datasets.files.sources import Source
from evergraph.datasets.files.table_columns import column, features, ids, is_number, is_text, times
from evergraph.datasets.files.table_folder import (
    check_columns,
    check_labelled,
    feature_names,
    say_index,
    texts_of,
)
from evergraph.datasets.files.table_labels import (
    class_names,
    label_values,
    numbered,
    say_missing,
    spelled_missing,
)
from evergraph.datasets.files.table_relations import TYPE, is_typed, numbered_texts
from evergraph.datasets.files.table_targets import LABELS, target_names
from evergraph.datasets.importing.appended_array import AppendedArray
from evergraph.datasets.importing.chunks import Chunk, columns_of, first_rows, read_chunks
from evergraph.datasets.importing.node_targets import target_columns
from evergraph.datasets.importing.progress import NodesRead
from evergraph.graphs.validation import UNLABELLED, check_labels, column_peaks, loud_column

if TYPE_CHECKING:
    import pyarrow

_BLOCK = 1 << 20
_VALUES = 1 << 19  # features that are made at a time
_MOST_TYPES = 2**15  # their numbers are int16


def import_nodes(
    path: Source,
    graph: Path,
    ids_file: Path,
    *,
    size: int,
    on_piece: Callable[[Chunk], None],
    columns: Columns | None = None,
) -> NodesRead:
    """Write ``features``, ``labels``, ``time``, ``targets`` and ``types``, and the ids aside.

    size: of the pieces that the table is read in, in bytes; columns: what of feature columns is
    not to be guessed.
    """
    roles = _roles(path, size)
    scheme = _scheme(path, size, columns or Columns(), roles)
    text = (*texts_of(scheme), *roles.types)
    pieces = read_chunks(path, roles.needed, size=size, text=text, numbers=roles.numbers)
    first = next(pieces)
    names = roles.features
    timed = "time" in first.table.column_names
    for former in ("time", "targets", "types"):
        (graph / f"{former}.npy").unlink(missing_ok=True)
    classes = _Classes(guess=path.suffix != ".parquet")
    rows = _Features(names, scheme)
    dates = _Dates()
    types: dict[str, int] = {}
    with ExitStack() as stack:
        stack.enter_context(disk_is_enough(ids_file))
        matrix = AppendedArray(graph / "features.npy", np.float32, width=rows.width)
        codes = AppendedArray(graph / "labels.npy", np.int64)
        when = AppendedArray(graph / "time.npy", np.int64) if timed else None
        sorts = AppendedArray(graph / "types.npy", np.int16) if roles.types else None
        arrays = [array for array in (matrix, codes, when, sorts) if array is not None]
        for array in arrays:
            stack.enter_context(closing(array))
        goals = target_columns(roles.targets, graph, ids_file.parent) if roles.targets else None
        if goals is not None:
            stack.enter_context(closing(goals))
        kept_ids = stack.enter_context(_write_ids(ids_file, ids(first.table, "id").type))
        for piece in _chain(first, pieces):
            table, before = piece.table, piece.before
            kept_ids.write_table(_table(id=ids(table, "id", before=before)))
            for values in rows.of(table, before):
                matrix.append(values.numpy())
            if goals is None:
                codes.append(classes.codes(column(table, "label"), before))
            else:
                codes.append(np.full(table.num_rows, UNLABELLED))
                goals.append(table, before)
            if sorts is not None:
                sorts.append(_numbered_types(table, types, before=before))
            if when is not None:
                when.append(dates.times(table, before))
            on_piece(piece)
        for array in arrays:
            array.finish()
        targets = None if goals is None else goals.finish()
    count = 0 if roles.targets else _number_classes(graph / "labels.npy", classes)
    say_missing(path, classes.missing)
    rows.say_new(path)
    return NodesRead(
        nodes=codes.length,
        features=rows.width,
        classes=count,
        class_names=[] if roles.targets else list(class_names(classes.values())),
        loud=loud_column(rows.peaks, rows.names),
        columns=rows.told(),
        targets=targets,
        types=list(types) if roles.types else None,
    )


@dataclass(frozen=True)
class _Roles:
    """Which columns of a node table are what.

    targets: those that stand in place of a label; types: the column of types, if it is one;
    features: all others, but for ids and times.
    """

    targets: list[str]
    types: list[str]
    features: list[str]

    @property
    def needed(self) -> tuple[str, ...]:
        return ("id",) if self.targets else ("id", "label")

    @property
    def numbers(self) -> list[str]:
        return [] if self.targets == [LABELS] else self.targets


def _roles(path: Source, size: int) -> _Roles:
    named = columns_of(path)
    targets = target_names(named)
    check_columns(named, ("id",))
    if not targets:
        check_labelled(named)
    types = [TYPE] if TYPE in named and _has_types(path, size, named) else []
    apart = {*targets, *types}
    return _Roles(targets, types, [name for name in feature_names(named) if name not in apart])


def _has_types(path: Source, size: int, named: list[str]) -> bool:
    """Whether the column of types holds texts, by the first rows."""
    others = [name for name in named if name != TYPE]
    try:
        return is_typed(first_rows(path, size=min(size, _BLOCK), rows=SAMPLE, text=others))
    except DataError:  # numbers, and then something else
        return True


def _scheme(path: Source, size: int, columns: Columns, roles: _Roles) -> Scheme | None:
    """Return how columns are read, by the first rows; None where there are none."""
    import pyarrow as pa

    begin, typed = partial(first_rows, path, size=min(size, _BLOCK)), path.suffix == ".parquet"
    names, apart = roles.features, [*roles.targets, *roles.types]  # which are read elsewhere
    try:
        first = begin(rows=SAMPLE, text=apart)
        plain = all(is_number(column(first, name).type) for name in names)
        plain = plain and not columns.reads_texts
    except DataError:  # numbers, and then something else
        plain = False
    columns.check_names(names)
    if not plain:
        first = begin(rows=SAMPLE, text=[*names, *apart])
    say_index(path, first.column_names)
    if not names or not first.num_rows:
        return None
    given = None if roles.targets else column(first, "label")
    # What is no label is refused where labels are read.
    told = given is not None and not pa.types.is_nested(given.type)
    known = texts(given, "label") if told else None
    return fit_scheme(first, names, columns, typed=typed, labels=known, where=path)


class _Features:
    """Makes features of a table piece by piece, a few rows at a time, and counts what it meets.

    Attributes:
        names: of the features.
        peaks: the largest value of each so far.
    """

    def __init__(self, names: list[str], scheme: Scheme | None) -> None:
        self._columns, self._scheme = names, scheme
        self.names = names if scheme is None else scheme.names
        self.width = len(self.names)
        self.peaks = torch.zeros(self.width)
        self._gaps = dict.fromkeys(names, 0)
        self._new: dict[str, set[str]] = {name: set() for name in names}
        self._new_rows = dict.fromkeys(names, 0)
        self._unflagged = dict.fromkeys(names, 0)

    def of(self, table: pyarrow.Table, before: int) -> Iterator[Tensor]:
        """Yield features, float32 [some rows, width]; features of texts are larger than texts."""
        step = table.num_rows if self._scheme is None else _VALUES // max(self.width, 1)
        for start in range(0, table.num_rows, max(step, 1)):
            values = self._rows(table.slice(start, step), before + start)
            torch.maximum(self.peaks, column_peaks(values), out=self.peaks)
            yield values

    def _rows(self, table: pyarrow.Table, before: int) -> Tensor:
        if self._scheme is None:
            return features(table, self._columns, before=before)
        read = self._scheme.read(table, before=before)
        for name, block in read.blocks.items():
            self._gaps[name] += int(block.gaps.sum())
            self._new_rows[name] += block.new_rows
            self._unflagged[name] += block.unflagged
            if len(self._new[name]) < MOST_KEPT:
                self._new[name].update(block.new)
        return read.features

    def say_new(self, path: Source) -> None:
        """Say what the first rows had not."""
        for name, new in self._new.items():
            say_new(path, name, sorted(new), self._new_rows[name])
            say_unflagged(path, name, self._unflagged[name])

    def told(self) -> dict[str, Any] | None:
        """Return the scheme with the gaps that were met, as JSON can hold it."""
        return None if self._scheme is None else self._scheme.with_gaps(self._gaps).to_json()


def _chain(first: Chunk, rest: Any) -> Any:
    yield first
    yield from rest


def _numbered_types(
    table: pyarrow.Table, known: dict[str, int], *, before: int
) -> NDArray[np.int64]:
    """Return the number of each row's type, in the order of their coming; new ones are added."""
    names, codes = numbered_texts(table, TYPE, before=before)
    places = [known.setdefault(name, len(known)) for name in names]
    if len(known) > _MOST_TYPES:
        raise DataError(
            f"column {TYPE!r} holds {len(known):,} names by row {before + table.num_rows:,}: at "
            f"most {_MOST_TYPES:,} are supported"
        )
    found: NDArray[np.int64] = np.array(places, np.int64)[codes.numpy()]
    return found


def _write_ids(path: Path, kind: pyarrow.DataType) -> Any:
    """Open a file that ids go into, piece by piece."""
    import pyarrow as pa

    return pa.ipc.new_file(str(path), pa.schema([("id", kind)]))


def read_ids(path: Path) -> pyarrow.ChunkedArray:
    """Return the ids that such a file holds, which stay there until they are looked at."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all().column("id")


def _table(**columns: Any) -> pyarrow.Table:
    import pyarrow as pa

    return pa.table(columns)


class _Dates:
    """Reads times piece by piece, all numbers or all dates."""

    def __init__(self) -> None:
        self._dates: bool | None = None

    def times(self, table: pyarrow.Table, before: int) -> NDArray[np.int64]:
        """Return the times of a piece.  int64 [rows]"""
        found, dates = times(table, before=before)
        if len(found) and self._dates not in (None, dates):
            value = column(table, "time")[0].as_py()
            raise DataError(
                f"row {before + 1} has {value!r} in column 'time': expected a "
                f"{'date or a timestamp' if self._dates else 'whole number'} like those before it"
            )
        self._dates = dates if len(found) else self._dates
        return found.numpy()


class _Classes:
    """Numbers labels in the order of their coming, until all are known.

    A label is a number or a name depending on all others, and names are numbered in sorted order:
    neither is known before the last row.

    Attributes:
        missing: how often each way to write a missing label was met.
    """

    def __init__(self, *, guess: bool) -> None:
        self.guess = guess  # whether the file says nothing of what its labels are
        self.missing: dict[str, int] = {}
        self._kind: Any = None
        self._codes: dict[Any, int] = {}
        self._rows: list[int] = []  # where each label was met first

    def codes(self, values: pyarrow.Array, before: int) -> NDArray[np.int64]:
        """Return a number for each label.  [rows] -> int64 [rows]"""
        for text, count in spelled_missing(values).items():
            self.missing[text] = self.missing.get(text, 0) + count
        if not self.guess or not is_text(values.type):
            values = label_values(values, guess=False, before=before)
        self._kind = values.type
        coded = values.dictionary_encode(null_encoding="encode")
        order: NDArray[np.int64] = coded.indices.to_numpy(zero_copy_only=False)
        first = np.unique(order, return_index=True)[1]
        places = []
        for label, row in zip(coded.dictionary.to_pylist(), first.tolist(), strict=True):
            if label not in self._codes:
                self._codes[label] = len(self._codes)
                self._rows.append(before + row)
            places.append(self._codes[label])
        return np.array(places, np.int64)[order]

    def values(self) -> pyarrow.Array:
        """Return every label that was met, by the number that was given for it."""
        import pyarrow as pa

        values = pa.array(list(self._codes), self._kind)
        if self.guess:
            values = label_values(values, guess=True, rows=np.array(self._rows, np.int64))
        return values


def _number_classes(path: Path, classes: _Classes) -> int:
    """Put classes in the place of the numbers that stood for them; return how many there are."""
    mapped = map_array(path, writable=True)
    table = numbered(classes.values())
    for start in range(0, len(mapped), _BLOCK):
        mapped[start : start + _BLOCK] = table[mapped[start : start + _BLOCK]]
    check_labels(mapped)
    return int(mapped.max()) + 1 if len(mapped) else 0
