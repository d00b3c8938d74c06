"""Ingestion of a stream of lines of JSON, in batches, each line once however often it is sent.

Every delta has the key PREFIX:LINE:DIGEST: the number of its last line, and a digest of all lines
up to it. The learner writes delta and key together, so its newest key with the prefix shows how far
the stream has been ingested. When the stream is sent again from its beginning, it resumes after
that line. Batches depend on timing, but resuming does not depend on batches.

A message queue that delivers some messages again is not such a stream: with ``skip_known``, lines
that the learner knows are skipped instead, and there are no keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Protocol

from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    check_choice,
    check_integer,
    check_number,
    say_once,
)
from evergraph.graphs.validation import ONCE, REPEATED, combined_weight, say_repeated
from evergraph.online.checking import FEATURELESS, without_repeats
from evergraph.online.codecs.json_lines import Line, LineBatch, delta_of_lines, parsed_line
from evergraph.online.delta import Delta, NodeId
from evergraph.tables.choices import Columns
from evergraph.tables.scheme import Scheme

LONGEST_PREFIX = 100


class _Learner(Protocol):
    def submit(self, delta: Delta) -> dict[str, Any]: ...

    def upsert(self, delta: Delta) -> dict[str, Any]: ...

    def last_key(self, prefix: str) -> str | None: ...


@dataclass
class RunningWeights:
    """The weights of the edges of a stream, by all of its lines so far.

    A line changes the weight of its edge to what all of them give, so that neither batches nor a
    second start matter. A removed edge, and the edges of a forgotten node, begin anew.
    """

    repeated: str  # one of ``REPEATED``
    both_ways: bool  # whether (a, b) and (b, a) are one edge
    repeats: int = 0  # lines that name an edge again
    # By edge and relation: the sum of weights, lines of weight above 0, and the first line.
    _sums: dict[Any, tuple[float, int, int]] = field(default_factory=dict)
    _keys: dict[NodeId, set[Any]] = field(default_factory=dict)  # of the edges of each node

    def weighed(self, line: Line) -> Line:
        """Return a line with the weight that its edge has by now."""
        if line.operation == "edge" and line.ids[0] != line.ids[1]:
            weight = self._weight(line)
            keeps_own_weight = line.weight is None and self.repeated == "mean"
            if keeps_own_weight or self.repeated == "refuse":
                return line
            return replace(line, weight=weight)
        ended = set[Any]()
        if line.operation in ("forget", "remove_edge"):
            ended = set.intersection(*(self._keys.get(node, set()) for node in line.ids))
        for key in ended:
            if line.operation == "forget" or self.both_ways or key[0] == line.ids:
                self._sums.pop(key, None)
        return line

    def _weight(self, line: Line) -> float:
        one_way = not self.both_ways or line.relation is not None
        key = line.ids if one_way else frozenset(line.ids), line.relation
        given = 1.0 if line.weight is None else line.weight
        total, rows, first = self._sums.get(key, (0.0, 0, line.number))
        self.repeats += key in self._sums
        if self.repeated == "refuse" and key in self._sums:
            raise DataError(f"line {line.number}: lists the edge of line {first} again: {ONCE}")
        self._sums[key] = total + given, rows + (given > 0), first
        for node in line.ids:
            self._keys.setdefault(node, set()).add(key)
        return float(combined_weight(self.repeated, *self._sums[key][:2]))


@dataclass
class LineStream:
    """Ingests lines."""

    learner: _Learner  # a ``LearnerFolder``, or a client of a service, that receives the deltas
    batch: int = 100  # lines per delta at most
    every: float = 2.0  # longest time in seconds to wait before a batch of lines is sent
    prefix: str | None = None  # of the keys; by default derived from the first line
    skip_known: bool = False  # whether to skip what is known, without keys, as for tables
    clock: Callable[[], float] = monotonic  # returns seconds
    # how columns of lines are read: the scheme of the first table, choices for one that is fitted
    # on the first batch, or None for plain numbers
    columns: Columns | Scheme | None = None
    kind: str = "class"  # of the learner's targets
    repeated: str = "last"  # for edges that the stream names several times
    undirected: bool = True  # whether edges of the learner are
    names: Mapping[str, str] = field(
        default_factory=dict
    )  # the user's of label and weight, by ours
    lines: int = 0  # how many lines there were, including empty ones
    known: int = 0  # how many of them had been ingested before
    # deltas, new_nodes, predicted, right: totals of what was applied
    deltas: int = 0
    new_nodes: int = 0
    predicted: int = 0
    right: int = 0
    _named_edges: int = 0
    _digest: Any = field(default_factory=hashlib.sha256)

    def __post_init__(self) -> None:
        check_integer("batch", self.batch, least=1)
        check_number("every", self.every, least=0)
        check_choice("repeated", self.repeated, REPEATED)
        if self.skip_known and self.repeated != "last":
            raise ConfigurationError(
                f"repeated must be 'last' if known lines are skipped, not {self.repeated!r}: a "
                "line that is delivered again would count again"
            )
        self._weights = RunningWeights(self.repeated, self.undirected)
        if self.prefix is not None and not 0 < len(self.prefix) <= LONGEST_PREFIX:
            raise ConfigurationError(
                f"key_prefix must have 1 to {LONGEST_PREFIX} characters, not {self.prefix!r}"
            )
        if self.skip_known and self.prefix is not None:
            raise ConfigurationError(
                f"key_prefix must not be given if known lines are skipped, not {self.prefix!r}"
            )

    def take_in(self, lines: Iterable[bytes | None]) -> None:
        """Ingest all lines; None among them means that none is available at the moment.

        An error names the line that failed; the lines before it have been applied.
        """
        self._first: list[str] = []  # columns of the first node
        self._batch, self._began = LineBatch(), 0.0
        self._done: tuple[int, str] | None = None
        self._digests: dict[int, str] = {}
        try:
            for text in lines:
                if text is not None:
                    self._take(text)
                count = len(self._batch.lines)
                # The lines on which columns are fitted must not depend on timing.
                fits = isinstance(self.columns, Columns) and any(
                    line.operation == "node" for line in self._batch.lines
                )
                late = not fits and self.clock() - self._began >= self.every
                if count and (count >= self.batch or late):
                    self._flush()
        except DataError:
            self._flush()  # the lines before the one that failed
            raise
        self._flush()
        say_repeated("lines", self._weights.repeats, self._named_edges, self.repeated)
        if self._done is not None and self.lines < self._done[0]:
            raise DataError(
                f"line {self.lines} is the last, but {self._done[0]} lines were ingested with the "
                f"key prefix {self.prefix!r}: give another stream another --key-prefix"
            )

    def _take(self, text: bytes) -> None:
        if self.lines == 0 and not self.skip_known:  # how far has this stream been ingested?
            if self.prefix is None:
                self.prefix = f"stream-{hashlib.sha256(text.rstrip()).hexdigest()[:16]}"
            key = self.learner.last_key(f"{self.prefix}:")
            if key is not None:
                number, digest = key[len(self.prefix) + 1 :].split(":")
                self._done = int(number), digest
        self.lines += 1
        self._digest.update(text.rstrip(b"\r\n") + b"\n")
        if not text.strip():
            return
        line = parsed_line(text, self.lines, self.names)
        if line.operation == "node" and not self._first:
            self._first = [name for name in line.row if name != "features"]
        self._named_edges += line.operation == "edge"
        if self.repeated != "last":
            line = self._weights.weighed(line)
        here = self._digest.hexdigest()[:16]
        if self._done is not None and self.lines <= self._done[0]:
            self.known = self.lines
            if self.lines == self._done[0] and here != self._done[1]:
                raise DataError(
                    f"line {self.lines}: the lines up to here differ from those ingested with the "
                    f"key prefix {self.prefix!r}: give another stream another --key-prefix"
                )
            return
        if not self._batch.fits(line):
            self._flush()
        if not self._batch.lines:
            self._began = self.clock()
        self._batch.add(line)
        self._digests[line.number] = here

    def _flush(self) -> None:
        lines, self._batch = self._batch.lines, LineBatch()
        if lines:
            self._submit(lines)
        self._digests.clear()

    def _submit(self, lines: list[Line]) -> None:
        """Apply lines as one delta; if it is rejected, bisect to find the line at fault."""
        last = lines[-1].number
        key = None if self.skip_known else f"{self.prefix}:{last}:{self._digests[last]}"
        take = self.learner.upsert if self.skip_known else self.learner.submit
        try:
            delta = delta_of_lines(
                lines, key=key, columns=self.columns, kind=self.kind, first=self._first
            )
            if isinstance(self.columns, Columns):
                if delta.scheme is not None:
                    self.columns = delta.scheme
                elif len(delta.nodes) and not delta.features.numel():
                    say_once("lines", FEATURELESS)
            result = take(delta)
        except DataError as error:
            if len(lines) == 1:
                raise DataError(f"line {last}: {error}") from error
            half = len(lines) // 2
            self._submit(lines[:half])
            self._submit(lines[half:])
            return
        self.deltas += 1
        if self.repeated == "last":  # counted by delta, since a stream may be endless
            self._weights.repeats += without_repeats(delta, "last", both_ways=self.undirected)[1]
        self.new_nodes += result["new_nodes"]
        self.predicted += result["predicted"]
        self.right += result["right"]
