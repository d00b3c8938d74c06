"""Words of texts beside the features of a delta: exact where nodes are compared by themselves.

Hops are of few columns, into which words are projected; inner products of these are estimates. A
node's own words are sparse, so they are kept as they are (``packed_words``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import scipy
import torch
from torch import Tensor
from torch.nn.functional import pad

from evergraph.closed_form.own_features import NO_WORDS, PAIRS, WordColumns, packed_words
from evergraph.online.delta import Delta
from evergraph.tables.hashed import BUCKETS, TextEncoder
from evergraph.tables.scheme import NodeFeatures, Scheme


def word_columns(scheme: Scheme | None) -> WordColumns:
    """Return the columns of words that tables with this scheme have."""
    encoders = [] if scheme is None else [each.encoder for each in scheme.columns]
    texts = [isinstance(encoder, TextEncoder) for encoder in encoders if encoder.width]
    return WordColumns(2 * PAIRS, all(texts)) if any(texts) else NO_WORDS


def features_with_words(read: NodeFeatures) -> Tensor:
    """Return the features of a table's rows with the words of their texts.  -> [rows, columns]"""
    if not word_columns(read.scheme).width:
        return read.features
    assert read.scheme is not None
    names = [e.name for e in read.scheme.columns if isinstance(e.encoder, TextEncoder)]
    empty = scipy.sparse.csr_matrix((len(read.features), BUCKETS), dtype="float32")
    found = (read.blocks[name].words for name in names)
    words = scipy.sparse.hstack([empty if each is None else each for each in found], "csr")
    return torch.cat([read.features, packed_words(words)], dim=1)


def with_fitting_words(delta: Delta, columns: int, words: int) -> Delta:
    """Return a delta for a learner with so many columns of words among its features.

    Rows without words, such as those of an array, get none; where the learner has none, as after
    a graph of its own, they are left out.

    >>> told = Delta(nodes=("a",), features=torch.ones(1, 2), words=WordColumns(1))
    >>> with_fitting_words(told, 1, 0).features.shape, with_fitting_words(told, 4, 2).features
    (torch.Size([1, 1]), tensor([[1., 1., 0., 0.]]))
    """

    def fitting(rows: Tensor) -> Tensor:
        wide = rows.shape[1] if rows.dim() == 2 and len(rows) else columns
        if words and wide == columns - words:
            return pad(rows, (0, words))
        left_out = delta.words.width if not words and wide == columns + delta.words.width else 0
        return rows[:, : wide - left_out] if left_out else rows

    features, updated = fitting(delta.features), fitting(delta.updated_features)
    if features is delta.features and updated is delta.updated_features:
        return delta
    return replace(delta, features=features, updated_features=updated)


def words_of(deltas: Iterable[Delta]) -> WordColumns:
    """Return the words of the first delta with nodes."""
    return next((delta.words for delta in deltas if len(delta.nodes)), NO_WORDS)
