"""Benchmarks as modules, and measured in this process."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Return what imports a benchmark by its name."""
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.{name}")


@pytest.fixture
def here(load: Load, monkeypatch: pytest.MonkeyPatch) -> Load:
    """The same, and has it measure in this process: starting another takes seconds."""

    def measured_here(name: str) -> ModuleType:
        bench = load(name)
        monkeypatch.setattr(bench, "in_own_process", lambda function, *given: function(*given))
        return bench

    return measured_here
