"""Files written whole: what is said to be written is on the disk, name and all."""

import os
import stat
from pathlib import Path
from unittest.mock import Mock

import pytest

from evergraph.core.errors import ResultsError
from evergraph.core.written_aside import check_writable, written_aside


def test_the_file_is_on_the_disk_before_it_has_its_name_and_the_name_at_the_end(
    tmp_path, monkeypatch
):
    calls = []
    fsync, replace = os.fsync, os.replace

    def synced(handle):
        calls.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        if calls[-1] == "file":
            assert os.fstat(handle).st_size == 5  # nothing is left in a buffer
        fsync(handle)

    def renamed(source, target):
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    with written_aside(tmp_path / "new" / "a.txt") as file:
        file.write(b"whole")
    assert calls == ["folder", "file", "rename", "folder"]  # first the one that holds the new one


def test_a_failed_write_keeps_the_file(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("before")
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), written_aside(path) as file:
        file.write(b"after")
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_that_cannot_be_written_to_is_said_and_nothing_is_left(tmp_path):
    check_writable(tmp_path / "a" / "b")
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match=r"file/out cannot be written: .*file is a file"):
        check_writable(tmp_path / "file" / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    with pytest.raises(ResultsError, match="cannot be written"):
        check_writable(Path("/proc/results"))
