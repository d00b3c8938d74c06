"""Who may read and who may write."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from evergraph.core.errors import ConfigurationError
from evergraph.server.private_file import read_private

Scope = Literal["read", "follow", "write"]
# What a token allows: whoever follows copies everything there is, which is more than to read.
RIGHTS: dict[Scope, tuple[Scope, ...]] = {
    "read": ("read",),
    "follow": ("read", "follow"),
    "write": ("read", "follow", "write"),
}
SHORTEST = 16  # characters; a shorter secret can be guessed


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
