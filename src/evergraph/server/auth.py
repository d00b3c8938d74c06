"""Who is let in: known tokens, not too often, and no page of another site; certificates."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import ssl
import stat
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from evergraph.core.errors import ConfigurationError
from evergraph.server.http import RefusedError
from evergraph.server.observability import audit

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
LARGEST = 1_000_000  # bytes of a file of secrets
MOST = 10_000  # callers remembered at once
SAID = 5  # refusals of an address that are written down one by one, in a minute
MINUTE = 60.0
HERE = ("127.0.0.1", "localhost", "[::1]")
BEARER = HTTPBearer(auto_error=False, description="A token of the service's token file.")
Given = Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]


def read_private(path: Path, called: str) -> bytes:
    """Return what a file of secrets holds; refuse one that others could have read.

    Its group may read it only where it belongs to root and this process does not run as root: that
    is how systemd and Kubernetes hand secrets to a service. A link is followed, and what it leads
    to is looked at.

    called: what the file is, for a sentence.
    """
    try:
        # A pipe would keep us waiting for whoever writes to it.
        opened = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(opened, "rb") as file:
            found = os.fstat(file.fileno())
            text = file.read(LARGEST + 1) if stat.S_ISREG(found.st_mode) else b""
    except OSError as error:
        raise ConfigurationError(f"{path}: the {called} cannot be read ({error})") from error
    if not stat.S_ISREG(found.st_mode):
        raise ConfigurationError(f"{path}: the {called} must be a plain file")
    if len(text) > LARGEST:
        raise ConfigurationError(
            f"{path}: the {called} must have at most {LARGEST} bytes, not {found.st_size}"
        )
    mode = stat.S_IMODE(found.st_mode)
    if os.name == "posix":
        handed_out = found.st_uid == 0 and os.geteuid() != 0
        if mode & (0o037 if handed_out else 0o077):
            who = "everyone" if mode & stat.S_IRWXO else "its group"
            raise ConfigurationError(
                f"{path}: the {called} must be open to its owner alone, and mode {mode:04o} opens "
                f"it to {who}: chmod 600 {path}"
            )
    return text


@dataclass
class Tokens:
    """Secrets, each with what it allows; who may write may read and follow.

    Attributes:
        listed: those that are valid from the next request on; they may be replaced.

    >>> tokens = Tokens((("read", "r" * 16), ("write", "w" * 16)))
    >>> tokens.scope_of("w" * 16), tokens.scope_of("guessed")
    ('write', None)
    """

    listed: Sequence[tuple[Scope, str]] = field(default=(), repr=False)

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


def read_tokens(path: Path) -> Tokens:
    """Read a file of lines such as ``write 3f9a...``; ``#`` begins a comment.

    What a line holds is never repeated in a message.
    """
    try:
        lines = read_private(path, "token file").decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: the token file cannot be read ({error})") from error
    listed: list[tuple[Scope, str]] = []
    for number, line in enumerate(lines, start=1):
        words = line.split("#")[0].split()
        if not words:
            continue
        rule = f"{path}: line {number} must be 'read TOKEN', 'follow TOKEN' or 'write TOKEN'"
        scope: Scope | None = next((scope for scope in RIGHTS if scope == words[0]), None)
        if len(words) != 2 or scope is None:
            raise ConfigurationError(f"{rule}, not {len(words)} words beginning otherwise")
        if len(words[1]) < SHORTEST or not words[1].isascii():
            raise ConfigurationError(
                f"{rule}, the token of at least {SHORTEST} ASCII characters, not {len(words[1])}"
            )
        listed.append((scope, words[1]))
    if not listed:
        raise ConfigurationError(f"{path}: the token file must list a token, as in 'write SECRET'")
    if len({token for _, token in listed}) < len(listed):
        raise ConfigurationError(f"{path}: every token must be listed once, and one is there twice")
    return Tokens(tuple(listed))


class Buckets:
    """A token bucket per caller: ``burst`` tokens at most, ``rate`` more every second.

    Whoever asked least lately is forgotten where there are too many callers.

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
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> float:
        """Take a token; return 0, or the seconds until there is one."""
        now = self._clock()
        left, since = self._left.pop(caller, (float(self.burst), now))
        left = min(self.burst, left + self.rate * (now - since))
        taken = left >= 1
        self._left[caller] = (left - taken, now)
        if len(self._left) > MOST:
            self._left.popitem(last=False)
        return 0.0 if taken else (1 - left) / self.rate


class Guard:
    """Lets requests pass or refuses them, before their body is read.

    Without tokens only this machine is served, under its own names: a page of another site can
    make its name point here, but then the browser still sends that name.
    """

    def __init__(self, tokens: Tokens | None, limits: Limits) -> None:
        self._tokens = tokens
        self._buckets = Buckets(rate=limits.rate, burst=limits.burst)
        self._guesses = Buckets(
            rate=min(limits.rate, limits.guesses),
            burst=min(limits.burst, max(1, round(2 * limits.guesses))),
        )
        # Refused tokens by address: since when, and how many.
        self._refused: OrderedDict[str, tuple[float, int]] = OrderedDict()

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
            _check_host(request)
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
        held = self._tokens.scope_of(given)
        if held is None:
            self._turn_away(address, given)
        self._slow_down(given)
        if needed not in RIGHTS[held]:
            self._note(address, f"may {held}, needed to {needed}")
            raise RefusedError(403, f"the token may {held}, and this needs one that may {needed}")

    def _turn_away(self, address: str, given: str) -> NoReturn:
        """Refuse a caller without a token of ours; those of one address share few refusals.

        A known token is not looked up there, so who guesses locks nobody out.
        """
        self._note(address, "unknown token" if given else "no token")
        wait = self._guesses.take(group_of(address))
        if wait:
            raise RefusedError(429, "too many tokens of yours were refused", retry_after=wait)
        if given:
            raise RefusedError(401, "the token is not one of this service")
        raise RefusedError(401, "a token is needed: send the header 'Authorization: Bearer TOKEN'")

    def _note(self, address: str, reason: str) -> None:
        """Count a refused token, and write it down: never the token.

        The first five of a minute have a line each, then every tenth power of them: a line says
        how many there were, and an address that guesses for a day does not fill a disk.
        """
        now, group = time.monotonic(), group_of(address)
        since, count = self._refused.pop(group, (now, 0))
        if now - since >= MINUTE:
            since, count = now, 0
        count += 1
        self._refused[group] = (since, count)
        if len(self._refused) > MOST:
            self._refused.popitem(last=False)
        if count <= SAID or str(count).strip("0") == "1":
            facts = {"address": address, "reason": reason, "in_this_minute": count}
            audit("token refused", level=logging.WARNING, **facts)

    def _slow_down(self, caller: str) -> None:
        wait = self._buckets.take(caller)
        if wait:
            rate = self._buckets.rate
            raise RefusedError(
                429, f"at most {rate:g} requests a second are served to you", retry_after=wait
            )


def _check_host(request: Request) -> None:
    told = request.headers.getlist("host")
    if len(told) > 1:
        raise RefusedError(400, f"a request must have one Host, not {len(told)}")
    host = told[0] if told else ""
    if host.rsplit(":", 1)[0] not in HERE and host not in HERE:
        raise RefusedError(403, f"without tokens the service answers to localhost, not to {host!r}")


def group_of(address: str) -> str:
    """Return what is counted as one address: for IPv6 all that one network gives out.

    IPv4 comes through IPv6 sockets in disguise.

    >>> group_of("::ffff:192.0.2.1"), group_of("2001:db8::1") == group_of("2001:db8::2%eth0")
    ('192.0.2.1', True)
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a name that a proxy gave
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), 64), strict=False))


class Tls:
    """The service's certificate and its key, as they were when they were last read.

    Args:
        cert: PEM file of the certificate, and of those between it and its authority.
        key: PEM file of its key, open to its owner alone.
        password_file: file whose first line is the key's password, if it has one.

    Attributes:
        context: what connections are secured with; the same object for good.
    """

    def __init__(self, cert: Path, key: Path, password_file: Path | None = None) -> None:
        self.cert = cert
        self.key = key
        self.password_file = password_file
        self.context = self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def renew(self) -> None:
        """Read the files again, for connections that begin from now on.

        Where they do not fit one sentence is raised, and nothing has changed.
        """
        self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        self._loaded(self.context)

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        read_private(self.key, "key of the certificate")
        password = b"" if self.password_file is None else self._password(self.password_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        try:
            # A password is always given: without one, OpenSSL would ask for it at the terminal.
            context.load_cert_chain(self.cert, self.key, password)
        except (OSError, ValueError) as error:  # ssl.SSLError is one
            raise ConfigurationError(
                f"{self.cert}, {self.key}: the certificate and its key must be PEM files that "
                f"belong together ({error})"
            ) from None
        return context

    def _password(self, path: Path) -> bytes:
        lines = read_private(path, "password of the certificate's key").splitlines()
        return lines[0].strip() if lines else b""


def tls_of(cert: Path | None, key: Path | None, password_file: Path | None = None) -> Tls | None:
    """Return what was asked for: None without a certificate.

    >>> tls_of(None, None) is None
    True
    """
    if cert is not None and key is not None:
        return Tls(cert, key, password_file)
    if cert is not None or key is not None or password_file is not None:
        raise ConfigurationError("--tls-cert and --tls-key must be given together")
    return None
