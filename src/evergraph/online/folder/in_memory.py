"""A learner without a folder, which lasts as long as its process."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any

from evergraph.online.codecs.delta_bytes import delta_to_bytes, digest_of
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder.journal import key_reused
from evergraph.online.learner import OnlineLearner
from evergraph.tables.scheme import Scheme

KEY_AGE, KEYS_KEPT = 7 * 24 * 60 * 60.0, 10_000  # seconds; as those of a folder


class InMemoryLearner:
    """``LearnerFolder`` without the folder: the same interface, in memory only.

    >>> kept = InMemoryLearner(OnlineLearner())
    >>> kept.submit(Delta(key="first")) == kept.submit(Delta(key="first"))
    True
    """

    def __init__(self, learner: OnlineLearner) -> None:
        self.learner = learner
        self.columns: Scheme | None = None
        # Digest, result and time of deltas with keys, the oldest first.
        self._keys: dict[str, tuple[bytes, DeltaResult, float]] = {}

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """What is held while the learner changes."""
        return self.learner.writing

    def submit(self, delta: Delta) -> DeltaResult:
        """Apply a delta, unless one with its key was applied before."""
        if delta.key is None:
            return self.learner.apply(delta)
        with self.lock:
            return self._applied_once(delta, delta.key)

    def _applied_once(self, delta: Delta, key: str) -> DeltaResult:
        digest = digest_of(delta_to_bytes(delta))
        if key not in self._keys:
            result = self.learner.apply(delta)
            self._keys[key] = digest, result, time.time()
            while len(self._keys) > KEYS_KEPT:
                oldest = next(iter(self._keys))
                if time.time() - self._keys[oldest][2] <= KEY_AGE:
                    break
                del self._keys[oldest]
        known, result, _ = self._keys[key]
        if digest != known:
            raise key_reused(key, result.seq)
        return result

    def keep_columns(self, scheme: Scheme | None) -> None:
        """Keep how columns are read, before the first nodes; None for plain numbers."""
        self.columns = scheme

    def refresh(self) -> int:
        """Do nothing: there is no other writer."""
        return 0

    def close(self) -> None:
        """Do nothing."""
