"""Snapshots of a learner: a folder each, which exists completely or not at all."""

from __future__ import annotations

import json
import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError, ResourceError
from evergraph.core.mapped import MappedTensor
from evergraph.core.safe_files import disk_is_enough, remove_left, sync
from evergraph.graphs.graph_folder import checksum
from evergraph.online.folder.markers import read_checked, read_object, with_check

STATE, ABOUT, MANIFEST = "state.safetensors", "about.json", "manifest.json"
FORMAT = 4  # 1 to 3 were never released
NAME = re.compile(r"snapshot-(\d+)")
ASIDE = ".aside-"
KEPT = 2
_DTYPES = {
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
# Time spent on deltas triggers a snapshot once it is this many times the duration of the last one.
SHARE = 3.0
SMALL = 1 << 24  # bytes of an array up to which it is read into memory instead of mapped
_LENGTH = 8  # bytes of the header's length
logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of a learner after a delta."""

    seq: int  # number of the delta
    state: dict[str, Tensor]
    about: dict[str, Any]  # what is not arrays


def snapshots_in(folder: Path) -> list[tuple[int, Path]]:
    """Return number and path of every snapshot, intact or damaged, the newest first."""
    folders = [(NAME.fullmatch(path.name), path) for path in folder.iterdir() if path.is_dir()]
    return sorted(((int(name[1]), path) for name, path in folders if name), reverse=True)


def taken_at(folder: Path, seq: int) -> float | None:
    """Return when a snapshot was written, in Unix seconds; None if there is none."""
    try:
        return (folder / f"snapshot-{seq}" / MANIFEST).stat().st_mtime if seq else None
    except OSError:  # a newer one has just replaced it
        return None


def write_aside(
    folder: Path, seq: int, state: Mapping[str, Tensor], about: Mapping[str, Any]
) -> Path:
    """Write a snapshot to a temporary folder, all or nothing, without sync.  about: for JSON"""
    aside = folder / f"{ASIDE}{seq}"
    shutil.rmtree(aside, ignore_errors=True)
    with _all_or_nothing(aside):
        aside.mkdir()
        write_arrays(aside / STATE, state)
        (aside / ABOUT).write_text(json.dumps(about), "utf-8")
    return aside


def publish(aside: Path, seq: int) -> Path:
    """Rename what ``write_aside`` wrote to its final name once it is on disk.

    So a folder with the name of a snapshot is complete, even after a power cut. The last sync makes
    the name itself durable, before anything older is dropped.
    """
    path = aside.with_name(f"snapshot-{seq}")
    with _all_or_nothing(aside):
        files = {
            name: {"bytes": (aside / name).stat().st_size, "sha256": checksum(aside / name)}
            for name in (STATE, ABOUT)
        }
        manifest = {"format": FORMAT, "seq": seq, "files": files}
        (aside / MANIFEST).write_text(json.dumps(with_check(manifest), indent=1), "utf-8")
        for each in (aside / STATE, aside / ABOUT, aside / MANIFEST, aside):
            sync(each)
        # Replaces a damaged snapshot of the same number, or one with positions of forgotten nodes;
        # killed in between, a recovery starts from the previous snapshot.
        if path.exists():
            remove_snapshot(path)
        aside.rename(path)
        sync(path.parent)
    return path


@contextmanager
def _all_or_nothing(aside: Path) -> Iterator[None]:
    """Remove a temporary folder if it cannot be finished."""
    try:
        with disk_is_enough(aside.parent):
            yield
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def read_snapshot(path: Path) -> Snapshot:
    """Return a snapshot; raise ``DataError``, naming the file, if it is damaged.

    Large arrays are mapped from the file and paged in on demand: copy what you keep.
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
    return Snapshot(manifest["seq"], read_arrays(path / STATE), read_object(path / ABOUT))


def is_whole(folder: Path, seq: int) -> bool:
    """Whether a snapshot exists and is intact."""
    try:
        return read_snapshot(folder / f"snapshot-{seq}").seq == seq
    except DataError:
        return False


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a snapshot; raise ``DataError`` if it is damaged."""
    place = path / MANIFEST
    manifest = read_checked(place)
    if manifest.get("format") != FORMAT:
        raise DataError(
            f"{place}: is of format {manifest.get('format')!r}, this version of "
            f"evergraph reads {FORMAT}"
        )
    if path.name != f"snapshot-{manifest.get('seq')}":
        raise DataError(f"{place}: belongs to snapshot-{manifest.get('seq')}")
    files = manifest.get("files")
    for name in (STATE, ABOUT):
        if not isinstance(files, dict) or not isinstance(files.get(name), dict):
            raise DataError(f"{place}: must have the size and checksum of {name}")
    return manifest


def remove_snapshot(path: Path) -> None:
    """Remove a snapshot; it is renamed first, so that half of it is never taken for one."""
    gone = path.with_name(f"{ASIDE}gone-{path.name}")
    path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary folders left by a killed process, also copies beside the folder."""
    for path in folder.glob(f"{ASIDE}*"):
        shutil.rmtree(path, ignore_errors=True)
    remove_left(folder)


class KeptSnapshots:
    """The last two good snapshots of a folder: written here, or read and found intact.

    All others are removed when a new one has been written. good: number of the one that recovery
    used, 0 if none.
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
        """Number up to which deltas can be dropped, even if the newest snapshot gets damaged."""
        return self._good[0] if len(self._good) == KEPT else 0

    def publish(self, aside: Path, seq: int) -> None:
        """Wait until a snapshot is on disk, then remove all but the last two good ones."""
        publish(aside, seq)
        self._good = [*(number for number in self._good if number != seq), seq][-KEPT:]
        for number, path in snapshots_in(self.folder):
            if number not in self._good:
                remove_snapshot(path)

    def has_before(self, seq: int, first: int) -> bool:
        """Whether a recovery needs no snapshot of a delta; first: delta of the journal."""
        older = [number for number, _ in snapshots_in(self.folder) if first - 1 <= number < seq]
        return first == 1 or any(is_whole(self.folder, number) for number in older)

    def keep_only(self, seq: int) -> None:
        """Remove all other snapshots and temporary folders; raise if this one is not intact."""
        if not is_whole(self.folder, seq):
            raise ResourceError(
                f"{self.folder / f'snapshot-{seq}'}: is missing or damaged, so nothing older is "
                "removed"
            )
        for number, path in snapshots_in(self.folder):
            if number != seq:
                remove_snapshot(path)
        remove_leftovers(self.folder)
        not_removed = [path for number, path in snapshots_in(self.folder) if number != seq]
        not_removed += self.folder.glob(f"{ASIDE}*")
        if not_removed:
            raise ResourceError(
                f"{not_removed[0]}: could not be removed: remove it, and purge again"
            )
        self._good = [seq]


class JournalLoad(NamedTuple):
    """Deltas in the journal: their number, bytes, and the seconds spent on them."""

    deltas: int = 0
    bytes: int = 0
    seconds: float = 0.0


class Compactor:
    """A thread that takes a snapshot whenever it is woken, while deltas keep coming.

    A failure (most often a full disk) is logged and tried again after ``retry`` seconds.

    most: what deltas since the last snapshot may amount to.
    """

    def __init__(self, compact: Callable[[], object], most: JournalLoad, *, retry: float) -> None:
        self.compact, self.most, self.retry = compact, most, retry
        self.counted = JournalLoad()  # since the last snapshot
        # Processor time of the last snapshot, as that of deltas is counted. By the clock it would
        # include waiting, for a purge or a busy machine, and the next would come too late.
        self.snapshot_seconds = 0.0
        self._changed = threading.Condition()
        self.due = self._closing = False
        self._thread = threading.Thread(target=self._run, name="evergraph-compactor", daemon=True)
        self._thread.start()

    def count(self, more: JournalLoad) -> None:
        """Count deltas in the journal, and have a snapshot taken once there are many."""
        # The seconds are those that a restart would spend on these deltas. They count only once
        # they are three times the duration of the last snapshot, so that snapshots triggered by
        # them take at most a quarter of the time.
        deltas, size, seconds = self.counted
        deltas, size, seconds = deltas + more.deltas, size + more.bytes, seconds + more.seconds
        self.counted = JournalLoad(deltas, size, seconds)
        heavy = seconds >= max(self.most.seconds, SHARE * self.snapshot_seconds)
        if deltas >= self.most.deltas or size >= self.most.bytes or heavy:
            self.wake()

    def count_anew(self) -> JournalLoad:
        """Count from 0 again, as a snapshot includes the deltas; return the old count."""
        counted, self.counted, self.due = self.counted, JournalLoad(), False
        return counted

    def wake(self) -> None:
        """Have a snapshot taken."""
        with self._changed:
            self.due = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.due or self._closing)
                self.due = False
                if self._closing:
                    return
            began = time.thread_time()
            try:
                self.compact()
                self.snapshot_seconds = time.thread_time() - began
            except Exception as error:
                logger.warning("the snapshot failed and will be tried again: %s", error)
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, timeout=self.retry)
                    self.due = True

    def close(self) -> None:
        """Finish a snapshot that is being taken, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()


def write_arrays(path: Path, arrays: Mapping[str, Tensor]) -> None:
    """Write arrays without waiting for the disk, and without the copies that ``safetensors`` makes.

    The format: the length of a header, the header (JSON: dtype, shape and offsets), all values.
    """
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header, offset = {}, 0
    for name in order:
        value = arrays[name]
        entry = {"dtype": _DTYPES[value.dtype], "shape": list(value.shape)}
        header[name] = entry | {"data_offsets": [offset, offset + value.nbytes]}
        offset += value.nbytes
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % _LENGTH)  # so that values are aligned, widest types first
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(_LENGTH, "little") + encoded)
        for name in order:
            file.write(np.ascontiguousarray(arrays[name].detach().cpu().numpy()).data)


def read_arrays(path: Path) -> dict[str, Tensor]:
    """Return the arrays of a file by name: small ones in memory, others mapped.

    A removed file stays readable as long as its arrays are in use.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            names = file.keys()
            arrays: dict[str, Tensor] = {name: file.get_tensor(name) for name in names}
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (SafetensorError, RuntimeError) as error:
        raise DataError(f"{path}: is not a safetensors file ({error})") from error
    return {
        name: value.clone() if value.nbytes <= SMALL else value.as_subclass(MappedTensor)
        for name, value in arrays.items()
    }
