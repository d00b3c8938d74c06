"""A learner without a folder, which lasts as long as its process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from evergraph.online.codecs.delta_bytes import delta_to_bytes
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder.journal import key_reused
from evergraph.online.learner import OnlineLearner
from evergraph.tables.scheme import Scheme

KEY_AGE, KEYS_KEPT = 7 * 24 * 60 * 60.0, 10_000  # seconds; as those of a folder


@dataclass(frozen=True)
class _Taken:
    """The result of a delta with a key, and its time."""

    digest: bytes
    result: DeltaResult
    time: float


class InMemoryLearner:
    """``LearnerFolder`` without the folder: the same interface, in memory only.

    >>> kept = InMemoryLearner(OnlineLearner())
    >>> kept.submit(Delta(key="first")) == kept.submit(Delta(key="first"))
    True
    """

    def __init__(self, learner: OnlineLearner) -> None:
        self.learner = learner
        self.columns: Scheme | None = None
        self._keys: dict[str, _Taken] = {}  # the oldest first

    def submit(self, delta: Delta) -> DeltaResult:
        """Apply a delta, unless one with its key was applied before."""
        if delta.key is None:
            return self.learner.apply(self.learner.check(delta))
        digest = sha256(delta_to_bytes(delta)).digest()
        if (taken := self._keys.get(delta.key)) is None:
            taken = _Taken(digest, self.learner.apply(self.learner.check(delta)), time.time())
            self._keys[delta.key] = taken
            while len(self._keys) > KEYS_KEPT:
                oldest = next(iter(self._keys))
                if time.time() - self._keys[oldest].time <= KEY_AGE:
                    break
                del self._keys[oldest]
        if digest != taken.digest:
            raise key_reused(delta.key, taken.result.seq)
        return taken.result

    def submit_many(self, deltas: Sequence[Delta]) -> list[DeltaResult | Exception]:
        """Apply deltas in order; return the result of each, or the error that rejected it."""
        answers: list[DeltaResult | Exception] = []
        for delta in deltas:
            try:
                answers.append(self.submit(delta))
            except Exception as error:
                answers.append(error)
        return answers

    def keep_columns(self, scheme: Scheme | None) -> None:
        """Keep how columns are read, before the first nodes; None for plain numbers."""
        self.columns = scheme

    def refresh(self) -> int:
        """Do nothing: there is no other writer."""
        return 0

    def close(self) -> None:
        """Do nothing."""
