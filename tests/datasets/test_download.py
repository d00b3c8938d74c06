from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from evergraph.core.errors import DataError, WrongFileError
from evergraph.core.written_aside import written_aside
from evergraph.datasets.download import SUMS, read_sums, record, recorded, sha256, verify

FILES = ("raw/a.bin", "raw/b.bin")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.bin").write_bytes(b"abc")
    (tmp_path / "raw" / "b.bin").write_bytes(b"x" * 3_000_000)
    return tmp_path


def test_recorded_in_the_format_of_sha256sum_and_held_to_it(root: Path) -> None:
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256(root / FILES[0]) == abc
    assert sha256(root / FILES[1]) == hashlib.sha256(b"x" * 3_000_000).hexdigest()
    verify(root, FILES, {"raw/a.bin": abc})  # pinned, before anything is recorded
    with pytest.raises(DataError, match=r"b\.bin: the SHA-256"):
        verify(root, FILES, {"raw/b.bin": "0" * 64})
    record(root, FILES)
    assert (root / SUMS).read_text().splitlines()[0] == f"{abc}  raw/a.bin"
    assert recorded(root) == {file: sha256(root / file) for file in FILES}
    verify(root, FILES, {})
    (root / "raw" / "a.bin").write_bytes(b"abd")
    with pytest.raises(WrongFileError, match=r"a\.bin: the SHA-256 is .*, but .* was expected"):
        verify(root, FILES, {})


def test_a_list_of_checksums_is_read_as_sha256sum_writes_it(tmp_path: Path) -> None:
    path, sums = tmp_path / "sums.txt", ["A" * 64, "b" * 64]
    path.write_text(f"# four graphs\n\n{sums[0]}  arxiv.zip\n{sums[1]} *raw/my file.npz\n")
    assert read_sums(path) == {"arxiv.zip": "a" * 64, "raw/my file.npz": sums[1]}
    path.write_text(f"{sums[0]}  arxiv.zip\n123  reddit.zip\n")
    with pytest.raises(DataError, match=r"sums\.txt, line 2: must be a SHA-256 of 64 hexadecimal"):
        read_sums(path)
    with pytest.raises(DataError, match=r"absent: cannot be read as a list of checksums"):
        read_sums(tmp_path / "absent")


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), written_aside(path) as file:
        file.writelines([b"half", "no bytes"])  # type: ignore[list-item]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
