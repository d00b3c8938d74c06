"""A graph on disk is whole, or it is no graph."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from evergraph.core.errors import DataError
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import (
    FACTS,
    GraphFolderWriter,
    is_graph_folder,
    open_graph_folder,
    read_facts,
)


def path_graph() -> Graph:
    """0 - 1 - 2; node 2 has no class."""
    return Graph.from_edges(
        torch.tensor([[0, 1], [1, 2]]),
        features=torch.tensor([[1.0], [2.0], [3.0]]),
        labels=torch.tensor([0, 1, -1]),
        time=torch.tensor([5, 6, 7]),
        undirected=True,
    )


def write(folder: Path, graph: Graph, *, finish: bool = True) -> str:
    writer = GraphFolderWriter(folder)
    for name in ("indptr", "indices", "features", "labels", "time"):
        values = getattr(graph, name)
        writer.create(name, tuple(values.shape), values.dtype).copy_(values)
    return writer.finish(undirected=True, about={"from": "here"}) if finish else ""


def test_round_trip(tmp_path):
    graph = path_graph()
    checksum = write(tmp_path / "g", graph)
    found = open_graph_folder(tmp_path / "g", verify=True)
    for name in ("indptr", "indices", "features", "labels", "time"):
        assert torch.equal(getattr(found, name), getattr(graph, name)), name
    assert found.undirected
    assert found.mapped
    assert found.folder == tmp_path / "g"
    assert found.to_undirected() is found
    facts = read_facts(tmp_path / "g")
    assert (facts["sha256"], facts["about"]) == (checksum, {"from": "here"})
    other = write(tmp_path / "c", graph.with_features(graph.features + 1))
    assert write(tmp_path / "b", graph) == checksum != other


def test_until_it_is_finished_it_is_no_graph(tmp_path):
    folder = tmp_path / "g"
    write(folder, path_graph(), finish=False)
    assert not is_graph_folder(folder)
    with pytest.raises(DataError, match=r"holds no finished graph: graph\.json is missing"):
        open_graph_folder(folder)
    write(folder, path_graph())
    assert is_graph_folder(folder)
    GraphFolderWriter(folder)  # whoever writes to it again takes that back
    assert not is_graph_folder(folder)
    GraphFolderWriter(folder).discard()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["indptr", "indices", "features", "labels", "time"])
@pytest.mark.parametrize("left", [-1, 0])
def test_a_file_cut_short_is_refused(tmp_path, name, left):
    write(tmp_path, path_graph())
    path = tmp_path / f"{name}.npy"
    size = path.stat().st_size
    os.truncate(path, size - 1 if left else 0)
    with pytest.raises(DataError, match=rf"{name}\.npy: has [\d,]+ bytes instead of {size:,}"):
        open_graph_folder(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=rf"{name}\.npy: has 0 bytes"):
        open_graph_folder(tmp_path)


def test_changed_contents_are_found_when_asked(tmp_path):
    write(tmp_path, path_graph())
    values = np.load(tmp_path / "features.npy", mmap_mode="r+")
    values[0, 0] = 99
    values.flush()
    assert open_graph_folder(tmp_path).features[0, 0] == 99
    with pytest.raises(DataError, match=r"features\.npy: its contents have changed"):
        open_graph_folder(tmp_path, verify=True)


def test_other_formats_are_refused(tmp_path):
    write(tmp_path, path_graph())
    facts = json.loads((tmp_path / FACTS).read_text()) | {"format": 99}
    (tmp_path / FACTS).write_text(json.dumps(facts))
    with pytest.raises(DataError, match="is of format 99, this version reads 1"):
        open_graph_folder(tmp_path)
    (tmp_path / FACTS).write_text("{")
    with pytest.raises(DataError, match=r"graph\.json: cannot be read"):
        open_graph_folder(tmp_path)
