"""Who is let in: known tokens, not too often, and no page of another site."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, NoReturn

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from evergraph.server.gate import group_of
from evergraph.server.guessing import RefusedTokens
from evergraph.server.http import RefusedError
from evergraph.server.tokens import RIGHTS

if TYPE_CHECKING:
    from evergraph.server.limits import Limits
    from evergraph.server.tokens import CurrentTokens, Scope, Tokens

MOST = 10_000  # callers remembered at once


class Buckets:
    """A token bucket per caller: ``burst`` tokens at most, ``rate`` more every second.

    Args:
        rate: tokens in a second.
        burst: what a bucket holds.
        clock: seconds from some moment on.

    >>> buckets = Buckets(rate=2.0, burst=1, clock=iter([0.0, 0.1, 0.6]).__next__)
    >>> buckets.take("me"), round(buckets.take("me"), 1), buckets.take("me")
    (0.0, 0.4, 0.0)
    """

    def __init__(
        self, *, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, caller: str) -> float:
        """Take a token; return 0, or the seconds until there is one."""
        now = self._clock()
        left, since = self._left.get(caller, (float(self.burst), now))
        left = min(self.burst, left + self.rate * (now - since))
        taken = left >= 1
        if caller not in self._left and len(self._left) >= MOST:
            self._forget_the_idle(now)
        self._left[caller] = (left - taken, now)
        return 0.0 if taken else (1 - left) / self.rate

    def _forget_the_idle(self, now: float) -> None:
        """Drop full buckets, which say nothing, and the oldest if there are none."""
        full = self.burst / self.rate
        kept = {who: b for who, b in self._left.items() if now - b[1] < full}
        if len(kept) >= MOST:
            kept.pop(min(kept, key=lambda who: kept[who][1]))
        self._left = kept


HERE = ("127.0.0.1", "localhost", "[::1]")
BEARER = HTTPBearer(auto_error=False, description="A token of the service's token file.")


Given = Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]


class Guard:
    """Lets requests pass or refuses them, before their body is read.

    Without tokens only this machine is served, under its own names: a page of another site can
    make its name point here, but then the browser still sends that name.
    """

    def __init__(self, tokens: Tokens | CurrentTokens | None, limits: Limits) -> None:
        self._tokens = tokens
        self._buckets = Buckets(rate=limits.rate, burst=limits.burst)
        self._guesses = Buckets(
            rate=min(limits.rate, limits.guesses),
            burst=min(limits.burst, max(1, round(2 * limits.guesses))),
        )
        self._refused = RefusedTokens()

    def needs(self, scope: Scope) -> Callable[..., Awaitable[None]]:
        """Return a check that a caller may ``scope``."""

        async def check(request: Request, given: Given) -> None:  # given: so that it is described
            self.admit(request, scope)

        return check

    def admit(self, request: Request, needed: Scope) -> None:
        """Raise unless a caller may do what it asks for."""
        address = "?" if request.client is None else request.client.host
        if self._tokens is None:
            self._slow_down(address)
            self._check_host(request)
            return
        given = _bearer(request.headers.get("authorization", ""))
        held = None if given is None else self._tokens.scope_of(given)
        if given is None or held is None:
            self._turn_away(address, given)
        self._slow_down(given)
        if needed not in RIGHTS[held]:
            self._refused.note(address, f"may {held}, needed to {needed}")
            raise RefusedError(403, f"the token may {held}, and this needs one that may {needed}")

    def _turn_away(self, address: str, given: str | None) -> NoReturn:
        """Refuse a caller without a token of ours; those of one address share few refusals.

        A known token is not looked up there, so who guesses locks nobody out.
        """
        self._refused.note(address, "no token" if given is None else "unknown token")
        wait = self._guesses.take(group_of(address))
        if wait:
            raise RefusedError(429, "too many tokens of yours were refused", retry_after=wait)
        if given is None:
            raise RefusedError(
                401, "a token is needed: send the header 'Authorization: Bearer TOKEN'"
            )
        raise RefusedError(401, "the token is not one of this service")

    def _slow_down(self, caller: str) -> None:
        wait = self._buckets.take(caller)
        if wait:
            rate = self._buckets.rate
            raise RefusedError(
                429, f"at most {rate:g} requests a second are served to you", retry_after=wait
            )

    def _check_host(self, request: Request) -> None:
        told = request.headers.getlist("host")
        if len(told) > 1:
            raise RefusedError(400, f"a request must have one Host, not {len(told)}")
        host = told[0] if told else ""
        if host.rsplit(":", 1)[0] not in HERE and host not in HERE:
            raise RefusedError(
                403, f"without tokens the service answers to localhost, not to {host!r}"
            )


def _bearer(header: str) -> str | None:
    """Return the token of an ``Authorization`` header, None where it holds none.

    >>> _bearer("Bearer secret"), _bearer("Basic secret"), _bearer("")
    ('secret', None, None)
    """
    scheme, _, token = header.partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
