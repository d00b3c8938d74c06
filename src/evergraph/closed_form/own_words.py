"""A node's own features where they are wide and sparse, such as the words of a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import scipy
import torch
from torch import Tensor

# Words of a node, the largest of them, with a column and a value of 4 bytes each.
MOST_WORDS, WORD_BYTES = 256, 8
Words: TypeAlias = scipy.sparse.csr_matrix  # float32 [nodes, features]


def unit_words(words: Words) -> Words:
    """Return the ``MOST_WORDS`` largest values of every row, scaled to unit length.

    >>> unit_words(scipy.sparse.csr_matrix([[0, 3, 4], [0, 0, 0]], dtype="float32")).toarray()
    array([[0. , 0.6, 0.8],
           [0. , 0. , 0. ]], dtype=float32)
    """
    counts = np.diff(words.indptr)
    owners, sizes = np.repeat(np.arange(len(counts)), counts), np.abs(words.data)
    values, columns = words.data, words.indices
    if len(counts) and counts.max() > MOST_WORDS:
        order = np.lexsort((-sizes, owners))
        rank = np.arange(len(order)) - np.repeat(words.indptr[:-1], counts)
        largest = np.sort(order[rank < MOST_WORDS])
        owners, values, columns = owners[largest], values[largest], columns[largest]
    lengths = np.sqrt(np.bincount(owners, np.square(values), len(counts)))
    values = (values / np.maximum(lengths, 1e-12)[owners]).astype(np.float32)
    return scipy.sparse.csr_matrix((values, (owners, columns)), shape=words.shape)


def inner_products(words: Words, others: Words) -> Tensor:
    """Return the inner product of every two rows.  -> float32 [rows, others]"""
    return torch.from_numpy((words @ others.T).toarray())


def stored_words(words: Words) -> dict[str, Tensor]:
    """Return the arrays that ``restored_words`` takes."""
    arrays = {"values": words.data, "columns": words.indices, "pointers": words.indptr}
    return {name: torch.from_numpy(rows) for name, rows in arrays.items()} | {
        "width": torch.tensor([words.shape[1]])
    }


def restored_words(stored: Mapping[str, Tensor]) -> Words:
    """Return the words that ``stored_words`` returned.

    >>> words = scipy.sparse.csr_matrix([[0, 3, 4]], dtype="float32")
    >>> restored_words(stored_words(words)).toarray()
    array([[0., 3., 4.]], dtype=float32)
    """
    values, columns, pointers = (stored[n].numpy() for n in ("values", "columns", "pointers"))
    shape = (len(pointers) - 1, int(stored["width"]))
    return scipy.sparse.csr_matrix((values, columns, pointers), shape=shape)
