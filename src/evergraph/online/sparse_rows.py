"""Features of a delta as the learner keeps them: those of wide sparse arrays as words.

Made dense, an array of thousands of columns takes memory and time by its width. So a node keeps the
values of its row that are not zero, as it keeps the words of a text (``packed_words``), which is all
that a kernel needs of its own features. Hops are means over neighbours, which are not sparse: they
are of ``SIGNS`` columns, into which rows are projected by the signs of their columns' hashes. What
the columns of such an array add to a score follows from both (``Contributions``).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy
import torch
from torch import Tensor
from torch.nn.functional import pad

from evergraph.closed_form.own_features import NO_WORDS, WordColumns, Words, packed_words
from evergraph.core.errors import DataError, InvalidRowsError, say_once
from evergraph.graphs.csr import as_csr, as_scipy, csr_tensor, densify
from evergraph.online.checking import check_sizes
from evergraph.online.delta import Delta
from evergraph.tables.hashed import signs
from evergraph.topology.rowwise import Matrix

if TYPE_CHECKING:
    from evergraph.online.knowledge import Knowledge

WIDE = 1 << 12  # columns of a sparse array that is made dense, at most
PAIRS = 128  # values of a row that are kept, at most
TOO_WIDE = 1 << 14  # columns beyond which no array is made dense, however full its rows are
MOST_COLUMNS = 1 << 24  # that float32 can number
SIGNS = 128
ROWS_AT_A_TIME = 2048


def is_sparse_tensor(values: Any) -> bool:
    """Whether a value is a tensor in a sparse layout."""
    return isinstance(values, Tensor) and values.layout != torch.strided


def csr_features(values: Any) -> Tensor:
    """Return a sparse matrix of SciPy or torch as float32 CSR, with no zeros and no repeats.

    >>> csr_features(scipy.sparse.coo_matrix(([1, 2, 0], ([0, 0, 1], [1, 1, 0])), (2, 2))).values()
    tensor([3.])
    """
    if values.ndim != 2 or "complex" in str(values.dtype):
        raise InvalidRowsError(
            f"features have shape {tuple(values.shape)} of {values.dtype}: expected real numbers "
            "[nodes, dims], one row per node"
        )
    if isinstance(values, Tensor):
        values = as_scipy(as_csr(values.detach().cpu()))
    rows = scipy.sparse.csr_matrix(values, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    pointers, columns = torch.from_numpy(rows.indptr), torch.from_numpy(rows.indices)
    with np.errstate(over="ignore"):  # too large becomes infinite, which the learner refuses
        numbers = torch.from_numpy(rows.data.astype(np.float32))
    return csr_tensor(pointers, columns, numbers, rows.shape)


def fitting(delta: Delta, known: Knowledge | None, *, reads_words: bool) -> Delta:
    """Return a delta with features as the learner keeps them, dense and as wide as its own.

    known: None before the first node, whose features decide how all are kept; reads_words: whether
    the head reads a node's own words.
    """
    if known is None:
        words = _words_of(delta.features) if reads_words else NO_WORDS
    else:
        words = known.word_columns
    if words.of and delta.words == words:  # they are fitting already
        return delta
    if words.of and len(delta.nodes) and 0 in delta.features.shape:
        many = f"{len(delta.nodes)} new nodes, {words.of:,} a node"
        raise DataError(f"features must be given for {many}")

    def fitted(rows: Tensor, name: str) -> Tensor:
        if words.of:
            return _as_words(rows, name, words.of)
        rows = densify(rows)
        return rows if known is None else _beside_words(rows, delta.words, known)

    features = fitted(delta.features, "features")
    updated = fitted(delta.updated_features, "updated_features")
    if features is delta.features and updated is delta.updated_features:
        return delta
    said = words if words.of else delta.words
    return replace(delta, features=features, updated_features=updated, words=said)


def _words_of(first: Tensor) -> WordColumns:
    """Return whether a learner keeps the words of sparse arrays, by its first one."""
    if not is_sparse_tensor(first) or first.shape[1] <= WIDE:
        return NO_WORDS
    count, columns = first.shape
    if columns > MOST_COLUMNS:
        raise DataError(f"features have {columns:,} columns: expected at most {MOST_COLUMNS:,}")
    if columns <= TOO_WIDE and first.values().numel() > PAIRS * count:
        return NO_WORDS
    return WordColumns(2 * PAIRS, alone=True, of=columns)


def _as_words(rows: Tensor, name: str, columns: int) -> Tensor:
    """Return the projection of rows for hops, and their words.  [n, columns] -> [n, features]"""
    if not len(rows):
        return rows if rows.layout == torch.strided else torch.zeros(0, 0)
    if rows.dim() != 2 or rows.shape[1] != columns:
        found = f"{rows.shape[1]:,} columns" if rows.dim() == 2 else f"shape {tuple(rows.shape)}"
        raise DataError(
            f"{name} have {found}, but the sparse arrays that the learner began with have "
            f"{columns:,}"
        )
    if rows.layout == torch.strided:
        words = scipy.sparse.csr_matrix(rows.detach().cpu().float().numpy())
    else:
        words = as_scipy(csr_features(rows))
    counts = np.diff(words.indptr)
    check_sizes(
        name, torch.from_numpy(words.data), lambda at: (_row_of(words, at), words.indices[at])
    )
    if counts.max() > PAIRS:
        say_once(
            "features",
            f"rows of a sparse array may have more than {PAIRS} values: the {PAIRS} largest of a "
            "row stand for the node itself, and all of them count in what reaches its neighbours",
        )
    return torch.cat([projected(words), packed_words(words, PAIRS)], dim=1)


def _row_of(words: Words, entry: int) -> int:
    return int(np.searchsorted(words.indptr, entry, side="right")) - 1


def projected(words: Words) -> Tensor:
    """Return rows with the signs of their columns summed, in which lengths are about the same.

    No bit of a row depends on other rows: products with signs are exact, and a row is summed in the
    order of its columns.  [n, columns] -> float32 [n, SIGNS]
    """
    found = np.empty((words.shape[0], SIGNS), np.float32)
    for start in range(0, len(found), ROWS_AT_A_TIME):
        block = words[start : start + ROWS_AT_A_TIME]
        columns, places = np.unique(block.indices, return_inverse=True)
        parts = (block.data, places.reshape(-1), block.indptr)
        narrow = scipy.sparse.csr_matrix(parts, shape=(block.shape[0], len(columns)))
        found[start : start + ROWS_AT_A_TIME] = narrow @ signs_of(columns)
    return torch.from_numpy(found / np.float32(np.sqrt(SIGNS)))


def signs_of(columns: np.ndarray[Any, Any]) -> Matrix:
    """Return the signs of columns, ±1 each.  int [n] -> float32 [n, SIGNS]

    >>> signs_of(np.array([7, 4999]))[:, :4].tolist()
    [[1.0, -1.0, -1.0, 1.0], [1.0, 1.0, -1.0, -1.0]]
    """
    return np.sign(signs([str(column) for column in columns.tolist()], SIGNS))


def _beside_words(rows: Tensor, told: WordColumns, known: Knowledge) -> Tensor:
    """Return rows for a learner that may have words of texts beside other columns.

    Rows without words, such as those of an array, get none; where the learner has none, as after
    a graph of its own, they are left out.  told: the words among these rows
    """
    columns, words = known.num_features, known.word_columns.width
    wide = rows.shape[1] if rows.dim() == 2 and len(rows) else columns
    if words and wide == columns - words:
        return pad(rows, (0, words))
    left_out = told.width if not words and wide == columns + told.width else 0
    return rows[:, : wide - left_out] if left_out else rows


Contributions: TypeAlias = tuple[list[int], Tensor]
"""Columns, and what each adds to each score.  float64 [columns, classes]"""


def unpacked(packed: Tensor, columns: int) -> Words:
    """Return the rows that ``packed_words`` had.  [n, 2 x pairs] -> [n, columns]"""
    values, places = np.split(packed.numpy(), 2, axis=1)
    owners, pairs = values.nonzero()
    entries = values[owners, pairs], (owners, places[owners, pairs].astype(np.int64))
    return scipy.sparse.csr_matrix(entries, shape=(len(values), columns))


def as_long_as(words: Words, rows: Tensor) -> Words:
    """Return rows of unit length with those lengths that their projections tell.

    >>> words = scipy.sparse.csr_matrix([[0.0, 3.0, 4.0]], dtype="float32")
    >>> as_long_as(words / 5, projected(words)).toarray().round(3)
    array([[0., 3., 4.]])
    """
    unit, long = (part.double().numpy() for part in (projected(words), rows))
    lengths = (unit * long).sum(1) / np.maximum((unit * unit).sum(1), 1e-12)
    return scipy.sparse.csr_matrix(words.multiply(lengths[:, None]))


def of_own_words(packed: Tensor, slopes: Tensor) -> Contributions:
    """Return what the columns of one node's words add.  [1, 2 x pairs], [classes, 2 x pairs]"""
    values, columns = packed[0].double().chunk(2)
    there = values.nonzero().flatten()
    says = values[there, None] * slopes.double().t()[there]
    return columns[there].long().tolist(), says


def of_a_sum(words: Words, weights: Tensor, rows: Tensor, slopes: Tensor) -> Contributions:
    """Return what columns add through the sum of projected rows.

    words: of unit length, [n, columns]; weights: [n]; rows: [n, SIGNS]; slopes: [classes, SIGNS]
    """
    whole = scipy.sparse.csr_matrix(weights.double().numpy() @ as_long_as(words, rows))
    directions = torch.from_numpy(signs_of(whole.indices)).double() / math.sqrt(SIGNS)
    says = torch.from_numpy(whole.data)[:, None] * (directions @ slopes.double().t())
    return whole.indices.tolist(), says
