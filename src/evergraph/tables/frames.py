"""Tables of other libraries as Arrow tables.

An object is recognised by the module and name of its class, without importing its library.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evergraph.core.errors import DataError
from evergraph.core.packages import require
from evergraph.tables.arrow import pa
from evergraph.tables.columns import mixed, plainly_typed
from evergraph.tables.labels import is_missing
from evergraph.tables.names import OF_NODES

_FRAMES = {"pandas": ("DataFrame",), "polars": ("DataFrame",), "pyarrow": ("Table", "RecordBatch")}


def is_a(value: object, library: str, *names: str) -> bool:
    """Whether the class of a value, or one of its bases, belongs to a library.

    names: accepted class names; any class of the library if empty.

    >>> import numpy as np
    >>> is_a(np.zeros(2), "numpy", "ndarray"), is_a([], "numpy")
    (True, False)
    """
    return any(
        kind.__module__.split(".")[0] == library and (not names or kind.__name__ in names)
        for kind in type(value).__mro__
    )


def is_pyg(value: object) -> bool:
    """Whether a value is PyG's ``Data``, ``HeteroData`` or an instance of a subclass."""
    return is_a(value, "torch_geometric")


def is_sparse(value: object) -> bool:
    """Whether a value is a SciPy sparse matrix or array.

    >>> import scipy.sparse
    >>> is_sparse(scipy.sparse.csr_array((2, 2))), is_sparse(scipy.sparse.coo_matrix((2, 2)))
    (True, True)
    """
    return is_a(value, "scipy", "spmatrix", "sparray", "_spbase")


def is_table(value: object) -> bool:
    """Whether a value is a pandas, Polars or Arrow table with named columns."""
    return any(is_a(value, library, *names) for library, names in _FRAMES.items())


def column_names(table: Any) -> list[Any]:
    """Return the column names of a pandas, Polars or Arrow table."""
    return list(table.column_names if is_a(table, "pyarrow") else table.columns)


def arrow_table(table: Any) -> pa.Table:
    """Return a pandas, Polars or Arrow table as Arrow, with stripped text column names."""
    require("pyarrow", extra="tables", why="reading a DataFrame by the names of its columns")
    if is_a(table, "polars"):
        return plainly_typed(table.to_arrow())
    if not is_a(table, "pandas"):
        return plainly_typed(pa.table(table))
    names = [str(name).strip() for name in table.columns]
    if len(set(names)) < len(names):
        raise DataError(f"column names are not unique: expected each of {names} once")
    arrays = []
    for place, name in enumerate(names):
        try:
            arrays.append(pa.array(table.iloc[:, place], from_pandas=True))
        except (pa.ArrowException, TypeError, ValueError) as error:
            values = [None if is_missing(value) else value for value in table.iloc[:, place]]
            if not {type(value) for value in values} <= {str, int, type(None)}:
                said = str(error).split("\n")[0]
                raise DataError(f"column {name!r} holds values of mixed types: {said}") from None
            arrays.append(mixed(values))
    return plainly_typed(pa.Table.from_arrays(arrays, names))


def table_of_rows(rows: Sequence[Mapping[str, Any]], first: Iterable[str] = ()) -> pa.Table:
    """Return rows as a table, with nulls where a row lacks a column.

    Values of mixed types in a column become texts; ids and labels stay as they are. first: columns
    that come first, and that the table has even if no row has them.

    >>> table_of_rows([{"a": 1}, {"b": "x"}, {"b": 2.5}]).to_pydict()
    {'a': [1, None, None], 'b': [None, 'x', '2.5']}
    """
    require("pyarrow", extra="tables", why="reading rows by the names of their columns")
    names = dict.fromkeys([*first, *(name for row in rows for name in row)])
    arrays = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            arrays[name] = mixed(values) if name in OF_NODES else pa.array(values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            if name in OF_NODES:
                said = f"column {name!r} holds values of mixed types: {values[:8]!r}"
                raise DataError(said) from None
            texts = [v if v is None or isinstance(v, str) else json.dumps(v) for v in values]
            arrays[name] = pa.array(texts)
    empty = pa.table({"": pa.nulls(len(rows))}).select([])  # keeps the number of rows
    return pa.table(arrays) if arrays else empty
