"""What a body says, whoever reads it: this process, or the one that large bodies are read in."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.extras import installed
from evergraph.online.checking import LONGEST_ID, LONGEST_KEY, LONGEST_NAME
from evergraph.online.delta import Column, Delta, EdgeColumns, as_numbers, chunks, is_empty
from evergraph.online.identifiers import LARGEST
from evergraph.server.arrow import read_arrow
from evergraph.server.http import ARROW, RefusedError, refuse_twice
from evergraph.server.payloads import (
    DeltaBody,
    ForgetBody,
    LabelsBody,
    PredictionsBody,
    UpsertBody,
    parse,
)

MOST_FIELDS = 10_000  # of an object, and labels of a node: more of them are a mistake
LISTS = (
    *("nodes", "features", "labels", "edges", "weights", "relations", "types"),
    *("removed_edges", "updated", "updated_features", "late", "forgotten"),
)
NONE = type(None)


class _UnsureError(Exception):
    """Something takes a closer look."""


def quick_delta(body: bytes, *, keyed: bool) -> Delta | None:
    """Return the delta that a body plainly is, None where it takes a closer look.

    keyed: whether it may have a key.

    >>> quick_delta(b'{"edges": [["a", "b"]]}', keyed=True)
    Delta(1 edges)
    >>> quick_delta(b'{"edges": [["a", 1.5]]}', keyed=True) is None
    True
    """
    if not installed("orjson"):
        return None
    import orjson

    try:
        with _uncollected():
            said = orjson.loads(body)
            found = _delta(said, keyed)
    except _UnsureError:
        _check_sizes(said)
        return None
    except orjson.JSONDecodeError:
        return None
    refuse_twice(body, len(said))
    return found


def _check_sizes(said: Any) -> None:
    """Refuse what no delta has, and of whose mistakes a closer look would take a record each."""
    if type(said) is not dict:
        return
    rows, labels, late = (said.get(name) for name in ("rows", "labels", "late"))
    for found in (said, *_listed(rows)):
        if type(found) is dict and len(found) > MOST_FIELDS:
            raise RefusedError(
                422, f"an object must have at most {MOST_FIELDS:,} fields, not {len(found):,}"
            )
    told = (value for pair in _listed(late) if type(pair) is list for value in pair)
    for found in chain(_listed(labels), told):
        if type(found) is list and len(found) > MOST_FIELDS:
            raise RefusedError(
                422, f"a node must have at most {MOST_FIELDS:,} labels, not {len(found):,}"
            )


def _listed(value: Any) -> Sequence[Any]:
    return value if type(value) is list else ()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector from going through all pairs again and again as they come.

    A million of them are read in a quarter of the time. Nothing here makes a cycle.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _delta(said: Any, keyed: bool) -> Delta:
    _sure(type(said) is dict and said.keys() <= {*LISTS, *(("key",) if keyed else ())})
    part = {name: said.get(name, []) for name in LISTS}
    _sure(all(type(values) is list for values in part.values()))
    key = said.get("key")
    _sure(key is None or (type(key) is str and 0 < len(key) <= LONGEST_KEY))
    return Delta(
        nodes=_ids(part["nodes"]),
        features=_matrix(part["features"]),
        labels=_told(part["labels"], gaps=True) or [None] * len(part["nodes"]),
        edges=_edges(part["edges"]),
        weights=_numbers(part["weights"]),
        relations=_names(part["relations"]),
        types=_names(part["types"], gaps=True),
        removed_edges=_edges(part["removed_edges"]),
        updated=_ids(part["updated"]),
        updated_features=_matrix(part["updated_features"]),
        late=_late(part["late"]),
        forgotten=_ids(part["forgotten"]),
        key=key,
    )


def _sure(sound: bool) -> None:
    if not sound:
        raise _UnsureError


def _ids(values: list[Any]) -> list[Any]:
    _column(values)
    return values


def _column(values: list[Any]) -> Column:
    """Return ids as a column; unsure unless all of them fit."""
    numbers = as_numbers(values)
    if numbers is not None:
        return numbers
    _sure(all(map(_fit, chunks(values))))
    return values


def _fit(values: Sequence[Any]) -> bool:
    """Whether all are ids, none of them too long or too large."""
    kinds = set(map(type, values))
    if kinds == {int, str}:
        return all(_fit([value for value in values if type(value) is kind]) for kind in kinds)
    if kinds == {int}:
        return bool(min(values) >= -LARGEST - 1 and max(values) <= LARGEST)
    if kinds != {str}:
        return not kinds
    lengths = set(map(len, values))
    return min(lengths) > 0 and max(lengths) <= LONGEST_ID


def _flat(rows: list[Any], width: int) -> list[Any]:
    """Return what lists of one width hold, one behind the other."""
    _sure(set(map(type, rows)) <= {list} and set(map(len, rows)) <= {width})
    return list(chain.from_iterable(rows))


def _edges(pairs: list[Any]) -> EdgeColumns:
    both = _column(_flat(pairs, 2))
    return EdgeColumns(both[::2], both[1::2])


def _late(pairs: list[Any]) -> list[Any]:
    flat = _flat(pairs, 2)
    _column(flat[::2])
    _told(flat[1::2])
    return list(map(tuple, pairs))


def _told(values: list[Any], *, gaps: bool = False) -> list[Any]:
    """Return what nodes are said to be: classes, lists of labels, or numbers."""
    kinds = set(map(type, values))
    _sure(kinds <= {str, int, float, list, *((NONE,) if gaps else ())})
    if kinds <= {str, int}:
        _column(values)
        return values
    _column([value for value in values if type(value) in (str, int)])
    _column(list(chain.from_iterable(value for value in values if type(value) is list)))
    _numbers([value for value in values if type(value) is float])
    return values


def _numbers(values: list[Any]) -> list[float]:
    _sure(set(map(type, values)) <= {int, float} and all(map(math.isfinite, values)))
    return list(map(float, values))


def _names(values: list[Any], *, gaps: bool = False) -> list[Any]:
    _sure(set(map(type, values)) <= {str, *((NONE,) if gaps else ())})
    _sure(all(name is None or 0 < len(name) <= LONGEST_NAME for name in set(values)))
    return values


def _matrix(rows: list[Any]) -> Tensor:
    """Return features.  -> float32 [rows, width]"""
    width = len(rows[0]) if rows and type(rows[0]) is list else 0
    flat = _flat(rows, width)
    _sure(set(map(type, flat)) <= {int, float})
    numbers = np.array(flat, dtype=np.float64)
    _sure(bool(np.isfinite(numbers).all()))
    with np.errstate(over="ignore"):  # what is too large for float32 is infinite, and refused so
        matrix = numbers.astype(np.float32)
    return torch.from_numpy(matrix.reshape(len(rows), width))


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
