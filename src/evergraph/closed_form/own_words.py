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
    owners = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((-np.abs(words.data), owners))
    rank = np.arange(len(order)) - np.repeat(words.indptr[:-1], counts)
    largest = order[rank < MOST_WORDS]
    owners, values = owners[largest], words.data[largest]
    lengths = np.sqrt(np.bincount(owners, np.square(values), len(counts)))
    values = (values / np.maximum(lengths, 1e-12)[owners]).astype(np.float32)
    return scipy.sparse.csr_matrix((values, (owners, words.indices[largest])), shape=words.shape)


def inner_products(words: Words, others: Words) -> Tensor:
    """Return the inner product of every two rows.  -> float32 [rows, others]"""
    return torch.from_numpy((words @ others.T).toarray())


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
