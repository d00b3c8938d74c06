"""The body of a request, if it is of the right kind, small enough and in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import anyio
from pydantic import BaseModel, ValidationError

from evergraph.server.refusal import RefusedError

if TYPE_CHECKING:
    from starlette.requests import Request

    from evergraph.server.limits import Limits

Model = TypeVar("Model", bound=BaseModel)


def media_type(request: Request, *allowed: str) -> str:
    """Return what the body is said to be.

    A body that is not said to be JSON is refused even if it is: pages of other sites can send
    plain text to a service on this machine, but not JSON.
    """
    said = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if said not in allowed:
        raise RefusedError(415, f"content-type must be {' or '.join(allowed)}, not {said!r}")
    return said


async def read_body(request: Request, limits: Limits) -> bytes:
    """Read a body, and stop reading where it is larger than allowed."""
    sentence = f"the body must have at most {limits.body} bytes"
    declared = request.headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdigit()):
        raise RefusedError(422, f"content-length must be a whole number, not {declared!r}")
    if int(declared) > limits.body:
        raise RefusedError(413, f"{sentence}, not {int(declared)}")
    body = bytearray()
    try:
        with anyio.fail_after(limits.seconds):
            async for part in request.stream():
                body += part
                if len(body) > limits.body:
                    raise RefusedError(413, sentence)
    except TimeoutError:
        raise RefusedError(
            503, f"the body took longer than {limits.seconds:g} s to arrive"
        ) from None
    return bytes(body)


def parse(model: type[Model], body: bytes) -> Model:
    """Read JSON as ``model``; what does not fit is said in one sentence."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise RefusedError(422, sentence_of(error)) from None


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
