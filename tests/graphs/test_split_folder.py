"""A graph in parts is the graph, or says which part is missing."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.resources import Resources
from evergraph.datasets import load
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import GraphFolderWriter, arrays_of, names_in, open_graph_folder
from evergraph.graphs.relations import NodeTypes, Relations
from evergraph.graphs.row_parts import balanced_ranges
from evergraph.graphs.split_folder import SPLIT, SplitFolder, write_split
from evergraph.graphs.targets import Targets
from graphs_to_draw import graph_of, path_pairs, random_graph, star_pairs


def rich_graph(seed: int, nodes: int, edges: int, *, undirected: bool) -> Graph:
    """Every kind of array that a graph may have."""
    draw = torch.Generator().manual_seed(seed)
    ends = torch.randint(nodes, (2, edges), generator=draw)
    graph = Graph.from_edges(
        ends,
        features=torch.randn(nodes, 2, generator=draw),
        time=torch.arange(nodes),
        undirected=undirected,
        weights=torch.rand(edges, generator=draw) + 0.5,
        targets=Targets(torch.rand(nodes, 2, generator=draw), "numbers", ("a", "b")),
    )
    kinds = torch.randint(2, (edges,), generator=draw)
    relations = Relations.of(ends, kinds, ("cites", "likes"), nodes=nodes)
    types = NodeTypes(("page", "person"), torch.arange(nodes).remainder(2).to(torch.int16))
    return graph.with_relations(relations).with_types(types)


def same(found: Graph, graph: Graph) -> None:
    ours, theirs = arrays_of(found), arrays_of(graph)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        assert torch.equal(ours[name], array), name
        assert ours[name].dtype == array.dtype, name
    assert names_in(found) == names_in(graph)
    assert found.undirected == graph.undirected


@settings(deadline=None, max_examples=8)  # a disk takes its time
@given(
    st.integers(0, 2**31), st.integers(1, 9), st.integers(0, 20), st.integers(1, 5), st.booleans()
)
def test_parts_put_together_are_the_graph(
    seed: int, nodes: int, edges: int, parts: int, undirected: bool
) -> None:
    graph = rich_graph(seed, nodes, edges, undirected=undirected)
    with tempfile.TemporaryDirectory() as place:
        split = write_split(graph, Path(place), parts=parts)
        assert len(split.parts) == parts
        assert (split.nodes, split.entries) == (graph.num_nodes, graph.num_edges)
        found = SplitFolder.open(Path(place))
        assert found == split
        same(found.whole(verify=True), graph)


def test_a_part_holds_its_rows_by_hand(tmp_path: Path) -> None:
    # 0 - 1 - 2 - 3: rows 0 and 1 have the neighbours 1; 0, 2; rows 2 and 3 have 1, 3; 2.
    split = write_split(graph_of(path_pairs(4), 4), tmp_path, parts=2)
    second = split.parts[1].open()
    assert (split.parts[1].start, split.parts[1].stop, split.parts[1].entries) == (2, 4, 3)
    assert second.indptr.tolist() == [0, 2, 3]
    assert second.indices.tolist() == [1, 3, 2]
    assert second.features.tolist() == [[2.0], [3.0]]


def test_ranges_have_about_as_many_entries() -> None:
    star = graph_of(star_pairs(8), 9)  # 8 entries in the first row, one in each other
    assert balanced_ranges(star.indptr, 2) == [slice(0, 3), slice(3, 9)]
    assert balanced_ranges(star.indptr, 1) == [slice(0, 9)]
    assert sum(part.stop - part.start for part in balanced_ranges(star.indptr, 30)) == 9


def test_pointers_of_64_bits_stay_so(tmp_path: Path) -> None:
    graph = random_graph(1)
    long = replace(graph, indptr=graph.indptr.long())
    split = write_split(long, tmp_path, parts=3)
    assert split.parts[2].open().indptr.dtype == torch.int64
    same(split.whole(), graph)  # as few bits as its entries need


def test_what_does_not_fit_is_put_in_files(tmp_path: Path) -> None:
    graph = random_graph(2)
    split = write_split(graph, tmp_path, parts=2)
    found = split.whole(resources=Resources(memory=1))
    assert found.mapped
    same(found, graph)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    graph = random_graph(3)
    split = write_split(graph, tmp_path, parts=3)
    shutil.move(tmp_path / "part-00001", tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"part-00001: part 1, rows .* is not on this machine"):
        SplitFolder.open(tmp_path).whole()
    shutil.copytree(tmp_path / "part-00000", tmp_path / "part-00001")
    with pytest.raises(DataError, match=r"part-00001: is not the part that split\.json"):
        split.whole()
    shutil.rmtree(tmp_path / "part-00001")
    shutil.move(tmp_path / "elsewhere", tmp_path / "part-00001")
    labels = tmp_path / "part-00001" / "labels.npy"
    changed = bytearray(labels.read_bytes())
    changed[-1] ^= 1
    labels.write_bytes(changed)
    split.whole()
    with pytest.raises(DataError, match="its contents have changed since it was written"):
        split.whole(verify=True)
    labels.write_bytes(changed[:-1])
    with pytest.raises(DataError, match="bytes instead of"):
        split.whole()


def test_split_json_is_checked(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no finished split graph: split\.json is missing"):
        SplitFolder.open(tmp_path)
    (tmp_path / SPLIT).write_text("{")
    with pytest.raises(DataError, match=r"split\.json: cannot be read"):
        SplitFolder.open(tmp_path)
    (tmp_path / SPLIT).write_text(json.dumps({"format": 9}))
    with pytest.raises(DataError, match="is split in format 9, this version reads 1"):
        SplitFolder.open(tmp_path)
    with pytest.raises(ConfigurationError, match="parts must be an integer of at least 1"):
        write_split(random_graph(1), tmp_path, parts=0)


def test_a_split_that_was_stopped_goes_on(tmp_path: Path) -> None:
    graph = random_graph(4)
    writer = GraphFolderWriter(tmp_path / "graph")
    for name, array in arrays_of(graph).items():
        writer.copy(name, array)
    writer.finish(undirected=True)
    folder = open_graph_folder(tmp_path / "graph")
    first = write_split(folder, tmp_path / "split", parts=3)
    (tmp_path / "split" / SPLIT).unlink()
    shutil.rmtree(tmp_path / "split" / "part-00002")
    kept = (tmp_path / "split" / "part-00000" / "labels.npy").stat().st_mtime_ns
    assert write_split(folder, tmp_path / "split", parts=3) == first
    assert (tmp_path / "split" / "part-00000" / "labels.npy").stat().st_mtime_ns == kept
    same(first.whole(verify=True), graph)


def test_a_split_graph_is_loaded_by_its_path_and_a_part_is_not(tmp_path: Path) -> None:
    graph = random_graph(5)
    write_split(graph, tmp_path, parts=2)
    same(load(tmp_path), graph)
    with pytest.raises(DataError, match=r"holds rows 0 to .* of a split graph: give the folder"):
        load(tmp_path / "part-00000")
    with pytest.raises(ConfigurationError, match="columns were given"):
        load(tmp_path, columns={"a": "number"})
