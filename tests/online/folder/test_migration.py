"""Folders as earlier versions wrote them: read as they are, brought up to date by who writes.

``folders/format-1`` was made by the version before batches, ``folders/format-2`` by the one before
checksums of the small files: four nodes of two classes, one more that is forgotten after a
snapshot, then two more, with keys. ``expected.json`` is what that version predicted.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from evergraph.core.errors import KeyReusedError
from evergraph.online.delta import Delta
from evergraph.online.folder.backup import backup, restore
from evergraph.online.folder.checkup import checkup
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.markers import FORMAT, FORMAT_FILE
from growth import bits

FOLDERS = Path(__file__).with_name("folders")


@pytest.fixture(params=[1, 2])
def old(request: Any, tmp_path: Path) -> Path:
    shutil.copytree(FOLDERS / f"format-{request.param}" / "learner", tmp_path / "learner")
    shutil.copy(FOLDERS / f"format-{request.param}" / "expected.json", tmp_path)
    return tmp_path / "learner"


def is_as_expected(folder: LearnerFolder, path: Path) -> None:
    told = json.loads(path.with_name("expected.json").read_text())
    classes, shares = folder.learner.predict_proba(told["ids"])
    assert folder.seq == told["seq"]
    assert list(classes) == told["classes"]
    assert folder.learner.predict(told["ids"]) == told["labels"]
    assert torch.allclose(shares, torch.tensor(told["shares"]), atol=1e-4)


def test_an_old_folder_is_read_as_it_is_copied_and_written_to(old: Path, tmp_path: Path) -> None:
    kept = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    with LearnerFolder.open(old, readonly=True) as folder:
        is_as_expected(folder, old)
    backup(old, tmp_path / "copy.tar")
    assert checkup(old) == []
    assert all(path.read_bytes() == data for path, data in kept.items())
    restore(tmp_path / "copy.tar", tmp_path / "made")
    rows = torch.tensor([[0.5, 0.5, 0.5]])
    again = Delta(nodes=("e",), features=rows, labels=("x",), edges=(("e", "b"),), key="last")
    with LearnerFolder.open(tmp_path / "made") as copy, LearnerFolder.open(old) as folder:
        is_as_expected(copy, old)
        is_as_expected(folder, old)
        assert folder.submit(again).seq == 5  # its key is known
        with pytest.raises(KeyReusedError):
            folder.submit(Delta(nodes=("f",), features=rows, key="first"))
        folder.submit(Delta(nodes=("f",), features=rows, edges=(("f", "a"),), key="new"))
        folder.compact()
        left = bits(folder.learner)
    assert json.loads((old / FORMAT_FILE).read_text())["format"] == FORMAT
    with LearnerFolder.open(old) as folder:
        assert (folder.seq, bits(folder.learner)) == (6, left)
        folder.purge(keys=True, names=True)
        assert folder.learner.classes == ("x", "y", "dropped-2")
    assert checkup(old, quick=True) == []
