"""Files that were damaged, taken away or left over: mended, refused, and found by a check-up."""

import json
import logging
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from evergraph.core import written_aside
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.online.delta import Delta
from evergraph.online.folder.backup import backup, restore
from evergraph.online.folder.checkup import checkup
from evergraph.online.folder.journal import JOURNAL_FILE as JOURNAL
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    FORMAT_FILE,
    Acknowledged,
    acknowledgement,
    store_columns,
    with_check,
)
from evergraph.online.folder.recovery import make_folder
from evergraph.online.folder.snapshot import read_snapshot, remove_snapshot
from evergraph.tables.measured import BooleanEncoder
from evergraph.tables.scheme import Column, Scheme
from stand_in import bits, filled, holds, opened, twin, write_snapshot

Plant = Callable[[Path], object]


def flip(name: str, place: float | bytes) -> Plant:
    """Flip a bit of a file: of a share of it, or where it holds some bytes."""

    def planted(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        at = data.index(place) if isinstance(place, bytes) else int(place * len(data))
        data[at] ^= 1
        (folder / name).write_bytes(data)

    return planted


def gone(*names: str) -> Plant:
    return lambda folder: [(folder / name).unlink() for name in names]


def sql(*statements: str) -> Plant:
    def planted(folder: Path) -> None:
        with closing(sqlite3.connect(folder / JOURNAL, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    return planted


def write(name: str, data: bytes) -> Plant:
    return lambda folder: (folder / name).write_bytes(data)


def other(name: str, **content: object) -> Plant:
    """Change what a file of JSON says, and its checksum with it."""

    def planted(folder: Path) -> None:
        found = json.loads((folder / name).read_text()) | content
        (folder / name).write_text(json.dumps(with_check(found)))

    return planted


# What is damaged of a folder of nine deltas; the snapshot that is gone on with, and what is said.
MENDED = {
    "the newest snapshot": (
        (2, 5, 8),
        flip("snapshot-8/state.safetensors", 0.99),
        5,
        "snapshot-8/state.safetensors: its contents have changed since it was written",
    ),
    "a manifest at the last delta": (
        (2, 9),
        gone("snapshot-9/manifest.json"),
        2,
        "snapshot-9/manifest.json: cannot be read",
    ),
    "the only snapshot": ((4,), gone("snapshot-4/about.json"), 0, "snapshot-4/about.json"),
}


@pytest.mark.parametrize("name", MENDED)
def test_a_snapshot_that_is_damaged_means_the_one_before(tmp_path, caplog, name):
    compact_at, plant, before, said = MENDED[name]
    filled(tmp_path, 9, compact_at=compact_at)
    plant(tmp_path)
    with caplog.at_level(logging.WARNING), opened(tmp_path) as folder:
        assert said in caplog.text
        assert folder.status().snapshot == before
        assert bits(folder.learner) == twin(9)
        assert folder.compact() == 9  # also where a damaged one has that number
    kept = {f"snapshot-{number}" for number in (before, 9) if number}
    assert {path.name for path in tmp_path.glob("snapshot-*")} == kept
    with opened(tmp_path) as folder:
        assert (folder.status().snapshot, bits(folder.learner)) == (9, twin(9))


CHANGED = (
    "UPDATE deltas SET bytes = CAST(substr(bytes, 1, length(bytes) - 1) || x'00' AS BLOB) "
    "WHERE seq = {}"
)
# What is damaged of a folder of five deltas and some snapshots; and why it is refused.
REFUSED = {
    "no intact snapshot": (
        (2, 4),
        gone("snapshot-2/about.json", "snapshot-4/about.json"),
        r"no intact snapshot \(.*snapshot-4/about.json.*delta 3:",
    ),
    "a gap": (
        (),
        sql("DELETE FROM deltas WHERE seq = 3"),
        "journal.sqlite: delta 3 is missing, the next one is 4",
    ),
    "a row": ((), sql(CHANGED.format(4)), "delta 4 cannot be read: a delta's checksum is wrong"),
    "the journal's end": (
        (),
        sql("DELETE FROM deltas WHERE seq = 5"),
        "ends with delta 4, but 5 were acknowledged",
    ),
    "the journal's end, with snapshots": (
        (2, 4),
        sql("DELETE FROM deltas WHERE seq = 5"),
        "ends with delta 4, but 5 were acknowl",
    ),
    "a journal older than the snapshot": (
        (4,),
        lambda f: (sql("DELETE FROM deltas WHERE seq > 2")(f), gone(ACKNOWLEDGED_FILE)(f)),
        "ends with delta 2, but 4 were acknowledged",
    ),
    "no journal": ((), gone(JOURNAL), "journal.sqlite: is missing"),
    "no format": ((), gone(FORMAT_FILE), "evergraph-learner.json: is missing, but the journal"),
    "a later format": (
        (),
        other(FORMAT_FILE, format=99, evergraph="9.1"),
        "format 99, .* evergraph 9.1, which",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_mended_is_refused(tmp_path, name):
    compact_at, plant, sentence = REFUSED[name]
    filled(tmp_path, 5, compact_at=compact_at)
    plant(tmp_path)
    for _ in range(2):  # the second time too, not LockedError: a refusal gives the lock back
        with pytest.raises(DataError, match=sentence):
            opened(tmp_path)


def test_what_a_killed_process_left_aside_goes_when_the_folder_is_opened(tmp_path):
    filled(tmp_path, 1)
    for name in (".aside-2", ".aside-gone-snapshot-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.safetensors").write_bytes(b"half")
    with opened(tmp_path, readonly=True):
        assert (tmp_path / ".aside-2").exists()  # a writer may be at work
    assert holds(tmp_path, 1)
    assert list(tmp_path.glob(".aside*")) == []
    (tmp_path / ".aside-2").write_bytes(b"a file where a folder is expected keeps nobody out")
    opened(tmp_path).close()


def test_a_folder_of_something_else_is_left_alone_and_others_may_not_write(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigurationError, match=r"but it holds 'thesis.tex'"):
        opened(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    before = os.umask(0)
    try:
        Acknowledged(tmp_path / ACKNOWLEDGED_FILE).close()
    finally:
        os.umask(before)
    assert (tmp_path / ACKNOWLEDGED_FILE).stat().st_mode & 0o777 == 0o644


def test_folders_above_a_new_one_are_on_the_disk_too(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def noting(handle):
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    if not Path("/proc/self/fd").exists():
        pytest.skip("/proc tells which file a number stands for")
    monkeypatch.setattr(written_aside.os, "fsync", noting)
    make_folder(tmp_path / "a" / "b" / "c")
    assert synced == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    synced.clear()
    make_folder(tmp_path / "a" / "b" / "c")
    assert synced == []


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
    "a class": (state("labels.numbers", 0, 2**40), "numbers' .* from -1 to 1, not 1099511"),
    "a slot": (state("counted.slots", 0, 99), "counted.slots' must be at most 12"),
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
    "a hop": (forged(lambda arrays, _: arrays.pop("embeddings.state_1")), "state_1' is missing"),
    "nobody's array": (
        forged(lambda arrays, _: arrays.update(other=torch.zeros(1))),
        "'other' is not one of",
    ),
    "NaN": (state("graph.features", (0, 0), float("nan")), "features' must hold finite numbers"),
    "a name": (state("ids.lengths", 0, 9), "ids.lengths' must add up to 24 bytes"),
    "no name": (state("ids.lengths", 0, -1), "must hold values of 0 or more, not -1"),
    "other features": (
        forged(lambda _, about: about.update(num_features=10**12)),
        "features are not",
    ),
    "a number of the head": (
        forged(lambda arrays, _: arrays.update({"head.view_0.weights": torch.zeros(9, 2)})),
        "cannot be the state of this learner",
    ),
    "letters": (state("ids.bytes", 0, 255), "UnicodeDecodeError"),
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
