"""Deltas that are left out by hand."""

from __future__ import annotations

from contextlib import closing

import pytest

from evergraph.core.errors import ConfigurationError, DataError, LockedError
from evergraph.online.folder.checkup import listed, skip
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from real_folder import bits, delta, filled, opened, twin


@pytest.mark.parametrize("compact_at", [(), (1, 4)])
def test_the_learner_is_as_if_the_delta_had_brought_nothing(tmp_path, compact_at):
    filled(tmp_path, 5, compact_at=compact_at)
    (kept,) = skip(tmp_path, 2, why="the wrong file")
    assert (kept.seq, kept.key, kept.why) == (2, "k2", "the wrong file")
    assert listed(tmp_path) == [kept]
    with opened(tmp_path) as folder:
        assert folder.seq == 5
        assert bits(folder.learner) == twin(5, without=(2,))
        assert folder.status().set_aside == 1
        assert folder.submit(delta(6)).seq == 6
        again = folder.submit(delta(2))  # its key and its node are free
        assert again.seq == 7
        folder.compact()
    with opened(tmp_path) as folder:
        assert folder.learner.predict(["n2"])


def test_what_cannot_be_read_can_be_left_out(tmp_path):
    filled(tmp_path, 5)
    with closing(Journal(tmp_path / JOURNAL_FILE)) as journal:
        journal.connection.execute("UPDATE deltas SET bytes = x'00' WHERE seq = 5")
    with pytest.raises(DataError, match="delta 5 cannot be read"):
        opened(tmp_path)
    skip(tmp_path, 5, why="damaged")
    with opened(tmp_path) as folder:
        assert (folder.seq, bits(folder.learner)) == (5, twin(5, without=(5,)))


def test_what_needs_it_is_named_and_nothing_is_changed(tmp_path):
    filled(tmp_path, 5, compact_at=(1, 4))
    sentence = r"without delta 3, delta 4 cannot be applied .*'n3'.* --skip 3 --skip 4,"
    with pytest.raises(DataError, match=sentence):
        skip(tmp_path, 3, why="wrong")
    assert listed(tmp_path) == []
    with opened(tmp_path) as folder:
        assert folder.status().snapshot == 4
        assert bits(folder.learner) == twin(5)
    assert len(skip(tmp_path, 3, 4, why="wrong")) == 2
    with opened(tmp_path) as folder:
        assert bits(folder.learner) == twin(5, without=(3, 4))


def test_what_only_snapshots_hold_stays(tmp_path):
    filled(tmp_path, 6, compact_at=(2, 4))  # the journal begins with the third
    with pytest.raises(DataError, match=r"holds deltas 3 to 6, not 2: .* forget its nodes instead"):
        skip(tmp_path, 2, why="wrong")
    with pytest.raises(DataError, match="holds deltas 3 to 6, not 7"):
        skip(tmp_path, 7, why="wrong")
    (tmp_path / "snapshot-2" / "about.json").unlink()
    with pytest.raises(DataError, match="delta 3 cannot be left out, since there is no"):
        skip(tmp_path, 3, why="wrong")
    with opened(tmp_path) as folder:
        assert bits(folder.learner) == twin(6)
        folder.purge()
    with pytest.raises(DataError, match="holds no delta 5: only snapshots hold it, forget its nod"):
        skip(tmp_path, 5, why="wrong")
    with pytest.raises(DataError, match=r"holds no delta 7$"):
        skip(tmp_path, 7, why="wrong")


def test_a_delta_is_left_out_once_with_a_reason_and_by_one(tmp_path):
    filled(tmp_path, 3)
    with pytest.raises(ConfigurationError, match="why must give a reason"):
        skip(tmp_path, 2, why=" ")
    with opened(tmp_path), pytest.raises(LockedError):
        skip(tmp_path, 2, why="wrong")
    skip(tmp_path, 2, why="wrong")
    with pytest.raises(DataError, match="delta 2 was left out already"):
        skip(tmp_path, 2, why="wrong")
    with pytest.raises(DataError, match="holds no learner"):
        skip(tmp_path / "nothing", 2, why="wrong")


def test_a_reader_that_knows_it_begins_anew(tmp_path):
    filled(tmp_path, 5)
    with opened(tmp_path, readonly=True) as reader:
        skip(tmp_path, 2, why="wrong")
        assert reader.refresh() == 0
        assert (reader.seq, bits(reader.learner)) == (5, twin(5, without=(2,)))


def test_killed_after_the_snapshots_are_gone_it_is_as_before(tmp_path, monkeypatch):
    filled(tmp_path, 5, compact_at=(1, 4))

    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("evergraph.online.folder.journal.SetAsideDeltas.skip", killed)
        with pytest.raises(KeyboardInterrupt):
            skip(tmp_path, 2, why="wrong")
    with opened(tmp_path) as folder:
        assert (folder.status().snapshot, folder.status().set_aside) == (1, 0)
        assert bits(folder.learner) == twin(5)
