"""Arrays in files and files written aside: whole or refused, and a full disk is a sentence."""

import errno
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import psutil
import pytest
import torch

from evergraph.core import mapped
from evergraph.core.errors import DataError, ResourceError, ResultsError
from evergraph.core.mapped import (
    AppendedArray,
    create_array,
    fetch,
    give_memory_back,
    map_array,
    page_out,
    put,
)
from evergraph.core.safe_files import check_writable, disk_is_enough, written_aside


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((5,), torch.float32), ((3, 2), torch.float16), ((0,), torch.int32), ((4, 0), torch.int64)],
)
def test_writes_are_kept(tmp_path, shape, dtype):
    array = create_array(tmp_path / "a.npy", shape, dtype)
    assert array.shape == shape
    assert array.dtype == dtype
    assert not array.any()
    array += 3
    again = map_array(tmp_path / "a.npy")
    assert torch.equal(again, torch.full(shape, 3, dtype=dtype))


def test_only_a_writable_array_changes_its_file(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    map_array(tmp_path / "a.npy")[0] = 9
    assert map_array(tmp_path / "a.npy").tolist() == [0, 1, 2]
    map_array(tmp_path / "a.npy", writable=True)[0] = 9
    assert map_array(tmp_path / "a.npy").tolist() == [9, 1, 2]


def test_pages_that_leave_memory_keep_their_contents(tmp_path):
    array = create_array(tmp_path / "a.npy", (100_000,), torch.int64)
    array.copy_(torch.arange(100_000))
    page_out(array)
    page_out(array[3:9])  # less than a page: nothing to do
    assert torch.equal(array, torch.arange(100_000))


def test_a_file_cut_short_is_refused(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(1000))
    os.truncate(path, path.stat().st_size - 8)
    with pytest.raises(DataError, match=r"a\.npy is truncated or not an \.npy array"):
        map_array(path)


@pytest.mark.parametrize("contents", [b"", b"\x93NUMPY", b"no array at all"])
def test_other_files_are_refused(tmp_path, contents):
    (tmp_path / "a.npy").write_bytes(contents)
    with pytest.raises(DataError, match=r"a\.npy is truncated or not an"):
        map_array(tmp_path / "a.npy")
    with pytest.raises(DataError, match=r"b\.npy: no such file"):
        map_array(tmp_path / "b.npy")


def test_a_full_disk_is_reported_at_once(tmp_path, monkeypatch):
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ResourceError, match=r"a\.npy: the disk is full \(No space left"):
        create_array(tmp_path / "a.npy", (10,), torch.float32)


@pytest.mark.parametrize("pieces", [1, 10_000])
def test_a_disk_that_fills_is_reported_whenever_values_reach_it(tmp_path, pieces):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def write() -> None:
        with AppendedArray(tmp_path / "a.npy", np.float64) as array:
            resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
            for _ in range(pieces):
                array.append(np.ones(100))

    try:
        with pytest.raises(ResourceError, match=r"a\.npy: the disk is full"):
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_other_failures_of_the_disk_stay_what_they_are(tmp_path):
    sentence = r"cannot be written \(no\)$"
    with pytest.raises(ResourceError, match=sentence), disk_is_enough(tmp_path):
        raise PermissionError(errno.EACCES, "no")
    with pytest.raises(InterruptedError), disk_is_enough(tmp_path):
        raise InterruptedError(errno.EINTR, "another matter")


@pytest.mark.parametrize("resident", [0, 1 << 18, 1 << 28])
def test_rows_are_taken_as_from_any_tensor(tmp_path, monkeypatch, resident):
    monkeypatch.setattr(mapped, "RESIDENT", resident)
    values = torch.arange(30_000).reshape(10_000, 3)
    np.save(tmp_path / "a.npy", values.numpy())
    array = map_array(tmp_path / "a.npy")
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        rows = torch.randint(10_000, (500,), generator=generator)
        taken = array[rows]
        assert type(taken) is torch.Tensor
        assert torch.equal(taken, values[rows])
    assert torch.equal(array[values[:, 0] % 2 == 1], values[values[:, 0] % 2 == 1])
    assert torch.equal(array[3:9] + 1, values[3:9] + 1)


def test_small_arrays_keep_their_pages(tmp_path, monkeypatch):
    swept = []
    monkeypatch.setattr(mapped, "page_out", lambda part: swept.append(len(part)))
    np.save(tmp_path / "a.npy", np.arange(10_000))
    map_array(tmp_path / "a.npy")[torch.zeros(50_000, dtype=torch.int64)]
    assert swept == []
    monkeypatch.setattr(mapped, "RESIDENT", 1000)
    map_array(tmp_path / "a.npy")[torch.zeros(3, dtype=torch.int64)]
    assert swept != []


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what is held")
def test_memory_that_mapped_arrays_hold_is_given_back(tmp_path):
    array = create_array(tmp_path / "large.npy", (1 << 24,), torch.float32)  # 64 MB

    def given_back():
        array.fill_(1.0)
        before = psutil.Process().memory_info().rss
        give_memory_back()
        return before - int(psutil.Process().memory_info().rss)

    # A system that lacks memory may have taken the pages before, but not each time.
    assert any(given_back() > 50_000_000 for _ in range(5))
    assert float(array.sum()) == 1 << 24


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_freed_arrays_go_back_to_the_system_if_told_so():
    code = """
import numpy as np
import psutil
from evergraph.core.sizes import return_freed_memory

return_freed_memory()
for _ in range(3):  # after the first, glibc would keep arrays of this size
    array = np.ones(20 << 20, np.uint8)
    held = psutil.Process().memory_info().rss
    del array
print(held - psutil.Process().memory_info().rss)
"""
    # In a process of its own: a forked one may have as much free memory from its parent.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 15 << 20


def test_rows_of_a_file_that_is_written_to_are_read_through_it(tmp_path):
    array = create_array(tmp_path / "a.npy", (5, 3), torch.float32)
    put(array, 1, torch.arange(6.0).reshape(2, 3))
    found = fetch(array, 1, 9)  # no further than there are rows
    assert found.tolist() == [[0, 1, 2], [3, 4, 5], [0, 0, 0], [0, 0, 0]]
    found[0] = 7.0
    assert array[1].tolist() == [0, 1, 2]  # a copy
    again = map_array(tmp_path / "a.npy")
    assert fetch(again, 2, 3).tolist() == [[3, 4, 5]]


@pytest.mark.parametrize("step", [1, 7])
def test_rows_of_a_large_file(step, tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "RESIDENT", 64)
    monkeypatch.setattr(mapped, "_AROUND", 16)  # 4 rows at a time; with every 7th, they are far
    array = create_array(tmp_path / "a.npy", (50, 3), torch.float32)
    whole = torch.arange(150.0).reshape(50, 3)
    put(array, 0, whole)
    rows = torch.arange(0, 50, step).flip(0)
    assert array[rows].equal(whole[rows])


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
