"""The external sort makes what sorting in memory makes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.core.errors import DataError, ResourceError
from evergraph.datasets.importing.appended_array import AppendedArray
from evergraph.datasets.importing.sorter import EdgeSorter, KeyRuns, Sorted
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import GraphFolderWriter

FEW = 32 * 24  # bytes: 24 pairs at a time


def arrays(folder: Path) -> tuple[list[int], list[int]]:
    indptr, indices = np.load(folder / "indptr.npy"), np.load(folder / "indices.npy")
    assert indptr.dtype == indices.dtype == np.int32
    return indptr.tolist(), indices.tolist()


def sort(
    folder: Path, edges: list[tuple[int, int]], nodes: int, undirected: bool, batch: int = 5
) -> int:
    sorter = EdgeSorter(folder / "runs", nodes=nodes, undirected=undirected, memory=FEW)
    for start in range(0, len(edges), batch):
        sorter.add(*np.array(edges[start : start + batch]).T)
    return sorter.finish(GraphFolderWriter(folder / "graph"))


def test_hand_made(tmp_path: Path) -> None:
    edges = [(2, 0), (1, 0), (1, 1), (2, 0), (0, 3)]  # node 0 gathers from 1 and 2; 3 from 0
    assert sort(tmp_path / "one", edges, 4, undirected=False) == 3
    assert arrays(tmp_path / "one" / "graph") == ([0, 2, 2, 2, 3], [1, 2, 0])
    assert sort(tmp_path / "both", edges, 4, undirected=True) == 6
    assert arrays(tmp_path / "both" / "graph") == ([0, 3, 4, 5, 6], [1, 2, 3, 0, 0, 0])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_same_as_in_memory(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    nodes = data.draw(st.sampled_from([1, 2, 5, 40]))
    node = st.integers(0, nodes - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=70))
    undirected = data.draw(st.booleans())
    folder = tmp_path_factory.mktemp("sort")
    entries = sort(folder, edges, nodes, undirected, data.draw(st.integers(1, 30)))
    expected = Graph.from_edges(
        torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T,
        features=torch.zeros(nodes, 0),
        labels=torch.zeros(nodes, dtype=torch.int64),
        undirected=undirected,
    )
    assert entries == expected.num_edges
    assert arrays(folder / "graph") == (expected.indptr.tolist(), expected.indices.tolist())
    assert list((folder / "runs").iterdir()) == []


def test_a_hub_may_have_more_neighbours_than_fit(tmp_path: Path) -> None:
    edges = [(source, 0) for source in range(60, 0, -1)] * 2
    assert sort(tmp_path, edges, 61, undirected=False) == 60
    assert arrays(tmp_path / "graph") == ([0] + [60] * 61, list(range(1, 61)))


def test_a_range_is_never_larger_than_the_room(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    runs = KeyRuns(tmp_path)
    for _ in range(4):  # many keys are in every run, some ranges are crowded
        runs.write(np.unique((generator.random(200) ** 4 * 300).astype(np.int64)))
    read = [runs.read(each) for each in runs.ranges(0, 301, room=30)]
    assert max(len(keys) for keys in read) <= 30
    joined = np.sort(np.concatenate(read))
    whole = np.sort(np.concatenate([np.fromfile(path, np.int64) for path in runs.paths]))
    assert joined.tolist() == whole.tolist()
    with pytest.raises(ResourceError, match="4 sorted runs of edges are too many for the memory"):
        list(runs.ranges(0, 301, room=11))


def test_another_process_goes_on_after_any_range(tmp_path: Path) -> None:
    edges = np.random.default_rng(1).integers(30, size=(2, 80))
    sorter = EdgeSorter(tmp_path / "a", nodes=30, undirected=True, memory=FEW)
    sorter.add(*edges)
    seen: list[Sorted] = []
    sorter.finish(GraphFolderWriter(tmp_path / "whole"), on_range=seen.append)
    expected = arrays(tmp_path / "whole")
    assert len(seen) > 3
    for stop in range(len(seen)):
        folder = tmp_path / str(stop)
        first = EdgeSorter(folder / "runs", nodes=30, undirected=True, memory=FEW)
        first.add(*edges)
        reached: list[Sorted] = []

        def die(done: Sorted, reached: list[Sorted] = reached, stop: int = stop) -> None:
            if len(reached) > stop:  # this range is written, but nobody was told
                raise KeyboardInterrupt
            reached.append(done)

        writer = GraphFolderWriter(folder / "graph")
        if stop < len(seen) - 1:
            with pytest.raises(KeyboardInterrupt):
                first.finish(writer, on_range=die)
        else:
            first.finish(writer, on_range=die)  # killed after the runs were removed
        again = EdgeSorter(
            folder / "runs", nodes=30, undirected=True, memory=3 * FEW, runs=first.runs.count
        )
        assert again.finish(writer, begin=reached[-1]) == len(expected[1])
        assert arrays(folder / "graph") == expected


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives parts of files back")
def test_the_disk_has_back_what_is_merged(tmp_path: Path) -> None:
    runs = KeyRuns(tmp_path)
    runs.write(np.arange(1 << 18), np.ones(1 << 18, np.float32))
    files = [tmp_path / "000000.keys", tmp_path / "000000.weights"]
    whole = [file.stat().st_blocks for file in files]
    first, *_, last = runs.ranges(0, 1 << 18, room=1 << 16)
    runs.free(first)
    assert all(file.stat().st_blocks < was for file, was in zip(files, whole, strict=True))
    assert runs.read(last)[-1] == (1 << 18) - 1
    assert runs.read(first).max() == 0


def test_runs_that_nobody_counted_are_removed(tmp_path: Path) -> None:
    sorter = EdgeSorter(tmp_path, nodes=9, undirected=False, memory=FEW)
    for source in (1, 2):
        sorter.add(np.array([source]), np.array([0]))
        sorter.spill()
    again = EdgeSorter(tmp_path, nodes=9, undirected=False, memory=FEW, runs=1)
    assert again.pairs == 1
    assert again.finish(GraphFolderWriter(tmp_path / "g")) == 1
    assert arrays(tmp_path / "g")[1] == [1]


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint32])
def test_any_integers_do(tmp_path: Path, kind: type) -> None:
    sorter = EdgeSorter(tmp_path / "runs", nodes=2**31 - 1, undirected=True, memory=FEW)
    last = 2**31 - 2
    sorter.add(np.array([last], kind), np.array([5], kind))
    sorter.spill()
    keys = np.fromfile(sorter.runs.paths[0], np.int64).tolist()
    assert keys == [5 * 2**32 + last, last * 2**32 + 5]


@pytest.mark.parametrize(("end", "said"), [(-1, "node -1"), (3, "node 3")])
def test_an_edge_to_nowhere_is_refused(tmp_path: Path, end: int, said: str) -> None:
    sorter = EdgeSorter(tmp_path, nodes=3, undirected=True, memory=FEW)
    for ends in (([0, end], [1, 1]), ([0, 1], [1, end])):
        with pytest.raises(DataError, match=rf"{said}: expected 0 to 2"):
            sorter.add(*map(np.array, ends))


def test_more_nodes_than_int32_counts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="2,147,483,648 nodes: at most"):
        EdgeSorter(tmp_path, nodes=2**31, undirected=True, memory=FEW)


def test_too_little_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="memory must be 64 bytes or more, not 63"):
        EdgeSorter(tmp_path, nodes=3, undirected=True, memory=63)


@pytest.mark.parametrize("width", [None, 0, 3])
def test_an_array_grows_and_is_cut_back(tmp_path: Path, width: int | None) -> None:
    path = tmp_path / "a.npy"
    shape = (lambda rows: (rows,)) if width is None else (lambda rows: (rows, width))
    array = AppendedArray(path, np.float32, width=width)
    for _ in range(3):
        array.append(np.ones(shape(5)))
    array.close()
    assert len(np.load(path)) == 0  # nobody takes it for whole
    array = AppendedArray(path, np.float32, width=width, length=12)
    array.append(np.full(shape(1), 2))
    array.finish()
    found = np.load(path)
    assert found.shape == shape(13)
    assert (found[:12] == 1).all()
    assert (found[12:] == 2).all()


def test_an_array_shorter_than_was_said_is_refused(tmp_path: Path) -> None:
    AppendedArray(tmp_path / "a.npy", np.int32).finish()
    with pytest.raises(DataError, match=r"a\.npy: has 128 bytes instead of 132: begin again"):
        AppendedArray(tmp_path / "a.npy", np.int32, length=1)
