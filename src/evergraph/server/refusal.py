"""A request that is not served."""

from __future__ import annotations

import math

from evergraph.core.errors import EvergraphError


class RefusedError(EvergraphError):
    """What is said instead of an answer: an HTTP status and one sentence.

    >>> RefusedError(404, "there is no node 'a'").status
    404
    """

    def __init__(self, status: int, sentence: str, *, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """When to come back, and how to say who one is."""
        wait = self.retry_after
        said = {} if wait is None else {"Retry-After": str(math.ceil(max(1.0, wait)))}
        return said | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})
