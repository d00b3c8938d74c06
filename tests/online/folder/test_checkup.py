"""Faults that are planted in a folder, each of which a check-up must find."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.online.delta import Delta
from evergraph.online.folder.checkup import Finding, checkup
from evergraph.online.folder.journal import JOURNAL_FILE
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    acknowledgement,
    store_columns,
    with_check,
)
from evergraph.online.folder.snapshot import read_snapshot, remove_snapshot
from evergraph.tables.scheme import BooleanEncoder, Column, Scheme
from stand_in import write_snapshot

GIVEN = {"head": {"name": "auto", "width": 16, "codes": 4}}


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


def flip(name: str, place: float | bytes) -> Callable[[Path], None]:
    """Flip a bit of a file: of a share of it, or where it holds some bytes."""

    def planted(folder: Path) -> None:
        path = folder / name
        data = bytearray(path.read_bytes())
        at = data.index(place) if isinstance(place, bytes) else int(place * len(data))
        data[at] ^= 1
        path.write_bytes(data)

    return planted


def sql(*statements: str) -> Callable[[Path], None]:
    def planted(folder: Path) -> None:
        connection = sqlite3.connect(folder / JOURNAL_FILE, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.close()

    return planted


def other_bytes(folder: Path) -> None:
    """Change a byte within a delta, which stays as long as it was."""
    connection = sqlite3.connect(folder / JOURNAL_FILE, isolation_level=None)
    data = bytearray(connection.execute("SELECT bytes FROM deltas WHERE seq = 5").fetchone()[0])
    data[-1] ^= 1
    connection.execute("UPDATE deltas SET bytes = ? WHERE seq = 5", (bytes(data),))
    connection.close()


def without_wal(folder: Path) -> None:
    """Lose the end of the journal, as one does who copies the file alone."""
    sql("DELETE FROM deltas WHERE seq > 5", "DELETE FROM keys WHERE seq > 5")(folder)


def another_seq(folder: Path) -> None:
    path = folder / "snapshot-5" / "manifest.json"
    path.write_text(json.dumps(with_check(json.loads(path.read_text()) | {"seq": 6})))


def state(name: str, change: Callable[[Tensor], Any], seq: int = 7) -> Callable[[Path], None]:
    """Change an array of a snapshot, and its checksums with it."""

    def planted(folder: Path) -> None:
        path = folder / f"snapshot-{seq}"
        kept = read_snapshot(path)
        arrays = {key: value.clone() for key, value in kept.state.items()}
        change(arrays[name])
        about = json.dumps(kept.about).encode()
        remove_snapshot(path)
        write_snapshot(folder, seq, arrays, about)

    return planted


def put(place: Any, value: float) -> Callable[[Tensor], None]:
    return lambda array: array.__setitem__(place, value)


def write(name: str, data: bytes) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes(data)


def wide_columns(folder: Path) -> None:
    store_columns(folder, Scheme((Column("f", BooleanEncoder(flag=True)),)))


# Where, what is planted, the file that the finding is about, and words of it.
FAULTS = {
    "a bit of the journal": ("sound", flip(JOURNAL_FILE, b"n10"), JOURNAL_FILE, ""),
    "a bit of arrays": ("sound", flip("snapshot-5/state.safetensors", 0.5), "snapshot-5", "chang"),
    "a bit of about.json": ("sound", flip("snapshot-3/about.json", 0.5), "snapshot-3", "changed"),
    "a bit of a manifest": ("sound", flip("snapshot-5/manifest.json", 0.5), "snapshot-5", ""),
    "a bit of acknowledged": ("sound", flip(ACKNOWLEDGED_FILE, 0.6), ACKNOWLEDGED_FILE, "checksum"),
    "the end of the journal": ("sound", without_wal, JOURNAL_FILE, "7 were acknowledged"),
    "a gap": ("sound", sql("DELETE FROM deltas WHERE seq = 5"), JOURNAL_FILE, "delta 5 is missing"),
    "other bytes": ("sound", other_bytes, JOURNAL_FILE, "delta 5 cannot be read"),
    "a batch": (
        "sound", sql("UPDATE deltas SET batch = 4 WHERE seq = 6"), JOURNAL_FILE, "batch 4",
    ),
    "a key beyond": ("sound", sql("UPDATE keys SET seq = 70 WHERE seq = 6"), JOURNAL_FILE, "70"),
    "a key of another delta": (
        "sound", sql("UPDATE keys SET seq = 5 WHERE seq = 6"), JOURNAL_FILE, "other contents",
    ),
    "a key's result": (
        "sound", sql("UPDATE keys SET result = '{}' WHERE seq = 4"), JOURNAL_FILE, "the result of",
    ),
    "a manifest of another delta": ("sound", another_seq, "snapshot-5", "belongs to snapshot-6"),
    "acknowledged beyond": (
        "sound", write(ACKNOWLEDGED_FILE, acknowledgement(9)), JOURNAL_FILE, "9 were acknowledged",
    ),
    "acknowledged behind": (
        "sound", write(ACKNOWLEDGED_FILE, acknowledgement(6)), ACKNOWLEDGED_FILE, "holds 6",
    ),
    "no acknowledged": (
        "sound", lambda folder: (folder / ACKNOWLEDGED_FILE).unlink(), ACKNOWLEDGED_FILE, "missing",
    ),
    "leftovers": ("sound", lambda f: (f / ".aside-9").mkdir(), ".aside-9", "killed"),
    "an unknown file": ("sound", write("notes.txt", b""), "notes.txt", "not belong"),
    "rights": (
        "sound", lambda folder: (folder / JOURNAL_FILE).chmod(0o666), JOURNAL_FILE, "everybody",
    ),
    "columns of another width": ("sound", wide_columns, "columns.json", "gives 2 features"),
    "history that is not replayed": (
        "sound", state("prequential.curve", put((0, 1), 5), 5), "snapshot-5", "from snapshot-3",
    ),
    "a feature": ("alone", state("graph.features", put((2, 1), 9.0)), "learner", "embeddings"),
    "a feature of nobody": ("alone", state("graph.features", put((3, 0), 1.0)), "learner", "forg"),
    "an embedding": ("alone", state("embeddings.state_2", put((2, 0), 3.0)), "learner", "embeddi"),
    "a class count": ("alone", state("labels.counts", put(0, 9)), "learner", "class 0 is rec"),
    "a class": ("alone", state("labels.numbers", put(0, 1)), "learner", "class 0"),
    "a sum": ("alone", state("head.view_1.sums", put((0, 3), 2.0)), "learner", "view_1.sums"),
    "a product": ("alone", state("head.view_0.gram", put(5, 7.0)), "learner", "view_0.gram"),
    "a weight": ("alone", state("head.view_0.weights", put((0, 0), 7.0)), "learner", "scores"),
    "a vector counted": ("alone", state("counted.rows", put((0, 0), 5.0)), "learner", "counted"),
    "a neighbour": ("alone", state("graph.indices", put(0, 6)), "learner", "two directions"),
    "an id": ("alone", state("ids.bytes", put(1, ord("7"))), "learner", ""),
    "an id of nobody": ("alone", state("ids.kinds", put(3, 1)), "learner", "nodes with ids"),
    "a total": ("alone", state("prequential.totals", put(0, 99)), "learner", "history counts"),
}  # fmt: skip


# Those of statistics are planted together where one does not hide another: a check takes long.
TOGETHER = [
    *([name] for name, (where, *_) in FAULTS.items() if where == "sound"),
    ["a feature of nobody", "a class count", "an id of nobody", "a total"],
    ["a neighbour", "a class"],
    ["a feature", "a vector counted"],
    ["a sum", "a product"],
    ["an embedding", "a weight"],
    ["an id"],
]
NOT_IN_FILES = ("columns of another width", "history that is not replayed")


def test_every_fault_is_planted() -> None:
    assert sorted(name for names in TOGETHER for name in names) == sorted(FAULTS)


@pytest.mark.parametrize("names", TOGETHER, ids=" and ".join)
def test_a_planted_fault_is_found(names: list[str], request: Any, tmp_path: Path) -> None:
    where, folder = FAULTS[names[0]][0], tmp_path / "learner"
    shutil.copytree(request.getfixturevalue(where), folder)
    for name in names:
        FAULTS[name][1](folder)
    found = checkup(folder, quick=where == "sound" and names[0] not in NOT_IN_FILES)
    for name in names:
        _, _, file, words = FAULTS[name]
        assert [each for each in found if each.file.startswith(file) and words in each.what], name


@pytest.mark.parametrize("where", ["sound", "alone"])
def test_a_folder_in_order_is_sound_and_stays_as_it_is(where: str, request: Any) -> None:
    folder = request.getfixturevalue(where)
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert checkup(folder) == []
    assert checkup(folder, quick=True) == []
    now = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    changed = {path.name for path in now if now[path] != kept.get(path)}
    assert changed <= {f"{JOURNAL_FILE}-shm", f"{JOURNAL_FILE}-wal"}


def test_deltas_after_a_purge_are_missed_if_no_snapshot_holds_them(
    alone: Path, tmp_path: Path
) -> None:
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


def test_a_folder_that_is_written_to_is_sound(sound: Path, tmp_path: Path) -> None:
    shutil.copytree(sound, tmp_path / "learner")
    with LearnerFolder.open(tmp_path / "learner") as folder:
        (tmp_path / "learner" / ".aside-9").mkdir()  # a snapshot that is being written
        folder.submit(Delta(nodes=("new",), features=torch.ones(1, 3)))
        assert checkup(tmp_path / "learner") == []


def test_what_is_no_learner_cannot_be_checked(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(DataError, match="holds no learner"):
            checkup(path)


def test_quick_looks_at_files_alone(alone: Path, tmp_path: Path) -> None:
    shutil.copytree(alone, tmp_path / "learner")
    state("labels.counts", put(0, 9))(tmp_path / "learner")
    assert checkup(tmp_path / "learner", quick=True) == []
    write("notes.txt", b"")(tmp_path / "learner")
    found = checkup(tmp_path / "learner", quick=True)
    assert found == [Finding("notes.txt", "does not belong to a learner's folder")]
