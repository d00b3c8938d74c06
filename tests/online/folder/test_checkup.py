"""Faults planted in a folder in order: a check-up finds them, and forged snapshots are refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from evergraph.core.errors import DataError
from evergraph.online.delta import Delta
from evergraph.online.folder.backup import backup, restore
from evergraph.online.folder.checkup import checkup
from evergraph.online.folder.journal import JOURNAL_FILE as JOURNAL
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.markers import ACKNOWLEDGED_FILE, acknowledgement, store_columns
from evergraph.online.folder.snapshot import read_snapshot, remove_snapshot
from evergraph.tables.measured import BooleanEncoder
from evergraph.tables.scheme import Column, Scheme
from planted import CHANGED, Plant, flip, gone, other, sql
from stand_in import write_snapshot


def write(name: str, data: bytes) -> Plant:
    return lambda folder: (folder / name).write_bytes(data)


# Random features: on landmarks, so few nodes are counted anew with every delta.
GIVEN = {"head": {"name": "auto", "basis": "random", "width": 16, "codes": 4}}


def fill(path: Path) -> None:
    """Two snapshots, deltas before and after them, keys, and a node that was forgotten."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(12, 3, generator=generator)
    with LearnerFolder.open(path, GIVEN) as folder:
        for place in range(6):
            two = (f"n{2 * place}", f"n{2 * place + 1}")
            edges = ((two[0], two[1]), (two[1], "n0")) if place else ((two[0], two[1]),)
            features = rows[2 * place : 2 * place + 2]
            key = f"key {place}" if place % 2 else None
            folder.submit(Delta(nodes=two, features=features, labels="xy", edges=edges, key=key))
            if place in (2, 4):
                folder.compact()
        folder.submit(Delta(forgotten=("n3",), key="gone"))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in order: snapshots 3 and 5, and 7 deltas."""
    path = tmp_path_factory.mktemp("sound") / "learner"
    fill(path)
    return path


@pytest.fixture(scope="module")
def alone(sound: Path) -> Path:
    """The same after a purge: one snapshot, with nothing to replay it from."""
    path = sound.with_name("alone")
    shutil.copytree(sound, path)
    with LearnerFolder.open(path) as folder:
        folder.learner.packed = lambda: None  # as an earlier version: a place of nobody stays
        folder.purge()
        folder.submit(Delta(nodes=("late",), features=torch.ones(1, 3)))
    return path


def forged(change: Callable[[dict[str, Any], dict[str, Any]], object], seq: int = 7) -> Plant:
    """Change arrays and the rest of a snapshot, and its checksums with it."""

    def planted(folder: Path) -> None:
        path = folder / f"snapshot-{seq}"
        kept = read_snapshot(path)
        arrays, about = {key: array.clone() for key, array in kept.state.items()}, dict(kept.about)
        change(arrays, about)
        remove_snapshot(path)
        write_snapshot(folder, seq, arrays, about)

    return planted


def state(name: str, place: Any, value: float, seq: int = 7) -> Plant:
    """Change a value of an array of a snapshot."""
    return forged(lambda arrays, _: arrays[name].__setitem__(place, value), seq)


def names(values: Any) -> Plant:
    """Put other JSON in place of the ids."""
    array = torch.frombuffer(bytearray(json.dumps(values).encode()), dtype=torch.uint8)
    return forged(lambda arrays, _: arrays.update({"ids.names": array}))


def shorter(name: str) -> Plant:
    return forged(lambda arrays, _: arrays.update({name: arrays[name][:-1].clone()}))


# Of a snapshot of 12 positions and 2 classes that somebody else wrote: what it holds, and why it is
# refused. The first three crashed compiled code, or took 16 GB.
FORGED = {
    "an edge to nowhere": (state("graph.indices", -1, 50_000_000), "from 0 to 11, not 5"),
    "an edge to -1": (state("graph.indices", 0, -1), "indices' .* from 0 to 11, not -1"),
    "a long row": (state("graph.indptr", -2, 2**31), "must ascend from 0 to the 18 entries"),
    "a short end": (state("graph.indptr", -1, 3), "indptr' must ascend from 0"),
    "a start": (state("graph.indptr", 0, 1), "indptr' must ascend from 0"),
    "rows": (shorter("graph.indptr"), "indptr' must have 13 rows, not 12"),
    "an order": (state("graph.indices", 0, 9), "indptr' must be of rows that ascend"),
    "a weight": (
        forged(lambda arrays, _: arrays.update({"graph.weights": -torch.ones(18)})),
        "weights' must hold a finite number of 0 or more",
    ),
    "a class": (state("labels.numbers", 0, 2**40), "numbers' .* from -1 to 1, not 1099511"),
    "a slot": (state("counted.slots", 0, 99), "counted.slots' .* from 0 to 12, not 99"),
    "no slot": (state("counted.slots", 0, 0), "counted.slots' must be above 0 for labelled"),
    "a free slot": (
        forged(lambda arrays, _: arrays.update({"counted.free": torch.tensor([12])})),
        "counted.free' must hold values from 0 to 11, not 12",
    ),
    "a width": (
        forged(lambda arrays, _: arrays.update({"codes.state_1": torch.zeros(12, 3)})),
        r"codes.state_1' must have rows of shape \(4,\), not \(12, 3\)",
    ),
    "a type": (
        forged(lambda arrays, _: arrays.update({"labels.numbers": torch.zeros(12)})),
        "labels.numbers' must have values of torch.int64, not torch.float32",
    ),
    "a hop": (forged(lambda arrays, _: arrays.pop("embeddings.state_1")), "state_1' must be there"),
    "nobody's array": (
        forged(lambda arrays, _: arrays.update(other=torch.zeros(1))),
        "'other' is not one of",
    ),
    "NaN": (state("graph.features", (0, 0), float("nan")), "features' must hold finite numbers"),
    "a name": (names(["n10"]), "ids.names' must be 12, not 1"),
    "a name twice": (
        names(["n10"] * 12),
        "ids.names' must hold texts and whole numbers, each once",
    ),
    "no name": (names([True] * 12), "ids.names' must hold texts and whole numbers"),
    "no names": (names({}), "ids.names' must hold a list as JSON"),
    "other features": (
        forged(lambda _, about: about.update(num_features=10**12)),
        "features are not",
    ),
    "a number of the head": (
        forged(lambda arrays, _: arrays.update({"head.view_0.weights": torch.zeros(9, 2)})),
        "cannot be the state of this learner",
    ),
    "letters": (state("ids.names", 0, 255), "UnicodeDecodeError"),
}


def linked(folder: Path) -> None:
    (folder / "snapshot-3").rename(folder.with_name("elsewhere"))
    (folder / "snapshot-3").symlink_to(folder.with_name("elsewhere"))


def downgraded(folder: Path) -> None:
    """A manifest that says that its version wrote no checksums."""
    path = folder / "snapshot-5" / "manifest.json"
    content = json.loads(path.read_text()) | {"format": 1}
    path.write_text(json.dumps({key: value for key, value in content.items() if key != "sha256"}))


# Of files: what is planted in a folder in order, the file that the finding is about, and words.
OF_FILES = {
    "a bit of the journal": (flip(JOURNAL, b"n10"), JOURNAL, ""),
    "a bit of arrays": (flip("snapshot-5/state.safetensors", 0.5), "snapshot-5", "changed"),
    "a bit of about.json": (flip("snapshot-3/about.json", 0.5), "snapshot-3", "changed"),
    "a bit of a manifest": (flip("snapshot-5/manifest.json", 0.5), "snapshot-5", ""),
    "a bit of acknowledged": (flip(ACKNOWLEDGED_FILE, 0.6), ACKNOWLEDGED_FILE, "checksum"),
    "the end of the journal": (  # which who copies the file alone leaves in the WAL
        sql("DELETE FROM deltas WHERE seq > 5", "DELETE FROM keys WHERE seq > 5"),
        JOURNAL,
        "7 were acknowledged",
    ),
    "a gap": (sql("DELETE FROM deltas WHERE seq = 5"), JOURNAL, "delta 5 is missing"),
    "other bytes": (sql(CHANGED.format(5)), JOURNAL, "delta 5 cannot be read"),
    "a batch": (sql("UPDATE deltas SET batch = 4 WHERE seq = 6"), JOURNAL, "batch 4"),
    "a key beyond": (sql("UPDATE keys SET seq = 70 WHERE seq = 6"), JOURNAL, "70"),
    "another key": (sql("UPDATE keys SET seq = 5 WHERE seq = 6"), JOURNAL, "other contents"),
    "a result": (sql("UPDATE keys SET result = '{}' WHERE seq = 4"), JOURNAL, "the result of"),
    "another manifest": (other("snapshot-5/manifest.json", seq=6), "snapshot-5", "to snapshot-6"),
    "too much acknowledged": (
        write(ACKNOWLEDGED_FILE, acknowledgement(9)),
        JOURNAL,
        "9 were acknowledged",
    ),
    "too little": (write(ACKNOWLEDGED_FILE, acknowledgement(6)), ACKNOWLEDGED_FILE, "holds 6"),
    "nothing acknowledged": (gone(ACKNOWLEDGED_FILE), ACKNOWLEDGED_FILE, "missing"),
    "leftovers": (lambda folder: (folder / ".aside-9").mkdir(), ".aside-9", "killed"),
    "an unknown file": (write("notes.txt", b""), "notes.txt", "not belong"),
    "an unknown file of a snapshot": (
        write("snapshot-5/notes.txt", b""),
        "snapshot-5/notes.txt",
        "does not belong to a snapshot",
    ),
    "columns that are none": (write("columns.json", b"{"), "columns.json", "is not JSON"),
    "a journal before all snapshots": (
        lambda folder: (
            sql("DELETE FROM deltas WHERE seq > 4", "DELETE FROM keys WHERE seq > 4")(folder),
            gone(ACKNOWLEDGED_FILE)(folder),
        ),
        JOURNAL,
        "ends with delta 4, before snapshot-5",
    ),
    "rights": (lambda folder: (folder / JOURNAL).chmod(0o666), JOURNAL, "everybody"),
    "a trigger": (
        sql("CREATE TRIGGER t AFTER INSERT ON deltas BEGIN DELETE FROM keys; END"),
        JOURNAL,
        "'t'",
    ),
    "a foreign table": (sql("CREATE TABLE notes (x)"), JOURNAL, "table 'notes'"),
    "a link": (linked, "snapshot-3", "symbolic link"),
    "a manifest without checksum": (downgraded, "snapshot-5", "manifest.json"),
}
# Found by who opens the folder: its columns are of another width, its history is not replayed.
OF_THE_LEARNER = {
    "width": (
        lambda folder: store_columns(folder, Scheme((Column("f", BooleanEncoder(flag=True)),))),
        "columns.json",
        "gives 2 features",
    ),
    "history": (state("prequential.curve", (0, 1), 5, 5), "snapshot-5", "from snapshot-3"),
    "another result": (
        sql("UPDATE keys SET result = replace(result, '\"new_nodes\": 2', '\"new_nodes\": 3')"),
        JOURNAL,
        "not what delta 4 gives",
    ),
    "no result": (sql("UPDATE keys SET result = NULL"), JOURNAL, "not what delta 4 gives"),
}


@pytest.mark.parametrize("name", [*OF_FILES, *OF_THE_LEARNER])
def test_a_planted_fault_is_found(name, sound, tmp_path):
    plant, file, words = (OF_FILES | OF_THE_LEARNER)[name]
    shutil.copytree(sound, tmp_path / "learner")
    plant(tmp_path / "learner")
    found = checkup(tmp_path / "learner", quick=name in OF_FILES)
    assert [each for each in found if each.file.startswith(file) and words in each.what]


def scaled(name: str, factor: float) -> Plant:
    """Multiply an array of a snapshot, alone in a folder."""
    return forged(lambda arrays, _: arrays[name].mul_(factor))


# Arrays with checksums made again, where no other snapshot can be compared by replay: what is
# planted, and the arrays that a deep check names.
NOT_GIVEN = {
    "a hop that no prediction shows": (state("embeddings.state_1", (2, 0), 0.01), "state_1"),
    "an embedding": (state("embeddings.state_2", (2, 0), 3.0), "embeddings.state_2, counted.rows"),
    "an embedding of nobody": (state("embeddings.state_2", (-1, 0), 1e-3), "embeddings.state_2"),
    "a code": (scaled("codes.state_1", 1.001), "codes.state_1"),
    "a code two hops away": (state("codes.state_2", (2, 0), 3.0), "codes.state_2"),
    "a size of a class": (state("labels.counts", 0, 9), "labels.counts"),
    "a vector counted": (state("counted.rows", (0, 0), 5.0), "counted.rows, head.view_1.gram"),
    "NaN in sums": (state("head.view_0.sums", (0, 3), float("nan")), "head.view_0.sums"),
    "other sums": (scaled("head.view_1.sums", 1.001), "head.view_1.sums"),
    "other products": (scaled("head.view_0.gram", 1.001), "head.view_0.gram"),
    "other weights": (scaled("head.view_0.weights", 1.001), "head.view_0.weights"),
    "NaN in weights": (state("head.view_0.weights", (0, 0), float("nan")), "head.view_0.weights"),
}


@pytest.mark.parametrize("name", NOT_GIVEN)
def test_a_deep_check_finds_what_graph_and_labels_do_not_give(name, alone, tmp_path):
    plant, words = NOT_GIVEN[name]
    shutil.copytree(alone, tmp_path / "learner")
    plant(tmp_path / "learner")
    found = checkup(tmp_path / "learner", deep=True)
    assert [each for each in found if each.file == "snapshot-7" and words in each.what], found


@pytest.mark.parametrize("name", FORGED)
def test_a_snapshot_that_somebody_else_wrote_is_checked_before_it_is_used(name, alone, tmp_path):
    plant, words = FORGED[name]
    shutil.copytree(alone, tmp_path / "learner")
    plant(tmp_path / "learner")
    with pytest.raises(DataError, match=f"snapshot-7/state.safetensors.*{words}"):
        LearnerFolder.open(tmp_path / "learner")
    if name != "an edge to nowhere":  # a backup and a check-up open a folder as anybody does
        return
    backup(tmp_path / "learner", tmp_path / "made.tar")
    with pytest.raises(DataError, match=words):
        restore(tmp_path / "made.tar", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
    assert [each for each in checkup(tmp_path / "learner") if each.file == "learner"]


def test_a_forged_snapshot_is_not_restored_even_if_the_journal_has_all_deltas(sound, tmp_path):
    shutil.copytree(sound, tmp_path / "learner")
    state("graph.indices", 0, -1, 5)(tmp_path / "learner")
    backup(tmp_path / "learner", tmp_path / "made.tar")
    with LearnerFolder.open(tmp_path / "learner", readonly=True) as folder:  # the one before it
        assert (folder.status().snapshot, folder.seq) == (3, 7)
    with pytest.raises(DataError, match="snapshot-5/state"):
        restore(tmp_path / "made.tar", tmp_path / "restored")


@pytest.mark.parametrize("where", ["sound", "alone"])
def test_a_folder_in_order_is_sound_and_stays_as_it_is(where, request):
    folder = request.getfixturevalue(where)
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert checkup(folder, deep=True) == []
    assert checkup(folder, quick=True) == []
    now = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    changed = {path.name for path in now if now[path] != kept.get(path)}
    assert changed <= {f"{JOURNAL}-shm", f"{JOURNAL}-wal"}


def test_deltas_after_a_purge_are_missed_if_no_snapshot_holds_them(alone, tmp_path):
    path = tmp_path / "learner"
    shutil.copytree(alone, path)
    with LearnerFolder.open(path) as folder:
        folder.submit(Delta(nodes=("next",), features=torch.ones(1, 3)))
    shutil.copytree(path, tmp_path / "other")
    sql("DELETE FROM deltas WHERE seq = 8")(tmp_path / "other")
    found = checkup(tmp_path / "other", quick=True)
    assert [each.what for each in found] == ["begins with delta 9, and no snapshot holds the rest"]
    with LearnerFolder.open(path) as folder:
        for name in ("one", "two"):
            folder.submit(Delta(nodes=(name,), features=torch.ones(1, 3)))
            folder.compact()
    assert checkup(path) == []


def test_a_folder_that_is_written_to_is_sound(sound, tmp_path):
    shutil.copytree(sound, tmp_path / "learner")
    with LearnerFolder.open(tmp_path / "learner") as folder:
        (tmp_path / "learner" / ".aside-9").mkdir()  # a snapshot that is being written
        folder.submit(Delta(nodes=("new",), features=torch.ones(1, 3)))
        assert checkup(tmp_path / "learner") == []


def test_what_is_no_learner_cannot_be_checked(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(DataError, match="holds no learner"):
            checkup(path)


def test_snapshots_may_come_and_go_while_a_folder_is_looked_at(sound, tmp_path, monkeypatch):
    folder, looks, iterdir = tmp_path / "learner", [], Path.iterdir
    shutil.copytree(sound, folder)
    (folder / "snapshot-5").rename(tmp_path / "snapshot-5")

    def looked_into(path):
        looks.append(path)
        if looks.count(folder) == 2 and not (folder / "snapshot-5").exists():
            (tmp_path / "snapshot-5").rename(folder / "snapshot-5")
        if path.name == "snapshot-3":
            shutil.rmtree(path)
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", looked_into)
    assert checkup(folder, quick=True) == []
    assert [path.name for path in looks if path != folder] == ["snapshot-3"]
