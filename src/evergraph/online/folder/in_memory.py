"""A learner without a folder, which lasts as long as its process unless it is saved."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

from evergraph.core.errors import ConfigurationError
from evergraph.online.codecs.delta_bytes import delta_to_bytes, digest_of
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder.journal import JOURNAL_FILE, Journal, key_reused
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    acknowledgement,
    store_columns,
    store_parameters,
)
from evergraph.online.folder.recovery import make_folder
from evergraph.online.folder.snapshot import publish, write_aside
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


def save_learner(path: Path, learner: OnlineLearner, columns: Scheme | None) -> None:
    """Write a learner to a new folder, as if it had been there all the time and was purged."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigurationError(f"{path} must be a new or empty folder to save a model in")
    make_folder(path)
    with learner.writing:
        seq, about = learner.status().seq, learner.about() | {"threads": learner.threads}
        store_columns(path, columns)
        if seq:
            publish(write_aside(path, seq, learner.state(), about), seq)
            (path / ACKNOWLEDGED_FILE).write_bytes(acknowledgement(seq))
    with closing(Journal(path / JOURNAL_FILE)) as journal:
        if seq:
            journal.begin_anew(seq, keys=True)
    # Last: a folder with parameters is whole.
    store_parameters(path, learner.parameters)
