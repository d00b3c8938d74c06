"""An import that is stopped, killed or out of room goes on where it was."""

import errno
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergraph.core.errors import DataError, ResourceError
from evergraph.core.safe_files import one_at_a_time
from evergraph.datasets.importing.importing import import_graph
from evergraph.graphs.graph_folder import open_graph_folder, read_facts
from forked import begun
from tables_to_import import EDGES, StopError, long_tables, random_tables, stopped_after, tables


def recorded() -> tuple[list[str], Callable[[str, int, int], None]]:
    stages = []
    return stages, lambda stage, done, total: stages.append(stage)


@pytest.mark.usefixtures("in_small_pieces")
@pytest.mark.parametrize("made", [random_tables, long_tables])
def test_interrupted_anywhere_it_goes_on(tmp_path, made):
    paths = made(tmp_path)
    calls, on_progress = recorded()
    whole = import_graph(*paths, tmp_path / "whole", on_progress=on_progress)
    assert {"nodes", "edges", "sort", "checksum"} == set(calls)
    assert calls.count("sort") > 2 < calls.count("edges")
    for stop in range(0, len(calls) - 1, 13):
        out = tmp_path / f"stopped-{stop}"
        with pytest.raises(StopError):
            import_graph(*paths, out, on_progress=stopped_after(stop))
        assert not out.exists()
        again, on_progress = recorded()
        report = import_graph(*paths, out, on_progress=on_progress)
        assert report == replace(whole, seconds=report.seconds)  # its checksum, too
        open_graph_folder(out, verify=True)
        assert read_facts(out).get("relations") == read_facts(tmp_path / "whole").get("relations")
        if calls[stop] != "nodes" and calls[stop - 1] != "nodes":
            assert "nodes" not in again  # what was done is not done again
        if calls[stop] in ("sort", "checksum"):
            assert "edges" not in again
        if calls[stop] == "checksum":
            assert "sort" not in again


@pytest.mark.usefixtures("in_small_pieces")
def test_killed_it_goes_on(tmp_path):
    paths, out = random_tables(tmp_path), tmp_path / "g"
    read, write = os.pipe()

    def slowly():
        def told(stage, done, total):
            os.write(1, f"{stage}\n".encode())
            time.sleep(0.02)

        import_graph(*paths, out, on_progress=told)

    child = begun(slowly, out=write)
    os.close(write)
    with os.fdopen(read) as stages:
        assert "edges\n" in stages  # reads until then
        time.sleep(random.uniform(0, 0.4))
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    killed = not out.exists()
    report = import_graph(*paths, out)
    assert report.new == killed
    assert report.checksum == import_graph(*paths, tmp_path / "whole").checksum
    open_graph_folder(out, verify=True)
    assert not (tmp_path / "g.partial").exists()


def test_a_table_that_changes_meanwhile_is_refused(tmp_path):
    edges, nodes = tables(tmp_path)

    def change(stage, done, total):
        if stage == "sort":
            edges.write_text(EDGES + "ann,cid\n")

    with pytest.raises(DataError, match="changed while it was read"):
        import_graph(edges, nodes, tmp_path / "g", on_progress=change)
    assert not (tmp_path / "g").exists()
    assert import_graph(edges, nodes, tmp_path / "g").edges == 5


@pytest.mark.parametrize("file", ["features.npy", "ids.arrow", "edges"])
def test_a_full_disk_is_said_and_later_it_goes_on(tmp_path, tiny_disk, file):
    generator = np.random.default_rng(0)
    width = 60 if file == "features.npy" else 0
    nodes = 4_000 if width else 1_200
    names = [f"{'n' * 400 * (file == 'ids.arrow')}{node}" for node in range(nodes)]
    header = "id,label" + "".join(f",f{place}" for place in range(width)) + "\n"
    rows = "".join(f"{name},0{',1' * width}\n" for name in names)
    pairs = generator.integers(nodes, size=(100_000 if file == "edges" else 10, 2))
    edges = "source,target\n" + "".join(f"{names[a]},{names[b]}\n" for a, b in pairs)
    paths = tables(tmp_path / "tables", header + rows, edges)
    room = {"features.npy": 700, "ids.arrow": 300, "edges": 400}
    disk = tiny_disk(room[file] * 1024)
    with pytest.raises(ResourceError, match=r": the disk is full \(.*No space left") as caught:
        import_graph(*paths, disk / "g")
    assert file in str(caught.value)
    assert not (disk / "g").exists()
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
    assert import_graph(*paths, disk / "g").nodes == nodes
    open_graph_folder(disk / "g", verify=True)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Any:
    """Mount a file system of so many bytes, where one may."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(size: int) -> Path:
        options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
        try:
            done = subprocess.run(["mount", *options], capture_output=True)
        except FileNotFoundError:
            pytest.skip("no mount here")
        if done.returncode:
            pytest.skip("file systems may not be mounted here")
        return place

    yield mount
    subprocess.run(["umount", "-l", str(place)], capture_output=True)


@pytest.mark.parametrize("stage", ["nodes", "edges", "sort"])
def test_writes_that_fail_leave_no_graph(tmp_path, monkeypatch, stage):
    paths = tables(tmp_path)
    full = [False]
    real = os.fsync

    def fsync(handle):
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    def fill(now, done, total):
        full[0] = now == stage

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(ResourceError, match="the disk is full"):
        import_graph(*paths, tmp_path / "g", on_progress=fill)
    assert not (tmp_path / "g").exists()


def test_two_at_once_are_refused(tmp_path):
    paths = tables(tmp_path)
    with (
        one_at_a_time(tmp_path / "g.partial"),
        pytest.raises(DataError, match=r"g\.partial: another process is using it"),
    ):
        import_graph(*paths, tmp_path / "g")
    assert import_graph(*paths, tmp_path / "g").nodes == 3
