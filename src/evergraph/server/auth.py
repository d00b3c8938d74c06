"""Access control: tokens, rate limits, the Host check without tokens, and TLS certificates."""

from __future__ import annotations

import hmac
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
from evergraph.server.http import CALLER, RefusedError, address_of
from evergraph.server.observability import audit

if TYPE_CHECKING:
    from evergraph.server.http import Limits

Scope = Literal["read", "follow", "write"]
# Rights of each scope. ``follow`` may copy the whole folder, which is more than reading.
RIGHTS: dict[Scope, tuple[Scope, ...]] = {
    "read": ("read",),
    "follow": ("read", "follow"),
    "write": ("read", "follow", "write"),
}
MIN_TOKEN_LENGTH = 16  # characters; a shorter secret can be guessed
MAX_CALLERS = 10_000  # remembered at once
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
BEARER = HTTPBearer(auto_error=False, description="A token from the service's token file.")
BearerToken = Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]


def read_private(path: Path, called: str) -> bytes:
    """Return the contents of a file of secrets; reject one that others could have read.

    Its group may read it if it belongs to root and this process does not run as root: so systemd
    and Kubernetes hand out secrets.  called: what the file is, for error messages
    """
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):  # reading a pipe would wait for a writer
            raise ConfigurationError(f"{path}: the {called} must be a plain file")
        text = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: the {called} cannot be read ({error})") from error
    mode = stat.S_IMODE(about.st_mode)
    handed_out = about.st_uid == 0 and os.geteuid() != 0
    if mode & (0o037 if handed_out else 0o077):
        who = "everyone" if mode & stat.S_IRWXO else "its group"
        raise ConfigurationError(
            f"{path}: the {called} must be readable by its owner only, and mode {mode:04o} "
            f"opens it to {who}: chmod 600 {path}"
        )
    return text


@dataclass
class Tokens:
    """Tokens and their scopes, which may be replaced while the service runs."""

    listed: Sequence[tuple[Scope, str]] = field(default=(), repr=False)

    def scope_of(self, token: str) -> Scope | None:
        """Return the scope of a token, None if it is not listed.

        Every listed token is compared, in constant time, so that timing reveals nothing.
        """
        token_bytes = token.encode()
        scopes = [s for s, known in self.listed if hmac.compare_digest(token_bytes, known.encode())]
        return scopes[-1] if scopes else None


def read_tokens(path: Path) -> Tokens:
    """Read a file of lines such as ``write 3f9a...``; errors never quote a line."""
    # What is not UTF-8 is found below to be no ASCII.
    lines = read_private(path, "token file").decode("utf-8", "replace").splitlines()
    listed: list[tuple[Scope, str]] = []
    for number, line in enumerate(lines, start=1):
        words = line.split("#")[0].split()
        if not words:
            continue
        rule = f"{path}: line {number} must be 'read TOKEN', 'follow TOKEN' or 'write TOKEN'"
        if len(words) != 2 or words[0] not in RIGHTS:
            raise ConfigurationError(f"{rule}, not {len(words)} other words")
        if len(words[1]) < MIN_TOKEN_LENGTH or not words[1].isascii():
            raise ConfigurationError(
                f"{rule} with at least {MIN_TOKEN_LENGTH} ASCII characters, not {len(words[1])}"
            )
        listed.append((words[0], words[1]))
    if not listed:
        raise ConfigurationError(f"{path}: the token file must list a token, as in 'write SECRET'")
    if len({token for _, token in listed}) < len(listed):
        raise ConfigurationError(f"{path}: every token must be listed once, not twice")
    return Tokens(tuple(listed))


class Buckets:
    """A token bucket per caller: ``burst`` tokens at most, ``rate`` more every second.

    With too many callers, the least recent one is forgotten.
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
        if len(self._left) > MAX_CALLERS:
            self._left.popitem(last=False)
        return 0.0 if taken else (1 - left) / self.rate


class Guard:
    """Admits or rejects requests, before their body is read.

    Without tokens the Host header must name this machine: a page of another site can point its own
    name here (DNS rebinding), but the browser still sends that name.
    """

    def __init__(self, tokens: Tokens | None, limits: Limits) -> None:
        self._tokens = tokens
        self._buckets = Buckets(rate=limits.rate, burst=limits.burst)
        self._guesses = Buckets(
            rate=min(limits.rate, limits.guesses),
            burst=min(limits.burst, max(1, round(2 * limits.guesses))),
        )

    def needs(self, scope: Scope) -> Callable[..., Awaitable[None]]:
        """Return a FastAPI dependency that admits callers with a scope."""

        async def check(request: Request, given: BearerToken) -> None:  # given: for OpenAPI only
            self.admit(request, scope)

        return check

    def admit(self, request: Request, needed: Scope) -> None:
        """Raise unless a request may do what needs this scope."""
        address = address_of(request)
        if self._tokens is None:
            self._check_rate(address)
            hosts = request.headers.getlist("host")
            if len(hosts) > 1:
                raise RefusedError(400, f"a request must have one Host, not {len(hosts)}")
            host = hosts[0] if hosts else ""
            if host.rsplit(":", 1)[0] not in LOOPBACK_NAMES and host not in LOOPBACK_NAMES:
                sentence = f"without tokens the service answers to localhost, not to {host!r}"
                raise RefusedError(403, sentence)
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip() if scheme.lower() == "bearer" else ""
        scope = self._tokens.scope_of(token)
        if scope is None:
            self._reject_token(address, token)
        self._check_rate(token)
        if needed not in RIGHTS[scope]:
            _log_refusal(address, f"may {scope}, needed to {needed}")
            raise RefusedError(403, f"the token may {scope}, and this needs one that may {needed}")

    def _reject_token(self, address: str, token: str) -> NoReturn:
        """Reject a missing or invalid token; 429 for an address that guesses too often.

        Valid tokens are never counted here, so an attacker cannot lock anybody out.
        """
        _log_refusal(address, "unknown token" if token else "no token")
        wait = self._guesses.take(address)
        if wait:
            raise RefusedError(429, "too many invalid tokens from this address", retry_after=wait)
        if token:
            raise RefusedError(401, "the token is not valid for this service")
        raise RefusedError(
            401, "a token is needed: give --token-file, or the header 'Authorization: Bearer TOKEN'"
        )

    def _check_rate(self, caller: str) -> None:
        CALLER.set(caller)
        wait = self._buckets.take(caller)
        if wait:
            rate = self._buckets.rate
            raise RefusedError(
                429, f"requests must be at most {rate:g} a second per caller", retry_after=wait
            )


def _log_refusal(address: str, reason: str) -> None:
    """Log a refused token, never the token itself; ``WarningLimit`` bounds how many lines."""
    audit("token refused", level=logging.WARNING, address=address, reason=reason)


class Tls:
    """The service's certificate and key, PEM files.

    cert: with intermediate certificates; key: readable by its owner only; password_file: its first
    line is the key's password, if it has one.
    """

    def __init__(self, cert: Path, key: Path, password_file: Path | None = None) -> None:
        self.cert = cert
        self.key = key
        self.password_file = password_file
        # Of all connections; ``renew`` updates the same object.
        self.context = self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def renew(self) -> None:
        """Read the files again, for new connections; if they are invalid nothing changes."""
        self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        self._loaded(self.context)

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        read_private(self.key, "key of the certificate")
        password = b""
        if self.password_file is not None:
            lines = read_private(self.password_file, "password of the certificate's key")
            password = next((line.strip() for line in lines.splitlines()), b"")
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        try:
            # A password is always given: without one, OpenSSL would prompt at the terminal.
            context.load_cert_chain(self.cert, self.key, password)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConfigurationError(
                f"{self.cert}, {self.key}: the certificate and its key must be PEM files that "
                f"belong together ({error})"
            ) from None
        return context


def tls_of(cert: Path | None, key: Path | None, password_file: Path | None = None) -> Tls | None:
    """Return the certificate that the options name, None if they name none."""
    if cert is not None and key is not None:
        return Tls(cert, key, password_file)
    if cert is not None or key is not None or password_file is not None:
        raise ConfigurationError("--tls-cert and --tls-key must be given together")
    return None
