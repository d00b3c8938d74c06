from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from evergraph.core.errors import DataError
from evergraph.core.written_aside import written_aside
from evergraph.datasets.download import SUMS, record, recorded, sha256, verify

FILES = ("raw/a.bin", "raw/b.bin")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.bin").write_bytes(b"abc")
    (tmp_path / "raw" / "b.bin").write_bytes(b"x" * 3_000_000)
    return tmp_path


def test_known_hashes(root: Path) -> None:
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256(root / "raw" / "a.bin") == abc
    assert sha256(root / "raw" / "b.bin") == hashlib.sha256(b"x" * 3_000_000).hexdigest()


def test_recorded_in_the_format_of_sha256sum(root: Path) -> None:
    record(root, FILES)
    lines = (root / SUMS).read_text().splitlines()
    assert lines[0] == f"{sha256(root / FILES[0])}  raw/a.bin"
    assert recorded(root) == {file: sha256(root / file) for file in FILES}
    verify(root, FILES, {})


def test_a_changed_file_is_named(root: Path) -> None:
    record(root, FILES)
    (root / "raw" / "a.bin").write_bytes(b"abd")
    with pytest.raises(
        DataError, match=r"a\.bin: its SHA-256 is .* delete .* to download it again"
    ):
        verify(root, FILES, {})


def test_a_pinned_checksum_holds_before_anything_is_recorded(root: Path) -> None:
    verify(root, FILES, {})
    verify(root, FILES, {"raw/a.bin": sha256(root / "raw" / "a.bin")})
    with pytest.raises(DataError, match=r"b\.bin: its SHA-256"):
        verify(root, FILES, {"raw/b.bin": "0" * 64})


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), written_aside(path) as file:
        file.writelines([b"half", "no bytes"])  # type: ignore[list-item]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
