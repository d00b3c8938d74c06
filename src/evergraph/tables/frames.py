"""Tables that other libraries hold, as Arrow holds them.

What an object is, the module and name of its class tell: nothing is imported to find out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evergraph.core.errors import DataError
from evergraph.core.extras import require
from evergraph.tables.columns import plainly_typed

if TYPE_CHECKING:
    import pyarrow

_SPARSE = ("spmatrix", "sparray", "_spbase")
_FRAMES = {"pandas": ("DataFrame",), "polars": ("DataFrame",), "pyarrow": ("Table", "RecordBatch")}


def is_a(value: object, library: str, *names: str) -> bool:
    """Whether the class of a value, or one that it is derived from, is of a library.

    names: of the class, one of them; any class of the library unless given.

    >>> import numpy as np
    >>> is_a(np.zeros(2), "numpy", "ndarray"), is_a([], "numpy")
    (True, False)
    """
    return any(
        kind.__module__.split(".")[0] == library and (not names or kind.__name__ in names)
        for kind in type(value).__mro__
    )


def is_pyg(value: object) -> bool:
    """Whether a value is PyG's ``Data``, ``HeteroData`` or of a class derived from them."""
    return is_a(value, "torch_geometric")


def is_networkx(value: object) -> bool:
    """Whether a value is a graph of NetworkX, directed or not, with parallel edges or not."""
    return is_a(value, "networkx", "Graph")


def is_sparse(value: object) -> bool:
    """Whether a value is a sparse matrix or array of SciPy.

    >>> import scipy.sparse
    >>> is_sparse(scipy.sparse.csr_array((2, 2))), is_sparse(scipy.sparse.coo_matrix((2, 2)))
    (True, True)
    """
    return is_a(value, "scipy", *_SPARSE)


def is_table(value: object) -> bool:
    """Whether a value is a table with named columns, of pandas, Polars or Arrow."""
    return any(is_a(value, library, *names) for library, names in _FRAMES.items())


def column_names(table: Any) -> list[Any]:
    """Return what the columns of a table of pandas, Polars or Arrow are called."""
    return list(table.column_names if is_a(table, "pyarrow") else table.columns)


def arrow_table(table: Any) -> pyarrow.Table:
    """Return a table of any of the three libraries, its columns named by texts without blanks."""
    require("pyarrow", extra="tables", why="reading a DataFrame by the names of its columns")
    import pyarrow as pa

    if is_a(table, "polars"):
        return plainly_typed(table.to_arrow())
    if not is_a(table, "pandas"):
        return plainly_typed(pa.table(table))
    names = [str(name).strip() for name in table.columns]
    if len(set(names)) < len(names):
        raise DataError(f"several columns have one name: expected each of {names} once")
    arrays = [_of_pandas(table.iloc[:, place], name) for place, name in enumerate(names)]
    return plainly_typed(pa.Table.from_arrays(arrays, names))


def _of_pandas(values: Any, name: str) -> pyarrow.Array:
    import pyarrow as pa

    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        said = str(error).split("\n")[0]
        raise DataError(f"column {name!r} holds values of several kinds: {said}") from None


def table_of_rows(
    rows: Sequence[Mapping[str, Any]], names: Iterable[str] | None = None, *, as_texts: bool = False
) -> pyarrow.Table:
    """Return the columns of rows, gaps where a row has no such.

    names: of the columns, those of all rows unless given; as_texts: whether values of several kinds
    in one column are texts, or refused.

    >>> table_of_rows([{"a": 1}, {"b": "x"}]).to_pydict()
    {'a': [1, None], 'b': [None, 'x']}
    """
    require("pyarrow", extra="tables", why="reading rows by the names of their columns")
    import pyarrow as pa

    names = dict.fromkeys(name for row in rows for name in row) if names is None else names
    arrays = {name: _of_values([row.get(name) for row in rows], name, as_texts) for name in names}
    empty = pa.table({"": pa.nulls(len(rows))}).select([])  # knows its length all the same
    return pa.table(arrays) if arrays else empty


def _of_values(values: list[Any], name: str, as_texts: bool) -> pyarrow.Array:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        if not as_texts:
            raise DataError(f"column {name!r} holds values of several kinds: {values!r}") from None
        return pa.array([v if v is None or isinstance(v, str) else json.dumps(v) for v in values])
