"""Checksums of raw files, and errors of failed downloads.

The SHA-256 of every raw file is recorded after the first successful load, in the format of the
``sha256sum`` tool, and compared on each later load. Files are hashed in full every time: this
reads about 1 GB a second, a small part of the time to load the largest graphs, and detects changes
that keep a file's date.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from pathlib import Path

from evergraph.core.errors import DataError, WrongFileError
from evergraph.core.written_aside import written_aside
from evergraph.tables.sources import reason

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-fA-F]{64})[ \t]+\*?(.+)")

# Exceptions of the publishers' readers if the network or a raw file fails.
FAILURES = (
    OSError,  # also URLError, timeouts, TLS, a full disk
    HTTPException,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    RuntimeError,
    ValueError,
    KeyError,
    AttributeError,
    AssertionError,
)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def record(root: Path, files: Iterable[str]) -> None:
    """Write the checksums of ``files`` (paths below ``root``) to ``root/SHA256SUMS``."""
    lines = [f"{sha256(root / file)}  {file}\n" for file in files]
    with written_aside(root / SUMS) as sums:
        sums.write("".join(lines).encode())


def recorded(root: Path) -> dict[str, str]:
    """Return the checksums in ``root/SHA256SUMS``, empty if there is no such file."""
    return read_sums(root / SUMS) if (root / SUMS).exists() else {}


def read_sums(path: Path) -> dict[str, str]:
    """Return the checksums of a list in the format of ``sha256sum``, by file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "sums").write_text(f"{'0' * 64} *arxiv.zip\\n")
    ...     read_sums(Path(folder, "sums"))["arxiv.zip"] == "0" * 64
    True
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as a list of checksums ({error})") from None
    found = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        matched = _LINE.fullmatch(line.strip())
        if matched is None:
            raise DataError(
                f"{path}, line {number}: must be a SHA-256 of 64 hexadecimal digits, two spaces "
                f"and a file name, as sha256sum writes them, not {line!r}"
            )
        found[matched[2]] = matched[1].lower()
    return found


def check_sum(path: Path, expected: str) -> None:
    """Raise unless a file has the expected SHA-256."""
    if (found := sha256(path)) != expected:
        raise WrongFileError(f"{path}: the SHA-256 is {found}, but {expected} was expected")


def verify(root: Path, files: Iterable[str], pinned: Mapping[str, str]) -> None:
    """Raise unless every file has its pinned checksum, or else the recorded one."""
    known = {**recorded(root), **pinned}
    for file in files:
        if file in known:
            check_sum(root / file, known[file])


def set_aside(path: Path) -> Path:
    """Rename a wrong file, so that it can be inspected; return its new path."""
    aside = path.with_name(f"{path.name}.wrong")
    if path.exists():
        path.replace(aside)
    return aside


def not_readable(name: str, root: Path, error: BaseException) -> DataError:
    """Return an error for raw files that exist but cannot be read."""
    return DataError(
        f"the raw files of dataset {name!r} under {root} cannot be read ({reason(error)}): "
        f"delete that folder to download them again"
    )
