"""What the OpenAPI document says of bodies and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergraph.server.media import JSON
from evergraph.server.payloads import schema_of
from evergraph.server.replies import ErrorReply

if TYPE_CHECKING:
    from pydantic import BaseModel

MEANINGS = {
    400: "The request ended early.",
    401: "No token, or a wrong one.",
    403: "The token may not do this.",
    404: "A node that is not known.",
    409: "A node that is known already, a key that has other contents, or no class to predict yet.",
    413: "Too large.",
    415: "Another content type than those listed.",
    422: "Not what it should be.",
    429: "Too many requests: see Retry-After.",
    503: "Too busy, too slow or stopping: see Retry-After.",
    507: "The disk is full.",
}
ERROR = {"$ref": "#/components/schemas/ErrorReply"}
KEY_HEADER = {
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "The same key twice counts once. The same as the field `key`.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
        }
    ]
}


def accepts(model: type[BaseModel], *others: str) -> dict[str, Any]:
    """Return the description of a body: JSON, or bytes of other media types."""
    content: dict[str, Any] = {JSON: {"schema": schema_of(model)}}
    for kind in others:
        content[kind] = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": content}}


def answers(model: type[BaseModel], *refusals: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of an answer and of what may be refused."""
    said: dict[int | str, dict[str, Any]] = {200: {"model": model, "description": "Done."}}
    for status in refusals:
        said[status] = {"model": ErrorReply, "description": MEANINGS[status]}
    return said
