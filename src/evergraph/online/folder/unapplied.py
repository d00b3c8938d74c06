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
        if not isinstance(error, EvergraphError | MemoryError):
            logger.error("%s could not be applied", named(entries), exc_info=error)
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return cls(named(entries), why, ResourceError if _needs_more(error) else DataError)

    def refusal(self, path: Path) -> EvergraphError:
        """Return what the senders are told."""
        return self.kind(
            f"{path}: {self.deltas} could not be applied ({self.why}): set aside, and nothing was "
            "changed"
        )


def _needs_more(error: Exception) -> bool:
    """Whether memory or disk did not suffice.

    >>> _needs_more(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ..."))
    True
    """
    return isinstance(error, MemoryError | ResourceError) or "can't allocate memory" in str(error)
