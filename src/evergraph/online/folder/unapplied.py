"""What is said about deltas that were written down and could not be applied."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evergraph.core.errors import DataError, EvergraphError, ResourceError
from evergraph.online.folder.entries import JournalEntry, named

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unapplied:
    """Deltas that could not be applied.

    It does not hold the error itself: its frames hold what applying needed memory for.

    Attributes:
        deltas: which ones.
        why: what went wrong.
        kind: of what the senders are told.
    """

    deltas: str
    why: str
    kind: type[EvergraphError]

    @classmethod
    def of(cls, entries: Sequence[JournalEntry], error: Exception) -> Unapplied:
        """Return what is said after an error; one that nobody foresaw is logged whole."""
        lacking = _needs_more(error)
        if not lacking and not isinstance(error, EvergraphError):
            logger.error("%s could not be applied", named(entries), exc_info=error)
        return cls(named(entries), reason(error), ResourceError if lacking else DataError)

    def refusal(self, path: Path) -> EvergraphError:
        """Return what the senders are told."""
        return self.kind(
            f"{path}: {self.deltas} could not be applied ({self.why}): set aside, and nothing was "
            "changed"
        )


def reason(error: Exception) -> str:
    """Return what went wrong, in one line.

    >>> reason(MemoryError()), reason(KeyError("a"))
    ('MemoryError', "KeyError: 'a'")
    """
    first = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _needs_more(error: Exception) -> bool:
    """Whether memory or disk did not suffice; torch says that in its own words.

    >>> _needs_more(RuntimeError("[...] DefaultCPUAllocator: not enough memory: you tried to ..."))
    True
    """
    return isinstance(error, MemoryError | OSError | ResourceError) or "DefaultCPUAllocator" in str(
        error
    )
