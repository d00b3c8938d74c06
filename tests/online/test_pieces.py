"""What is written in pieces is what is written at once, however it is cut."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from evergraph.core.errors import DataError
from evergraph.core.mapped import MappedTensor
from evergraph.online import identifiers, pieces
from evergraph.online.folder import snapshot
from evergraph.online.folder.snapshot import read_arrays, write_arrays
from evergraph.online.graph import neighbour_lists
from evergraph.online.graph.growing_array import GrowingArray
from evergraph.online.graph.neighbour_lists import NeighbourLists
from evergraph.online.identifiers import IdTable
from evergraph.online.pieces import Pieces, whole

ARRAYS = {
    "floats": torch.rand(7, 3),
    "turned": torch.rand(3, 5).t(),
    "flags": torch.tensor([True, False, True]),
    "numbers": torch.arange(9).reshape(3, 3),
    "halves": torch.rand(3).half(),
    "none": torch.zeros(0, 4),
    "no stride": torch.empty_strided((0,), (0,), dtype=torch.int32),
    "scalar": torch.tensor(2.5, dtype=torch.float64),
}


def test_the_file_is_one_that_safetensors_reads(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 16)
    write_arrays(tmp_path / "a", ARRAYS)
    found = load_file(tmp_path / "a")
    assert found.keys() == ARRAYS.keys()
    for name, value in ARRAYS.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
        assert found[name].equal(value)


@pytest.mark.parametrize("piece", [1, 1 << 20])  # mapped or in memory
def test_what_safetensors_wrote_is_read(tmp_path: Path, monkeypatch, piece: int) -> None:
    monkeypatch.setattr(snapshot, "PIECE", piece)
    kept = {name: value.contiguous() for name, value in ARRAYS.items()}
    save_file(kept, tmp_path / "a", metadata={"format": "pt"})
    found = read_arrays(tmp_path / "a")
    assert found.keys() == kept.keys()
    assert all(found[name].equal(value) for name, value in kept.items())
    assert isinstance(found["floats"], MappedTensor) == (piece == 1)
    found["floats"][0] = 7.0  # stays here
    assert read_arrays(tmp_path / "a")["floats"].equal(kept["floats"])


def test_a_mapped_array_outlives_its_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(snapshot, "PIECE", 1)
    write_arrays(tmp_path / "a", ARRAYS)
    found = read_arrays(tmp_path / "a")["numbers"]
    (tmp_path / "a").unlink()
    array = GrowingArray(3, dtype=np.int64)
    array.restore(found)
    assert array.array.sum() == 36


def test_what_is_no_such_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes((5).to_bytes(8, "little") + b"[1,2]")
    with pytest.raises(DataError, match="a: is not a safetensors file"):
        read_arrays(tmp_path / "a")
    with pytest.raises(DataError, match="b: cannot be read"):
        read_arrays(tmp_path / "b")


def test_only_a_piece_is_in_memory(tmp_path: Path, monkeypatch) -> None:
    """64 MB are written with 4 of them in memory: counted are the blocks that NumPy asks for."""
    block = np.zeros(1 << 20, np.float32)
    parts = Pieces(
        (16 << 20,), torch.float32, lambda: (torch.from_numpy(block + i) for i in range(16))
    )
    tracemalloc.start()
    try:
        write_arrays(tmp_path / "a", {"large": parts})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (tmp_path / "a").stat().st_size > 64 << 20
    assert peak < 12 << 20


entries = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from([1.0, 0.5])))


@given(entries=entries, step=st.integers(1, 5))
def test_lists_in_pieces_are_the_lists(entries, step) -> None:
    lists = NeighbourLists()
    lists.extend(10)
    for row, column, weight in entries:
        lists.insert(np.array([row]), np.array([column]), np.array([weight], np.float32))
    expected = {"indptr": [0], "indices": [], "weights": []}
    for row in range(10):
        near = sorted({column for owner, column, _ in entries if owner == row})
        said = {(r, c): w for r, c, w in entries}
        expected["indptr"].append(expected["indptr"][-1] + len(near))
        expected["indices"] += near
        expected["weights"] += [said[row, column] for column in near]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbour_lists, "_ENTRIES", step)
        found = lists.pieces()
        sizes = [len(piece) for piece in found["indices"]]  # type: ignore[union-attr]
        assert len(sizes) >= min(len(expected["indices"]) // 10 // step, 1)
        state = whole(found)
        lists._repack(0)  # in as many blocks
        again = whole(lists.pieces())
    if not lists.weighted:
        expected.pop("weights")
    assert {name: value.tolist() for name, value in state.items()} == expected
    assert all(again[name].equal(state[name]) for name in state)


def test_names_in_pieces_are_the_names(monkeypatch) -> None:
    monkeypatch.setattr(identifiers, "_BLOCK", 2)
    table = IdTable()
    table.add(["a", 7, "größer", "", -1])
    table.remove([7])
    found = whole(table.pieces())
    assert {name: value.tolist() for name, value in found.items()} == {
        "kinds": [1, 0, 1, 1, 2],
        "lengths": [1, 0, 8, 0, 2],
        "bytes": list("agrößer-1".encode()),
    }
    assert whole(IdTable().pieces())["bytes"].shape == (0,)
