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

    def found(name: str) -> ModuleType:
        (path,) = ROOT.glob(f"benchmarks/**/{name}.py")
        return importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))

    return found


@pytest.fixture
def here(load: Load, monkeypatch: pytest.MonkeyPatch) -> Load:
    """The same, and has it measure in this process: starting another takes seconds."""

    def measured_here(name: str) -> ModuleType:
        bench = load(name)
        monkeypatch.setattr(bench, "in_own_process", lambda function, *given: function(*given))
        return bench

    return measured_here
