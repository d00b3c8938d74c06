"""A bit that flips in any file of a folder: the same answers, or one sentence of ours.

The folder is as a killed process leaves it, so that a journal beside its -wal is among the files.
Whoever opens it finds the same learner, the same columns and the same answers to keys that are sent
again, and goes on as its twin does; or an error of ours says what is wrong. Anything else is told
with the file, the byte and the bit, so that it can be tried again by itself.
"""

from __future__ import annotations

import importlib
import random
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from evergraph.core.errors import EvergraphError
from evergraph.online.folder.journal import JOURNAL_FILE
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.markers import FORMAT_FILE
from evergraph.tables.fitting import fit_scheme

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: columns cannot be fitted")

ROOT = Path(__file__).resolve().parents[3]
LAST = 12  # deltas in the folder
SNAPSHOTS = (3, 7)
TOGETHER = 4  # deltas of the batch after the last snapshot
MARK = {"refused": "a sentence", "same": "the same answers"}


@dataclass(frozen=True)
class Flip:
    """One bit of one file."""

    file: str
    byte: int
    bit: int

    def make(self, folder: Path) -> None:
        """Flip it."""
        path = folder / self.file
        content = bytearray(path.read_bytes())
        content[self.byte] ^= 1 << self.bit
        path.write_bytes(content)


@pytest.fixture(scope="module")
def writer() -> Iterator[ModuleType]:
    """The deltas and the learner that writers are killed with."""
    sys.path.insert(0, str(ROOT))
    yield importlib.import_module("benchmarks.kill_writer")
    sys.path.remove(str(ROOT))


@dataclass(frozen=True)
class Whole:
    """A folder as it was left, and what is known of it."""

    path: Path
    writer: ModuleType
    known: tuple[object, ...]
    after: str  # checksum of the learner with one delta more

    def after_a(self, flip: Flip, place: Path, *, readonly: bool) -> str:
        """Return what came of a flip: one of ``MARK``, or what is wrong."""
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.path, place)
        flip.make(place)
        try:
            keys = flip.file.startswith(JOURNAL_FILE)  # nothing else has them
            return self._opened(place, readonly, keys)
        except EvergraphError as error:
            return MARK["refused"] if is_sentence(str(error)) else f"no sentence: {error}"
        except Exception as error:
            return f"a raw error: {type(error).__name__}: {error}"

    def _opened(self, place: Path, readonly: bool, keys: bool) -> str:
        with LearnerFolder.of(place, readonly=readonly) as folder:
            found = told(self.writer, folder)
            for name, was, now in zip(KNOWN, self.known, found, strict=True):
                if was != now:
                    return f"in silence: {name} {_short(was)} became {_short(now)}"
            if readonly:
                return MARK["same"]
            if keys and (wrong := wrong_key(self.writer, folder)):
                return wrong
            folder.submit(self.writer.delta(LAST + 1))
            same = self.writer.digest(folder.learner, LAST + 1) == self.after
            return MARK["same"] if same else "in silence: another learner one delta later"


KNOWN = ("the learner", "its parameters", "its columns", "seq")


def told(writer: ModuleType, folder: LearnerFolder) -> tuple[object, ...]:
    """Return all that a folder answers."""
    columns = folder.columns
    scheme = None if columns is None else columns.to_json()
    digest = writer.digest(folder.learner, folder.seq)
    return digest, folder.learner.parameters, scheme, folder.seq


def wrong_key(writer: ModuleType, folder: LearnerFolder) -> str | None:
    """Return what is wrong with a key that is sent again: it must be known, and counts once."""
    for number in range(1, LAST + 1):
        try:
            result = folder.submit(given(writer, number))
        except EvergraphError:  # such as a key that belongs to another delta
            continue
        if folder.seq != LAST:
            return f"in silence: delta {number}, sent again with its key, counted twice"
        if result.seq != number:
            return f"in silence: the key of delta {number} is answered with {result.seq}"
    return None


def given(writer: ModuleType, number: int) -> object:
    """Return a delta as the folder was given it."""
    return writer.plain(number) if number > LAST - TOGETHER else writer.delta(number)


def is_sentence(text: str) -> bool:
    """Whether it may be shown to a person."""
    return bool(text.strip()) and "\n" not in text and len(text) < 600 and "Traceback" not in text


def _short(value: object) -> str:
    return str(value)[:200]


@pytest.fixture(scope="module")
def whole(writer: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A folder with all kinds of files, as a killed process leaves it."""
    path = tmp_path_factory.mktemp("whole") / "learner"
    copy = path.with_name("killed")
    table = pa.table({"size": [1.5, None, 3.25], "open": [True, False, True],
                      "when": ["2021-01-01", "2022-03-04", "2023-01-01"]})  # fmt: skip
    with LearnerFolder.open(path, make=writer.make, snapshot_every=10**6) as folder:
        folder.keep_columns(fit_scheme(table, table.column_names))
        for number in range(1, LAST - TOGETHER + 1):
            folder.submit(writer.delta(number))
            if number in SNAPSHOTS:
                folder.compact()
        folder.submit_many([given(writer, n) for n in range(LAST - TOGETHER + 1, LAST + 1)])
        known = told(writer, folder)
        shutil.copytree(path, copy)  # nothing is closed: the -wal is full
        folder.submit(writer.delta(LAST + 1))
        after = writer.digest(folder.learner, LAST + 1)
    return Whole(copy, writer, known, after)


def flips(folder: Path, count: int, seed: int) -> list[Flip]:
    """Draw flips, every file as often as any other: small ones matter as much as large ones."""
    draw = random.Random(seed)
    names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    files = [name for name in names if (folder / name).stat().st_size]
    chosen = [files[place % len(files)] for place in range(count)]
    sizes = {name: (folder / name).stat().st_size for name in files}
    return [Flip(name, draw.randrange(sizes[name]), draw.randrange(8)) for name in chosen]


def judged(whole: Whole, place: Path, count: int, seed: int) -> dict[Flip, str]:
    """Make flips one after the other; every third folder is opened to read."""
    drawn = flips(whole.path, count, seed)
    return {
        flip: whole.after_a(flip, place, readonly=number % 3 == 2)
        for number, flip in enumerate(drawn)
    }


def check(found: dict[Flip, str], how: str = "") -> None:
    wrong = [f"{flip}: {what}" for flip, what in found.items() if what not in MARK.values()]
    assert not wrong, f"{len(wrong)} of {len(found)} flips{how}:\n" + "\n".join(wrong[:40])


def test_the_folder_has_all_kinds_of_files_and_no_flip_means_the_same(
    whole: Whole, tmp_path: Path
) -> None:
    names = {p.name for p in whole.path.rglob("*") if p.is_file() and p.stat().st_size}
    wanted = {"journal.sqlite", "journal.sqlite-wal", FORMAT_FILE, "acknowledged", "columns.json",
              "lock", "state.safetensors", "about.json", "manifest.json"}  # fmt: skip
    assert names >= wanted
    twice = Flip("lock", 0, 0)  # whoever comes writes it anew
    assert whole.after_a(twice, tmp_path / "flipped", readonly=False) == MARK["same"]


def test_thirty_flips_are_seen_or_do_nothing(whole: Whole, tmp_path: Path) -> None:
    found = judged(whole, tmp_path / "flipped", 30, seed=1)
    check(found)
    assert {*found.values()} == {*MARK.values()}  # both happen


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_flips(whole: Whole, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**31)
    check(judged(whole, tmp_path / "flipped", 2_000, seed), f" with seed {seed}")
