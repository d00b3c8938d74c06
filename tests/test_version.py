"""The version, with and without an installed package."""

from __future__ import annotations

from importlib import metadata

import pytest

import evergraph


def test_the_version_is_that_of_the_installed_package() -> None:
    assert evergraph.__version__ == metadata.version("evergraph")
    assert "__version__" in dir(evergraph)


def test_a_source_tree_that_was_never_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert evergraph.__version__ == "0+unknown"
