"""What columns of a wide sparse array add to scores, though a learner keeps its rows as words."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import scipy
import torch
from torch import Tensor

from evergraph.closed_form.own_features import Words
from evergraph.online.sparse_rows import SIGNS, projected, signs_of

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
