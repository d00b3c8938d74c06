"""A graph on disk is whole, or it is no graph."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from evergraph.core.errors import DataError
from evergraph.datasets import load
from evergraph.graphs import Graph, NodeTypes, Relations
from evergraph.graphs.graph_folder import (
    FACTS,
    GraphFolderWriter,
    arrays_of,
    is_graph_folder,
    names_in,
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


def write(folder: Path, graph: Graph, *, finish: bool = True, **forged: torch.Tensor) -> str:
    writer = GraphFolderWriter(folder)
    for name in ("indptr", "indices", "features", "labels", "time"):
        values = forged.get(name, getattr(graph, name))
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
    with pytest.raises(DataError, match="is of format 99, this version reads 2"):
        open_graph_folder(tmp_path)
    (tmp_path / FACTS).write_text("[" * 99_999)
    with pytest.raises(DataError, match=r"graph\.json: cannot be read"):
        open_graph_folder(tmp_path)
    (tmp_path / FACTS).write_text("{")
    with pytest.raises(DataError, match=r"graph\.json: cannot be read"):
        open_graph_folder(tmp_path)


@pytest.mark.parametrize(
    ("forged", "said"),
    [
        ({"indices": [1, 0, 3, 1]}, "CSR column index 3 at stored value 2: expected 0 to 2"),
        ({"indices": [1, 0, -1, 1]}, "CSR column index -1 at stored value 2"),
        ({"indptr": [0, -1, 3, 4]}, "CSR row pointers fall after row 0"),
        ({"indptr": [0, 2**31 - 1, -(2**31), 4]}, "CSR row pointers fall after row 1"),
        ({"indptr": [1, 1, 3, 4]}, "CSR row pointers run from 1 to 4: expected 0 to 4"),
    ],
)
def test_numbers_of_nodes_that_do_not_exist_are_refused(forged, said, tmp_path, call):
    write(tmp_path / "g", path_graph(), **{k: torch.tensor(v).int() for k, v in forged.items()})
    _, err = call("info", str(tmp_path / "g"), expect=2)
    assert err.strip().count("\n") == 0
    assert said in err.replace("\n", " ")


@pytest.mark.parametrize(
    ("forged", "said"),
    [
        ({"labels": torch.tensor([0, 2**60, 1])}, "node 1 has label 1152921504606846976: expected"),
        ({"labels": torch.tensor([0, -9, 1])}, "node 1 has label -9: expected a class"),
        ({"labels": torch.ones(3)}, r"labels\.npy: has 1 dimensions of torch.float32: expected 1"),
        (
            {"indices": torch.tensor([1, 0, 2, 1])},
            r"of torch.int64: expected 1 of whole numbers of",
        ),
        ({"features": torch.ones(3)}, r"features\.npy: has 1 dimensions of torch.float32"),
        ({"indptr": torch.ones(0).int()}, "has no row pointers"),
    ],
)
def test_arrays_that_are_no_graph_are_refused(forged, said, tmp_path):
    write(tmp_path / "g", path_graph(), **forged)
    with pytest.raises(DataError, match=said):
        load(tmp_path / "g")


@pytest.mark.parametrize(
    "change",
    [
        {"arrays": None},
        {"arrays": [1]},
        {"arrays": {}},
        {"arrays": {"../labels": {}}},
        {"types": ["a"]},
        {"relations": ["a"]},
        {"targets": 7},
        {"about": 7},
    ],
)
def test_facts_that_are_none_are_refused(change, tmp_path):
    write(tmp_path, path_graph())
    facts = json.loads((tmp_path / FACTS).read_text()) | change
    (tmp_path / FACTS).write_text(json.dumps(facts))
    with pytest.raises(DataError, match=r"graph\.json: "):
        load(tmp_path)


def test_relations_and_types_that_do_not_exist_are_refused(tmp_path):
    edges = torch.tensor([[0, 1], [1, 2]])
    related = Relations.of(edges, torch.tensor([0, 1]), ("cites", "likes"), nodes=3)
    typed = NodeTypes(("paper",), torch.zeros(3).short())
    sound = replace(path_graph(), relations=related, types=typed)
    assert load(written(tmp_path / "sound", sound)).num_nodes == 3
    for change, said in (
        ({"types": NodeTypes(("paper",), torch.tensor([0, 1, 0]).short())}, "types are numbered 0"),
        ({"relations": replace(related, kinds=related.kinds + 3)}, "relations are numbered"),
        ({"relations": replace(related, kinds=related.kinds[1:])}, "have 3 kinds or weights for 4"),
        ({"relations": replace(related, indices=related.indices + 1)}, "CSR column index 3"),
    ):
        with pytest.raises(DataError, match=said):
            load(written(tmp_path / said, replace(sound, **change)))


def written(folder: Path, graph: Graph) -> Path:
    writer = GraphFolderWriter(folder)
    for name, array in arrays_of(graph).items():
        writer.copy(name, array)
    writer.finish(undirected=True, named=names_in(graph))
    return folder
