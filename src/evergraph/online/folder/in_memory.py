"""A learner that lives as long as its process."""

from __future__ import annotations

from hashlib import sha256

from evergraph.core.errors import KeyReusedError
from evergraph.datasets.columns.scheme import Scheme
from evergraph.online.codecs.delta_bytes import delta_to_bytes
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.learner import OnlineLearner


class InMemoryLearner:
    """What ``LearnerFolder`` is, without the folder.

    >>> kept = InMemoryLearner(OnlineLearner())
    >>> kept.submit(Delta(key="first")) == kept.submit(Delta(key="first"))
    True
    """

    def __init__(self, learner: OnlineLearner) -> None:
        self.learner = learner
        self.columns: Scheme | None = None
        self._keys: dict[str, tuple[bytes, DeltaResult]] = {}

    def submit(self, delta: Delta) -> DeltaResult:
        """Take a delta in, unless one with its key was taken in before."""
        if delta.key is None:
            return self.learner.apply(delta)
        if delta.key not in self._keys:
            self._keys[delta.key] = _digest(delta), self.learner.apply(delta)
        digest, applied = self._keys[delta.key]
        if digest != _digest(delta):
            raise KeyReusedError(
                f"the key {delta.key!r} belongs to delta {applied.seq}, which had other contents: "
                "give every delta a key of its own"
            )
        return applied

    def keep_columns(self, scheme: Scheme | None) -> None:
        """Keep how columns are read, before the first nodes come; None: as plain numbers."""
        self.columns = scheme

    def refresh(self) -> int:
        """Do nothing: nobody else writes."""
        return 0

    def close(self) -> None:
        """Do nothing."""


def _digest(delta: Delta) -> bytes:
    return sha256(delta_to_bytes(delta)).digest()
