"""The command line, called as a user calls it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from evergraph.cli.app import main

Call = Callable[..., tuple[str, str]]


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Call:
    """Run ``evergraph ...`` in a folder of its own, in this process: importing torch takes long."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str, expect: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["evergraph", *arguments])
        capfd.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capfd.readouterr()
        assert code == expect, err
        return out, err

    return run
