"""What a user is told in one line, without being stopped."""

from __future__ import annotations

import logging
from collections.abc import Iterable

logger = logging.getLogger(__name__)


def say(where: object, sentence: str) -> None:
    """Log one line as a warning: where it was found, and what.

    Python shows warnings without being asked; the command line writes them to stderr.
    """
    logger.warning("%s: %s", where, sentence)


def say_ignored(where: object, what: str, names: Iterable[object], why: str) -> None:
    """Say that something was given and is not used; where there are no names, say nothing.

    where: a file or an object; what: such as ``column``; why: what is read instead.
    """
    found = [repr(name) for name in names]
    if found:
        many = len(found) > 1
        said = f"{what}{'s' if many else ''} {', '.join(found)} {'are' if many else 'is'} ignored"
        say(where, f"{said}: {why}")
