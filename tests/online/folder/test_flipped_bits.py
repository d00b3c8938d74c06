"""Every bit of the small files: the same learner, or one sentence."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from evergraph.core import written_aside
from evergraph.core.errors import DataError, EvergraphError
from evergraph.online.folder.columns_file import (
    COLUMNS_FILE,
    parse_columns,
    store_columns,
    stored_columns,
)
from evergraph.online.folder.learner_folder import LearnerFolder, made_with
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    CHECK,
    FORMAT_FILE,
    acknowledgement,
    parse_acknowledged,
    parse_format,
)
from evergraph.online.folder.recovery import make_folder
from evergraph.online.folder.snapshot import MANIFEST, parse_manifest, write_snapshot
from evergraph.tables.scheme import BooleanEncoder, Column, NumberEncoder, Scheme


def flipped(data: bytes) -> Iterator[bytes]:
    for bit in range(8 * len(data)):
        other = bytearray(data)
        other[bit // 8] ^= 1 << bit % 8
        yield bytes(other)


def refused(read: Callable[[bytes], Any], data: bytes) -> int:
    """Return how many flips are refused with a sentence of ours; the others must read the same."""
    same, count = read(data), 0
    for other in flipped(data):
        said = ""
        try:
            assert read(other) == same
        except DataError as error:
            said = str(error)
        count += bool(said)
        assert "\n" not in said
    return count


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    LearnerFolder.of(tmp_path / "learner", {"head": {"name": "analytic", "width": 16}}).close()
    return tmp_path / "learner"


def test_of_the_format_file(folder: Path) -> None:
    path = folder / FORMAT_FILE
    data = path.read_bytes()
    assert json.loads(data)["format"] == 3
    count = refused(lambda other: parse_format(other, path), data)
    assert count > 7 * len(data)  # but for blanks between fields


def test_of_a_format_file_without_a_checksum_raise_nothing_of_pythons(folder: Path) -> None:
    content = json.loads((folder / FORMAT_FILE).read_bytes())
    del content[CHECK]
    data = json.dumps(content | {"format": 2}).encode()
    made_with(folder, parse_format(data, folder)[1])
    for place, other in enumerate(flipped(data)):
        with suppress(EvergraphError):
            parameters = parse_format(other, folder)[1]
            if not place % 16:
                made_with(folder, parameters)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"1", b"\xff\xfe", b"[" * 100_000, b'{"format": 3}', b'{"format": 2}',
     b'{"format": 2, "parameters": [1]}', b'{"format": [], "parameters": {}}', b"\0" * 200],
)  # fmt: skip
def test_what_is_no_format_file_is_refused_in_one_sentence(folder: Path, content: bytes) -> None:
    (folder / FORMAT_FILE).write_bytes(content)
    with pytest.raises(DataError, match=FORMAT_FILE):
        LearnerFolder.of(folder)


def test_a_checksum_that_is_lost_is_noticed(folder: Path) -> None:
    content = json.loads((folder / FORMAT_FILE).read_bytes())
    del content[CHECK]
    (folder / FORMAT_FILE).write_text(json.dumps(content))
    with pytest.raises(DataError, match="lost its checksum"):
        LearnerFolder.of(folder)


def test_of_a_manifest(tmp_path: Path) -> None:
    path = write_snapshot(tmp_path, 12, {"ones": torch.ones(2)}, b"{}")

    data = (path / MANIFEST).read_bytes()
    assert refused(lambda other: parse_manifest(other, path), data) > 6 * len(data)


def test_of_the_acknowledged_number(tmp_path: Path) -> None:
    def read(data: bytes) -> int:
        return parse_acknowledged(data, tmp_path / ACKNOWLEDGED_FILE)

    assert refused(read, acknowledgement(120)) == 8 * len(acknowledgement(120))
    assert read(b"%020d\n" % 7) == 7  # as earlier versions wrote it
    assert read((b"%020d\n" % 7)[:20] + b" ") == 7  # a longer one, of which the end is not there
    with pytest.raises(DataError):
        read(acknowledgement(7)[:25])


def test_of_the_columns_file(tmp_path: Path) -> None:
    number = NumberEncoder(median=3.0, scale=2.0, flag=False)
    store_columns(tmp_path, Scheme((Column("age", number), Column("f", BooleanEncoder(flag=True)))))
    path = tmp_path / COLUMNS_FILE
    data = path.read_bytes()
    assert refused(lambda other: parse_columns(other, path), data) > 7 * len(data)
    content = json.loads(data)
    del content[CHECK]  # as earlier versions wrote it
    path.write_text(json.dumps(content))
    assert stored_columns(tmp_path) == parse_columns(data, path)


def test_folders_above_a_new_one_are_on_the_disk_too(tmp_path: Path, monkeypatch: Any) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noting(handle: int) -> None:
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
    shutil.rmtree(tmp_path / "a")
