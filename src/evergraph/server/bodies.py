"""What a body says, whoever reads it: this process, or the one that large bodies are read in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evergraph.online.delta import Delta
from evergraph.online.delta_parts import check_weights
from evergraph.online.upsert import is_empty
from evergraph.server.arrow import read_arrow
from evergraph.server.http import ARROW, RefusedError
from evergraph.server.json_delta import quick_delta
from evergraph.server.payloads import (
    DeltaBody,
    ForgetBody,
    LabelsBody,
    PredictionsBody,
    UpsertBody,
    parse,
)

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


@dataclass(frozen=True)
class Question:
    """Which nodes are to be classified.

    Attributes:
        ids: of the nodes.
        every_class: whether the probabilities of all classes are asked for.
    """

    ids: Sequence[str | int]
    every_class: bool


def read_delta(body: bytes, *, model: str, kind: str, most: int) -> ReadDelta:
    """Return what a body says; refuse it where it is malformed, empty or names too many nodes.

    model: which of ``DELTAS`` it is; kind: its media type; most: how many nodes it may name.

    >>> read_delta(b'{"ids": ["a"]}', model="forget", kind="application/json", most=9).delta
    Delta(1 forgotten)
    """
    found = _from_arrow(body) if kind == ARROW else _from_json(body, model)
    delta = found.delta
    if is_empty(delta) and not found.rows:
        raise RefusedError(
            422, "a delta must bring nodes, edges, features or labels, or take some away"
        )
    named = map(len, (delta.nodes, delta.late, delta.forgotten, delta.updated, found.rows))
    check_named("delta", max(named), most)
    check_weights(delta.weights, len(delta.edges))  # as the bytes of a delta are checked
    return found


def _from_arrow(body: bytes) -> ReadDelta:
    found = read_arrow(body)
    return ReadDelta(found.delta, told={k: v for k, v in vars(found).items() if k != "delta"})


def _from_json(body: bytes, model: str) -> ReadDelta:
    wanted = DELTAS[model]
    if issubclass(wanted, UpsertBody):
        quick = quick_delta(body, keyed=issubclass(wanted, DeltaBody))
        if quick is not None:
            return ReadDelta(quick)
    found = parse(wanted, body)
    return ReadDelta(found.delta(), getattr(found, "rows", ()))


def read_question(body: bytes, *, most: int) -> Question:
    """Return which nodes a body asks for; refuse it where it is malformed or asks for too many.

    >>> read_question(b'{"ids": ["a", 1]}', most=9)
    Question(ids=['a', 1], every_class=False)
    """
    asked = parse(PredictionsBody, body)
    check_named("request", len(asked.ids), most)
    return Question(asked.ids, asked.all)


def check_named(what: str, named: int, most: int) -> None:
    """Raise where more nodes are named than allowed."""
    if named > most:
        raise RefusedError(413, f"a {what} must name at most {most} nodes, not {named}")
