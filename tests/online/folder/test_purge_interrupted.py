"""A purge that is killed, has no room or meets readers: the folder is as before, or purged."""

import shutil
import sqlite3
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest

from evergraph.core.errors import ResourceError, StoppedError
from evergraph.online.delta import Delta
from evergraph.online.folder import snapshot
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.snapshot import KeptSnapshots
from secret_nodes import ROW, bits, fill, found_in, more, opened


def recovers(path: Path, folder: LearnerFolder) -> bool:
    """Whether who opens a folder beside its writer finds the same learner."""
    with opened(path, readonly=True) as other:
        return bits(other) == bits(folder)


def test_killed_at_any_step_the_folder_opens_as_it_was_or_is_to_be(tmp_path, monkeypatch):
    """A copy at every step is what a process leaves that is killed there."""
    copies = []

    def copying(call):
        def done(*args, **kwargs):
            for step in (lambda: None, lambda: call(*args, **kwargs)):
                found = step()
                copies.append(tmp_path / f"copy-{len(copies)}")
                shutil.copytree(tmp_path / "learner", copies[-1])
            return found

        return done

    steps = [(snapshot, "sync"), (snapshot, "remove_snapshot"), (Journal, "begin_anew")]
    with opened(tmp_path / "learner") as folder:
        fill(folder)
        folder.submit(Delta(nodes="u", features=ROW / 3, edges=(("u", "a"),)))
        before = bits(folder)
        folder.compact()  # which a snapshot with fewer places replaces
        with monkeypatch.context() as patch:
            for owner, name in (*steps, (Journal, "_rewrite")):
                patch.setattr(owner, name, copying(getattr(owner, name)))
            folder.purge(keys=True)
        after = bits(folder)
    seen = {place: _tree(place) for place in copies}
    places = [place for last, place in pairwise([None, *copies]) if _tree(place) != seen.get(last)]
    assert len(places) >= 5
    for number, place in enumerate(places):
        with opened(place) as folder:
            assert bits(folder) in [before, after]
            if number % 3 == 0 or place == places[-1]:  # and it goes on
                more(folder)
                assert folder.purge().seq == folder.seq
                assert recovers(place, folder)


def _tree(place: Path) -> dict[str, bytes]:
    files = [path for path in place.rglob("*") if path.is_file() and path.suffix != ".sqlite-shm"]
    return {str(path.relative_to(place)): path.read_bytes() for path in files}


def test_a_purge_that_cannot_write_its_snapshot_changes_nothing(tmp_path, monkeypatch):
    with opened(tmp_path) as folder:
        fill(folder)
        kept = bits(folder)
        with monkeypatch.context() as patch:
            patch.setattr(snapshot, "sync", Mock(side_effect=OSError(28, "No space left")))
            with pytest.raises(ResourceError):
                folder.purge(keys=True)
        assert bits(folder) == kept
        assert folder.learner.classes[2] == "secret-class"
        more(folder)
        assert folder.seq == 4
    with opened(tmp_path) as folder:
        assert folder.seq == 4


def test_who_follows_goes_on_or_must_begin_anew(tmp_path):
    with opened(tmp_path) as folder, opened(tmp_path, readonly=True) as late:
        fill(folder)
        with opened(tmp_path, readonly=True) as level:

            def follow(*readers):
                for reader in readers:
                    reader.refresh()
                    assert bits(reader) == bits(folder)

            folder.purge()
            assert level.refresh() == 0
            follow(level)  # places go with the writer's
            follow(late)
            more(folder)
            follow(level, late)
            before = level.learner
            folder.compact()
            assert level.refresh() == 0
            assert level.learner is before


def test_a_newest_snapshot_that_is_damaged_after_a_purge_is_refused(tmp_path):
    """The journal begins after it, so going on with an older one would lose deltas in silence."""
    with opened(tmp_path) as folder:
        fill(folder)
        old = tmp_path.with_name("old")
        shutil.copytree(tmp_path / "snapshot-2", old)
        folder.purge()
    shutil.copytree(old, tmp_path / "snapshot-2")
    (tmp_path / "snapshot-3" / "about.json").write_bytes(b"{}")
    with pytest.raises(Exception, match="delta 3 is missing"):
        opened(tmp_path)


def reading(path: Path) -> sqlite3.Connection:
    """Another connection to a journal, in the middle of reading it."""
    other = sqlite3.connect(path / JOURNAL_FILE, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT * FROM deltas").fetchone()
    return other


@pytest.mark.parametrize("checkpointed", [True, False])
def test_while_another_process_reads_the_journal_nothing_is_purged(
    tmp_path, monkeypatch, checkpointed
):
    monkeypatch.setattr("evergraph.online.folder.sqlite_file._WAIT", 0.05)
    place = tmp_path / "learner"
    with opened(place) as folder:
        fill(folder)
        if checkpointed:
            folder.compact()
        kept, there = bits(folder), sorted(path.name for path in place.iterdir())
        other = reading(place)
        with pytest.raises(ResourceError, match=r"another process reads .* nothing was changed"):
            folder.purge()
        assert (folder.seq, bits(folder)) == (3, kept)
        assert sorted(path.name for path in place.iterdir()) == there
        assert recovers(place, folder)
        other.close()
        assert folder.purge().places == 2
        assert found_in(place) == {"key"}
        assert recovers(place, folder)


def test_a_reader_that_begins_during_a_purge_keeps_only_its_wal(tmp_path, monkeypatch):
    """The folder is purged all the same, and memory with it; only the WAL is left to empty."""
    monkeypatch.setattr("evergraph.online.folder.sqlite_file._WAIT", 0.05)
    place, others, kept = tmp_path / "learner", [], KeptSnapshots.keep_only

    def keep_only(*args):
        others.append(reading(place))
        kept(*args)

    with opened(place) as folder:
        fill(folder)
        with monkeypatch.context() as patch:
            patch.setattr(KeptSnapshots, "keep_only", keep_only)
            with pytest.raises(ResourceError, match=r"another process has read .* purge again"):
                folder.purge()
        assert folder.learner.knowledge.graph.num_nodes == 2
        assert recovers(place, folder)
        others[0].close()
        more(folder)
        folder.purge()
        assert found_in(place) == {"key"}
        assert recovers(place, folder)


def test_a_disk_that_fills_up_during_a_purge_stops_the_folder_until_it_is_opened_again(
    tmp_path, monkeypatch
):
    with opened(tmp_path) as folder:
        fill(folder)
        with monkeypatch.context() as patch:
            full = Mock(side_effect=ResourceError("the disk is full"))
            patch.setattr(Journal, "begin_anew", full)
            with pytest.raises(ResourceError, match="the disk is full"):
                folder.purge()
            with pytest.raises(StoppedError, match="the purge is incomplete"):
                more(folder)
    with opened(tmp_path) as folder:
        more(folder)
        kept = bits(folder)
    with opened(tmp_path) as folder:
        assert (folder.seq, bits(folder)) == (4, kept)
