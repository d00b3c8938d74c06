"""What an object is, by the module and name of its class: nothing is imported to find out."""

from __future__ import annotations

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
