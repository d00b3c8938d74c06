from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import DataError
from evergraph.datasets.arrays import read_npz, write_npz
from evergraph.graphs import Graph
from evergraph.graphs.csr import as_csr

PLAIN = {"edge_index": np.array([[0, 2], [1, 0]], np.int32), "y": np.array([0, 1, 1], np.int16)}
SPARSE = {
    "x_indptr": np.array([0, 1, 1, 3]),
    "x_indices": np.array([1, 0, 3]),
    "x_shape": np.array([3, 4]),
}


def saved(folder: Path, **arrays: Any) -> Path:
    path = folder / "graph.npz"
    np.savez(path, **{key: array for key, array in arrays.items() if array is not None})
    return path


def test_features_may_be_missing_or_sparse_and_other_arrays_are_named(tmp_path, caplog):
    graph = read_npz(saved(tmp_path, **PLAIN))
    assert (graph.features.shape, graph.time) == ((3, 0), None)
    assert [graph.neighbours(node).tolist() for node in (0, 1)] == [[2], [0]]
    assert graph.labels.tolist() == [0, 1, 1]
    graph = read_npz(saved(tmp_path, **PLAIN, **SPARSE))
    assert graph.features.layout == torch.sparse_csr
    assert graph.features.to_dense().tolist() == [[0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1]]
    assert not caplog.records
    more = {"year": np.array([1999, 2000, 2001], np.int16), "train_mask": np.ones(2)}
    path = saved(tmp_path, **PLAIN, **SPARSE, x_data=np.array([2.0, 3.0, 5000.0]), **more)
    graph = read_npz(path)
    assert graph.features.to_dense()[2].tolist() == [3, 0, 0, 5000]
    assert graph.time.tolist() == [1999, 2000, 2001]
    # Columns reach 3, 2, nothing and 5000; the lower median of the three that hold anything is 3.
    loud, ignored = (record.getMessage() for record in caplog.records)
    assert "feature column 3 (counted from 0) reaches 5000, 1,667 times" in loud
    assert ignored.startswith(f"{path}: array 'train_mask' is ignored: only")


@pytest.mark.parametrize("length", [2**60, 2**45, -1])
def test_a_header_that_claims_more_than_the_file_holds_is_one_sentence(length, tmp_path):
    path = saved(tmp_path, **PLAIN | {"y": None})
    header = BytesIO()
    about = {"descr": "<i8", "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(header, about)
    with ZipFile(path, "a") as archive:
        archive.writestr("y.npy", header.getvalue() + bytes(64))
    with pytest.raises(DataError, match=r"npz: array 'y' cannot be read \(.*\): expected numbers"):
        read_npz(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": None}, "has no array 'y': it holds edge_index"),
        ({"edge_index": None}, "has no array 'edge_index': it holds y"),
        ({"y": np.array([0.0, 1.0, 1.0])}, "labels hold torch.float64: expected integers"),
        (
            {"y": np.array([[0, 1, 1]]), "x": np.eye(3)},
            r"y has shape \[1, 3\]: expected \[nodes\] or \[nodes, targets\], and there are 3",
        ),
        ({"y": np.array(["a", "b", "c"])}, "array 'y' holds <U1: expected numbers"),
        ({"y": np.array([0, 2**60, 1])}, "node 1 has label 1152921504606846976: expected a class"),
        (
            {**SPARSE, "x_shape": np.array([3, 2**61])},
            r"shape \[3, 2305843009213693952\]: expected",
        ),
        ({"y": np.array([0, "b", None], object)}, "array 'y' cannot be read without pickle"),
        (
            {"edge_index": np.array([[0], [3]])},
            "edge 0 joins 0 and 3, but nodes are numbered 0 to 2",
        ),
        ({"x": np.array([[1], [np.nan], [1]])}, "NaN or infinity, first in row 1"),
        ({**SPARSE, "x_indptr": np.array([0, 2, 1, 3])}, "row pointers fall after row 1"),
        ({**SPARSE, "x_indptr": np.array([0, 1, 1, 2])}, "run from 0 to 2: expected 0 to 3"),
        ({**SPARSE, "x_indptr": np.array([0, 1, 3])}, "have 3 row pointers"),
        (
            {**SPARSE, "x_indices": np.array([1, 0, 4])},
            "index 4 at stored value 2: expected 0 to 3",
        ),
        ({**SPARSE, "x_indices": np.array([1, -1, 3])}, "index -1 at stored value 1"),
        ({**SPARSE, "x_data": np.ones(2)}, "3 column indices and 2 values"),
        (
            {**SPARSE, "x_data": np.array([1, np.nan, 1])},
            "NaN or infinity, first in stored value 1",
        ),
        ({**SPARSE, "x_indices": np.array([1.0, 0.0, 3.0])}, "'x_indices' holds float64"),
        ({**SPARSE, "x_shape": np.array([3])}, r"'x_shape' is \[3\]: expected \[nodes, dims\]"),
        ({**SPARSE, "x_shape": np.array([-1, 4])}, r"shape \[-1, 4\]"),
        ({"x_indptr": SPARSE["x_indptr"]}, "holds x_indptr only"),
        ({"x": np.ones((3, 1)) * 1j}, "array 'x' holds complex128: expected numbers"),
    ],
)
def test_bad_arrays_are_named(tmp_path, change, message):
    path = saved(tmp_path, **{**PLAIN, **change})
    with pytest.raises(DataError, match=message) as caught:
        read_npz(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_truncated_file_is_refused_and_a_flipped_byte_is_found(tmp_path):
    path = saved(tmp_path, **PLAIN, x=np.zeros((3, 500), np.float32))
    content = bytearray(path.read_bytes())
    path.write_bytes(content[:-30])
    with pytest.raises(DataError, match=r"graph\.npz: is not a complete \.npz file"):
        read_npz(path)
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="is damaged"):
        read_npz(path)


@given(data=st.data())
def test_any_graph_survives_the_round_trip(tmp_path_factory, assert_same, data):
    nodes = data.draw(st.integers(1, 6))
    node = st.integers(0, nodes - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=12))
    labels = data.draw(st.lists(st.integers(-1, 4), min_size=nodes, max_size=nodes))
    row = st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=2)
    graph = Graph.from_edges(
        torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T,
        features=torch.tensor(data.draw(st.lists(row, min_size=nodes, max_size=nodes))),
        labels=torch.tensor(labels),
    )
    if data.draw(st.booleans()):
        sparse = as_csr(graph.features)
        graph = Graph(graph.indptr, graph.indices, sparse, graph.labels, torch.arange(nodes))
    path = tmp_path_factory.mktemp("npz") / "graph.npz"
    write_npz(graph, path)
    assert_same(read_npz(path), graph)
    assert [each.name for each in path.parent.iterdir()] == ["graph.npz"]


def test_dates_are_seconds(tmp_path):
    year = np.array(["1970-01-02", "1969-12-31", "1970-01-01"], "datetime64[D]")
    graph = read_npz(saved(tmp_path, **PLAIN, year=year))
    assert graph.time.tolist() == [86_400, -86_400, 0]
    year[1] = np.datetime64("NaT")
    with pytest.raises(DataError, match="array 'year' has no date for node 1"):
        read_npz(saved(tmp_path, **PLAIN, year=year))
