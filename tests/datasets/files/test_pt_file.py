from pathlib import Path
from typing import Any

import pytest
import torch

from evergraph.core.errors import DataError
from evergraph.datasets.arrays import read_pt
from evergraph.graphs import Graph
from evergraph.graphs.csr import as_csr
from pyg import pyg_data


class Bomb:
    """Writes a file when an unsafe unpickler reads it."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


def saved(folder: Path, content: object) -> Path:
    torch.save(content, folder / "graph.pt")
    return folder / "graph.pt"


def as_dict(graph: Graph) -> dict[str, Any]:
    data = graph.to_data().to_dict()
    return data


def test_a_data_object_a_dict_and_the_file_of_a_dataset(tmp_path, tiny, assert_same):
    for content in (tiny.to_data(), as_dict(tiny), (as_dict(tiny), None, type(pyg_data()))):
        assert_same(read_pt(saved(tmp_path, content)), tiny)
    sparse = Graph(tiny.indptr, tiny.indices, as_csr(tiny.features), tiny.labels, tiny.time)
    for x in (sparse.features, tiny.features.to_sparse_coo()):
        assert_same(read_pt(saved(tmp_path, as_dict(sparse) | {"x": x})), sparse)


def test_labels_in_a_column_and_no_features(tmp_path, tiny):
    content = as_dict(tiny)
    del content["x"]
    content["y"] = content["y"][:, None]
    content["node_year"] = content.pop("time")[:, None]
    graph = read_pt(saved(tmp_path, content))
    assert graph.labels.tolist() == [1, 0, 1, -1]
    assert graph.features.shape == (4, 0)
    assert graph.time.tolist() == [2001, 2002, 2003, 2004]


@pytest.mark.parametrize("inside_data", [False, True])
def test_code_in_a_pickle_is_not_run(tmp_path, tiny, inside_data):
    target = tmp_path / "ran"
    content = {"x": Bomb(target)}
    if inside_data:
        content = tiny.to_data()
        content.extra = Bomb(target)
    path = saved(tmp_path, content)
    with pytest.raises(DataError, match=r"graph\.pt: needs pickled objects that are not safe"):
        read_pt(path)
    assert not target.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "holds a list: expected torch.save of"),
        ({"x": torch.ones(2, 2), "y": torch.zeros(2)}, "has no tensor 'edge_index': it holds x, y"),
        ({}, "has no tensor 'edge_index': it holds none"),
        (
            {"edge_index": torch.tensor([[0], [5]]), "y": torch.tensor([0, 1])},
            "edge 0 joins 0 and 5",
        ),
        (
            {"edge_index": torch.tensor([[0], [1]]), "y": torch.ones(2, 2, 1)},
            r"y has shape \[2, 2, 1\]: expected one value per node",
        ),
        (b"", "is damaged or not a .pt file .*: expected torch.save of"),
        (b"not a pickle", ".*expected torch.save of"),
        (b"PK\x03\x04 cut short", ".*expected torch.save of"),
    ],
)
def test_bad_content(tmp_path, content, message):
    path = saved(tmp_path, content)
    if isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_pt(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_other_contents(tmp_path, tiny, caplog):
    data = tiny.to_data()
    read_pt(saved(tmp_path, data))
    assert not caplog.records
    data.train_mask, data.edge_attr = torch.ones(4).bool(), torch.ones(3, 2)
    path = saved(tmp_path, data)
    read_pt(path)
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: attributes 'edge_attr', 'train_mask' are ignored: only x, edge_index, y and time "
        "are used"
    ]


OUTSIDE = torch.sparse_csr_tensor(
    torch.tensor([0, 1, 1, 1, 1]), torch.tensor([7]), torch.ones(1), (4, 2), check_invariants=False
)


def test_a_matrix_that_nobody_has_checked_is(tmp_path, tiny):
    with pytest.raises(
        DataError, match=r"graph\.pt: CSR column index 7 at stored value 0: expected"
    ):
        read_pt(saved(tmp_path, as_dict(tiny) | {"x": OUTSIDE}))
