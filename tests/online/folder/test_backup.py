"""Backups taken while a folder is written to, and deltas that are left out by hand."""

import os
import shutil
import signal
import tarfile
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

from evergraph.core.errors import ConfigurationError, DataError, LockedError
from evergraph.core.safe_files import scratch_beside
from evergraph.online.folder import backup as backing_up
from evergraph.online.folder.backup import backup, restore
from evergraph.online.folder.checkup import checkup, listed, skip
from evergraph.online.folder.journal import JOURNAL_FILE
from evergraph.online.folder.learner_folder import LearnerFolder
from forked import in_a_child
from real_folder import bits, delta, filled, opened, twin
from waiting import until

pytestmark = pytest.mark.usefixtures("patient")


def test_a_backup_under_load_is_a_twin_bit_for_bit(tmp_path):
    ending = threading.Event()
    with opened(tmp_path / "learner", snapshot_every=3) as folder:

        def write():
            while not ending.is_set() and folder.seq < 400:
                folder.submit(delta(folder.seq + 1))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            taken = []
            for seq, name in ((5, "backup"), (10, "backup.tar")):
                until(lambda: folder.seq > seq)  # noqa: B023
                taken.append((tmp_path / name, backup(tmp_path / "learner", tmp_path / name)))
            until(lambda: folder.seq > taken[-1][1].seq or folder.seq == 400)  # it went on
        finally:
            ending.set()
            writer.join()
    for to, told in taken:
        made = tmp_path / f"made-{to.name}"
        assert restore(to, made).seq == told.seq
        with LearnerFolder.open(made) as other:
            assert other.seq == told.seq
            assert bits(other.learner) == twin(told.seq)
            assert other.submit(delta(1)).seq == 1  # its keys are known
            assert other.submit(delta(told.seq + 1)).seq == told.seq + 1  # it goes on


@pytest.mark.parametrize("kind", ["backup", "backup.tar", "restored"])
def test_what_a_killed_backup_leaves_is_found_and_goes(tmp_path, kind):
    """The copy holds everything, also what is forgotten afterwards."""
    source = filled(tmp_path / "learner", 3, compact_at=(2,))
    backup(source, tmp_path / "sound.tar")
    place = tmp_path / kind

    def killed():
        def end(*_):
            os.kill(os.getpid(), signal.SIGKILL)

        if kind == "restored":
            restore(tmp_path / "sound.tar", place, on_progress=end)
        backup(source, place, on_progress=end)

    assert in_a_child(killed).code == -signal.SIGKILL
    left, *others = sorted(tmp_path.glob(".*"))
    found = checkup(source, quick=True)
    assert [each.file for each in found] == [f"../{path.name}" for path in (left, *others)]
    assert all("was left by a killed backup" in each.what for each in found)
    with scratch_beside(source) as used:  # which removes what nobody uses, too
        assert list(tmp_path.glob(".*")) == [used]
        assert checkup(source, quick=True) == []
        left.mkdir()
        (left / "backup.tar").write_bytes(b"of an earlier version")
        opened(source).close()
        assert list(tmp_path.glob(".*")) == [used]
    assert list(tmp_path.glob(".*")) == []


def test_a_backup_holds_the_newest_snapshot_and_a_journal_without_a_wal(tmp_path):
    source, told = filled(tmp_path / "learner", 6, compact_at=(2, 4)), []
    done = backup(source, tmp_path / "copy", on_progress=lambda *stage: told.append(stage))
    assert (done.seq, done.snapshot) == (6, 4)
    assert told[-1] == ("copy", done.bytes, done.bytes)
    files = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert sorted(str(path.relative_to(tmp_path / "copy")) for path in files) == [
        "acknowledged",
        "evergraph-learner.json",
        "journal.sqlite",
        "snapshot-4/about.json",
        "snapshot-4/manifest.json",
        "snapshot-4/state.safetensors",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "learner"]
    restore(tmp_path / "copy", tmp_path / "made", on_progress=lambda *stage: told.append(stage))
    assert told[-1][0] == "verify"


def test_a_folder_without_a_snapshot_is_backed_up_too(tmp_path):
    for number in (0, 3):
        copy, made = tmp_path / f"{number}.tar", tmp_path / f"made-{number}"
        backup(filled(tmp_path / f"learner-{number}", number), copy)
        assert restore(copy, made).seq == number
        with LearnerFolder.open(made) as folder:
            assert bits(folder.learner) == twin(number)


def test_snapshots_that_are_replaced_meanwhile_are_opened_anew(tmp_path, monkeypatch):
    """The journal no longer reaches back to what was opened: two snapshots came in between."""
    with opened(tmp_path / "learner") as folder:
        folder.submit(delta(1))
        folder.compact()
        copy, tries = backing_up.copy_journal, []

        def slow(*places):
            if not tries:
                for number in (2, 3, 4):
                    folder.submit(delta(number))
                    folder.compact()
            tries.append(places)
            copy(*places)

        monkeypatch.setattr(backing_up, "copy_journal", slow)
        told = backup(tmp_path / "learner", tmp_path / "copy")
        assert (told.seq, told.snapshot, len(tries)) == (4, 4, 2)
    restore(tmp_path / "copy", tmp_path / "made")


def test_a_snapshot_that_goes_while_it_is_copied_is_still_read(tmp_path, monkeypatch):
    with opened(tmp_path / "learner") as folder:
        for number in (1, 2):
            folder.submit(delta(number))
            folder.compact()
        copied = backing_up.copied

        def late(*given, **more):
            for number in (3, 4, 5):
                folder.submit(delta(number))
                folder.compact()
            assert not (tmp_path / "learner" / "snapshot-2").exists()
            return copied(*given, **more)

        monkeypatch.setattr(backing_up, "copied", late)
        assert backup(tmp_path / "learner", tmp_path / "copy").seq == 2
        monkeypatch.undo()
    assert restore(tmp_path / "copy", tmp_path / "made").snapshot == 2


def test_a_damaged_snapshot_is_not_what_is_backed_up(tmp_path):
    source = filled(tmp_path / "learner", 6, compact_at=(2, 4))
    (source / "snapshot-4" / "state.safetensors").write_bytes(b"other")
    for name in ("copy", "copy.tar"):
        assert backup(source, tmp_path / name).snapshot == 2
    (source / "snapshot-2" / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"no intact snapshot|have changed"):
        backup(source, tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["copy", "copy.tar"])
def test_a_backup_replaces_nothing(tmp_path, name):
    source = filled(tmp_path / "learner", 1)
    backup(source, tmp_path / name)
    with pytest.raises(ConfigurationError, match="exists already"):
        backup(source, tmp_path / name)
    with pytest.raises(ConfigurationError, match="exists already"):
        restore(tmp_path / name, source)
    with pytest.raises(DataError, match="holds no learner"):
        backup(tmp_path / "nowhere", tmp_path / "other")


@pytest.mark.parametrize("kind", ["", ".tar"])
def test_what_is_damaged_is_not_restored(tmp_path, kind):
    source = filled(tmp_path / "learner", 6, compact_at=(2, 4))
    whole = tmp_path / f"copy{kind}"
    backup(source, whole)
    files = [whole] if kind else [path for path in whole.rglob("*") if path.is_file()]
    for file in files:
        data = file.read_bytes()
        for place in range(len(data) // 7, len(data), len(data) // (3 if kind else 1)):
            file.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
            _is_the_same_or_refused(whole, tmp_path / "made")
        file.write_bytes(data[: len(data) // 2])
        _is_the_same_or_refused(whole, tmp_path / "made", same=False)
        file.write_bytes(data)
    restore(whole, tmp_path / "made")


def _is_the_same_or_refused(source: Path, to: Path, *, same: bool = True) -> None:
    try:
        restore(source, to)
    except DataError:
        assert not to.exists()
        return
    with LearnerFolder.open(to, readonly=True) as folder:
        assert same
        assert bits(folder.learner) == twin(6)
    shutil.rmtree(to)


def test_what_is_not_there_or_no_backup_is_said_and_nothing_is_made(tmp_path):
    source = filled(tmp_path / "learner", 1)
    (source / JOURNAL_FILE).unlink()
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    for make, said in (
        (lambda to: restore(tmp_path / "nothing", to), "nothing: does not exist"),
        (lambda to: restore(tmp_path / "empty.tar", to), "holds no evergraph-learner.json"),
        (lambda to: backup(source, to), "journal.sqlite: is missing: restore the folder from a ba"),
    ):
        with pytest.raises(DataError, match=said):
            make(tmp_path / "made")
        assert not (tmp_path / "made").exists()


def test_an_archive_cannot_write_elsewhere(tmp_path):
    for name in ("../out", "/tmp/out", "snapshot-1/../../out", "snapshot-1/other", "lock"):
        with tarfile.open(tmp_path / "a.tar", "w") as archive:
            archive.addfile(tarfile.TarInfo(name))
        with pytest.raises(DataError, match="must hold files of a learner"):
            restore(tmp_path / "a.tar", tmp_path / "made")
    link = tarfile.TarInfo(JOURNAL_FILE)
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(link)
    with pytest.raises(DataError, match="must hold files of a learner"):
        restore(tmp_path / "a.tar", tmp_path / "made")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar"]


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
    opened(tmp_path / "new").close()
    with pytest.raises(DataError, match=r"holds no delta 1$"):
        skip(tmp_path / "new", 1, why="wrong")


def test_a_delta_is_left_out_once_with_a_reason_and_by_one(tmp_path):
    filled(tmp_path, 3)
    with pytest.raises(ConfigurationError, match="why must give a reason"):
        skip(tmp_path, 2, why=" ")
    with opened(tmp_path), pytest.raises(LockedError):
        skip(tmp_path, 2, why="wrong")
    for seq in (2, 3):
        skip(tmp_path, seq, why="wrong")
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
    killed = Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as patch:
        patch.setattr("evergraph.online.folder.journal.SetAsideDeltas.skip", killed)
        with pytest.raises(KeyboardInterrupt):
            skip(tmp_path, 2, why="wrong")
    with opened(tmp_path) as folder:
        assert (folder.status().snapshot, folder.status().set_aside) == (1, 0)
        assert bits(folder.learner) == twin(5)
