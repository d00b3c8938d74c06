"""Sorting on disk makes what sorting in memory makes."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.core.errors import DataError, ResourceError
from evergraph.core.mapped import AppendedArray
from evergraph.datasets.importing import edge_table
from evergraph.datasets.importing.edge_table import EdgeTable
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import GraphFolderWriter
from evergraph.tables.edges import EdgeRows

MEMORY = 64_000_000


def arrays(folder: Path) -> tuple[list[int], list[int]]:
    indptr, indices = np.load(folder / "indptr.npy"), np.load(folder / "indices.npy")
    assert indptr.dtype == indices.dtype == np.int32
    return indptr.tolist(), indices.tolist()


def sort(
    folder: Path, edges: list[tuple[int, int]], nodes: int, undirected: bool, batch: int = 5
) -> int:
    table = EdgeTable(folder / "edges", nodes=nodes, undirected=undirected, memory=MEMORY)
    for start in range(0, len(edges), batch):
        table.add(*np.array(edges[start : start + batch]).T)
    entries = table.write(GraphFolderWriter(folder / "graph"))
    table.discard()
    return entries


def test_hand_made(tmp_path):
    edges = [(2, 0), (1, 0), (1, 1), (2, 0), (0, 3)]  # node 0 gathers from 1 and 2; 3 from 0
    assert sort(tmp_path / "one", edges, 4, undirected=False) == 3
    assert arrays(tmp_path / "one" / "graph") == ([0, 2, 2, 2, 3], [1, 2, 0])
    assert sort(tmp_path / "both", edges, 4, undirected=True) == 6
    assert arrays(tmp_path / "both" / "graph") == ([0, 3, 4, 5, 6], [1, 2, 3, 0, 0, 0])


@settings(max_examples=8)
@given(data=st.data())
def test_same_as_in_memory(tmp_path_factory, data):
    nodes = data.draw(st.sampled_from([1, 2, 5, 40]))
    node = st.integers(0, nodes - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=70))
    undirected = data.draw(st.booleans())
    folder = tmp_path_factory.mktemp("sort")
    with pytest.MonkeyPatch.context() as patch:  # a part has a few nodes, a batch a few pairs
        patch.setattr(edge_table, "_PART_NODES", data.draw(st.sampled_from([3, 1 << 22])))
        patch.setattr(edge_table, "_BATCH", data.draw(st.sampled_from([4, 1 << 20])))
        entries = sort(folder, edges, nodes, undirected, data.draw(st.integers(10, 70)))
    expected = Graph.from_edges(
        torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T,
        features=torch.zeros(nodes, 0),
        labels=torch.zeros(nodes, dtype=torch.int64),
        undirected=undirected,
    )
    assert entries == expected.num_edges
    assert arrays(folder / "graph") == (expected.indptr.tolist(), expected.indices.tolist())
    assert not (folder / "edges").exists()


def test_another_process_goes_on_with_the_edges(tmp_path):
    edges = np.random.default_rng(1).integers(30, size=(2, 80))
    first = EdgeTable(tmp_path / "edges", nodes=30, undirected=True, memory=MEMORY)
    first.add(*edges)
    first.close()
    again = EdgeTable(tmp_path / "edges", nodes=30, undirected=True, memory=MEMORY, fresh=False)
    assert again.counts() == (80, int((edges[0] == edges[1]).sum()))
    for name in ("once", "twice"):
        again.write(GraphFolderWriter(tmp_path / name))
    assert arrays(tmp_path / "once") == arrays(tmp_path / "twice")
    again.close()
    fresh = EdgeTable(tmp_path / "edges", nodes=30, undirected=True, memory=MEMORY)
    assert fresh.counts() == (0, 0)
    fresh.discard()


def test_more_pairs_than_fit_are_spilled(tmp_path):
    generator = np.random.default_rng(0)
    table = EdgeTable(tmp_path / "edges", nodes=10**6, undirected=True, memory=16_000_000)
    table.add(*generator.integers(10**6, size=(2, 10**6)))
    entries = table.write(GraphFolderWriter(tmp_path / "graph"))
    table.discard()
    indptr, indices = (np.load(tmp_path / "graph" / f"{n}.npy") for n in ("indptr", "indices"))
    assert indptr[-1] == entries == len(indices)
    keys = np.repeat(np.arange(10**6), np.diff(indptr)) << 32 | indices
    assert (np.diff(keys) > 0).all()


def test_what_goes_wrong_is_said(tmp_path):
    table = EdgeTable(tmp_path / "edges", nodes=10**6, undirected=True, memory=300_000)
    with pytest.raises(ResourceError, match="sorting edges needs more memory than the limit"):
        table.add(*np.random.default_rng(0).integers(10**6, size=(2, 10**6)))
    for end, ends in ((-1, ([0, -1], [1, 1])), (10**6, ([0, 1], [1, 10**6]))):
        with pytest.raises(DataError, match=rf"node {end}: expected 0 to 999999"):
            table.add(*map(np.array, ends))
    with pytest.raises(KeyboardInterrupt), table._translated_errors():
        raise RuntimeError("Query interrupted")  # as DuckDB does where a query is running
    with pytest.raises(RuntimeError, match="something else"), table._translated_errors():
        raise RuntimeError("something else")
    table.discard()


def test_any_integers_do(tmp_path):
    table = EdgeTable(tmp_path / "edges", nodes=2**31 - 1, undirected=True, memory=MEMORY)
    last = 2**31 - 2
    for kind in (np.int64, np.uint32):
        table.add(np.array([last], kind), np.array([5], kind))
    for first, key in ((5, 5 * 2**32 + last), (last, last * 2**32 + 5)):
        ((keys,),) = table._sorted(first, first + 1, weighted=False)
        assert keys.tolist() == [key]
    table.discard()


def named(tmp_path: Path, known: pa.Array, asked: pa.Array, before: int = 0) -> list[int]:
    options = {"nodes": len(known), "undirected": False, "memory": MEMORY, "columns": ["weight"]}
    table = EdgeTable(tmp_path / "edges", **options)
    try:
        table.set_ids(known)
        table.add_named(before, EdgeRows((asked, asked), torch.ones(len(asked)), None))
        return [place for (place,) in table._ask("SELECT source FROM edges ORDER BY row")]
    finally:
        table.discard()


@pytest.mark.parametrize(
    ("known", "asked", "found"),
    [
        ([5, 3, 4], ["3", "5"], [1, 0]),
        (["5", "3", "4"], [3, 5], [1, 0]),
        ([10**15, 3], [3, 10**15], [1, 0]),
        ([-(2**63), 2**63 - 1], [2**63 - 1], [1]),
        (["007", "7"], ["7", "007"], [1, 0]),
        (["a", "7", "ä\0b"], ["ä\0b", "7", "a"], [2, 1, 0]),
        (["7"], [], []),
    ],
)
def test_ids_are_found(tmp_path, known, asked, found):
    assert named(tmp_path, pa.array(known), pa.array(asked, None if asked else "string")) == found


@pytest.mark.parametrize("asked", ["8", "007", " 7", "+7", "x"])
def test_an_id_is_one_only_as_it_is_written(tmp_path, asked):
    for known in (["7", "9"], [7, 9]):
        with pytest.raises(DataError, match=r"row 12 has source '.*': expected the id of a node"):
            named(tmp_path, pa.array(known), pa.array(["9", asked]), before=10)


@pytest.mark.parametrize("width", [None, 0, 3])
def test_an_array_grows_and_is_nothing_before_its_end(tmp_path, width):
    shape = (5,) if width is None else (5, width)
    with AppendedArray(tmp_path / "a.npy", np.float32, width=width) as array:
        array.append(np.ones(shape))
        assert len(np.load(tmp_path / "a.npy")) == 0  # nobody takes it for whole
        array.append(np.full(shape, 2))
    found = np.load(tmp_path / "a.npy")
    assert found.shape == (10, *shape[1:])
    assert (found[:5] == 1).all()
    assert (found[5:] == 2).all()
