"""Arrays are what was written, and packed ones lack the forgotten alone."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from evergraph.core.errors import DataError
from evergraph.core.mapped import MappedTensor
from evergraph.online.arrays import GrowingArray
from evergraph.online.delta import Delta
from evergraph.online.folder import snapshot
from evergraph.online.folder.snapshot import read_arrays, write_arrays
from evergraph.online.graph import neighbour_lists
from evergraph.online.graph.neighbour_lists import NeighbourLists
from evergraph.online.heads import AnalyticHead, FusedHead, TargetHead
from evergraph.online.identifiers import IdTable
from evergraph.online.learner import OnlineLearner
from growth import growth
from histories import repacked

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


def test_the_file_is_one_that_safetensors_reads(tmp_path):
    write_arrays(tmp_path / "a", ARRAYS)
    found = load_file(tmp_path / "a")
    assert found.keys() == ARRAYS.keys()
    for name, value in ARRAYS.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
        assert found[name].equal(value)


@pytest.mark.parametrize("small", [1, 1 << 20])  # mapped or in memory
def test_what_safetensors_wrote_is_read(tmp_path, monkeypatch, small):
    monkeypatch.setattr(snapshot, "SMALL", small)
    kept = {name: value.contiguous() for name, value in ARRAYS.items()}
    save_file(kept, tmp_path / "a", metadata={"format": "pt"})
    found = read_arrays(tmp_path / "a")
    assert found.keys() == kept.keys()
    assert all(found[name].equal(value) for name, value in kept.items())
    assert isinstance(found["floats"], MappedTensor) == (small == 1)
    found["floats"][0] = 7.0  # stays here
    assert read_arrays(tmp_path / "a")["floats"].equal(kept["floats"])


def test_a_mapped_array_outlives_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "SMALL", 1)
    write_arrays(tmp_path / "a", ARRAYS)
    found = read_arrays(tmp_path / "a")["numbers"]
    (tmp_path / "a").unlink()
    array = GrowingArray(3, dtype=np.int64)
    array.restore(found)
    assert array.array.sum() == 36


def test_what_is_no_such_file_is_said(tmp_path):
    (tmp_path / "a").write_bytes((5).to_bytes(8, "little") + b"[1,2]")
    with pytest.raises(DataError, match="a: is not a safetensors file"):
        read_arrays(tmp_path / "a")
    with pytest.raises(DataError, match="b: cannot be read"):
        read_arrays(tmp_path / "b")


entries = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from([1.0, 0.5])))


@given(entries=entries, step=st.integers(1, 5))
def test_the_arrays_of_lists_are_the_lists(entries, step):
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
        patch.setattr(neighbour_lists, "_PER_PASS", step)
        state = lists.state()
        lists._repack(0)  # in blocks
        again = lists.state()
    if not lists.weighted:
        expected.pop("weights")
    assert {name: value.tolist() for name, value in state.items()} == expected
    assert all(again[name].equal(state[name]) for name in state)


def test_the_arrays_of_names_are_the_names():
    table = IdTable()
    table.add(["a", 7, "größer", "", -1])
    table.remove([7])
    (names,) = table.state().values()
    assert json.loads(bytes(names.numpy())) == ["a", None, "größer", "", -1]
    assert bytes(IdTable().state()["names"].numpy()) == b"[]"


def path() -> OnlineLearner:
    """a - b - c - d in places 0 to 3, of which b has been forgotten: a, and c - d are left."""
    learner = OnlineLearner(head=AnalyticHead(width=16), scaling="none")
    learner.apply(
        Delta(
            nodes="abcd",
            features=torch.tensor([[1.0], [2.0], [4.0], [8.0]]),
            labels=("x", "y", "x", None),
            edges=(("a", "b"), ("b", "c"), ("c", "d")),
        )
    )
    learner.apply(Delta(forgotten=("b",)))
    return learner


def test_on_a_path_of_four_the_second_place_goes():
    found = path().packed()
    arrays = found.arrays
    assert found.places == 1
    assert arrays["graph.features"].flatten().tolist() == [1.0, 4.0, 8.0]
    assert arrays["graph.alive"].tolist() == [True] * 3
    assert arrays["graph.indptr"].tolist() == [0, 0, 1, 2]
    assert arrays["graph.indices"].tolist() == [2, 1]  # c and d, which were 2 and 3
    assert arrays["labels.numbers"].tolist() == [0, 0, -1]
    assert arrays["counted.slots"].tolist() == [1, 2, 0]
    assert len(arrays["counted.rows"]) == 2
    assert json.loads(bytes(arrays["ids.names"].numpy())) == ["a", "c", "d"]
    assert arrays["embeddings.state_2"].flatten().tolist() == pytest.approx([1.0, 6.0, 6.0])


def test_a_learner_that_forgot_nobody_or_everybody():
    learner = OnlineLearner(head=AnalyticHead(width=16))
    assert learner.packed() is None
    learner.apply(Delta(nodes="a", features=torch.ones(1, 2)))
    assert learner.packed() is None
    learner = path()
    learner.apply(Delta(forgotten=("a", "c", "d")))
    other = repacked(learner)
    assert (other.every_id(), other.status().features) == ([], 1)
    for each in (learner, other):
        each.apply(Delta(nodes="ef", features=torch.tensor([[1.0], [3.0]]), labels="xy"))
    assert other.predict(["e", "f"]) == learner.predict(["e", "f"])
    assert other.knowledge.graph.num_nodes == 2


every_head = pytest.mark.parametrize(
    ("head", "related"),
    [
        (AnalyticHead(width=32), False),
        (FusedHead(width=32), False),
        (FusedHead(width=32), True),
        (TargetHead(kind="labels", width=32), False),
    ],
    ids=["analytic", "auto", "relations", "targets"],
)


@every_head
def test_every_head_says_the_same_afterwards_and_after_more(head, related):
    learner = OnlineLearner(head=head, undirected=not related)
    *first, last, gone = growth(0, 3, each=5, kind=head.kind, related=related)
    for delta in first:
        learner.apply(delta)
    other, ids = repacked(learner), learner.every_id()
    assert other.every_id() == ids
    assert other.knowledge.graph.num_nodes == len(ids) < learner.knowledge.graph.num_nodes
    assert torch.equal(other.embed(ids), learner.embed(ids))
    assert torch.equal(other.predict_proba(ids)[1], learner.predict_proba(ids)[1])
    for each in (learner, other):
        each.apply(last)
        each.apply(gone)
    ids = learner.every_id()
    assert (other.predict_proba(ids)[1] - learner.predict_proba(ids)[1]).abs().max() < 1e-5
    assert other.history()["curve"] == learner.history()["curve"]


def test_who_lists_ids_meanwhile_must_begin_again():
    learner = path()
    assert learner.ids_from(0, 2) == (["a"], 2)
    other = repacked(learner)
    with pytest.raises(DataError, match="start must be 0, not 2: nodes were renumbered"):
        other.ids_from(2, 2)
    assert other.ids_from(0, 2) == (["a", "c"], 6)
    assert other.ids_from(6, 2) == (["d"], None)
    other.apply(Delta(forgotten=("a",)))
    third = repacked(other)
    with pytest.raises(DataError, match="not 6: nodes were renumbered"):
        third.ids_from(6, 2)
    assert third.ids_from(0, 1) == (["c"], 8)
