"""Files that were damaged, taken away or left over: mended, or refused when a folder is opened."""

import logging
import os
from pathlib import Path

import pytest

from evergraph.core import safe_files
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.online.folder.journal import JOURNAL_FILE as JOURNAL
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    FORMAT_FILE,
    Acknowledged,
    make_folder,
)
from planted import CHANGED, flip, gone, other, sql
from stand_in import bits, filled, holds, opened, twin

# What is damaged of a folder of nine deltas; the snapshot that is gone on with, and what is said.
MENDED = {
    "the newest snapshot": (
        (2, 5, 8),
        flip("snapshot-8/state.safetensors", 0.99),
        5,
        "snapshot-8/state.safetensors: its contents have changed since it was written",
    ),
    "a manifest at the last delta": (
        (2, 9),
        gone("snapshot-9/manifest.json"),
        2,
        "snapshot-9/manifest.json: cannot be read",
    ),
    "the only snapshot": ((4,), gone("snapshot-4/about.json"), 0, "snapshot-4/about.json"),
}


@pytest.mark.parametrize("name", MENDED)
def test_a_snapshot_that_is_damaged_means_the_one_before(tmp_path, caplog, name):
    compact_at, plant, before, said = MENDED[name]
    filled(tmp_path, 9, compact_at=compact_at)
    plant(tmp_path)
    with caplog.at_level(logging.WARNING), opened(tmp_path) as folder:
        assert said in caplog.text
        assert folder.status().snapshot == before
        assert bits(folder.learner) == twin(9)
        assert folder.compact() == 9  # also where a damaged one has that number
    kept = {f"snapshot-{number}" for number in (before, 9) if number}
    assert {path.name for path in tmp_path.glob("snapshot-*")} == kept
    with opened(tmp_path) as folder:
        assert (folder.status().snapshot, bits(folder.learner)) == (9, twin(9))


# What is damaged of a folder of five deltas and some snapshots; and why it is refused.
REFUSED = {
    "no intact snapshot": (
        (2, 4),
        gone("snapshot-2/about.json", "snapshot-4/about.json"),
        r"no intact snapshot \(.*snapshot-4/about.json.*delta 3:",
    ),
    "a gap": (
        (),
        sql("DELETE FROM deltas WHERE seq = 3"),
        "journal.sqlite: delta 3 is missing, the next one is 4",
    ),
    "a row": ((), sql(CHANGED.format(4)), "delta 4 cannot be read: a delta's checksum is wrong"),
    "the journal's end": (
        (),
        sql("DELETE FROM deltas WHERE seq = 5"),
        "ends with delta 4, but 5 were acknowledged",
    ),
    "the journal's end, with snapshots": (
        (2, 4),
        sql("DELETE FROM deltas WHERE seq = 5"),
        "ends with delta 4, but 5 were acknowl",
    ),
    "a journal older than the snapshot": (
        (4,),
        lambda f: (sql("DELETE FROM deltas WHERE seq > 2")(f), gone(ACKNOWLEDGED_FILE)(f)),
        "ends with delta 2, but 4 were acknowledged",
    ),
    "no journal": ((), gone(JOURNAL), "journal.sqlite: is missing"),
    "no format": ((), gone(FORMAT_FILE), "evergraph-learner.json: is missing, but the journal"),
    "a later format": (
        (),
        other(FORMAT_FILE, format=99, evergraph="9.1"),
        "format 99, .* evergraph 9.1, which",
    ),
    "no parameters": ((), other(FORMAT_FILE, parameters=None), "must hold the parameters of a"),
    "acknowledged, a folder": (
        (),
        lambda f: (gone(ACKNOWLEDGED_FILE)(f), (f / ACKNOWLEDGED_FILE).mkdir()),
        "acknowledged.* cannot be read",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_mended_is_refused(tmp_path, name):
    compact_at, plant, sentence = REFUSED[name]
    filled(tmp_path, 5, compact_at=compact_at)
    plant(tmp_path)
    for _ in range(2):  # the second time too, not LockedError: a refusal gives the lock back
        with pytest.raises(DataError, match=sentence):
            opened(tmp_path)


def test_what_a_killed_process_left_aside_goes_when_the_folder_is_opened(tmp_path):
    filled(tmp_path, 1)
    for name in (".aside-2", ".aside-gone-snapshot-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.safetensors").write_bytes(b"half")
    with opened(tmp_path, readonly=True):
        assert (tmp_path / ".aside-2").exists()  # a writer may be at work
    assert holds(tmp_path, 1)
    assert list(tmp_path.glob(".aside*")) == []
    (tmp_path / ".aside-2").write_bytes(b"a file where a folder is expected keeps nobody out")
    opened(tmp_path).close()


def test_a_folder_of_something_else_is_left_alone_and_others_may_not_write(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigurationError, match=r"but it holds 'thesis.tex'"):
        opened(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    before = os.umask(0)
    try:
        Acknowledged(tmp_path / ACKNOWLEDGED_FILE).close()
    finally:
        os.umask(before)
    assert (tmp_path / ACKNOWLEDGED_FILE).stat().st_mode & 0o777 == 0o644


def test_folders_above_a_new_one_are_on_the_disk_too(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def noting(handle):
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    if not Path("/proc/self/fd").exists():
        pytest.skip("/proc tells which file a number stands for")
    monkeypatch.setattr(safe_files.os, "fsync", noting)
    make_folder(tmp_path / "a" / "b" / "c")
    assert synced == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    synced.clear()
    make_folder(tmp_path / "a" / "b" / "c")
    assert synced == []
