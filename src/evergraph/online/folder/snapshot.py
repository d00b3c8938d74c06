"""Snapshots of a learner: a folder each, either whole or not there, and which of them are kept."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError, ResourceError
from evergraph.core.mapped import MappedTensor, disk_is_enough
from evergraph.graphs.graph_folder import checksum
from evergraph.online.folder.markers import (
    read_checked,
    sync,
    with_check,
)
from evergraph.online.pieces import PIECE, Pieces, split

STATE, ABOUT, MANIFEST = "state.safetensors", "about.json", "manifest.json"
FORMAT = 2  # 1: manifests had no checksum
_NAME = re.compile(r"snapshot-(\d+)")
ASIDE = ".aside-"
KEPT = 2
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_LENGTH = 8  # bytes that tell how long the header is


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of a learner after so many deltas.

    Attributes:
        seq: how many deltas.
        state: its arrays.
        about: the rest of it, as JSON holds it.
    """

    seq: int
    state: dict[str, Tensor]
    about: dict[str, Any]


def snapshots_in(folder: Path) -> list[tuple[int, Path]]:
    """Return number and place of every snapshot, whole or damaged, the newest first."""
    found = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir() if path.is_dir()]
    return sorted(((int(name[1]), path) for name, path in found if name), reverse=True)


def taken_at(folder: Path, seq: int) -> float | None:
    """Return when a snapshot was written, in Unix seconds; None where there is none."""
    try:
        return (folder / f"snapshot-{seq}" / MANIFEST).stat().st_mtime if seq else None
    except OSError:  # a newer one has just replaced it
        return None


@dataclass(frozen=True)
class WrittenAside:
    """A snapshot that is written, and not yet on the disk for good.

    Attributes:
        seq: how many deltas it holds.
        path: the folder aside.
        about: JSON, yet to be written.
        digest: SHA-256 of the arrays.
    """

    seq: int
    path: Path
    about: bytes
    digest: str


def write_aside(
    folder: Path, seq: int, state: Mapping[str, Tensor | Pieces], about: bytes
) -> WrittenAside:
    """Write a snapshot's arrays aside, a piece at a time, without waiting for the disk.

    They must not change meanwhile. about: JSON.
    Raises ``ResourceError`` if they do not fit on the disk; nothing is left of them then.
    """
    aside = folder / f"{ASIDE}{seq}"
    shutil.rmtree(aside, ignore_errors=True)
    with _all_or_nothing(aside):
        aside.mkdir()
        digest = write_arrays(aside / STATE, state)
    return WrittenAside(seq, aside, about, digest)


def publish(written: WrittenAside) -> Path:
    """Give a snapshot its name once the disk has all of it.

    The files are synced, then the folder that names them, and only then it is renamed: whatever has
    the name of a snapshot is whole, also after a power cut. The last sync makes the name itself
    last, before anything older is dropped for it.
    """
    aside = written.path
    path = aside.with_name(f"snapshot-{written.seq}")
    with _all_or_nothing(aside):
        (aside / ABOUT).write_bytes(written.about)
        digests = {STATE: written.digest, ABOUT: checksum(aside / ABOUT)}
        files = {
            name: {"bytes": (aside / name).stat().st_size, "sha256": digest}
            for name, digest in digests.items()
        }
        manifest = {"format": FORMAT, "seq": written.seq, "files": files}
        (aside / MANIFEST).write_text(json.dumps(with_check(manifest), indent=1), "utf-8")
        for each in (aside / STATE, aside / ABOUT, aside / MANIFEST, aside):
            sync(each)
        # A damaged one, which a recovery went past to come back to its delta; or one with places of
        # forgotten nodes, where a recovery that finds neither begins with the one before.
        if path.exists():
            remove_snapshot(path)
        aside.rename(path)
        sync(path.parent)
    return path


@contextmanager
def _all_or_nothing(aside: Path) -> Iterator[None]:
    """Remove what was written aside if it cannot be finished."""
    try:
        with disk_is_enough(aside.parent):
            yield
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def read_snapshot(path: Path) -> Snapshot:
    """Return a snapshot; raise ``DataError``, naming the file, if it is not what was written.

    Its large arrays lie in the file and are read as they are looked at: copy what you keep.
    """
    manifest = read_manifest(path)
    for name in (STATE, ABOUT):
        file, facts = path / name, manifest["files"][name]
        try:
            if (size := file.stat().st_size) != facts.get("bytes"):
                raise DataError(f"{file}: has {size:,} bytes instead of {facts.get('bytes')}")
            if checksum(file) != facts.get("sha256"):
                raise DataError(f"{file}: its contents have changed since it was written")
        except OSError as error:
            raise DataError(f"{file}: cannot be read ({error.strerror})") from error
    return Snapshot(manifest["seq"], read_arrays(path / STATE), read_about(path))


def is_whole(folder: Path, seq: int) -> bool:
    """Whether a snapshot is there and what was written."""
    try:
        return read_snapshot(folder / f"snapshot-{seq}").seq == seq
    except DataError:
        return False


def read_manifest(path: Path) -> dict[str, Any]:
    """Return what a snapshot says of itself; raise ``DataError`` unless it is what was written."""
    place = path / MANIFEST
    manifest = read_checked(place, checked=FORMAT)
    if manifest.get("format") not in (1, FORMAT):
        raise DataError(
            f"{place}: is of format {manifest.get('format')!r}, this version of "
            f"evergraph reads {FORMAT}"
        )
    if path.name != f"snapshot-{manifest.get('seq')}":
        raise DataError(f"{place}: belongs to snapshot-{manifest.get('seq')}")
    files = manifest.get("files")
    for name in (STATE, ABOUT):
        if not isinstance(files, dict) or not isinstance(files.get(name), dict):
            raise DataError(f"{place}: must tell size and checksum of {name}")
    return manifest


def read_about(path: Path) -> dict[str, Any]:
    """Return what a snapshot holds besides arrays."""
    return read_checked(path / ABOUT)


def remove_snapshot(path: Path) -> None:
    """Remove a snapshot: first its name, so that no half of it is ever taken for one."""
    gone = path.with_name(f"{ASIDE}gone-{path.name}")
    path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what a process that was killed left aside."""
    for path in folder.glob(f"{ASIDE}*"):
        shutil.rmtree(path, ignore_errors=True)


class SnapshotShelf:
    """The last two good snapshots of a folder.

    Good is what this process wrote itself, or read and found whole. All others go when a new one
    has been written.

    Args:
        folder: where they are.
        good: number of the snapshot that recovery found whole, 0 if none.
    """

    def __init__(self, folder: Path, good: int) -> None:
        self.folder = folder
        self._good = [good] if good else []

    @property
    def newest(self) -> int:
        """The number of the newest good snapshot, 0 if there is none."""
        return self._good[-1] if self._good else 0

    @property
    def safe_to_drop(self) -> int:
        """Up to which number no recovery needs a delta, even if the newest snapshot is damaged."""
        return self._good[0] if len(self._good) == KEPT else 0

    def publish(self, written: WrittenAside) -> None:
        """Wait until the disk has a snapshot, then remove all but the last two good ones."""
        publish(written)
        others = [number for number in self._good if number != written.seq]
        self._good = [*others, written.seq][-KEPT:]
        for number, path in snapshots_in(self.folder):
            if number not in self._good:
                remove_snapshot(path)

    def has_before(self, seq: int, first: int) -> bool:
        """Whether a learner can be recovered without the snapshot of a delta.

        first: the delta that the journal begins with.
        """
        numbers = [number for number, _ in snapshots_in(self.folder)]
        older = [number for number in numbers if first - 1 <= number < seq]
        return first == 1 or any(is_whole(self.folder, number) for number in older)

    def keep_only(self, seq: int) -> None:
        """Remove all snapshots but one that is whole, and what lies aside; raise if any stays."""
        if not is_whole(self.folder, seq):
            raise ResourceError(
                f"{self.folder / f'snapshot-{seq}'}: was not found as it was written: nothing "
                "older is removed"
            )
        for number, path in snapshots_in(self.folder):
            if number != seq:
                remove_snapshot(path)
        remove_leftovers(self.folder)
        left = [path for number, path in snapshots_in(self.folder) if number != seq]
        left += self.folder.glob(f"{ASIDE}*")
        if left:
            raise ResourceError(f"{left[0]}: could not be removed: remove it, and purge again")
        self._good = [seq]


def write_arrays(path: Path, arrays: Mapping[str, Tensor | Pieces]) -> str:
    """Write arrays a piece at a time; return the SHA-256 of the file.

    The file is what ``safetensors`` writes and reads: the length of a header, the header (JSON:
    dtype, shape and place of each array), and all values. Nothing waits for the disk.
    """
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header, place = {}, 0
    for name in order:
        value = arrays[name]
        size = math.prod(value.shape) * value.dtype.itemsize
        about = {"dtype": _NAMES[value.dtype], "shape": list(value.shape)}
        header[name] = about | {"data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH)  # what follows is aligned, widest values first
    digest = hashlib.sha256()
    with path.open("wb", buffering=0) as file:
        for head in (len(text).to_bytes(_LENGTH, "little"), text):
            _write(file, digest, memoryview(head))
        for name in order:
            for piece in split(arrays[name]):
                _write(file, digest, _bytes(piece))
        assert file.tell() == _LENGTH + len(text) + place, "pieces are as long as they said"
    return digest.hexdigest()


def _bytes(piece: Tensor) -> memoryview:
    values = piece.as_subclass(Tensor).contiguous()
    flat = values.as_strided((values.numel(),), (1,))  # whatever the stride of none or one value is
    return memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]


def _write(file: Any, digest: Any, data: memoryview) -> None:
    digest.update(data)
    while len(data):
        data = data[file.write(data) :]


def read_arrays(path: Path) -> dict[str, Tensor]:
    """Return the arrays of a file by name: small ones in memory, others mapped.

    What is written to a mapped one stays in this process. A file that is removed stays readable
    until nothing of it is looked at any more.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_arrays(Path(folder, "a"), {"ones": torch.ones(2)})
    ...     read_arrays(Path(folder, "a"))
    {'ones': tensor([1., 1.])}
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH), "little")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        return {name: _read(path, _LENGTH + length, facts) for name, facts in header.items()}
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise DataError(f"{path}: is no safetensors file ({error})") from error


def _read(path: Path, begin: int, facts: Mapping[str, Any]) -> Tensor:
    dtype, shape = _DTYPES[facts["dtype"]], tuple(facts["shape"])
    start, end = facts["data_offsets"]
    if start == end:
        return torch.empty(shape, dtype=dtype)
    if end - start <= PIECE:
        flat = torch.from_numpy(np.fromfile(path, np.uint8, end - start, offset=begin + start))
        return flat.view(dtype).reshape(shape)
    mapped = np.memmap(path, np.uint8, "c", offset=begin + start, shape=(end - start,))
    values = torch.from_numpy(mapped).view(dtype).reshape(shape)
    found: MappedTensor = values.as_subclass(MappedTensor)
    return found
