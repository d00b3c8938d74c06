"""What a request brings: its bytes off the wire within limits, and the change or question they are.

JSON is read by pydantic, tables by pyarrow (``arrow``), and nowhere else: what the models let pass
is a delta, and what a delta may be in this learner is checked by the learner alone.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import numpy as np
import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
)
from starlette.requests import ClientDisconnect, Request

from evergraph.online.checking import LONGEST_ID, LONGEST_KEY, LONGEST_NAME
from evergraph.online.delta import Delta, is_empty
from evergraph.online.identifiers import LARGEST
from evergraph.server.arrow import read_arrow
from evergraph.server.http import ARROW, JSON, LONGEST, RefusedError

if TYPE_CHECKING:
    from torch import Tensor

    from evergraph.server.limits import Limits

SMALL = 1 << 16  # bytes of a body that does not count: what connections read ahead in any case


def media_type(request: Request, *allowed: str) -> str:
    """Return what the body is said to be.

    A body that is not said to be JSON is refused even if it is: pages of other sites can send
    plain text to a service on this machine, but not JSON.
    """
    said = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if said not in allowed:
        raise RefusedError(415, f"content-type must be {' or '.join(allowed)}, not {said!r}")
    return said


class Bodies:
    """Reads the bodies of requests: each within its limits, and all of them together.

    Args:
        limits: how large a body may be, how long it may take, and how much is held at once.

    Attributes:
        held: bytes of the bodies of requests that are not answered yet; small ones do not count,
            since there are never more of them than connections.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.held = 0

    @asynccontextmanager
    async def of(self, request: Request, kind: str = JSON) -> AsyncIterator[bytes]:
        """Read the body of a request; it is held until the end of the ``async with``.

        Reading stops where it is larger than allowed, too slow, or too much to hold.
        """
        most = min(self.limits.json, self.limits.body) if kind == JSON else self.limits.body
        length = _declared_length(request, most, kind)
        counts = length > SMALL or "transfer-encoding" in request.headers
        counted, read, parts, more = 0, 0, [], True
        if counts:
            self._make_room(length)
        try:
            with _in_time(self.limits.seconds):
                while more:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    part, more = message.get("body", b""), message.get("more_body", False)
                    read += len(part)
                    if read > most:
                        raise _too_long(most, kind)
                    if counts:
                        self._make_room(len(part))
                        self.held += len(part)
                        counted += len(part)
                    parts.append(part)
            yield parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            self.held -= counted

    def _make_room(self, more: int) -> None:
        """Refuse so many bytes where too many are held already."""
        if more > 0 and self.held + more > self.limits.held:
            raise RefusedError(
                503,
                f"bodies of {self.held} bytes are held already, and at most {self.limits.held} may "
                "be: send it again later",
                retry_after=1,
            )


def _declared_length(request: Request, most: int, kind: str) -> int:
    """Return how long a body is said to be, 0 where it is not; refuse one that is too long."""
    declared = request.headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdigit()):
        raise RefusedError(422, f"content-length must be a whole number, not {declared!r}")
    if int(declared) > most:
        raise _too_long(most, kind, f", not {int(declared)}")
    return int(declared)


def _too_long(most: int, kind: str, found: str = "") -> RefusedError:
    if kind == JSON:
        rest = ": send it in parts, or as Arrow"
        return RefusedError(413, f"a body of JSON must have at most {most} bytes{found}{rest}")
    return RefusedError(413, f"the body must have at most {most} bytes{found}")


@contextmanager
def _in_time(seconds: float) -> Iterator[None]:
    """Refuse a body that takes longer than this to come.

    As ``asyncio.timeout``, which Python 3.10 lacks, and at a tenth of the cost of anyio's.
    """
    task, late = asyncio.current_task(), False

    def stop() -> None:
        nonlocal late
        late = task is not None and task.cancel()

    clock = asyncio.get_running_loop().call_later(seconds, stop)
    try:
        yield
    except asyncio.CancelledError:
        if not late:
            raise
        raise RefusedError(503, f"the body took longer than {seconds:g} s to arrive") from None
    finally:
        clock.cancel()


Text = Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_ID)]
Whole = Annotated[StrictInt, Field(ge=-LARGEST - 1, le=LARGEST)]
Id = Text | Whole
Item = TypeVar("Item")
Model = TypeVar("Model", bound=BaseModel)
# Of a million mistakes the first is told: finding them all took 40 s and 7 GB.
Listed: TypeAlias = Annotated[list[Item], Field(fail_fast=True)]
Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]
Told = Id | Listed[Id] | Number
Name = Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_NAME)]
Key = Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_KEY)]
Cell = StrictStr | StrictBool | Whole | Number | Listed[StrictStr | Number] | None
Row = Annotated[dict[Text, Cell], Field(fail_fast=True)]


class Payload(BaseModel):
    """Base of every body: a field that is not known is a mistake, which ``parse`` finds.

    With ``extra="forbid"`` pydantic would make a record of every one of them.
    """

    model_config = ConfigDict(extra="allow")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        """Return what OpenAPI says of it."""
        return {**handler(schema), "additionalProperties": False}


EXAMPLE: dict[str, Any] = {
    "nodes": ["paper-1", "paper-2"],
    "features": [[0.5, 1.0], [0.0, 2.0]],
    "labels": ["biology", None],
    "edges": [["paper-1", "paper-2"]],
}


class UpsertBody(Payload):
    """Nodes, edges, features and labels, new or known, and what is to go: what is new counts."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE})
    nodes: Listed[Id] = Field([], description="Ids of nodes.")
    features: Listed[Listed[Number]] = Field([], description="A row for each of these nodes.")
    labels: Listed[Told | None] = Field(
        [],
        description="A class for each of these nodes, or a list of labels, or a number; or null.",
    )
    edges: Listed[tuple[Id, Id]] = Field([], description="Pairs of ids, known or new.")
    weights: Listed[Number] = Field(
        [], description="A weight for each of these edges, or none at all; 0 removes an edge."
    )
    relations: Listed[Name] = Field(
        [], description="What each of these edges stands for, or none at all."
    )
    types: Listed[Name | None] = Field(
        [], description="What kind of thing each of these nodes is, or null; or none at all."
    )
    removed_edges: Listed[tuple[Id, Id]] = Field([], description="Pairs of ids whose edges go.")
    updated: Listed[Id] = Field([], description="Known ids that get other features.")
    updated_features: Listed[Listed[Number]] = Field([], description="A row for each of these.")
    late: Listed[tuple[Id, Told]] = Field([], description="Known ids and the classes they have.")
    forgotten: Listed[Id] = Field([], description="Ids that go, with all they taught.")
    rows: Listed[Row] = Field(
        [], description="Objects with id, label and columns, in place of nodes, features, labels."
    )

    def delta(self) -> Delta:
        """Return what is to happen."""
        labels = self.labels or [None] * len(self.nodes)
        return Delta(
            nodes=tuple(self.nodes),
            features=_matrix("features", self.features),
            labels=tuple(labels),
            edges=tuple(self.edges),
            weights=tuple(self.weights),
            relations=tuple(self.relations),
            types=tuple(self.types),
            removed_edges=tuple(self.removed_edges),
            updated=tuple(self.updated),
            updated_features=_matrix("updated_features", self.updated_features),
            late=tuple(self.late),
            forgotten=tuple(self.forgotten),
        )


class DeltaBody(UpsertBody):
    """New nodes and edges, other weights and features, late labels, and what is to go: all of it
    or nothing."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE | {"key": "monday-1"}})
    nodes: Listed[Id] = Field([], description="Ids of new nodes.")
    key: Key | None = Field(None, description="A delta whose key is known is not applied again.")

    def delta(self) -> Delta:
        """Return what is to happen."""
        return replace(super().delta(), key=self.key)


class LabelsBody(Payload):
    """Classes of nodes that are known already."""

    model_config = ConfigDict(json_schema_extra={"example": {"labels": [["paper-2", "physics"]]}})
    labels: Listed[tuple[Id, Told]] = Field(min_length=1, description="Pairs of id and class.")
    key: Key | None = None

    def delta(self) -> Delta:
        """Return what is to happen."""
        return Delta(late=tuple(self.labels), key=self.key)


class ForgetBody(Payload):
    """Nodes that go, with their edges and all they taught."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["paper-1"]}})
    ids: Listed[Id] = Field(min_length=1)
    key: Key | None = None

    def delta(self) -> Delta:
        """Return what is to happen."""
        return Delta(forgotten=tuple(self.ids), key=self.key)


class PredictionsBody(Payload):
    """Nodes to classify."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["paper-2"]}})
    ids: Listed[Id]
    all: bool = Field(False, strict=True, description="Whether every class's probability is told.")


def _matrix(name: str, rows: list[list[float]]) -> Tensor:
    """Return rows of equal width side by side.  -> float32 [rows, width]"""
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        some = " and ".join(map(str, sorted(widths)[:3]))
        others = " and others" if len(widths) > 3 else ""
        raise RefusedError(422, f"{name} must be rows of one width, not of {some}{others}")
    with np.errstate(over="ignore"):  # what is too large for float32 is infinite, and refused so
        matrix = np.array(rows, dtype=np.float64).astype(np.float32)
    return torch.from_numpy(matrix.reshape(len(rows), max(widths, default=0)))


def parse(model: type[Model], body: bytes) -> Model:
    """Read JSON as ``model``; what does not fit is said in one sentence.

    >>> parse(ForgetBody, b'{"ids": ["a"], "kye": "k"}')
    Traceback (most recent call last):
    evergraph.server.http.RefusedError: kye: extra inputs are not permitted
    """
    try:
        with _uncollected(len(body)):
            found = model.model_validate_json(body)
    except ValidationError as error:
        raise RefusedError(422, _sentence_of(error)) from None
    for name in found.model_extra or ():
        raise RefusedError(422, f"{name[:LONGEST]}: extra inputs are not permitted")
    rows: Sequence[Mapping[str, Any]] = getattr(found, "rows", ())
    _refuse_twice(body, len(found.model_fields_set) + sum(map(len, rows)))
    return found


@contextmanager
def _uncollected(size: int) -> Iterator[None]:
    """Keep the garbage collector from going through all pairs again and again as they come.

    That took most of the time of a large body. Nothing that is read makes a cycle.
    """
    pause = size > SMALL and gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()


def _sentence_of(error: ValidationError) -> str:
    """Return the first thing wrong: where, and what was expected."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    loc, said = errors[0]["loc"], errors[0]["msg"]
    # Behind the field's name stand numbers, and for ids which of their two kinds was tried.
    place = "".join(f"[{part}]" for part in loc[1:] if isinstance(part, int))
    if any(isinstance(part, str) for part in loc[1:]):
        said = "must be a string of 1 to 1024 characters or a whole number of 64 bits"
    said = said[:1].lower() + said[1:]
    return f"{loc[0] if loc else 'body'}{place}: {said}"[:500]


def _refuse_twice(body: bytes, keys: int) -> None:
    """Raise where a key comes twice in an object of a body that was read already.

    Who reads it keeps the last of the two in silence. A body with no more colons than keys has
    none, nor has one with no more colons behind a quotation mark: in a text that mark is escaped,
    and counts too. Whatever else is read once more.

    keys: how many all objects of the body had together once they were read.

    >>> _refuse_twice(b'{"ids": ["a:b"]}', 1)
    >>> _refuse_twice(b'{"ids": ["a"], "ids": ["b"]}', 1)
    Traceback (most recent call last):
    evergraph.server.http.RefusedError: key 'ids' must come once in an object, and comes twice
    """
    if body.count(b":") == keys or sum(1 for _ in re.finditer(rb'"[ \t\r\n]*:', body)) == keys:
        return

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise RefusedError(
                    400, f"key {name[:LONGEST]!r} must come once in an object, and comes twice"
                )
            found[name] = value
        return found

    json.loads(body, object_pairs_hook=once)


DELTAS: Mapping[str, type[UpsertBody] | type[LabelsBody] | type[ForgetBody]] = {
    "delta": DeltaBody,
    "upsert": UpsertBody,
    "labels": LabelsBody,
    "forget": ForgetBody,
}


@dataclass(frozen=True, eq=False)
class ReadDelta:
    """What a body that changes something says.

    Attributes:
        delta: the change.
        rows: nodes as objects, which the learner's own scheme is to read; none where they came as
            numbers.
        told: of tables of Arrow the ``names``, whether they are ``read``, and the ``scheme``, as
            ``ArrowBody`` has them; empty for JSON.
    """

    delta: Delta
    rows: Sequence[Mapping[str, Any]] = ()
    told: Mapping[str, Any] = field(default_factory=dict)


def read_delta(body: bytes, *, model: str, kind: str, most: int) -> ReadDelta:
    """Return what a body says; refuse it where it is malformed, empty or names too many nodes.

    model: which of ``DELTAS`` it is; kind: its media type; most: how many nodes it may name.

    >>> read_delta(b'{"ids": ["a"]}', model="forget", kind="application/json", most=9).delta
    Delta(1 forgotten)
    """
    if kind == ARROW:
        tables = vars(read_arrow(body)).copy()
        found = ReadDelta(tables.pop("delta"), told=tables)
    else:
        said = parse(DELTAS[model], body)
        found = ReadDelta(said.delta(), getattr(said, "rows", ()))
    delta = found.delta
    if is_empty(delta) and not found.rows:
        raise RefusedError(
            422, "a delta must bring nodes, edges, features or labels, or take some away"
        )
    named = map(len, (delta.nodes, delta.late, delta.forgotten, delta.updated, found.rows))
    _check_named("delta", max(named), most)
    return found


def read_question(body: bytes, *, most: int) -> PredictionsBody:
    """Return which nodes a body asks for; refuse it where it is malformed or asks for too many.

    >>> read_question(b'{"ids": ["a", 1]}', most=9).ids
    ['a', 1]
    """
    asked = parse(PredictionsBody, body)
    _check_named("request", len(asked.ids), most)
    return asked


def _check_named(what: str, named: int, most: int) -> None:
    """Raise where more nodes are named than allowed."""
    if named > most:
        raise RefusedError(413, f"a {what} must name at most {most} nodes, not {named}")
