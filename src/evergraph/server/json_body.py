"""What a body of JSON says: read as a model, and refused where a key comes twice."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from evergraph.server.http import RefusedError

LONGEST = 40  # characters of a key that are told
_KEY = re.compile(rb'"[ \t\r\n]*:')
Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], body: bytes) -> Model:
    """Read JSON as ``model``; what does not fit is said in one sentence."""
    try:
        found = model.model_validate_json(body)
    except ValidationError as error:
        raise RefusedError(422, sentence_of(error)) from None
    rows: Sequence[Mapping[str, Any]] = getattr(found, "rows", ())
    refuse_twice(body, len(found.model_fields_set) + sum(map(len, rows)))
    return found


def sentence_of(error: ValidationError) -> str:
    """Return the first thing wrong: where, and what was expected."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    loc, said = errors[0]["loc"], errors[0]["msg"]
    # Behind the field's name stand numbers, and for ids which of their two kinds was tried.
    place = "".join(f"[{part}]" for part in loc[1:] if isinstance(part, int))
    if any(isinstance(part, str) for part in loc[1:]):
        said = "must be a string of 1 to 1024 characters or a whole number of 64 bits"
    said = said[:1].lower() + said[1:]
    return f"{loc[0] if loc else 'body'}{place}: {said}"[:500]


def refuse_twice(body: bytes, keys: int) -> None:
    """Raise where a key comes twice in an object of a body that was read already.

    Who reads it keeps the last of the two in silence. A body with no more colons than keys has
    none, nor has one with no more colons behind a quotation mark: in a text that mark is escaped,
    and counts too. Whatever else is read once more.

    keys: how many all objects of the body had together once they were read.

    >>> refuse_twice(b'{"ids": ["a:b"]}', 1)
    >>> refuse_twice(b'{"ids": ["a"], "ids": ["b"]}', 1)
    Traceback (most recent call last):
    evergraph.server.http.RefusedError: key 'ids' must come once in an object, and comes twice
    """
    if body.count(b":") == keys or sum(1 for _ in _KEY.finditer(body)) == keys:
        return
    json.loads(body, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise RefusedError(
                400, f"key {name[:LONGEST]!r} must come once in an object, and comes twice"
            )
        found[name] = value
    return found
