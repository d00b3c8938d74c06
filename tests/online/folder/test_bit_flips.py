"""A bit that flips in any file of a folder: the same answers, or one sentence of ours.

Every bit of the small files is tried by itself. Of the others bits are drawn: the folder is as a
killed process leaves it, so that a journal beside its -wal is among the files. Whoever opens it
finds the same learner, the same columns and the same answers to keys that are sent again, and goes
on as its twin does; or an error of ours says what is wrong. Anything else is told with the file,
the byte and the bit, so that it can be tried again by itself.
"""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from evergraph.core.errors import DataError, EvergraphError
from evergraph.online.folder.journal import JOURNAL_FILE
from evergraph.online.folder.learner_folder import LearnerFolder, made_with
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    CHECK,
    COLUMNS_FILE,
    FORMAT_FILE,
    acknowledged_in,
    acknowledgement,
    store_columns,
    stored_columns,
    stored_parameters,
)
from evergraph.online.folder.snapshot import MANIFEST, read_manifest
from evergraph.tables.fitting import fit_scheme
from evergraph.tables.measured import BooleanEncoder, NumberEncoder
from evergraph.tables.scheme import Column, Scheme
from real_folder import bits, delta, opened
from stand_in import write_snapshot

pytestmark = pytest.mark.usefixtures("patient")


def flipped(data: bytes) -> Iterator[bytes]:
    for bit in range(8 * len(data)):
        other = bytearray(data)
        other[bit // 8] ^= 1 << bit % 8
        yield bytes(other)


def refused(path: Path, read: Callable[[], Any]) -> float:
    """Return the share of flips that a sentence of ours refuses; the others must read the same."""
    data, same, said = path.read_bytes(), read(), []
    for other in flipped(data):
        try:
            with holding(other):
                assert read() == same
        except DataError as error:
            said.append(str(error))
    assert all(map(is_sentence, said))
    return len(said) / (8 * len(data))


def holding(data: bytes) -> Any:
    """Have files hold other bytes: thousands of times, which no disk need write."""
    return patch.object(Path, "read_bytes", lambda _: data)


def is_sentence(text: str) -> bool:
    """Whether it may be shown to a person."""
    return bool(text.strip()) and "\n" not in text and len(text) < 600 and "Traceback" not in text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    LearnerFolder.open(tmp_path / "learner", {"head": {"name": "analytic", "width": 16}}).close()
    return tmp_path / "learner"


def without_checksum(path: Path, **more: Any) -> bytes:
    content = json.loads(path.read_bytes()) | more
    del content[CHECK]
    path.write_text(json.dumps(content))
    return path.read_bytes()


def test_of_the_format_file(folder):
    share = refused(folder / FORMAT_FILE, lambda: stored_parameters(folder))
    assert share > 7 / 8  # but for blanks
    data = without_checksum(folder / FORMAT_FILE, format=2)  # of which nothing is read
    for place, other in enumerate([data, *islice(flipped(data), 0, None, 3)]):
        with suppress(EvergraphError), holding(other):  # nothing of Python's
            parameters = stored_parameters(folder) or {}
            if not place % 16:
                made_with(folder, parameters)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"1",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"format": 5}',
        b'{"format": 2}',
        b'{"format": 5, "parameters": [1]}',
        b'{"format": [], "parameters": {}}',
        b"\0" * 200,
    ],
)
def test_what_is_no_format_file_is_refused_in_one_sentence(tmp_path, content):
    (tmp_path / FORMAT_FILE).write_bytes(content)
    with pytest.raises(DataError, match=FORMAT_FILE):
        LearnerFolder.open(tmp_path)


def test_a_checksum_that_is_lost_is_noticed(folder):
    without_checksum(folder / FORMAT_FILE)
    with pytest.raises(DataError, match="lost its checksum"):
        LearnerFolder.open(folder)


def test_of_a_manifest(tmp_path):
    path = write_snapshot(tmp_path, 12, {"ones": torch.ones(2)}, {})
    assert refused(path / MANIFEST, lambda: read_manifest(path)) > 6 / 8


def test_of_the_acknowledged_number(tmp_path):
    path = tmp_path / ACKNOWLEDGED_FILE

    def read(data):
        path.write_bytes(data)
        return acknowledged_in(path)

    assert read(acknowledgement(120)) == 120
    assert refused(path, lambda: acknowledged_in(path)) == 1.0
    assert read(b"\0" * 21) == 0  # what a power cut may leave of a new file
    for wrong in (acknowledgement(7)[:25], b"%020d\n" % 7, b"twelve"):
        with pytest.raises(DataError, match="acknowledged: "):
            read(wrong)


def test_of_the_columns_file(tmp_path):
    number = NumberEncoder(median=3.0, scale=2.0, flag=False)
    scheme = Scheme((Column("age", number), Column("f", BooleanEncoder(flag=True))))
    store_columns(tmp_path, scheme)
    assert refused(tmp_path / COLUMNS_FILE, lambda: stored_columns(tmp_path)) > 7 / 8
    without_checksum(tmp_path / COLUMNS_FILE)
    with pytest.raises(DataError, match="lost its checksum"):
        stored_columns(tmp_path)


LAST, SNAPSHOTS = 12, (3, 7)  # deltas in the folder, and snapshots of them; the last four at once
MARK = {"refused": "a sentence", "same": "the same answers"}
Flip = tuple[str, int, int]  # file, byte, bit


def told(folder: LearnerFolder) -> tuple[object, ...]:
    """Return all that a folder answers."""
    scheme = None if folder.columns is None else folder.columns.to_json()
    return bits(folder.learner), folder.learner.parameters, scheme, folder.seq


@dataclass(frozen=True)
class Whole:
    """A folder as it was left, what is known of it, and the learner with one delta more."""

    path: Path
    known: tuple[object, ...]
    after: dict[str, bytes]

    def after_a(self, flip: Flip, place: Path, *, readonly: bool) -> str:
        """Return what came of a flip: one of ``MARK``, or what is wrong."""
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.path, place)
        name, byte, bit = flip
        content = bytearray((place / name).read_bytes())
        content[byte] ^= 1 << bit
        (place / name).write_bytes(content)
        try:
            with LearnerFolder.open(place, readonly=readonly) as folder:
                if told(folder) != self.known:
                    return "in silence: another learner, other parameters, columns or deltas"
                if readonly:
                    return MARK["same"]
                if name.startswith(JOURNAL_FILE) and (wrong := wrong_key(folder)):
                    return wrong  # nothing but the journal has keys
                folder.submit(delta(LAST + 1))
                same = bits(folder.learner) == self.after
                return MARK["same"] if same else "in silence: another learner one delta later"
        except EvergraphError as error:
            return MARK["refused"] if is_sentence(str(error)) else f"no sentence: {error}"
        except Exception as error:
            return f"a raw error: {type(error).__name__}: {error}"


def wrong_key(folder: LearnerFolder) -> str | None:
    """Return what is wrong with a key that is sent again: it must be known, and counts once."""
    for number in range(1, LAST + 1):
        try:
            result = folder.submit(delta(number))
        except EvergraphError:  # such as a key that belongs to another delta
            continue
        if (folder.seq, result.seq) != (LAST, number):
            return f"in silence: delta {number}, sent again, is answered with {result.seq}"
    return None


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A folder with all kinds of files, as a killed process leaves it."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: columns are not fitted")
    path = tmp_path_factory.mktemp("whole") / "learner"
    table = pa.table({"size": [1.5, None, 3.25], "open": [True, False, True]})  # three features
    with opened(path) as folder:
        scheme = fit_scheme(table, table.column_names)
        folder.submit(replace(delta(1), scheme=scheme))
        for number in range(2, LAST - 3):
            folder.submit(delta(number))
            if number in SNAPSHOTS:
                folder.compact()
        folder.submit_many([delta(number) for number in range(LAST - 3, LAST + 1)])
        known, copy = told(folder), path.with_name("killed")
        shutil.copytree(path, copy)  # nothing is closed: the -wal is full
        folder.submit(delta(LAST + 1))
        return Whole(copy, known, bits(folder.learner))


def check(whole: Whole, place: Path, count: int, seed: int) -> set[str]:
    """Make flips, every file as often as any other; every third folder is opened to read."""
    draw = random.Random(seed)
    files = sorted(p for p in whole.path.rglob("*") if p.is_file() and p.stat().st_size)
    found = {}
    for number in range(count):
        file = files[number % len(files)]
        byte, bit = draw.randrange(file.stat().st_size), draw.randrange(8)
        flip = str(file.relative_to(whole.path)), byte, bit
        found[flip] = whole.after_a(flip, place, readonly=number % 3 == 2)
    wrong = [f"{flip}: {what}" for flip, what in found.items() if what not in MARK.values()]
    assert not wrong, f"{len(wrong)} of {count} flips, seed {seed}:\n" + "\n".join(wrong[:40])
    return {*found.values()}


def test_the_folder_has_all_kinds_of_files_and_no_flip_means_the_same(whole, tmp_path):
    names = {p.name for p in whole.path.rglob("*") if p.is_file() and p.stat().st_size}
    wanted = {JOURNAL_FILE, f"{JOURNAL_FILE}-wal", FORMAT_FILE, ACKNOWLEDGED_FILE, COLUMNS_FILE}
    wanted |= {"lock", "state.safetensors", "about.json", MANIFEST}
    assert names >= wanted
    lock = "lock", 0, 0  # whoever comes writes it anew
    assert whole.after_a(lock, tmp_path / "flipped", readonly=False) == MARK["same"]


def test_flips_are_seen_or_do_nothing(whole, tmp_path):
    assert check(whole, tmp_path / "flipped", 15, seed=1) == {*MARK.values()}  # both happen


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_flips(whole, tmp_path):
    check(whole, tmp_path / "flipped", 2_000, random.SystemRandom().randrange(2**31))
