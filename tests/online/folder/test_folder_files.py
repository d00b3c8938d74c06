"""Files of a learner's folder: what is left over, damaged, or not for everybody."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch

from evergraph.core.errors import ResourceError
from evergraph.online.delta import Delta
from evergraph.online.folder import snapshot
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.markers import ACKNOWLEDGED_FILE, Acknowledged
from evergraph.online.folder.snapshot import write_snapshot
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner


def opened(path: Path, *, readonly: bool = False) -> LearnerFolder:
    def make() -> OnlineLearner:
        return OnlineLearner(head=AnalyticHead(width=8))

    return LearnerFolder.open(path, make=make, readonly=readonly)


def filled(path: Path) -> None:
    with opened(path) as folder:
        folder.submit(Delta(nodes=("a",), features=torch.ones(1, 2), labels=("x",)))


def test_what_a_killed_process_left_aside_goes_when_the_folder_is_opened(tmp_path: Path) -> None:
    filled(tmp_path)
    for name in (".aside-2", ".aside-gone-snapshot-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.safetensors").write_bytes(b"half")
    with opened(tmp_path, readonly=True):
        assert (tmp_path / ".aside-2").exists()  # a writer may be at work
    with opened(tmp_path) as folder:
        assert list(tmp_path.glob(".aside*")) == []
        assert folder.learner.predict(["a"]) == ["x"]


def test_what_cannot_be_cleared_away_keeps_nobody_out(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / ".aside-2").write_bytes(b"a file where a folder is expected")
    with opened(tmp_path) as folder:
        assert folder.learner.predict(["a"]) == ["x"]


def test_others_may_read_and_not_write(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Acknowledged(tmp_path / ACKNOWLEDGED_FILE).close()
    finally:
        os.umask(before)
    assert (tmp_path / ACKNOWLEDGED_FILE).stat().st_mode & 0o777 == 0o644


def test_arrays_that_cannot_be_written_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(snapshot, "_write", broken)
    with pytest.raises(ResourceError, match=r"cannot be written \(Read-only file system\)"):
        write_snapshot(tmp_path, 3, {"ones": torch.ones(2)}, b"{}")
    assert list(tmp_path.iterdir()) == []
