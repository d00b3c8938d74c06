"""Texts by the words in them: hashed TF-IDF, projected to a fixed width by signs.

Words fall into ``BUCKETS`` by their hash. tfidf[b] = count[b] (1 + ln((1 + n) / (1 + df[b]))), n
and df being those of the first table, divided by its length; the features are tfidf · S / √dims,
S the signs of the buckets' own hashes. Products of two rows are about those of their TF-IDF.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from evergraph.datasets.columns.block import Block, ColumnEncoder, Matrix
from evergraph.datasets.columns.hashed import signs
from evergraph.datasets.columns.values import texts

if TYPE_CHECKING:
    import pyarrow

BUCKETS = 1 << 14
_WORD = re.compile(r"\w+")
_ROWS = 2_048  # whose words are held at once


@dataclass(frozen=True)
class TextEncoder(ColumnEncoder):
    """A text as its words, the rarer in the first table the heavier.

    Attributes:
        dims: how many features.
        rows: how many texts the first table had.
        frequencies: in how many of them words of a bucket were, by bucket.

    >>> import pyarrow as pa
    >>> encoder = TextEncoder.fit(pa.array(["red wine", "Red cars"]), "title", dims=64)
    >>> a, b, none = encoder.encode(pa.array(["cars, red", "red cars", None]), "title").matrix
    >>> bool((a == b).all()), bool(none.any())
    (True, False)
    """

    dims: int
    rows: int
    frequencies: dict[int, int] = field(repr=False)
    kind = "text"

    @classmethod
    def fit(cls, values: pyarrow.Array, name: str, *, dims: int) -> TextEncoder:
        """Count in how many texts words are."""
        found = texts(values, name)
        seen: dict[int, int] = {}
        for text in found.to_pylist():
            for bucket in set(_buckets(text)):
                seen[bucket] = seen.get(bucket, 0) + 1
        return cls(dims, len(found) - found.null_count, dict(sorted(seen.items())))

    @property
    def width(self) -> int:
        """How many features a text becomes."""
        return self.dims

    @property
    def how(self) -> str:
        """How it is read, in words."""
        return f"TF-IDF of words, {len(self.frequencies):,} known, in {self.dims} signs"

    def encode(self, values: pyarrow.Array, name: str, *, before: int = 0) -> Block:
        """Return projected TF-IDF."""
        found = texts(values, name)
        weights = self._idf
        matrix = np.empty((len(found), self.dims), np.float32)
        for start in range(0, len(found), _ROWS):
            part = [_buckets(text) for text in found[start : start + _ROWS].to_pylist()]
            matrix[start : start + _ROWS] = _tfidf(part, weights) @ _bucket_signs(self.dims)
        return Block(matrix, gaps=found.is_null().to_numpy(zero_copy_only=False))

    @cached_property
    def _idf(self) -> NDArray[np.float64]:
        counts = np.zeros(BUCKETS)
        counts[list(self.frequencies)] = list(self.frequencies.values())
        return 1 + np.log((1 + self.rows) / (1 + counts))

    def to_json(self) -> dict[str, Any]:
        """Return what was counted; JSON has no integers as keys."""
        pairs = [list(self.frequencies), list(self.frequencies.values())]
        return {"dims": self.dims, "rows": self.rows, "frequencies": pairs}


def _buckets(text: str | None) -> list[int]:
    words = () if text is None else _WORD.findall(text.lower())
    return [crc32(word.encode()) % BUCKETS for word in words]


@lru_cache(maxsize=4)
def _bucket_signs(dims: int) -> Matrix:
    return signs([str(bucket) for bucket in range(BUCKETS)], dims)


def _tfidf(rows: list[list[int]], weights: NDArray[np.float64]) -> Any:
    """Return rows of length 1, or 0 where there is no word.  CSR float32 [rows, BUCKETS]"""
    from scipy.sparse import csr_matrix

    starts = np.cumsum([0, *map(len, rows)])
    places = np.array([bucket for row in rows for bucket in row], np.int64)
    made = csr_matrix((np.ones(len(places)), places, starts), shape=(len(rows), BUCKETS))
    made.sum_duplicates()
    made.data *= weights[made.indices]
    lengths = np.sqrt(np.asarray(made.multiply(made).sum(1)).ravel())
    made.data /= np.repeat(lengths, np.diff(made.indptr))
    return made.astype(np.float32)
