"""Snapshots of a learner: a folder each, either whole or not there, and which of them are kept."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from evergraph.core.errors import DataError, ResourceError
from evergraph.core.mapped import disk_is_enough
from evergraph.graphs.graph_folder import checksum

STATE, ABOUT, MANIFEST = "state.safetensors", "about.json", "manifest.json"
FORMAT = 1
_NAME = re.compile(r"snapshot-(\d+)")
_ASIDE = ".aside-"


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


def write_snapshot(folder: Path, seq: int, state: Mapping[str, Tensor], about: bytes) -> Path:
    """Write a snapshot aside, and give it its name once the disk has all of it.

    state: contiguous arrays, none sharing memory with another. about: JSON.
    Raises ``ResourceError`` if it does not fit on the disk; nothing is left of it then.
    """
    aside = folder / f"{_ASIDE}{seq}"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        with disk_is_enough(folder):
            aside.mkdir()
            _write_files(aside, seq, state, about)
            return _publish(aside, folder / f"snapshot-{seq}")
    except SafetensorError as error:
        raise ResourceError(f"{aside / STATE}: cannot be written ({error})") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _write_files(aside: Path, seq: int, state: Mapping[str, Tensor], about: bytes) -> None:
    save_file(dict(state), aside / STATE)
    (aside / ABOUT).write_bytes(about)
    files = {
        name: {"bytes": (aside / name).stat().st_size, "sha256": checksum(aside / name)}
        for name in (STATE, ABOUT)
    }
    manifest = {"format": FORMAT, "seq": seq, "files": files}
    (aside / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
    for path in (aside / STATE, aside / ABOUT, aside / MANIFEST, aside):
        sync(path)


def _publish(aside: Path, path: Path) -> Path:
    if path.exists():  # a damaged one: a recovery went past it and came back to its delta
        remove_snapshot(path)
    aside.rename(path)
    sync(path.parent)
    return path


def read_snapshot(path: Path) -> Snapshot:
    """Return a snapshot; raise ``DataError``, naming the file, if it is not what was written."""
    manifest = _json(path / MANIFEST)
    if manifest.get("format") != FORMAT:
        raise DataError(
            f"{path / MANIFEST}: is of format {manifest.get('format')!r}, this version of "
            f"evergraph reads {FORMAT}"
        )
    for name in (STATE, ABOUT):
        _verify(path / name, manifest.get("files", {}).get(name, {}))
    if path.name != f"snapshot-{manifest.get('seq')}":
        raise DataError(f"{path / MANIFEST}: belongs to snapshot-{manifest.get('seq')}")
    # Copies: what was loaded still lies in the file, which goes when newer snapshots come.
    state = {name: value.clone() for name, value in load_file(path / STATE).items()}
    return Snapshot(manifest["seq"], state, _json(path / ABOUT))


def _verify(path: Path, facts: dict[str, Any]) -> None:
    try:
        size = path.stat().st_size
        if size != facts.get("bytes"):
            raise DataError(f"{path}: has {size:,} bytes instead of {facts.get('bytes')}")
        if checksum(path) != facts.get("sha256"):
            raise DataError(f"{path}: its contents have changed since it was written")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise DataError(f"{path}: is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: must be a JSON object, not {type(content).__name__}")
    return content


def remove_snapshot(path: Path) -> None:
    """Remove a snapshot: first its name, so that no half of it is ever taken for one."""
    gone = path.with_name(f"{_ASIDE}gone-{path.name}")
    path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what a process that was killed left aside."""
    for path in folder.glob(f"{_ASIDE}*"):
        shutil.rmtree(path, ignore_errors=True)


def sync(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


KEPT = 2


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

    def add(self, seq: int, state: Mapping[str, Tensor], about: bytes) -> None:
        """Write a snapshot, then remove all but the last two good ones."""
        write_snapshot(self.folder, seq, state, about)
        self._good = [*self._good, seq][-KEPT:]
        for number, path in snapshots_in(self.folder):
            if number not in self._good:
                remove_snapshot(path)
