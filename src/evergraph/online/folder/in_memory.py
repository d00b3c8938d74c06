"""A learner that lives as long as its process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from evergraph.online.codecs.delta_bytes import delta_to_bytes
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder.journal_rows import key_reused
from evergraph.online.learner import OnlineLearner
from evergraph.tables.scheme import Scheme

KEY_AGE, KEYS_KEPT = 7 * 24 * 60 * 60.0, 10_000  # seconds; as those of a folder


@dataclass(frozen=True)
class _Taken:
    """What became of a delta with a key, and when."""

    digest: bytes
    result: DeltaResult
    time: float


class InMemoryLearner:
    """What ``LearnerFolder`` is, without the folder.

    >>> kept = InMemoryLearner(OnlineLearner())
    >>> kept.submit(Delta(key="first")) == kept.submit(Delta(key="first"))
    True
    """

    def __init__(self, learner: OnlineLearner) -> None:
        self.learner = learner
        self.columns: Scheme | None = None
        self._keys: dict[str, _Taken] = {}  # the oldest first

    def submit(self, delta: Delta) -> DeltaResult:
        """Take a delta in, unless one with its key was taken in before."""
        if delta.key is None:
            return self._apply(delta)
        digest = sha256(delta_to_bytes(delta)).digest()
        if (taken := self._keys.get(delta.key)) is None:
            taken = _Taken(digest, self._apply(delta), time.time())
            self._keys[delta.key] = taken
            self._drop_keys()
        if digest != taken.digest:
            raise key_reused(delta.key, taken.result.seq)
        return taken.result

    def _apply(self, delta: Delta) -> DeltaResult:
        """Take a delta in that asks for no more memory than there is."""
        return self.learner.apply(self.learner.check(delta))

    def submit_many(self, deltas: Sequence[Delta]) -> list[DeltaResult | Exception]:
        """Take deltas in, in order; return what each did, or why it was refused."""
        answers: list[DeltaResult | Exception] = []
        for delta in deltas:
            try:
                answers.append(self.submit(delta))
            except Exception as error:
                answers.append(error)
        return answers

    def _drop_keys(self) -> None:
        while len(self._keys) > KEYS_KEPT:
            oldest = next(iter(self._keys))
            if time.time() - self._keys[oldest].time <= KEY_AGE:
                return
            del self._keys[oldest]

    def keep_columns(self, scheme: Scheme | None) -> None:
        """Keep how columns are read, before the first nodes come; None: as plain numbers."""
        self.columns = scheme

    def refresh(self) -> int:
        """Do nothing: nobody else writes."""
        return 0

    def close(self) -> None:
        """Do nothing."""
