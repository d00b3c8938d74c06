"""Recovery and readers apply the very batches: the same bits."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.online.folder import reader as reader_module
from evergraph.online.folder.journal import JOURNAL_FILE
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.markers import FORMAT, FORMAT_FILE
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner
from growth import bits as growth_bits
from growth import growth
from stand_in import bits, delta, filled, opened, twin, twin_of


def real(path: Path, *, readonly: bool = False) -> LearnerFolder:
    return LearnerFolder.open(
        path, make=lambda: OnlineLearner(head=AnalyticHead(width=16)), readonly=readonly
    )


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
                assert growth_bits(other.learner) == growth_bits(one.learner)
                assert other.learner.history() == one.learner.history()
        reader.close()


def test_a_reader_that_polls_does_not_read_what_it_knows(tmp_path, monkeypatch):
    asked, replay = [], reader_module.replay

    def counted(*given):
        asked.append(given)
        return replay(*given)

    with opened(tmp_path) as writer, opened(tmp_path, readonly=True) as reader:
        monkeypatch.setattr(reader_module, "replay", counted)
        reader.refresh()
        before = len(asked)
        assert [reader.refresh() for _ in range(5)] == [0] * 5
        assert len(asked) == before
        writer.submit_many([delta(1), delta(2)])
        assert [reader.refresh() for _ in range(3)] == [2, 0, 0]
        assert len(asked) == before + 1
        assert bits(reader.learner) == twin_of([[1, 2]])


# What the versions before did not write: of formats 1 and 2, and of the first of format 3.
BEFORE = {
    1: """DROP INDEX keys_by_seq; DROP TABLE start; ALTER TABLE deltas DROP COLUMN batch;
        ALTER TABLE keys DROP COLUMN time; PRAGMA user_version = 0""",
    3: """DROP TABLE costs; DROP TABLE set_aside; DROP TABLE rewritten; DROP TABLE trying;
        PRAGMA user_version = 3""",
}


@pytest.mark.parametrize("before", BEFORE)
def test_a_folder_of_a_version_before_is_read_and_brought_up_to_date(tmp_path, before):
    filled(tmp_path, 3, compact_at=(2,))
    if before < FORMAT:
        content = json.loads((tmp_path / FORMAT_FILE).read_text())
        del content["sha256"]
        (tmp_path / FORMAT_FILE).write_text(json.dumps(content | {"format": before}))
    with closing(sqlite3.connect(tmp_path / JOURNAL_FILE)) as connection:
        connection.executescript(BEFORE[before])
    with opened(tmp_path, readonly=True) as folder:
        assert bits(folder.learner) == twin(3)
        assert folder.status().set_aside == folder.refresh() == 0
        assert json.loads((tmp_path / FORMAT_FILE).read_text())["format"] == before
        with opened(tmp_path, key_age=1, keys_kept=0) as writer:
            assert writer.submit(delta(2, key="k2")).seq == 2
            writer.compact()  # keys without a time count as written when they were upgraded
            assert writer.status().keys == 3
            writer.submit_many([delta(4), delta(5)])
            assert folder.refresh() == 2  # it sees that there are other tables now
            writer.submit(delta(6))
            assert folder.refresh() == 1
        assert bits(folder.learner) == twin_of([[1], [2], [3], [4, 5], [6]])
    # Earlier versions would apply 4 and 5 one by one: they refuse the format.
    assert json.loads((tmp_path / FORMAT_FILE).read_text())["format"] == FORMAT
