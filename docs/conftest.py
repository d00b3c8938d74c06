"""Examples of the pages run in an empty folder and leave no component registered."""

from __future__ import annotations

from pathlib import Path

import pytest

from evergraph.methods import methods


@pytest.fixture(autouse=True)
def _clean_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(methods, "_classes", dict(methods._classes))
