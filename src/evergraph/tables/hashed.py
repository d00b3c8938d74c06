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

    def _vectors(self, found: pa.Array) -> tuple[Matrix, NDArray[Any], list[str]]:
        """Return signs of distinct texts, each text's index among them (-1: null), and them."""
        coded = found.dictionary_encode()
        names = coded.dictionary.to_pylist()
        places = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        matrix = signs(names, self.dims) if names else np.zeros((1, self.dims), np.float32)
        return matrix, places, names

    def _new(
        self, places: NDArray[Any], names: list[str], rows: NDArray[Any]
    ) -> tuple[dict[str, int], int]:
        """Return unknown names with the first row of each, and the number of rows with one."""
        strange = []
        if self.hashes is not None:
            there = frozenset(self.hashes)
            strange = [i for i, name in enumerate(names) if hashes_of([name])[0] not in there]
        firsts = {names[place]: int(rows[(places == place).argmax()]) for place in strange}
        return firsts, len(np.unique(rows[np.isin(places, strange)])) if strange else 0


def _kept(found: pa.Array) -> tuple[int, tuple[str, ...] | None]:
    """Return the width for some categories, and their hashes unless they are too many.

    The width is about twice their number, from 8 to 64 and a multiple of 8.
    """
    names = [name for name in found.unique().to_pylist() if name is not None]
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
        return cls(*_kept(texts(values, name)))

    def encode(self, values: pa.Array, name: str, *, before: int = 0) -> Block:
        matrix, places, names = self._vectors(texts(values, name))
        gaps = places < 0
        matrix = np.where(gaps[:, None], np.float32(0), matrix[places])
        new, rows = self._new(places, names, np.arange(len(places)))
        return Block(matrix, gaps=gaps, new=new, new_rows=rows)

    def parts(self, values: pa.Array, name: str) -> list[dict[str, Matrix]]:
        matrix, places, names = self._vectors(texts(values, name))
        return [{names[place]: matrix[place]} if place >= 0 else {} for place in places.tolist()]


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
        dims, hashes = _kept(lists(values, name, separator=separator)[1])
        return cls(dims, separator, hashes)

    def encode(self, values: pa.Array, name: str, *, before: int = 0) -> Block:
        from scipy.sparse import csr_matrix

        counts, items = lists(values, name, separator=self.separator, before=before)
        matrix, places, names = self._vectors(items)
        starts = np.concatenate([[0], np.cumsum(counts)])
        weights = np.repeat(1.0 / np.maximum(counts, 1), counts)
        owners = csr_matrix((weights, places, starts), shape=(len(counts), len(matrix)))
        new, rows = self._new(places, names, np.repeat(np.arange(len(counts)), counts))
        means = np.asarray(owners @ matrix, np.float32)
        return Block(means, gaps=counts == 0, new=new, new_rows=rows)

    def parts(self, values: pa.Array, name: str) -> list[dict[str, Matrix]]:
        """Return the share of each item in its mean."""
        counts, items = lists(values, name, separator=self.separator)
        matrix, places, names = self._vectors(items)
        found: list[dict[str, Matrix]] = []
        for end, count in zip(np.cumsum(counts), counts, strict=True):
            times = Counter(places[end - count : end].tolist())
            found.append({names[n]: matrix[n] * (k / count) for n, k in times.items()})
        return found


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
        found = texts(values, name)
        seen: dict[int, int] = {}
        for text in found.to_pylist():
            for bucket in set(_buckets(text)):
                seen[bucket] = seen.get(bucket, 0) + 1
        known = len(found) - found.null_count
        return cls(choices.text_width, known, dict(sorted(seen.items())))

    def __str__(self) -> str:
        return f"{len(self.frequencies):,} words, as {self.dims} numbers"

    def encode(self, values: pa.Array, name: str, *, before: int = 0) -> Block:
        from scipy.sparse import csr_matrix, vstack

        found, signs = texts(values, name), _bucket_signs(self.dims)
        matrix, words = np.empty((len(found), self.dims), np.float32), []
        for start in range(0, len(found), _ROWS_PER_BLOCK):
            rows = [_buckets(text) for text in found[start : start + _ROWS_PER_BLOCK].to_pylist()]
            starts = np.cumsum([0, *map(len, rows)])
            places = np.array([bucket for row in rows for bucket in row], np.int64)
            tfidf = csr_matrix((np.ones(len(places)), places, starts), shape=(len(rows), BUCKETS))
            tfidf.sum_duplicates()
            tfidf.data *= self._idf[tfidf.indices]
            lengths = np.sqrt(np.asarray(tfidf.multiply(tfidf).sum(1)).ravel())
            tfidf.data /= np.repeat(lengths, np.diff(tfidf.indptr))  # rows of length 1
            words.append(tfidf.astype(np.float32))
            matrix[start : start + _ROWS_PER_BLOCK] = words[-1] @ signs
        gaps = found.is_null().to_numpy(zero_copy_only=False)
        return Block(matrix, gaps=gaps, words=vstack(words, "csr") if words else None)

    def parts(self, values: pa.Array, name: str) -> list[dict[str, Matrix]]:
        """Return the share of each word in its text."""
        signs, found = _bucket_signs(self.dims), []
        for text in texts(values, name).to_pylist():
            times = Counter(_WORD.findall((text or "").lower()))
            buckets = np.array([_bucket(word) for word in times], np.int64)
            weights = np.array([*times.values()]) * self._idf[buckets]
            length = np.sqrt((np.bincount(buckets, weights) ** 2).sum()) if len(buckets) else 1.0
            shares = (weights / length).astype(np.float32)[:, None] * signs[buckets]
            found.append(dict(zip(times, shares, strict=True)))
        return found

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
