"""Deltas that are left out by hand."""

from __future__ import annotations

import pytest
import torch

from evergraph.core.errors import ConfigurationError, DataError, LockedError
from evergraph.online.delta import Delta
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.skip import listed, skip
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner

NAMES = "abcdef"


def make() -> OnlineLearner:
    return OnlineLearner(head=AnalyticHead(width=8))


def delta(seq: int, *edges: tuple[str, str]) -> Delta:
    features = torch.arange(2.0).view(1, 2).add(seq).reciprocal()
    name = NAMES[seq - 1]
    return Delta(nodes=(name,), features=features, labels=("xy"[seq % 2],), edges=edges, key=name)


# The fourth needs the third, the others need the first alone.
DELTAS = [
    delta(1),
    delta(2, ("b", "a")),
    delta(3, ("c", "a")),
    delta(4, ("d", "c")),
    delta(5, ("e", "a")),
    delta(6, ("f", "a")),
]


def filled(path, number: int, *, compact_at=()) -> None:
    with LearnerFolder.open(path, make=make) as folder:
        for seq, each in enumerate(DELTAS[:number], 1):
            folder.submit(each)
            if seq in compact_at:
                folder.compact()


def bits(learner: OnlineLearner) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in learner.state().items()}


def twin(number: int, *, without: tuple[int, ...]) -> dict[str, bytes]:
    learner = make()
    for seq, each in enumerate(DELTAS[:number], 1):
        learner.apply(Delta() if seq in without else each)
    return bits(learner)


def opened(path, **options) -> LearnerFolder:
    return LearnerFolder.open(path, make=make, **options)


@pytest.mark.parametrize("compact_at", [(), (1,), (1, 4), (4,)])
def test_the_learner_is_as_if_the_delta_had_brought_nothing(tmp_path, compact_at):
    filled(tmp_path, 5, compact_at=compact_at)
    (kept,) = skip(tmp_path, 2, why="the wrong file")
    assert (kept.seq, kept.key, kept.why) == (2, "b", "the wrong file")
    assert listed(tmp_path) == [kept]
    with opened(tmp_path) as folder:
        assert folder.seq == 5
        assert bits(folder.learner) == twin(5, without=(2,))
        assert folder.status().set_aside == 1
        assert folder.submit(DELTAS[5]).seq == 6
        again = folder.submit(DELTAS[1])  # its key and its node are free
        assert again.seq == 7
        folder.compact()
    with opened(tmp_path) as folder:
        assert folder.learner.predict(["b"])


def test_what_cannot_be_read_can_be_left_out(tmp_path):
    filled(tmp_path, 5)
    journal = Journal(tmp_path / JOURNAL_FILE)
    journal._connection.execute("UPDATE deltas SET bytes = x'00' WHERE seq = 5")
    journal.close()
    with pytest.raises(DataError, match="delta 5 cannot be read"):
        opened(tmp_path)
    skip(tmp_path, 5, why="damaged")
    with opened(tmp_path) as folder:
        assert (folder.seq, bits(folder.learner)) == (5, twin(5, without=(5,)))


def test_what_needs_it_is_named_and_nothing_is_changed(tmp_path):
    filled(tmp_path, 5, compact_at=(1, 4))
    sentence = r"without delta 3, delta 4 cannot be applied .*'c'.* --skip 3 --skip 4,"
    with pytest.raises(DataError, match=sentence):
        skip(tmp_path, 3, why="wrong")
    assert listed(tmp_path) == []
    with opened(tmp_path) as folder:
        assert folder.status().snapshot == 4
        assert bits(folder.learner) == twin(5, without=())
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
    with pytest.raises(DataError, match="delta 3 cannot be left out, since no snapshot from befor"):
        skip(tmp_path, 3, why="wrong")
    with opened(tmp_path) as folder:
        assert bits(folder.learner) == twin(6, without=())
        folder.purge()
    with pytest.raises(DataError, match="holds no delta 5: only snapshots hold it, forget its nod"):
        skip(tmp_path, 5, why="wrong")
    with pytest.raises(DataError, match=r"holds no delta 7$"):
        skip(tmp_path, 7, why="wrong")


def test_a_delta_is_left_out_once_with_a_reason_and_by_one(tmp_path):
    filled(tmp_path, 3)
    with pytest.raises(ConfigurationError, match="why must say why"):
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
        assert bits(folder.learner) == twin(5, without=())
