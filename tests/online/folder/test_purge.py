"""What was forgotten leaves the folder, its snapshots and its memory."""

import json
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
import torch

from evergraph import ContinualNodeClassifier
from evergraph.core.errors import DataError
from evergraph.online.delta import Delta
from evergraph.online.folder.backup import backup
from evergraph.online.folder.checkup import checkup
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import AnalyticHead, FusedHead, TargetHead
from evergraph.online.learner import OnlineLearner
from secret_nodes import FIRST, TWO, bits, fill, found_in, more, opened


def packed_bits(folder: LearnerFolder) -> dict[str, bytes]:
    """Return the bits of a folder's learner without places of forgotten nodes."""
    found = folder.learner.packed()
    state = {name: value.numpy().tobytes() for name, value in found.arrays.items()}
    return state | {"about": json.dumps(found.about, sort_keys=True).encode()}


@pytest.mark.parametrize("head", [AnalyticHead, FusedHead])
def test_a_purge_leaves_nothing_of_a_forgotten_node(tmp_path, head):
    place = tmp_path / "learner"
    with opened(place, head) as folder:
        fill(folder)
        for _ in range(3):
            folder.compact()
        assert found_in(place) >= {"id", "integer id", "features", "key", "label"}  # does not do
        known = packed_bits(folder)
        with opened(place, head, readonly=True) as reader:
            done = folder.purge()
            assert found_in(place) == {"key"}
            assert folder.learner.classes == ("x", "y")
            assert (done.seq, done.places) == (3, 2)
            assert done.bytes_after < done.bytes_before
            assert bits(folder) == known  # nothing else has changed
            assert reader.refresh() == 0
            assert bits(reader) == known
        assert folder.submit(FIRST).seq == 1  # keys that stay are known with their results
        folder.purge(keys=True)
        assert folder.status().keys == 0
        with pytest.raises(DataError, match="in the graph already"):
            folder.submit(FIRST)  # others count as new
        assert found_in(place) == set()
        assert [path.name for path in place.glob("snapshot-*")] == ["snapshot-3"]
        more(folder)
        kept = bits(folder)
    with opened(place, head) as folder:
        assert bits(folder) == kept


@pytest.mark.parametrize("weighted", [False, True])
def test_neighbours_that_a_forgotten_node_once_had_cannot_be_told(tmp_path, weighted):
    """A column that it alone had is 0 in every row: also of those it was cut off from before."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(300, 3, generator=generator)
    rows[:, 2] = 0.0
    rows[0, 2] = 0.7
    others = [(str(node), str((7 * node + 1) % 299 + 1)) for node in range(1, 300)]
    near = [("0", str(13 * place + 1)) for place in range(20)]
    with opened(tmp_path, FusedHead) as folder:
        labels = tuple("xyz"[node % 3] for node in range(300))
        nodes = tuple(map(str, range(300)))
        folder.submit(Delta(nodes=nodes, features=rows, labels=labels, edges=(*others, *near)))
        for edge in near[:5]:
            gone = {"edges": (edge,), "weights": (0.0,)} if weighted else {"removed_edges": (edge,)}
            folder.submit(Delta(**gone))
        folder.submit(Delta(nodes=("late",), features=rows[1:2], edges=(("late", near[0][1]),)))
        folder.submit(Delta(forgotten=("0",)))
        folder.purge()
        state = folder.learner.state()
    wide = {"graph.features": 3, "embeddings.state_1": 3, "embeddings.state_2": 3}
    wide |= {"counted.rows": 6, "head.landmarks": 6}  # of which the features, and two hops away
    for name, width in wide.items():
        assert not state[name][:, 2:width:3].any(), name


LATER = {"town": ["Oslo", "Rome"], "note": ["a", "b"], "tags": ["oslo", "rome"], "age": [1, 2]}
COLUMN_SECRETS = (b"secretville", b"secretword", b"secrettag")


def mixed_folder(path: Path) -> LearnerFolder:
    """A folder whose first table had a node with a category, a word and a tag of its own."""
    towns = ["Bern", "Rome"] * 20
    text = [f"the {town} office writes long reports number {row}" for row, town in enumerate(towns)]
    tags = [f"{town.lower()};staff" for town in towns]
    towns[7], text[7], tags[7] = "Secretville", "a secretword in long reports", "secrettag;staff"
    rows = pd.DataFrame({"town": towns, "note": text, "tags": tags, "age": range(20, 60)})
    kinds = {"town": "category", "note": "text", "tags": "list", "age": "number"}
    ids = [f"n{row}" for row in range(40)]
    model = ContinualNodeClassifier.open(path, width=32, columns=kinds)
    model.partial_fit(ids, rows, ["x", "y"] * 20, list(pairwise(ids)))
    model.forget(["n7"])
    model.close()
    return LearnerFolder.open(path)


def columns_secrets(path: Path) -> set[bytes]:
    """Return which of the words of columns the files of a folder hold, in any case."""
    files = [file.read_bytes().lower() for file in path.rglob("*") if file.is_file()]
    return {word for word in COLUMN_SECRETS if any(word in data for data in files)}


def test_no_category_tag_or_word_of_a_forgotten_node_is_in_any_file(tmp_path):
    with mixed_folder(tmp_path) as folder:
        folder.purge(keys=True)
        assert columns_secrets(tmp_path) == set()
    with LearnerFolder.open(tmp_path) as folder:  # and what is new is still noticed
        block = folder.columns.read(pa.table(LATER)).blocks
        assert [list(block[name].new) for name in ("town", "tags")] == [["Oslo"], ["oslo"]]


@pytest.mark.parametrize("head", [AnalyticHead, FusedHead])
def test_classes_that_no_node_has_go_with_their_arrays(tmp_path, head):
    """After 30 classes came and went, what is left equals what three others take."""
    with opened(tmp_path, head) as folder:
        folder.submit(FIRST)
        folder.purge()
        few = {n: v.shape for n, v in folder.learner.state().items() if n.startswith("head.")}
        names = tuple(f"brief-{number}" for number in range(30))
        rows = torch.rand(30, 3, generator=torch.Generator().manual_seed(0))
        folder.submit(Delta(nodes=names, features=rows, labels=names))
        last = Delta(nodes=("c",), features=rows[:1], labels=("z",), edges=(("c", "a"),))
        folder.submit(last)  # of a class after those that go
        folder.submit(Delta(forgotten=names))
        answers = folder.learner.predict_proba("abc")[1]
        assert len(folder.learner.classes) == 33
        folder.purge()
        assert folder.learner.classes == ("x", "y", "z")
        assert torch.equal(folder.learner.predict_proba("abc")[1], answers[:, [0, 1, 32]])
        assert not any(b"brief-" in path.read_bytes() for path in tmp_path.glob("snapshot-*/*"))
        folder.submit(Delta(forgotten=("c",)))
        folder.purge()
        left = {n: v.shape for n, v in folder.learner.state().items() if n.startswith("head.")}
        assert left == few
        more(folder)
        assert checkup(tmp_path) == []
    with opened(tmp_path, head) as folder:
        assert folder.learner.classes == ("x", "y", "again")


def test_labels_of_several_a_node_stay(tmp_path):
    head = TargetHead(kind="labels", width=16)
    with LearnerFolder.open(tmp_path, make=lambda: OnlineLearner(head=head)) as folder:
        folder.submit(Delta(nodes="ab", features=TWO, labels=(("x",), ("y",))))
        folder.submit(Delta(forgotten=("a",)))
        folder.purge()
        assert list(folder.learner.classes) == ["x", "y"]


def test_places_of_forgotten_nodes_go_from_memory_and_from_snapshots(tmp_path):
    """Under come and go a folder that is purged stays as large as what lives in it."""
    memory, renewed = [], []
    with opened(tmp_path / "flat") as folder:
        folder.watch(on_change=lambda: renewed.append(folder.learner))
        for turn in range(4):
            come_and_go(folder, turn)
            done = folder.purge(keys=True)
            assert done.places == (20 if turn else 0)
            assert done.seq == folder.seq == turn + 1  # nobody who follows has to begin anew
            graph = folder.learner.knowledge.graph
            assert graph.num_nodes == len(folder.learner.every_id()) == 20
            memory.append(folder.learner.status().memory)
        assert len(renewed) == 7  # each delta, and each purge but the first
        assert len(set(map(id, renewed))) == 4
    assert len(set(memory[1:])) == 1


def come_and_go(folder: LearnerFolder, turn: int) -> None:
    """Twenty nodes come, and those of the turn before go."""
    ids = [f"{turn:02}.{place:02}" for place in range(20)]
    features = torch.randn(20, 3, generator=torch.Generator().manual_seed(turn))
    gone = [f"{turn - 1:02}.{place:02}" for place in range(20)] if turn else ()
    labels = [("x", "y", None)[place % 3] for place in range(20)]
    edges = list(zip(ids, ids[-1:] + ids[:-1], strict=True))
    folder.submit(Delta(nodes=ids, features=features, labels=labels, edges=edges, forgotten=gone))


def test_a_folder_with_nothing_but_the_snapshot_of_now_is_packed_after_the_next_delta(tmp_path):
    """As one that was restored: replacing its only snapshot could leave nothing."""
    with opened(tmp_path / "one") as folder:
        fill(folder)
    backup(tmp_path / "one", tmp_path / "two")
    with opened(tmp_path / "two") as folder:
        assert folder.purge().places == 0
        assert folder.learner.knowledge.graph.num_nodes == 4
        more(folder)
        assert folder.purge().places == 2
        assert folder.learner.knowledge.graph.num_nodes == 3
