"""Who is let in: known tokens, not too often, and no page of another site."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from evergraph.core.errors import ConfigurationError
from evergraph.server.http import RefusedError
from evergraph.server.observability import audit
from evergraph.server.secret_files import read_private

if TYPE_CHECKING:
    from evergraph.server.limits import Limits

Scope = Literal["read", "follow", "write"]
# What a token allows: whoever follows copies everything there is, which is more than to read.
RIGHTS: dict[Scope, tuple[Scope, ...]] = {
    "read": ("read",),
    "follow": ("read", "follow"),
    "write": ("read", "follow", "write"),
}
SHORTEST = 16  # characters; a shorter secret can be guessed
MOST = 10_000  # callers remembered at once
SAID = 5  # refusals of an address that are written down one by one, in a minute
MINUTE = 60.0
HERE = ("127.0.0.1", "localhost", "[::1]")
BEARER = HTTPBearer(auto_error=False, description="A token of the service's token file.")
Given = Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]


@dataclass(frozen=True)
class Tokens:
    """Secrets, each with what it allows; who may write may read and follow.

    >>> tokens = Tokens((("read", "r" * 16), ("write", "w" * 16)))
    >>> tokens.scope_of("w" * 16), tokens.scope_of("guessed")
    ('write', None)
    """

    listed: Sequence[tuple[Scope, str]] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.listed)

    def scope_of(self, token: str) -> Scope | None:
        """Return what a token allows, None for one that is not listed.

        Every listed token is compared, in constant time: how long it takes tells nothing.
        """
        given = token.encode()
        found: Scope | None = None
        for scope, known in self.listed:
            if hmac.compare_digest(given, known.encode()):
                found = scope
        return found


class CurrentTokens:
    """Tokens that can be replaced while a service runs.

    Attributes:
        now: those that are valid from the next request on.

    >>> tokens = CurrentTokens(Tokens((("read", "r" * 16),)))
    >>> tokens.now = Tokens((("read", "s" * 16),))
    >>> tokens.scope_of("r" * 16), tokens.scope_of("s" * 16)
    (None, 'read')
    """

    def __init__(self, tokens: Tokens) -> None:
        self.now = tokens

    def scope_of(self, token: str) -> Scope | None:
        """Return what a token allows, None for one that is not listed."""
        return self.now.scope_of(token)


def read_tokens(path: Path) -> Tokens:
    """Read a file of lines such as ``write 3f9a...``; ``#`` begins a comment."""
    try:
        lines = read_private(path, "token file").decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: the token file cannot be read ({error})") from error
    rows = [(number, line.split("#")[0].split()) for number, line in enumerate(lines, start=1)]
    listed = tuple(_entry(path, number, words) for number, words in rows if words)
    if not listed:
        raise ConfigurationError(f"{path}: the token file must list a token, as in 'write SECRET'")
    _check_distinct(path, listed)
    return Tokens(listed)


def _entry(path: Path, number: int, words: list[str]) -> tuple[Scope, str]:
    """Read one line; what it holds is never repeated in a message."""
    rule = f"{path}: line {number} must be 'read TOKEN', 'follow TOKEN' or 'write TOKEN'"
    found: Scope | None = next((scope for scope in RIGHTS if scope == words[0]), None)
    if len(words) != 2 or found is None:
        raise ConfigurationError(f"{rule}, not {len(words)} words beginning otherwise")
    if len(words[1]) < SHORTEST or not words[1].isascii():
        raise ConfigurationError(
            f"{rule}, the token of at least {SHORTEST} ASCII characters, not {len(words[1])}"
        )
    return found, words[1]


def _check_distinct(path: Path, listed: Sequence[tuple[Scope, str]]) -> None:
    if len({token for _, token in listed}) < len(listed):
        raise ConfigurationError(f"{path}: every token must be listed once, and one is there twice")


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


class RefusedTokens:
    """Counts refused tokens by address, and writes them down: never the token.

    The first five of a minute have a line each, then every tenth power of them: a line says how
    many there were in this minute, and an address that guesses for a day does not fill a disk.

    Args:
        clock: seconds from some moment on.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[str, tuple[float, int]] = {}

    def note(self, address: str, reason: str) -> None:
        """Count one, and write it down unless there are too many."""
        now, group = self._clock(), group_of(address)
        since, count = self._counts.pop(group, (now, 0))
        if now - since >= MINUTE:
            since, count = now, 0
        count += 1
        if len(self._counts) >= MOST:
            del self._counts[next(iter(self._counts))]  # whoever was refused least lately
        self._counts[group] = (since, count)
        if count <= SAID or str(count).strip("0") == "1":
            audit(
                "token refused",
                level=logging.WARNING,
                address=address,
                reason=reason,
                in_this_minute=count,
            )


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


def group_of(address: str) -> str:
    """Return what is counted as one address: for IPv6 all that one network gives out.

    >>> group_of("192.0.2.1"), group_of("2001:db8::1") == group_of("2001:db8::2")
    ('192.0.2.1', True)
    """
    bare = _plain(address)
    if ":" not in bare:
        return bare
    try:
        return str(ipaddress.IPv6Address(int(ipaddress.IPv6Address(bare)) >> 64 << 64))
    except ValueError:  # a name that a proxy gave
        return bare


def _plain(address: str) -> str:
    """Return an address as its owner writes it: IPv4 comes through IPv6 sockets in disguise.

    >>> _plain("::ffff:192.0.2.1"), _plain("fe80::1%eth0")
    ('192.0.2.1', 'fe80::1')
    """
    if ":" not in address:
        return address
    bare = address.partition("%")[0]
    return bare[7:] if bare.startswith("::ffff:") and "." in bare else bare
