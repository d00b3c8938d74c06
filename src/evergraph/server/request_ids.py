"""A name for every request, by which its answer and its lines in the log are found."""

from __future__ import annotations

import os
import re
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Scope

HEADER = b"x-request-id"
SANE = re.compile(rb"[!-~]{1,64}").fullmatch  # nothing that could break a line of the log
# Set for the time of a request, in its task and in the threads that work for it.
REQUEST_ID: ContextVar[str] = ContextVar("evergraph_request_id", default="")
_PROCESS = os.urandom(4).hex()  # ids of other processes, and of those before, are others
_number = count(1).__next__


def request_id_of(scope: Scope) -> str:
    """Return the id that a request brings, or a new one where it brings none that is sane.

    >>> request_id_of({"headers": [(b"x-request-id", b"from-my-proxy-7")]})
    'from-my-proxy-7'
    >>> first, second = request_id_of({"headers": []}), request_id_of({"headers": []})
    >>> first != second, len(request_id_of({"headers": [(b"x-request-id", b"two words")]})) < 20
    (True, True)
    """
    for name, value in scope.get("headers", ()):
        if name == HEADER and SANE(value):
            sent: str = value.decode("ascii")
            return sent
    return f"{_PROCESS}-{_number():x}"
