"""Hashed categories, lists of categories, and words: any number in a fixed number of columns.

A category becomes a vector of ``dims`` signs, ±1 / √dims, taken from the bits of its hash. Every
vector has length 1, and two of them have a product of 0 ± 1 / √dims. A new category gets its own
vector without refitting. A missing category is a row of zeros.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from evergraph.tables.arrow import pa
from evergraph.tables.columns import is_text
from evergraph.tables.values import Block, Matrix, Rule, WideEncoder, column_kinds, lists, texts

if TYPE_CHECKING:
    from evergraph.tables.choices import Columns

MOST_KEPT = 10_000  # categories whose hashes are kept to detect new ones
SEPARATORS = (";", "|")  # of lists in texts
BUCKETS = 1 << 14
Hashes = tuple[Annotated[str, Rule(pattern="^[0-9a-f]{16}$")], ...] | None
Count = Annotated[int, Rule(ge=0, lt=1 << 63)]
Bucket = Annotated[int, Rule(ge=0, lt=BUCKETS)]
_WORD = re.compile(r"\w+")
_ROWS_PER_BLOCK = 2_048  # rows whose words are held at once


def signs(names: list[str], dims: int) -> Matrix:
    """Return a vector of signs for each name; dims: a multiple of 8, at most 512.

    -> float32 [names, dims]
    """
    digests = b"".join(blake2b(name.encode(), digest_size=dims // 8).digest() for name in names)
    bits = np.unpackbits(np.frombuffer(digests, np.uint8)).reshape(len(names), dims)
    return (2 * bits.astype(np.float32) - 1) / np.float32(np.sqrt(dims))


def hashes_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return sorted hashes of categories, so that their order reveals nothing.

    A category may identify one person, and a forgotten person must not be readable in a file.

    >>> hashes_of(["red", "green"])
    ('0de917af2f0a48a3', '4cee66ee49ec62e8')
    """
    return tuple(sorted(blake2b(name.encode(), digest_size=8).hexdigest() for name in names))


class _HashEncoder(WideEncoder):
    """An encoder that keeps the hashes of the first table's categories, unless there are many."""

    hashes: Hashes
    counted: ClassVar[str] = "categories"

    def __str__(self) -> str:
        count = f"over {MOST_KEPT:,}" if self.hashes is None else f"{len(self.hashes):,}"
        return f"{count} {self.counted}, as {self.dims} numbers"

    def _vectors(self, column: pa.Array) -> tuple[Matrix, NDArray[Any], list[str]]:
        """Return signs of distinct texts, each text's index among them (-1: null), and them."""
        encoded = column.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        indices = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        vectors = signs(names, self.dims) if names else np.zeros((1, self.dims), np.float32)
        return vectors, indices, names

    def _new(
        self, indices: NDArray[Any], names: list[str], rows: NDArray[Any]
    ) -> tuple[dict[str, int], int]:
        """Return unknown names with the first row of each, and the number of rows with one."""
        unknown = []
        if self.hashes is not None:
            known = frozenset(self.hashes)
            unknown = [i for i, name in enumerate(names) if hashes_of([name])[0] not in known]
        first_rows = {names[place]: int(rows[(indices == place).argmax()]) for place in unknown}
        return first_rows, len(np.unique(rows[np.isin(indices, unknown)])) if unknown else 0


def _width_and_hashes(column: pa.Array) -> tuple[int, tuple[str, ...] | None]:
    """Return the width for some categories, and their hashes unless they are too many.

    The width is about twice their number, from 8 to 64 and a multiple of 8.
    """
    names = [name for name in column.unique().to_pylist() if name is not None]
    dims = min(max(-(-2 * len(names) // 8) * 8, 8), 64)
    return dims, hashes_of(names) if len(names) <= MOST_KEPT else None


@column_kinds.register
@dataclass(frozen=True)
class CategoryEncoder(_HashEncoder):
    """A category as the signs of its hash.

    >>> import pyarrow as pa
    >>> encoder = CategoryEncoder.fit(pa.array(["red", "green"]), "colour")
    >>> encoder.encode(pa.array(["blue", None]), "colour").new
    {'blue': 0}
    """

    hashes: Hashes
    name = "category"

    @classmethod
    def fit(cls, values: pa.Array, name: str, choices: Columns | None = None) -> CategoryEncoder:
        return cls(*_width_and_hashes(texts(values, name)))

    def encode(self, values: pa.Array, name: str, *, before: int = 0) -> Block:
        matrix, indices, names = self._vectors(texts(values, name))
        gaps = indices < 0
        matrix = np.where(gaps[:, None], np.float32(0), matrix[indices])
        new, rows = self._new(indices, names, np.arange(len(indices)))
        return Block(matrix, gaps=gaps, new=new, new_rows=rows)

    def parts(self, values: pa.Array, name: str) -> list[dict[str, Matrix]]:
        vectors, indices, names = self._vectors(texts(values, name))
        return [{names[index]: vectors[index]} if index >= 0 else {} for index in indices.tolist()]


@column_kinds.register
@dataclass(frozen=True)
class ListEncoder(_HashEncoder):
    """A list as the mean of its items' signs; text is split at its most frequent separator.

    >>> import pyarrow as pa
    >>> encoder = ListEncoder.fit(pa.array(["a;b", "a"]), "tags")
    >>> rows = encoder.encode(pa.array(["a;b", "a", "b", ""]), "tags").matrix
    >>> bool((2 * rows[0] == rows[1] + rows[2]).all()), bool(rows[3].any())
    (True, False)
    """

    separator: Annotated[str, Rule(min_length=1)]
    hashes: Hashes
    name = "list"
    counted = "items of lists"

    @classmethod
    def fit(cls, values: pa.Array, name: str, choices: Columns | None = None) -> ListEncoder:
        separator = usual_separator(values) if is_text(values.type) else SEPARATORS[0]
        dims, hashes = _width_and_hashes(lists(values, name, separator=separator)[1])
        return cls(dims, separator, hashes)

    def encode(self, values: pa.Array, name: str, *, before: int = 0) -> Block:
        from scipy.sparse import csr_matrix

        counts, items = lists(values, name, separator=self.separator, before=before)
        matrix, indices, names = self._vectors(items)
        starts = np.concatenate([[0], np.cumsum(counts)])
        weights = np.repeat(1.0 / np.maximum(counts, 1), counts)
        owners = csr_matrix((weights, indices, starts), shape=(len(counts), len(matrix)))
        new, rows = self._new(indices, names, np.repeat(np.arange(len(counts)), counts))
        means = np.asarray(owners @ matrix, np.float32)
        return Block(means, gaps=counts == 0, new=new, new_rows=rows)

    def parts(self, values: pa.Array, name: str) -> list[dict[str, Matrix]]:
        """Return the share of each item in its mean."""
        counts, items = lists(values, name, separator=self.separator)
        vectors, indices, names = self._vectors(items)
        shares: list[dict[str, Matrix]] = []
        for end, count in zip(np.cumsum(counts), counts, strict=True):
            times = Counter(indices[end - count : end].tolist())
            shares.append({names[n]: vectors[n] * (k / count) for n, k in times.items()})
        return shares


def usual_separator(values: pa.Array) -> str:
    """Return the most frequent separator in texts that are known to be lists.

    >>> import pyarrow as pa
    >>> usual_separator(pa.array(["a, b", "b"])), usual_separator(pa.array(["a; b, c; d", "b"]))
    (',', ';')
    """
    joined = "".join(text for text in values.to_pylist() if text is not None)
    return max((*SEPARATORS, ","), key=joined.count)


def _paired(lists: Any) -> Any:
    """Return the two lists that JSON has in place of integer keys as a dictionary."""
    return dict(zip(*lists, strict=True)) if isinstance(lists, list) else lists


@column_kinds.register
@dataclass(frozen=True)
class TextEncoder(WideEncoder):
    """A text as a TF-IDF vector of its words, with frequencies from the first table.

    >>> import pyarrow as pa
    >>> from evergraph.tables import Columns
    >>> narrow = Columns(text_width=64)
    >>> encoder = TextEncoder.fit(pa.array(["red wine", "Red cars"]), "title", narrow)
    >>> a, b, none = encoder.encode(pa.array(["cars, red", "red cars", None]), "title").matrix
    >>> bool((a == b).all()), bool(none.any())
    (True, False)
    """

    rows: Count  # number of texts in the first table
    # number of those texts with a word in a bucket, by bucket
    frequencies: Annotated[dict[Bucket, Count], Rule(before=_paired)] = field(repr=False)
    name = "text"

    @classmethod
    def fit(cls, values: pa.Array, name: str, choices: Columns) -> TextEncoder:
        documents = texts(values, name)
        frequencies: dict[int, int] = {}
        for text in documents.to_pylist():
            for bucket in set(_buckets(text)):
                frequencies[bucket] = frequencies.get(bucket, 0) + 1
        known = len(documents) - documents.null_count
        return cls(choices.text_width, known, dict(sorted(frequencies.items())))

    def __str__(self) -> str:
        return f"{len(self.frequencies):,} words, as {self.dims} numbers"

    def encode(self, values: pa.Array, name: str, *, before: int = 0) -> Block:
        from scipy.sparse import csr_matrix, vstack

        documents, bucket_signs = texts(values, name), _bucket_signs(self.dims)
        matrix, words = np.empty((len(documents), self.dims), np.float32), []
        for start in range(0, len(documents), _ROWS_PER_BLOCK):
            buckets = [
                _buckets(text) for text in documents[start : start + _ROWS_PER_BLOCK].to_pylist()
            ]
            starts = np.cumsum([0, *map(len, buckets)])
            columns = np.array([bucket for row in buckets for bucket in row], np.int64)
            tfidf = csr_matrix(
                (np.ones(len(columns)), columns, starts), shape=(len(buckets), BUCKETS)
            )
            tfidf.sum_duplicates()
            tfidf.data *= self._idf[tfidf.indices]
            lengths = np.sqrt(np.asarray(tfidf.multiply(tfidf).sum(1)).ravel())
            tfidf.data /= np.repeat(lengths, np.diff(tfidf.indptr))  # rows of length 1
            words.append(tfidf.astype(np.float32))
            matrix[start : start + _ROWS_PER_BLOCK] = words[-1] @ bucket_signs
        gaps = documents.is_null().to_numpy(zero_copy_only=False)
        return Block(matrix, gaps=gaps, words=vstack(words, "csr") if words else None)

    def parts(self, values: pa.Array, name: str) -> list[dict[str, Matrix]]:
        """Return the share of each word in its text."""
        bucket_signs, rows = _bucket_signs(self.dims), []
        for text in texts(values, name).to_pylist():
            times = Counter(_WORD.findall((text or "").lower()))
            buckets = np.array([_bucket(word) for word in times], np.int64)
            weights = np.array([*times.values()]) * self._idf[buckets]
            length = np.sqrt((np.bincount(buckets, weights) ** 2).sum()) if len(buckets) else 1.0
            shares = (weights / length).astype(np.float32)[:, None] * bucket_signs[buckets]
            rows.append(dict(zip(times, shares, strict=True)))
        return rows

    @cached_property
    def _idf(self) -> NDArray[np.float64]:
        counts = np.zeros(BUCKETS)
        counts[list(self.frequencies)] = list(self.frequencies.values())
        return 1 + np.log((1 + self.rows) / (1 + counts))

    def to_json(self) -> dict[str, Any]:
        """Return the counts as two lists, since JSON has no integer keys."""
        pairs = [list(self.frequencies), list(self.frequencies.values())]
        return {"dims": self.dims, "rows": self.rows, "frequencies": pairs}


def _buckets(text: str | None) -> list[int]:
    return [_bucket(word) for word in _WORD.findall((text or "").lower())]


def _bucket(word: str) -> int:
    return crc32(word.encode()) % BUCKETS


@lru_cache(maxsize=4)
def _bucket_signs(dims: int) -> Matrix:
    return signs([str(bucket) for bucket in range(BUCKETS)], dims)
