"""The benchmark of tolerances compares learners that were given the same."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

from evergraph.datasets import load


def test_learners_take_turns_and_are_held_against_the_exact_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
    tolerance = importlib.import_module("benchmarks.tolerance")
    monkeypatch.setattr(tolerance, "TOLERANCES", ())
    monkeypatch.setattr(tolerance, "BATCH", 20)
    graph = load("synthetic", nodes=300, classes=4, features=8)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    growth = tolerance.Growth(graph, order, torch.arange(graph.num_nodes) % 5 == 0)
    costs, parts = tolerance.compared(growth, 150, 2)
    exact, lazy, *others, default = costs.rows
    assert exact[2] == "1.00x"
    assert exact[5:] == lazy[5:]  # so few are solved for at once
    assert exact[6:] == ["100.00", "0.0000", "0.00000"]
    assert int(default[3]) < int(exact[3])
    assert default[5:] == others[0][5:]  # eager, with the same tolerance
    assert parts.rows[-1][0] == "a delta"
