"""Parts of a vector as sums over nodes, also where these have words of a wide sparse array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
import torch
from torch import Tensor

from evergraph.closed_form.own_features import Words
from evergraph.online.sparse_rows import SIGNS, projected, signs_of


class Flow(NamedTuple):
    """A part of a vector as a sum Σ weights · rows over nodes."""

    nodes: Tensor  # positions
    weights: Tensor
    rows: Tensor
    unit: bool = True  # whether the sum is divided by its length
    of_labels: bool = False
    weighs: bool = False  # whether its weights are those of features in the embedding
    of_words: bool = False
    sparse: Words | None = None  # what these rows are projections of, if of a sparse array


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


def sums_of_sparse(flows: Sequence[Flow], parts: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return what each column of a sparse array adds to the scores, by its number.

    parts: slopes of every flow
    """
    sums: dict[str, Tensor] = {}
    for flow, part in zip(flows, parts, strict=True):
        if flow.sparse is None:
            continue
        whole = scipy.sparse.csr_matrix(flow.weights.double().numpy() @ flow.sparse)
        columns, values = whole.indices, torch.from_numpy(whole.data)[:, None]
        if flow.of_words:  # slopes are by the node's own words, in their order
            says = values * part.t()[: len(values)]
        else:
            shown = flow.weights.double() @ flow.rows.double()
            length = float(shown.norm()) if flow.unit else 1.0
            directions = torch.from_numpy(signs_of(columns)).double() / math.sqrt(SIGNS)
            says = values / max(length, 1e-12) * (directions @ part.t())
        for column, each in zip(columns.tolist(), says, strict=True):
            sums[str(column)] = sums.get(str(column), 0) + each
    return sums
