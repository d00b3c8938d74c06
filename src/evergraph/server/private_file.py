"""Files that hold secrets: plain files that nobody else may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from evergraph.core.errors import ConfigurationError

LARGEST = 1_000_000  # bytes


def read_private(path: Path, called: str) -> bytes:
    """Return what a file of secrets holds; refuse one that others could have read.

    Its group may read it only where it belongs to root and this process does not run as root: that
    is how systemd and Kubernetes hand secrets to a service. A link is followed, and what it leads
    to is looked at.

    called: what the file is, for a sentence.
    """
    try:
        # A pipe would keep us waiting for whoever writes to it.
        opened = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(opened, "rb") as file:
            found = os.fstat(file.fileno())
            _check_plain(path, called, found)
            _check_mode(path, called, found)
            return file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: the {called} cannot be read ({error})") from error


def _check_plain(path: Path, called: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigurationError(f"{path}: the {called} must be a plain file")
    if found.st_size > LARGEST:
        raise ConfigurationError(
            f"{path}: the {called} must have at most {LARGEST} bytes, not {found.st_size}"
        )


def _check_mode(path: Path, called: str, found: os.stat_result) -> None:
    if os.name != "posix":
        return
    mode = stat.S_IMODE(found.st_mode)
    handed_out = found.st_uid == 0 and os.geteuid() != 0
    if mode & (0o037 if handed_out else 0o077):
        who = "everyone" if mode & stat.S_IRWXO else "its group"
        raise ConfigurationError(
            f"{path}: the {called} must be open to its owner alone, and mode {mode:04o} opens it "
            f"to {who}: chmod 600 {path}"
        )
