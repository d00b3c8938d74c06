"""A learner in a folder: what was acknowledged is there, what was refused is not."""

from __future__ import annotations

import shutil
import time

import pytest
import torch

from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    KeyReusedError,
    StoppedError,
    UnknownNodeError,
)
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder import in_memory
from evergraph.online.folder.in_memory import InMemoryLearner
from evergraph.online.folder.journal import JOURNAL_FILE as JOURNAL
from evergraph.online.folder.journal import Journal
from evergraph.online.folder.learner_folder import DAY, LearnerFolder
from evergraph.online.folder.markers import stored_parameters
from evergraph.online.learner import OnlineLearner
from stand_in import StandIn, bits, delta, filled, holds, opened, twin


@pytest.mark.parametrize("compact_at", [(), (7,), (2, 4, 6)])
def test_opening_again_gives_the_same_bits(tmp_path, compact_at):
    filled(tmp_path / "new" / "folder", 7, compact_at=compact_at)
    with opened(tmp_path / "new" / "folder") as folder:
        assert folder.seq == 7
        assert bits(folder.learner) == twin(7)
        folder.submit(delta(8))
        assert bits(folder.learner) == twin(8)


def test_the_journal_comes_first_and_what_is_refused_changes_nothing(tmp_path, monkeypatch):
    seen, apply_batch = [], StandIn.apply_batch

    def look(self, deltas):
        seen.append(Journal(tmp_path / JOURNAL, readonly=True).last())
        return apply_batch(self, deltas)

    with monkeypatch.context() as patch, opened(tmp_path) as folder:
        patch.setattr(StandIn, "apply_batch", look)
        for seq in (1, 2):
            folder.submit(delta(seq))
        with pytest.raises(DataError, match="'refused' is refused"):
            folder.submit(Delta(nodes=("refused",), features=torch.zeros(1, 3), key="new"))
        assert (seen, folder.seq) == ([1, 2], 2)
        assert bits(folder.learner) == twin(2)
        assert folder.submit(delta(3, key="new")).seq == 3  # the key is still free
    assert holds(tmp_path, 3)


@pytest.mark.parametrize("compact_at", [(), (1, 2, 5)])
def test_the_same_key_twice_counts_once(tmp_path, compact_at):
    with opened(tmp_path) as folder:
        first = folder.submit(delta(1, key="k1"))
        assert folder.submit(delta(1, key="k1")) == first
        assert folder.seq == 1
    filled(tmp_path, 5, compact_at=compact_at)
    with opened(tmp_path) as folder:  # also when the delta itself has been dropped long ago
        assert folder.submit(delta(1, key="k1")) == first
        assert folder.submit(delta(5, key="k5")) == DeltaResult(seq=5, new_nodes=1, recomputed=5)
        with pytest.raises(KeyReusedError, match="'k5' belongs to delta 5"):
            folder.submit(delta(6, key="k5"))
        assert bits(folder.learner) == twin(5)


def test_a_key_that_only_a_snapshot_remembers_is_known(tmp_path):
    with opened(tmp_path / "folder") as folder:
        first = folder.submit(delta(1, key="k1"))
        folder.compact()
        shutil.copytree(tmp_path / "folder", tmp_path / "crashed")  # as a kill would leave it
    with opened(tmp_path / "crashed") as folder:
        assert folder.submit(delta(1, key="k1")) == first


@pytest.mark.parametrize("once", [True, False])
def test_an_interrupt_while_applying_is_overcome_or_stops_the_folder(tmp_path, monkeypatch, once):
    apply_batch, interrupts = StandIn.apply_batch, []

    def interrupted(self, deltas):
        results = apply_batch(self, deltas)
        if once and interrupts:  # else it comes while the learner is recovered, too
            return results
        interrupts.append(deltas)
        raise KeyboardInterrupt

    with opened(tmp_path) as folder:
        with monkeypatch.context() as patch:
            patch.setattr(StandIn, "apply_batch", interrupted)
            with pytest.raises(KeyboardInterrupt):
                folder.submit(delta(1))
        if once:
            assert folder.status().stopped is None
            folder.submit(delta(2))
        else:
            with pytest.raises(StoppedError, match=r"delta 1 .*KeyboardInterrupt"):
                folder.submit(delta(2))
    assert holds(tmp_path, 2 if once else 1)  # it was journaled, so it counts


def test_other_parameters_a_bare_path_and_a_closed_folder_are_refused(tmp_path):
    filled(tmp_path, 1)
    assert stored_parameters(tmp_path) == {"decay": 0.9}
    with pytest.raises(ConfigurationError, match=r"decay=0.9, .* cannot be opened with decay=0.5"):
        LearnerFolder.open(tmp_path, make=lambda: StandIn(decay=0.5))
    with pytest.raises(ConfigurationError, match=r"call LearnerFolder.open\(path\)"):
        LearnerFolder(str(tmp_path))
    folder = opened(tmp_path)
    folder.close()
    folder.close()
    with pytest.raises(StoppedError, match="is closed: open it again"):
        folder.submit(delta(1))


@pytest.fixture
def clock(monkeypatch):
    """A clock in days, to be set."""
    days, start = {"now": 0.0}, time.time()
    monkeypatch.setattr(time, "time", lambda: start + days["now"] * DAY)
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
