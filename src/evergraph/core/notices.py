"""One-line warnings for users."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cache

logger = logging.getLogger(__name__)


def say(where: object, sentence: str) -> None:
    """Log one line as a warning: the source, and a sentence.

    Python shows warnings by default; the command line writes them to stderr.
    """
    logger.warning("%s: %s", where, sentence)


@cache
def say_once(where: object, sentence: str) -> None:
    """Log a line at most once per process."""
    say(where, sentence)


def say_ignored(where: object, what: str, names: Iterable[object], why: str) -> None:
    """Log that something was given but is not used; log nothing if there are no names.

    where: a file or an object; what: such as ``column``; why: the reason.
    """
    found = [repr(name) for name in names]
    if found:
        many = len(found) > 1
        said = f"{what}{'s' if many else ''} {', '.join(found)} {'are' if many else 'is'} ignored"
        say(where, f"{said}: {why}")
