"""An import makes what reading the tables in memory makes, whatever happens on the way."""

from __future__ import annotations

import errno
import gzip
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.core.errors import DataError, ResourceError
from evergraph.core.file_lock import one_at_a_time
from evergraph.core.resources import Resources
from evergraph.datasets.files.table_folder import read_table_folder
from evergraph.datasets.importing import node_index
from evergraph.datasets.importing import stages as import_stages
from evergraph.datasets.importing.importing import import_graph
from evergraph.datasets.importing.node_index import NodeIndex
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import open_graph_folder, read_facts

NODES = "id,label,time,f\nann,art,1,1.5\nbob,music,2,2\ncid,,3,3\n"
EDGES = "source,target\nann,bob\ncid,bob\nbob,ann\ncid,cid\n"


@pytest.fixture
def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read 64 bytes at a time and sort 64 pairs at a time."""
    monkeypatch.setattr(import_stages, "_LARGEST_PIECE", 64)
    monkeypatch.setattr(import_stages, "_LARGEST_SORT", 32 * 64)


def tables(folder: Path, nodes: str = NODES, edges: str = EDGES) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder / "edges.csv", folder / "nodes.csv"


def random_tables(folder: Path, nodes: int = 20, edges: int = 90) -> tuple[Path, Path]:
    generator = np.random.default_rng(0)
    rows = [f"n{node},c{node % 3},{node / 4}" for node in range(nodes)]
    pairs = [f"n{a},n{b}" for a, b in generator.integers(nodes, size=(edges, 2))]
    return tables(
        folder, "\n".join(["id,label,f", *rows]) + "\n", "\n".join(["source,target", *pairs]) + "\n"
    )


def check_same(folder: Path, expected: Graph, assert_same: Any) -> None:
    assert_same(open_graph_folder(folder, verify=True), expected)


def test_hand_made(tmp_path: Path) -> None:
    report = import_graph(*tables(tmp_path), tmp_path / "g")
    assert (report.nodes, report.classes, report.features, report.new) == (3, 2, 1, True)
    # ann-bob is listed both ways, cid-cid is a loop: two edges are left, each there and back.
    assert (report.edges, report.doubles, report.loops, report.entries) == (4, 1, 1, 4)
    graph = open_graph_folder(tmp_path / "g", verify=True)
    assert graph.undirected
    assert [graph.neighbours(node).tolist() for node in range(3)] == [[1], [0, 2], [1]]
    assert graph.labels.tolist() == [0, 1, -1]
    assert graph.time is not None
    assert graph.time.tolist() == [1, 2, 3]
    assert graph.features.tolist() == [[1.5], [2], [3]]
    assert read_facts(tmp_path / "g")["sha256"] == report.checksum
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.csv", "g", "nodes.csv"]


def test_directed(tmp_path: Path, assert_same: Any) -> None:
    report = import_graph(*tables(tmp_path), tmp_path / "g", undirected=False)
    assert (report.doubles, report.loops, report.entries) == (0, 1, 3)
    assert not open_graph_folder(tmp_path / "g").undirected
    check_same(tmp_path / "g", read_table_folder(tmp_path), assert_same)


LABELS = {
    "names": st.sampled_from(["art", "music", "", "NA", 'a "b", c']),
    "numbers": st.sampled_from(["0", "1", "7", "", "NA"]),
    "fractions": st.sampled_from(["0.0", "2.0", ""]),
    "yes and no": st.sampled_from(["true", "false"]),
    "numbers until a name": st.sampled_from(["0", "1", "2", "3", "4", "late"]),
}
IDS: dict[str, Callable[[int], str]] = {
    "dense": lambda node: str(node + 5),
    "sparse": lambda node: str(1000 ** (node % 5) + node),
    "text": lambda node: f"n{node}",
    "zeros before": lambda node: "0" * (node % 3) + str(node),
}


@pytest.mark.usefixtures("in_small_pieces")
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_same_as_in_memory(
    tmp_path_factory: pytest.TempPathFactory, assert_same: Any, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("import")
    count = data.draw(st.integers(1, 9))
    name = IDS[data.draw(st.sampled_from(sorted(IDS)))]
    ids = [name(node) for node in range(count)]
    some = {"min_size": count, "max_size": count}
    kind = LABELS[data.draw(st.sampled_from(sorted(LABELS)))]
    columns: dict[str, list[Any]] = {"id": ids, "label": data.draw(st.lists(kind, **some))}
    if data.draw(st.booleans()):
        columns["time"] = data.draw(st.lists(st.sampled_from(["3", "4.0", str(2**60)]), **some))
    if data.draw(st.booleans()):
        columns["f"] = data.draw(st.lists(st.sampled_from(["1", "-2.5", "3e2"]), **some))
        columns["g"] = data.draw(st.lists(st.sampled_from(["true", "false"]), **some))
    node = st.integers(0, count - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=30))
    ends = {"source": [ids[a] for a, _ in edges], "target": [ids[b] for _, b in edges]}
    for file, table in (("nodes", columns), ("edges", ends | {"w": ["x"] * len(edges)})):
        texts = pa.table({key: pa.array(values, pa.string()) for key, values in table.items()})
        pyarrow.csv.write_csv(texts, folder / f"{file}.csv")
    undirected = data.draw(st.booleans())
    import_graph(folder / "edges.csv", folder / "nodes.csv", folder / "g", undirected=undirected)
    expected = read_table_folder(folder)
    check_same(folder / "g", expected.to_undirected() if undirected else expected, assert_same)


@pytest.mark.usefixtures("in_small_pieces")
@pytest.mark.parametrize("node_kind", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize("edge_kind", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize("numbers", [True, False])
def test_every_kind_of_file(
    tmp_path: Path, assert_same: Any, node_kind: str, edge_kind: str, numbers: bool
) -> None:
    ids = [10, 20, 30, 7] if numbers else ["a", "b", "007", "7"]
    nodes = {"id": ids, "label": [3, None, 0, 1], "time": [2, 1, 0, 9], "f": [1.0, 2.0, 3.0, 4.0]}
    ends = np.random.default_rng(0).integers(4, size=(2, 50))
    edges = {
        name: [ids[e] for e in row] for name, row in zip(("source", "target"), ends, strict=True)
    }
    for name, table, kind in (("nodes", nodes, node_kind), ("edges", edges, edge_kind)):
        plain = tmp_path / f"{name}.{'parquet' if kind == 'parquet' else 'csv'}"
        if kind == "parquet":
            pyarrow.parquet.write_table(pa.table(table), plain, row_group_size=17)
        else:
            pyarrow.csv.write_csv(pa.table(table), plain)
            (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    import_graph(tmp_path / f"edges.{edge_kind}", tmp_path / f"nodes.{node_kind}", tmp_path / "g")
    check_same(tmp_path / "g", read_table_folder(tmp_path).to_undirected(), assert_same)


class StopError(Exception):
    """What a test interrupts an import with."""


def recorded() -> tuple[list[str], Callable[[str, int, int], None]]:
    stages: list[str] = []
    return stages, lambda stage, done, total: stages.append(stage)


def stopped_after(calls: int) -> Callable[[str, int, int], None]:
    left = [calls]

    def on_progress(stage: str, done: int, total: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise StopError

    return on_progress


@pytest.mark.usefixtures("in_small_pieces")
def test_interrupted_anywhere_it_goes_on(tmp_path: Path) -> None:
    paths = random_tables(tmp_path)
    calls, on_progress = recorded()
    whole = import_graph(*paths, tmp_path / "whole", on_progress=on_progress)
    assert {"nodes", "edges", "sort", "checksum"} == set(calls)
    assert calls.count("sort") > 2 < calls.count("edges")
    for stop in range(len(calls) - 1):
        out = tmp_path / f"stopped-{stop}"
        with pytest.raises(StopError):
            import_graph(*paths, out, on_progress=stopped_after(stop))
        assert not out.exists()
        again, on_progress = recorded()
        report = import_graph(*paths, out, on_progress=on_progress)
        assert report.checksum == whole.checksum
        assert (report.edges, report.doubles, report.loops, report.entries) == (
            whole.edges, whole.doubles, whole.loops, whole.entries
        )  # fmt: skip
        open_graph_folder(out, verify=True)
        if calls[stop] != "nodes" and calls[stop - 1] != "nodes":
            assert "nodes" not in again  # what was done is not done again
        if calls[stop] == "sort":
            assert "edges" not in again
            assert again.count("sort") < calls.count("sort") or calls[stop - 1] != "sort"


SLOWLY = """
import sys, time
from pathlib import Path
from evergraph.datasets import import_stages, importing
import_stages._LARGEST_PIECE, import_stages._LARGEST_SORT = 64, 32 * 64
def slowly(stage, done, total):
    print(stage, flush=True)
    time.sleep(0.02)
edges, nodes, out = map(Path, sys.argv[1:])
print(importing.import_graph(edges, nodes, out, on_progress=slowly).checksum)
"""


@pytest.mark.usefixtures("in_small_pieces")
def test_killed_it_goes_on(tmp_path: Path) -> None:
    paths = random_tables(tmp_path)
    whole = import_graph(*paths, tmp_path / "whole")
    out = tmp_path / "g"
    command = [sys.executable, "-c", SLOWLY, *map(str, paths), str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "edges":
                break
        time.sleep(random.uniform(0, 0.8))
        process.send_signal(signal.SIGKILL)
    killed = not out.exists()
    report = import_graph(*paths, out)
    assert report.checksum == whole.checksum
    assert report.new == killed
    open_graph_folder(out, verify=True)
    assert not (tmp_path / "g.partial").exists()


@pytest.mark.usefixtures("in_small_pieces")
def test_other_tables_are_not_mixed_in(tmp_path: Path) -> None:
    edges, nodes = random_tables(tmp_path)
    with pytest.raises(StopError):
        import_graph(edges, nodes, tmp_path / "g", on_progress=stopped_after(20))
    edges.write_text("source,target\nn0,n1\n")
    stages, on_progress = recorded()
    report = import_graph(edges, nodes, tmp_path / "g", on_progress=on_progress)
    assert (report.edges, report.entries) == (1, 2)
    assert "nodes" not in stages  # those are the same
    with pytest.raises(StopError):
        import_graph(edges, nodes, tmp_path / "h", on_progress=stopped_after(5))
    tables(tmp_path)
    assert import_graph(edges, nodes, tmp_path / "h").nodes == 3


def test_a_table_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    edges, nodes = tables(tmp_path)

    def change(stage: str, done: int, total: int) -> None:
        if stage == "sort":
            edges.write_text(EDGES + "ann,cid\n")

    with pytest.raises(DataError, match="has changed while it was read"):
        import_graph(edges, nodes, tmp_path / "g", on_progress=change)
    assert not (tmp_path / "g").exists()
    assert import_graph(edges, nodes, tmp_path / "g").edges == 5


def test_a_graph_that_is_there(tmp_path: Path) -> None:
    edges, nodes = tables(tmp_path)
    first = import_graph(edges, nodes, tmp_path / "g")
    again = import_graph(edges, nodes, tmp_path / "g")
    assert (again.new, again.checksum, again.seconds) == (False, first.checksum, first.seconds)
    with pytest.raises(DataError, match="g: is there already and is no graph of these tables"):
        import_graph(edges, nodes, tmp_path / "g", undirected=False)
    replaced = import_graph(edges, nodes, tmp_path / "g", undirected=False, overwrite=True)
    assert (replaced.new, replaced.entries) == (True, 3)
    assert open_graph_folder(tmp_path / "g").num_edges == 3
    assert not (tmp_path / "g.partial").exists()
    os.truncate(tmp_path / "g" / "indices.npy", 130)
    with pytest.raises(DataError, match=r"indices\.npy: has 130 bytes instead of"):
        import_graph(edges, nodes, tmp_path / "g", undirected=False)


def test_what_is_no_graph_is_never_replaced(tmp_path: Path) -> None:
    paths = tables(tmp_path)
    (tmp_path / "dear").mkdir()
    (tmp_path / "dear" / "letter.txt").write_text("keep")
    for overwrite in (False, True):
        with pytest.raises(DataError, match=r"dear: is (there already|no graph)"):
            import_graph(*paths, tmp_path / "dear", overwrite=overwrite)
    assert (tmp_path / "dear" / "letter.txt").read_text() == "keep"


MANY = "source,target\n" + "ann,bob\n" * 50


@pytest.mark.usefixtures("in_small_pieces")
@pytest.mark.parametrize(
    ("nodes", "edges", "said"),
    [
        (NODES, MANY + "cid\n", r"edges\.csv: cannot be read .*row 51: Expected 2 columns, got 1"),
        (NODES, MANY + "cid,dan\n", r"edges\.csv: row 51 has target 'dan': expected the id of a"),
        (NODES, MANY + ",ann\n", r"edges\.csv: row 51 has no value in column 'source'"),
        (NODES, "from,target\n", r"edges\.csv: has no column 'source': it has from, target"),
        (NODES, "", r"edges\.csv: cannot be read as a table \(Empty CSV file\)"),
        (NODES + "ann,,1,2\n", EDGES, r"nodes\.csv: row 4 repeats id 'ann' of row 1"),
        (NODES + "d,,1,2\n" * 9 + "e,,1,x\n", EDGES, r"nodes\.csv: cannot be .*row 13: .*'x'"),
        (NODES + "dan,,1,inf\n", EDGES, r"nodes\.csv: row 4 has inf in column 'f': expected"),
        (NODES + "dan,,,1\n", EDGES, r"nodes\.csv: row 4 has no value in column 'time'"),
        (
            NODES + "dan,,soon,1\n",
            EDGES,
            r"nodes\.csv: row 4 has 'soon' in column 'time': expected",
        ),
        ("id,label\na,0\nb,-7\n", EDGES, r"nodes\.csv: row 2 has -7 in column 'label': expected a"),
        ("id,label\na,0\nb,0.5\n", EDGES, r"nodes\.csv: row 2 has 0.5 in column 'label': expected"),
    ],
)
def test_bad_tables_are_one_sentence(tmp_path: Path, nodes: str, edges: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        import_graph(*tables(tmp_path, nodes, edges), tmp_path / "g")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "g").exists()


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    edges, nodes = tables(tmp_path)
    with pytest.raises(DataError, match=r"gone\.csv: no such file"):
        import_graph(tmp_path / "gone.csv", nodes, tmp_path / "g")
    (tmp_path / "edges.txt").write_text(EDGES)
    with pytest.raises(DataError, match=r"edges\.txt: is no table .*\.csv or \.csv\.gz or"):
        import_graph(tmp_path / "edges.txt", nodes, tmp_path / "g")
    packed = gzip.compress(edges.read_bytes())
    for contents in (packed[:-9], b"no gzip"):
        (tmp_path / "e.csv.gz").write_bytes(contents)
        with pytest.raises(DataError, match=r"e\.csv\.gz: cannot be read as a table"):
            import_graph(tmp_path / "e.csv.gz", nodes, tmp_path / "g")
    (tmp_path / "e.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(DataError, match=r"e\.parquet: cannot be read as a table"):
        import_graph(tmp_path / "e.parquet", nodes, tmp_path / "g")


def test_a_mended_table_goes_through(tmp_path: Path) -> None:
    edges, nodes = tables(tmp_path, edges=MANY + "cid\n")
    with pytest.raises(DataError):
        import_graph(edges, nodes, tmp_path / "g")
    edges.write_text(MANY + "cid,ann\n")
    assert import_graph(edges, nodes, tmp_path / "g").entries == 4


def test_too_little_memory_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = tables(tmp_path)
    with pytest.raises(ResourceError, match="an import takes 32 MB at the least, but only 0 MB"):
        import_graph(*paths, tmp_path / "g", resources=Resources(memory=10**6))
    monkeypatch.setattr(import_stages, "_BYTES_AN_ID", 10**9)
    limit = psutil.Process().memory_info().rss + 10**9
    with pytest.raises(ResourceError, match=r"finding 3 nodes by id takes 3\.0 GB at the least"):
        import_graph(*paths, tmp_path / "g", resources=Resources(memory=limit))
    monkeypatch.undo()
    monkeypatch.setattr(import_stages, "_LARGEST_SORT", 32 * 4)  # four pairs at a time
    paths = random_tables(tmp_path)
    with pytest.raises(ResourceError, match="sorted runs of edges are too many for the memory"):
        import_graph(*paths, tmp_path / "h")
    assert not list(tmp_path.glob("[gh]"))


@pytest.mark.parametrize("file", ["features.npy", "ids.arrow", ".keys", "indptr.npy", "indices"])
def test_a_full_disk_is_said_and_later_it_goes_on(
    tmp_path: Path, tiny_disk: Callable[[int], Path], file: str
) -> None:
    generator = np.random.default_rng(0)
    wide = file == "features.npy"
    long_ids = file == "ids.arrow"
    nodes = 60_000 if file == "indptr.npy" else 2_000
    names = [f"{'n' * 400 if long_ids else ''}{node}" for node in range(nodes)]
    header = "id,label" + "".join(f",f{place}" for place in range(300 if wide else 0)) + "\n"
    rows = "".join(f"{name},0{',1' * (300 if wide else 0)}\n" for name in names)
    pairs = generator.integers(nodes, size=(40_000 if file in (".keys", "indices") else 10, 2))
    edges = "source,target\n" + "".join(f"{names[a]},{names[b]}\n" for a, b in pairs)
    paths = tables(tmp_path / "tables", header + rows, edges)
    room = {"features.npy": 700, "ids.arrow": 400, ".keys": 500, "indptr.npy": 1150}
    disk = tiny_disk(room.get(file, 900) * 1024)
    with pytest.raises(ResourceError, match=r": the disk is full \(.*No space left") as caught:
        import_graph(*paths, disk / "g")
    assert file in str(caught.value)
    assert not (disk / "g").exists()
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
    report = import_graph(*paths, disk / "g")
    assert report.checksum == import_graph(*paths, tmp_path / "g").checksum


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
def test_writes_that_fail_leave_no_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    paths = tables(tmp_path)
    full = [False]
    real = os.fsync

    def fsync(handle: int) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    def fill(now: str, done: int, total: int) -> None:
        full[0] = now == stage

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(ResourceError, match="the disk is full"):
        import_graph(*paths, tmp_path / "g", on_progress=fill)
    assert not (tmp_path / "g").exists()


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    paths = tables(tmp_path)
    with (
        one_at_a_time(tmp_path / "g.partial"),
        pytest.raises(DataError, match=r"g\.partial: another process is at work here"),
    ):
        import_graph(*paths, tmp_path / "g")
    assert import_graph(*paths, tmp_path / "g").nodes == 3


@pytest.mark.parametrize(
    ("known", "asked", "found"),
    [
        ([5, 3, 4], ["3", "5"], [1, 0]),
        (["5", "3", "4"], [3, 5], [1, 0]),
        (["-5", "-4"], ["-4", "-5"], [1, 0]),
        ([10**15, 3], [3, 10**15], [1, 0]),
        ([-(2**63), 2**63 - 1], [2**63 - 1], [1]),
        (["007", "7"], ["7", "007"], [1, 0]),
        (["a", "7"], ["7", "a"], [1, 0]),
        (["7"], [], []),
    ],
)
def test_ids_are_found(known: list[Any], asked: list[Any], found: list[int]) -> None:
    values = pa.array(asked, None if asked else pa.string())
    assert NodeIndex(pa.array(known)).positions(values, "source").tolist() == found


@pytest.mark.parametrize("asked", ["8", "6", "007", " 7", "+7", "0x7", "x", "7.0"])
def test_an_id_is_one_only_as_it_is_written(asked: str) -> None:
    for known in (["7", "9"], [7, 9]):
        index = NodeIndex(pa.array(known))
        with pytest.raises(DataError, match=r"row 12 has target '.*': expected the id of a node"):
            index.positions(pa.array(["9", asked]), "target", before=10)


def test_dense_ids_are_not_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_index.NodeIndex, "_search", None)
    index = NodeIndex(pa.array([str(node) for node in range(100)]))
    assert index.positions(pa.array(["99", "0"]), "source").tolist() == [99, 0]


def test_features_stay_on_disk(tmp_path: Path) -> None:
    import_graph(*tables(tmp_path), tmp_path / "g")
    graph = open_graph_folder(tmp_path / "g")
    assert graph.mapped
    assert graph.features.dtype == torch.float32
