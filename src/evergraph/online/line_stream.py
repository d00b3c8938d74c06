"""A stream of lines into a learner, batch by batch, each line once however often it is sent.

Every delta has the key PREFIX:LINE:DIGEST, of the last line in it and of all lines up to there. The
learner writes delta and key down together, so its newest key of a prefix says how far the stream
was taken in: whoever sends it again from its beginning goes on behind that line. How lines fall
into batches, which is a matter of time, does not matter to that.

A queue that delivers some messages again, from a place of its own, sends no such stream: with
``skip_known`` what the learner knows is passed over instead, and there are no keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

from evergraph.core.checks import check_integer, check_number
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.online.codecs.json_lines import (
    Batch,
    Line,
    LineReader,
    delta_of_lines,
    table_of_lines,
)
from evergraph.online.delta import Delta
from evergraph.online.frames import read_columns
from evergraph.tables.choices import Columns
from evergraph.tables.labels import say_unlabelled
from evergraph.tables.scheme import Scheme

LONGEST_PREFIX = 100


class Takes(Protocol):
    """What a stream needs of a learner."""

    def submit(self, delta: Delta) -> dict[str, Any]:
        """Take a delta in, whole, once for each key."""
        ...

    def upsert(self, delta: Delta) -> dict[str, Any]:
        """Take in what is new of a delta."""
        ...

    def keep_columns(self, scheme: Scheme | None) -> None:
        """Keep how columns are read, or make sure that it is as before."""
        ...

    def last_key(self, prefix: str) -> str | None:
        """Return the key of the newest delta whose key begins so, if there is one."""
        ...


@dataclass
class LineStream:
    """Takes lines in.

    Args:
        learner: what takes deltas.
        batch: how many lines a delta has at most.
        every: seconds after which a line waits no longer for others.
        prefix: of the keys; by default made of the first line.
        skip_known: whether what is known is passed over, without keys, as for tables.
        clock: seconds.
        columns: how columns of lines are read: by the scheme of the first table, by one that the
            first batch of lines settles, with these choices, or as plain numbers (None).
        classes: whether labels are classes, of which some spellings stand for none.

    Attributes:
        lines: how many lines there were, empty ones included.
        known: how many of them had been taken in before.
        deltas, new_nodes, predicted, right: of what was taken in.
    """

    learner: Takes
    batch: int = 100
    every: float = 2.0
    prefix: str | None = None
    skip_known: bool = False
    clock: Callable[[], float] = monotonic
    columns: Columns | Scheme | None = None
    classes: bool = True
    lines: int = 0
    known: int = 0
    deltas: int = 0
    new_nodes: int = 0
    predicted: int = 0
    right: int = 0
    _digest: Any = field(default_factory=hashlib.sha256)

    def __post_init__(self) -> None:
        check_integer("batch", self.batch, least=1)
        check_number("every", self.every, least=0)
        if self.prefix is not None and not 0 < len(self.prefix) <= LONGEST_PREFIX:
            raise ConfigurationError(
                f"key_prefix must be a text of 1 to {LONGEST_PREFIX} letters, not {self.prefix!r}"
            )
        if self.skip_known and self.prefix is not None:
            raise ConfigurationError(
                f"key_prefix must not be given where known lines are skipped, not {self.prefix!r}"
            )

    def take_in(self, lines: Iterable[bytes | None]) -> None:
        """Take in all lines; None among them says that there is none at the moment.

        A line that cannot be taken in is named in the error; those before it are taken in then,
        those after it are not. While a delta is learned no line is read.
        """
        self._reader = LineReader(self.columns, classes=self.classes)
        self._batch, self._began = Batch(), 0.0
        self._done: tuple[int, str] | None = None
        self._digests: dict[int, str] = {}
        try:
            for text in lines:
                if text is not None:
                    self._take(text)
                if self._is_due():
                    self._flush()
        except DataError:
            self._flush()  # what came before
            raise
        self._flush()
        self._check_reached()

    def _take(self, text: bytes) -> None:
        if self.lines == 0:
            self._begin(text)
        self.lines += 1
        self._digest.update(text.rstrip(b"\r\n") + b"\n")
        if not text.strip():
            return
        line = self._reader.read(text, self.lines)
        if self._done is not None and self.lines <= self._done[0]:
            self._pass_over()
            return
        if not self._batch.fits(line):
            self._flush()
        if not self._batch.lines:
            self._began = self.clock()
        self._batch.add(line)
        self._digests[line.number] = self._digest.hexdigest()[:16]

    def _begin(self, first: bytes) -> None:
        """Find out how far this stream was taken in before."""
        if self.skip_known:
            return
        if self.prefix is None:
            self.prefix = f"stream-{hashlib.sha256(first.rstrip()).hexdigest()[:16]}"
        key = self.learner.last_key(f"{self.prefix}:")
        if key is not None:
            number, digest = key[len(self.prefix) + 1 :].split(":")
            self._done = int(number), digest

    def _pass_over(self) -> None:
        assert self._done is not None
        self.known = self.lines
        number, digest = self._done
        if self.lines == number and self._digest.hexdigest()[:16] != digest:
            raise DataError(
                f"line {number}: the lines up to here are not those that were taken in with the "
                f"key prefix {self.prefix!r}: give another stream another --key-prefix"
            )

    def _check_reached(self) -> None:
        if self._done is not None and self.lines < self._done[0]:
            raise DataError(
                f"line {self.lines} is the last, but {self._done[0]} lines were taken in with the "
                f"key prefix {self.prefix!r}: give another stream another --key-prefix"
            )

    def _is_due(self) -> bool:
        if not self._batch.lines:
            return False
        full = len(self._batch.lines) >= self.batch
        if isinstance(self.columns, Columns) and any(self._named(self._batch.lines)):
            return full  # what settles how columns are read must not be a matter of time
        return full or self.clock() - self._began >= self.every

    def _flush(self) -> None:
        lines, self._batch = self._batch.lines, Batch()
        if isinstance(self.columns, Columns) and any(self._named(lines)):
            self._settle(self._named(lines), self.columns)
        if lines:
            self._submit(lines)
        self._digests.clear()

    @staticmethod
    def _named(lines: Sequence[Line]) -> list[Line]:
        """Return the nodes among lines that have columns."""
        return [line for line in lines if line.operation == "node" and line.columns is not None]

    def _settle(self, lines: list[Line], choices: Columns) -> None:
        """Keep how columns are read from now on, as these lines show."""
        labels = [line.label for line in lines]
        table = table_of_lines(lines)
        if all(label is None for label in labels):
            say_unlabelled("lines", table.column_names)
        self.columns = read_columns(table, choices, labels, where="lines").scheme
        assert self.columns is not None
        self._reader.settle(self.columns)
        self.learner.keep_columns(self.columns)

    def _submit(self, lines: list[Line]) -> None:
        """Take lines in together; where that is refused, find the first that cannot be."""
        last = lines[-1].number
        try:
            done = self._learned(lines)
        except DataError as error:
            if len(lines) == 1:
                raise DataError(f"line {last}: {error}") from error
            half = len(lines) // 2
            self._submit(lines[:half])
            self._submit(lines[half:])
            return
        self.deltas += 1
        for name in ("new_nodes", "predicted", "right"):
            setattr(self, name, getattr(self, name) + done[name])

    def _learned(self, lines: list[Line]) -> dict[str, Any]:
        if self.skip_known:
            return self.learner.upsert(delta_of_lines(lines, scheme=self._scheme))
        last = lines[-1].number
        key = f"{self.prefix}:{last}:{self._digests[last]}"
        return self.learner.submit(delta_of_lines(lines, key=key, scheme=self._scheme))

    @property
    def _scheme(self) -> Scheme | None:
        return self.columns if isinstance(self.columns, Scheme) else None
