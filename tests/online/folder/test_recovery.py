"""Recovery and readers: the same bits, however many threads."""

import json
import logging
import shutil
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.resources import exactly_threads
from evergraph.online.delta import Delta
from evergraph.online.folder import recovery
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.markers import FORMAT_FILE, with_check
from evergraph.online.folder.recovery import Replaying
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner
from growth import bits as all_bits
from growth import growth
from stand_in import bits, delta, filled, opened, twin_of

pytestmark = pytest.mark.usefixtures("patient")


def small() -> OnlineLearner:
    return OnlineLearner(head=AnalyticHead(width=16), patience=4)


def real(path: Path, *, readonly: bool = False) -> LearnerFolder:
    return LearnerFolder.open(path, make=small, readonly=readonly)


@settings(max_examples=5)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=3, max_size=4),
    compact=st.sets(st.integers(0, 3)),
    look=st.sets(st.integers(0, 3)),
)
def test_the_same_bits_wherever_the_batches_are_applied(tmp_path_factory, sizes, compact, look):
    """After a recovery, and in a reader that looks in between."""
    place = tmp_path_factory.mktemp("followed")
    left = growth(0, 8, each=2)
    with real(place / "one") as one:
        reader = real(place / "one", readonly=True)
        for turn, size in enumerate(sizes):
            one.submit_many([left.pop(0) for _ in range(size)])
            if turn in look:
                reader.refresh()
            if turn in compact:
                one.compact()
        reader.refresh()
        shutil.copytree(place / "one", place / "crashed")  # as a kill would leave it
        with real(place / "crashed") as crashed:
            for other in (reader, crashed):
                assert all_bits(other.learner) == all_bits(one.learner)
                assert other.learner.history() == one.learner.history()
        reader.close()


def test_a_reader_that_polls_does_not_read_what_it_knows(tmp_path, monkeypatch):
    asked, replay = [], recovery.replay

    def counted(*given):
        asked.append(given)
        return replay(*given)

    with opened(tmp_path) as writer, opened(tmp_path, readonly=True) as reader:
        monkeypatch.setattr(recovery, "replay", counted)
        reader.refresh()
        before = len(asked)
        assert [reader.refresh() for _ in range(5)] == [0] * 5
        assert len(asked) == before
        writer.submit_many([delta(1), delta(2)])
        assert [reader.refresh() for _ in range(3)] == [2, 0, 0]
        assert len(asked) == before + 1
        assert bits(reader.learner) == twin_of([[1, 2]])


def test_a_folder_of_another_format_is_refused_in_one_sentence(tmp_path):
    filled(tmp_path, 1)
    content = json.loads((tmp_path / FORMAT_FILE).read_text())
    for other in (4, 6):
        (tmp_path / FORMAT_FILE).write_text(json.dumps(with_check(content | {"format": other})))
        with pytest.raises(DataError, match=f"is of format {other}, .* reads format 5: install"):
            LearnerFolder.open(tmp_path)


def learned(path, threads):
    """Return the bits of a learner that a process with so many threads has taught."""
    with exactly_threads(threads), LearnerFolder.open(path, make=OnlineLearner) as folder:
        for delta in growth(0, 2, each=200, dims=32):
            folder.submit(delta)
        assert torch.get_num_threads() == threads
        return all_bits(folder.learner)


def test_what_a_folder_learns_does_not_depend_on_the_threads_of_its_process(tmp_path):
    one, two = learned(tmp_path / "one", 1), learned(tmp_path / "two", 2)
    assert one == two
    with exactly_threads(2), LearnerFolder.open(tmp_path / "one", make=OnlineLearner) as again:
        assert all_bits(again.learner) == one  # recovered from the journal


def test_other_threads_than_those_of_a_snapshot_are_said(tmp_path, caplog):
    with LearnerFolder.open(tmp_path, make=OnlineLearner) as folder:
        folder.submit(Delta(nodes=["a"], features=torch.ones(1, 2), labels=["x"]))
        folder.compact()
    with caplog.at_level(logging.WARNING), LearnerFolder.open(tmp_path, make=OnlineLearner):
        assert not caplog.records
    with LearnerFolder.open(tmp_path, make=OnlineLearner, threads=2) as folder:
        assert folder.learner.predict(["a"]) == ["x"]
    assert "learned with 1 threads and this process uses 2" in caplog.text
    with pytest.raises(ConfigurationError, match="threads"):
        LearnerFolder.open(tmp_path, make=OnlineLearner, threads=0)


def test_a_recovery_tells_how_far_it_is(tmp_path, monkeypatch):
    filled(tmp_path, 4)
    assert recovery.REPORTED == 0.5  # seconds, of which replaying four deltas takes none
    monkeypatch.setattr(recovery, "REPORTED", 1000.0)
    told = []
    opened(tmp_path, progress=told.append, close_seconds=9.0).close()
    assert [each.done for each in told] == [0, 4]
    monkeypatch.setattr(recovery, "REPORTED", 0.0)
    for readonly in (True, False):
        told = []
        opened(tmp_path, readonly=readonly, progress=told.append, close_seconds=9.0).close()
        assert [each.done for each in told] == [0, 1, 2, 3, 4, 4]
        assert {each.of for each in told} == {4}
        assert told[0] == Replaying(0, 4, 0.0)  # nobody knows yet
        assert told[-1] == Replaying(4, 4, 0.0)
    ticks = count(step=1.04)  # seconds between two looks at the clock, one after each delta
    clock = SimpleNamespace(monotonic=ticks.__next__, thread_time=lambda: 0.0)
    monkeypatch.setattr(recovery, "time", clock)
    told = []
    opened(tmp_path, progress=told.append, close_seconds=9.0).close()
    # After k of four: k + 1 looks since it began, and 4 - k deltas at the pace of k.
    assert [each.seconds for each in told] == [0.0, 6.2, 3.1, 1.4, 0.0, 0.0]
