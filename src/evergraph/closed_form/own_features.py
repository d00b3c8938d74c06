"""A node's own words, degree and feature length, which the direction of its features lacks.

Words are own features that are wide and sparse, such as those of a text. In a memory they are the
rows of a sparse matrix. A live vector, which is changed and copied row by row, has room for a fixed
number of them: values, then their columns (``packed_words``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.graphs import Graph
from evergraph.graphs.csr import ROWS_AT_A_TIME, repeat, take_rows

# Words of a node, the largest of them, with a column and a value of 4 bytes each.
MOST_WORDS, WORD_BYTES = 256, 8
Words: TypeAlias = "scipy.sparse.csr_matrix"  # float32 [nodes, features]; imported when used
PAIRS = 64  # of the words of texts, in a live vector
Rows: TypeAlias = NDArray[np.float32]


class WordColumns(NamedTuple):
    """The last columns of live features, if they are packed words.

    Attributes:
        width: their number.
        alone: whether all columns before them are an estimate of these words, for hops.
        of: number of columns of the sparse arrays that they are taken from; 0 for texts of tables.
    """

    width: int = 0
    alone: bool = True
    of: int = 0

    @classmethod
    def read(cls, values: Any) -> WordColumns:
        """Return the record of a list of its values; of no words for an empty list.

        >>> WordColumns.read([4, False, 0])
        WordColumns(width=4, alone=False, of=0)
        """
        right_types = [type(value) for value in values] == [int, bool, int]
        if values and not (right_types and min(values) >= 0):
            raise DataError(
                "words must be a number of columns, true or false, and the number of columns of "
                f"their arrays, not {values!r}"
            )
        return cls(*values)


NO_WORDS = WordColumns()


def unit_words(words: Words, most: int = MOST_WORDS) -> Words:
    """Return the largest values of every row, scaled to unit length.

    >>> unit_words(scipy.sparse.csr_matrix([[0, 3, 4], [0, 0, 0]], dtype="float32")).toarray()
    array([[0. , 0.6, 0.8],
           [0. , 0. , 0. ]], dtype=float32)
    """
    counts = np.diff(words.indptr)
    owners = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((-np.abs(words.data), owners))
    rank = np.arange(len(order)) - np.repeat(words.indptr[:-1], counts)
    largest = order[rank < most]
    owners, values = owners[largest], words.data[largest]
    lengths = np.sqrt(np.bincount(owners, np.square(values), len(counts)))
    values = (values / np.maximum(lengths, 1e-12)[owners]).astype(np.float32)
    return scipy.sparse.csr_matrix((values, (owners, words.indices[largest])), shape=words.shape)


def stored_words(words: Words) -> dict[str, Tensor]:
    """Return the arrays that ``restored_words`` takes."""
    arrays = {"values": words.data, "columns": words.indices, "pointers": words.indptr}
    width = {"width": torch.tensor([words.shape[1]])}
    return {name: torch.from_numpy(array) for name, array in arrays.items()} | width


def restored_words(stored: Mapping[str, Tensor]) -> Words:
    """Return the words that ``stored_words`` took."""
    arrays = tuple(stored[name].numpy() for name in ("values", "columns", "pointers"))
    shape = len(arrays[2]) - 1, int(stored["width"])
    return scipy.sparse.csr_matrix(arrays, shape=shape)


def packed_words(words: Words, pairs: int = PAIRS) -> Tensor:
    """Return the largest values of every row, of unit length, and then their columns.

    -> float32 [nodes, 2 x pairs]; columns are numbers below 2²⁴, which float32 holds exactly

    >>> rows = packed_words(scipy.sparse.csr_matrix([[0, 3, 4], [0, 0, 0]], dtype="float32"))
    >>> rows[:, :2], rows[0, PAIRS : PAIRS + 2]
    (tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]]), tensor([1., 2.]))
    """
    unit = unit_words(words, pairs)
    unit.sort_indices()
    counts = np.diff(unit.indptr)
    owners = np.repeat(np.arange(len(counts)), counts)
    ranks = np.arange(len(owners)) - np.repeat(unit.indptr[:-1], counts)
    rows = np.zeros((len(counts), 2, pairs), np.float32)
    rows[owners, 0, ranks] = unit.data
    rows[owners, 1, ranks] = unit.indices
    return torch.from_numpy(rows.reshape(len(counts), 2 * pairs))


def word_values(rows: Tensor) -> Tensor:
    """Return the values of packed words.  -> [n, pairs]"""
    return rows[:, : rows.shape[1] // 2]


@dataclass(frozen=True, eq=False)
class WordProducts:
    """The inner products of packed words with those of landmarks; other words count for nothing.

    No bit of a row depends on other rows.

    Attributes:
        columns: those of some landmark's words, ascending.  float32 [columns]
        values: of landmarks by column.  [columns, landmarks]

    >>> words = packed_words(scipy.sparse.csr_matrix([[0, 3, 4], [1, 0, 0]], dtype="float32"))
    >>> WordProducts.of(words)(words[:1].numpy())
    array([[1., 0.]], dtype=float32)
    """

    columns: Rows
    values: Words

    @classmethod
    def of(cls, landmarks: Tensor) -> WordProducts:
        """Index the words of landmarks.  float32 [landmarks, 2 x pairs]"""
        values, columns = np.split(landmarks.numpy(), 2, axis=1)
        owners, pairs = values.nonzero()
        unique, inverse = np.unique(columns[owners, pairs], return_inverse=True)
        if not len(unique):
            unique = np.full(1, -1, np.float32)
        entries = values[owners, pairs], (inverse.reshape(-1), owners)
        return cls(unique, scipy.sparse.csr_matrix(entries, shape=(len(unique), len(landmarks))))

    def __call__(self, rows: Rows) -> Rows:
        """Return the products.  float32 [n, 2 x pairs] -> [n, landmarks]"""
        values, columns = np.split(rows, 2, axis=1)
        owners, pairs = values.nonzero()
        columns, values = columns[owners, pairs], values[owners, pairs]
        indexed = np.minimum(np.searchsorted(self.columns, columns), len(self.columns) - 1)
        shared = self.columns[indexed] == columns
        indexed, owners, values = indexed[shared], owners[shared], values[shared]
        # Every pair of a row's word and a landmark that has it. For one row, this takes a third of
        # SciPy's time.
        pointers, width = self.values.indptr, self.values.shape[1]
        counts = pointers[indexed + 1] - pointers[indexed]
        before = counts.cumsum() - counts
        entries = np.arange(counts.sum()) + np.repeat(pointers[indexed] - before, counts)
        cells = self.values.indices[entries] + np.repeat(owners * width, counts)
        products = np.repeat(values, counts) * self.values.data[entries]
        sums: Rows = np.bincount(cells, products, len(rows) * width).astype(np.float32)
        return sums.reshape(len(rows), width)

    def slopes(self, weights: Tensor, row: Tensor) -> Tensor:
        """Return Σ_z w_z z of the columns that a row has, 0 for the columns' own places.

        weights: [k, landmarks]; row: float32 [1, 2 x pairs] -> [k, 2 x pairs]
        """
        pairs = row.shape[1] // 2
        columns = row[:, pairs:].expand(pairs, -1)
        single_words = torch.cat([torch.eye(pairs), columns], dim=1)
        by_word = weights @ torch.from_numpy(self(single_words.numpy())).t()
        return torch.cat([by_word, torch.zeros_like(by_word)], dim=1)


# Two numbers half a doubling apart are similar; an eighth of a doubling apart still differ.
REACHES = (0.5, 0.125)
FREQUENCIES = 8
SHAPE_WIDTH = 2 * 2 * len(REACHES) * FREQUENCIES


def shape_of(graph: Graph, nodes: Tensor | None = None) -> Tensor:
    """Return an encoding of each node's degree and feature length.  -> float32 [nodes, SHAPE_WIDTH]

    Vectors of unit length lose both, which help on graphs whose neighbours differ: on actor the
    length, which depends on the number of words, adds four points. Both are on a logarithmic scale.

    nodes: those asked for; None for all.

    >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.tensor([[3.], [3.]]),
    ...                         labels=torch.tensor([0, 1]), undirected=True)
    >>> shape_of(pair).square().sum(1)
    tensor([1., 1.])
    """
    degrees, features = graph.degrees.float(), graph.features
    if nodes is not None:
        nodes = nodes.to(graph.device)
        degrees, features = degrees[nodes], take_rows(features, nodes)
    return shape_rows(degrees.cpu(), _lengths(features))


def shape_rows(degrees: Tensor, lengths: Tensor) -> Tensor:
    """Return the encoding of degrees and feature lengths.  [n], [n] -> float32 [n, SHAPE_WIDTH]"""
    waves = [_waves(degrees + 1), _waves(lengths + 1e-6)]
    return torch.cat(waves, dim=1) / math.sqrt(2)


def _waves(values: Tensor) -> Tensor:
    """Return cos and sin of logarithms, whose inner products are Gaussian kernels.  -> [n, 32]"""
    levels = [0.5 + (i + 0.5) / (2 * FREQUENCIES) for i in range(FREQUENCIES)]
    quantiles = [NormalDist().inv_cdf(level) for level in levels]
    rates = torch.tensor([rate / reach for reach in REACHES for rate in quantiles]).double()
    angles = values.double().log2()[:, None] * rates
    return (torch.cat([angles.cos(), angles.sin()], dim=1) / math.sqrt(len(rates))).float()


def _lengths(features: Tensor) -> Tensor:
    """Return the length of every row, dense, sparse or memory-mapped.  -> float64 [nodes]"""
    if features.layout != torch.strided:
        values, pointers = features.values().cpu().double(), features.crow_indices().cpu()
        owners = repeat(torch.arange(len(pointers) - 1), pointers.diff())
        total = torch.zeros(len(pointers) - 1, dtype=torch.float64)
        return total.index_add_(0, owners, values.square()).sqrt()
    return torch.cat([rows.double().norm(dim=1).cpu() for rows in features.split(ROWS_AT_A_TIME)])
