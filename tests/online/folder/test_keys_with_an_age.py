"""Keys of deltas: known for so many days, and never fewer than so many."""

from __future__ import annotations

import time

import pytest

from evergraph.core.errors import ConfigurationError, UnknownNodeError
from evergraph.online.delta import Delta
from evergraph.online.folder import in_memory
from evergraph.online.folder.in_memory import InMemoryLearner
from evergraph.online.folder.learner_folder import DAY
from evergraph.online.learner import OnlineLearner
from stand_in import bits, delta, opened, twin

NOW = time.time()


@pytest.fixture
def clock(monkeypatch):
    """A clock in days, to be set."""
    days = {"now": 0.0}
    monkeypatch.setattr(time, "time", lambda: NOW + days["now"] * DAY)
    return days


def test_old_keys_go_with_a_snapshot_and_count_as_new(tmp_path, clock):
    with opened(tmp_path, key_age=2, keys_kept=2) as folder:
        first = folder.submit(delta(1, key="k1"))
        for seq in (2, 3, 4):
            clock["now"] = float(seq)
            folder.submit(delta(seq, key=f"k{seq}"))
        assert folder.submit(delta(1, key="k1")) == first  # old, but no snapshot came yet
        clock["now"] = 5.5
        folder.compact()  # 1 to 3 are older than two days, 3 and 4 are the newest two
        assert folder.status().keys == 2
        assert folder.submit(delta(3, key="k3")).seq == 3
        assert folder.submit(delta(5, key="k1")).seq == 5  # a key like any other again
        assert (folder.status().keys, bits(folder.learner)) == (3, twin(5))
    with opened(tmp_path, readonly=True) as reader:  # the learner does not depend on keys
        assert (reader.status().keys, bits(reader.learner)) == (3, twin(5))
    with opened(tmp_path) as folder:  # by default a week, and ten thousand for ever
        clock["now"] = 1000.0
        folder.compact()
        assert folder.submit(delta(5, key="k1")).seq == 5
        assert (folder._files.key_age, folder._files.keys_kept) == (7 * DAY, 10_000)
    with pytest.raises(ConfigurationError, match="key_age"):
        opened(tmp_path, key_age=-1)


def test_in_memory_too(clock, monkeypatch):
    monkeypatch.setattr(in_memory, "KEYS_KEPT", 1)
    kept = InMemoryLearner(OnlineLearner())
    for place in range(3):
        clock["now"] = 5.0 * place
        kept.submit(Delta(key=f"{place}"))
    assert list(kept._keys) == ["1", "2"]  # 1 is five days old
    with pytest.raises(UnknownNodeError):
        kept.submit(Delta(late=(("a", "x"),)))
    assert kept.submit(Delta(key="0")).seq == 4
