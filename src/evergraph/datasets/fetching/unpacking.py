"""Raw files taken out of what a publisher sends."""

from __future__ import annotations

import shutil
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from evergraph.core.errors import WrongFileError
from evergraph.core.mapped import disk_is_enough
from evergraph.core.sizes import check_room

_BLOCK = 1 << 20


def unpack(source: Path, files: Sequence[str], folder: Path) -> None:
    """Put raw files below a folder, from the archive, or the one file, that a publisher sends.

    Only what is asked for is taken out, under the paths that it is asked for by: an archive cannot
    write anywhere else. A member is known by its path, or by its name alone.
    """
    if source.suffix != ".zip":
        (file,) = files
        with disk_is_enough(folder / file):
            _place(folder / file)
            shutil.copyfile(source, folder / file)
        return
    try:
        with zipfile.ZipFile(source) as archive:
            members = {file: _member(archive, file, source) for file in files}
            check_room(folder, sum(m.file_size for m in members.values()), source.name)
            for file, member in members.items():
                _take_out(archive, member, folder / file)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise WrongFileError(f"{source}: is no whole zip archive ({error})") from error


def _member(archive: zipfile.ZipFile, file: str, source: Path) -> zipfile.ZipInfo:
    listed = [member for member in archive.infolist() if not member.is_dir()]
    for known in (lambda name: name == file, lambda name: Path(name).name == Path(file).name):
        for member in listed:
            if known(member.filename):
                return member
    raise WrongFileError(f"{source}: has no {file} in it, but {len(listed)} other files")


def _take_out(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> None:
    with disk_is_enough(path):
        _place(path)
        with archive.open(member) as packed, path.open("wb") as file:
            shutil.copyfileobj(packed, file, _BLOCK)  # which checks the member's CRC at its end


def _place(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
