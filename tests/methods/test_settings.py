"""Settings of methods: what they are unless given, and the least each may be."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph
from evergraph.methods import methods
from evergraph.streams import GraphStream

Make = Any
LEAST = [
    ("adr", "merging", 0.0, -0.01),
    ("adr", "regularisation", 0.0, -0.01),
    ("a-gem", "sample", 1, 0),
    ("analytic", "rank", 1, 0),
    ("analytic", "regularisation", 0.0, -0.01),
    ("auto", "probes", 1, 0),
    ("ewc", "decay", 0.0, -0.01),
    ("ewc", "probes", 1, 0),
    ("ewc", "strength", 0.0, -0.01),
    ("gem", "margin", 0.0, -0.01),
    ("lwf", "strength", 0.0, -0.01),
    ("lwf", "temperature", 0.001, 0.0009),
    ("mas", "strength", 0.0, -0.01),
    ("ocgl", "shrinkage", 0.0, -0.01),
    ("sem", "neighbours", 1, 0),
    ("slda", "shrinkage", 0.0, -0.01),
    ("ssm", "neighbours", 1, 0),
    ("taam", "anchor", 0.0, -0.01),
    ("taam", "steps", 0, -1),
    ("tem", "arrivals", 1, 0),
    ("tem", "replay_weight", 0.0, -0.01),
    ("tpp", "steps", 0, -1),
    ("twp", "beta", 0.0, -0.01),
    ("twp", "loss_strength", 0.0, -0.01),
    ("twp", "topology_strength", 0.0, -0.01),
]
DEFAULTS: dict[str, dict[str, Any]] = {
    "a-gem": {"sample": 256},
    "adr": {"merging": 1e-3, "regularisation": 1e-2},
    "analytic": {
        "regularisation": "validation", "weights": "class-sizes", "rank": None, "ledger": False,
        "refresh": "none",
    },
    "auto": {
        "probes": 100, "fusing": "fitted", "weights": "class-sizes",
        "objective": "balanced", "ledger": False, "refresh": "none", "self_training": True,
    },
    "ewc": {"strength": 1e5, "anchors": "task", "decay": 0.9, "fisher": "samples", "probes": 32},
    "gem": {"margin": 0.5},
    "lwf": {"strength": 1.0, "temperature": 2.0},
    "mas": {"strength": 1e4},
    "ocgl": {"shrinkage": 0.1, "weights": "equal", "ledger": False},
    "sem": {"neighbours": 5},
    "slda": {
        "shrinkage": 0.1, "weights": "class-sizes", "ledger": False, "refresh": "none",
    },
    "ssm": {"neighbours": 5, "choice": "degree"},
    "taam": {"steps": 2, "anchor": 0.1, "distance": "angle"},
    "tem": {
        "weighting": "class-balanced", "replay_weight": 1.0, "store": "after", "arrivals": 1,
        "refresh": "none", "pseudo_labels": None, "restart": False,
    },
    "tpp": {"steps": 2, "distance": "angle"},
    "twp": {"loss_strength": 1e4, "topology_strength": 1e2, "beta": 1e-4},
}  # fmt: skip
PARTS = {"memory", "backbone", "trainer", "generator"}


@pytest.mark.parametrize(("name", "option", "least", "less"), LEAST)
def test_the_least_is_taken_and_less_is_refused(
    make: Make, name: str, option: str, least: float, less: float
) -> None:
    assert getattr(make(name, **{option: least}), option) == least
    rule = f"(of at least|from) {least}"
    with pytest.raises(ConfigurationError, match=f"{option} must be .* {rule}.*, not {less}"):
        make(name, **{option: less})


def test_decay_may_be_everything_and_no_more(make: Make) -> None:
    assert make("ewc", decay=1.0).decay == 1.0
    with pytest.raises(
        ConfigurationError, match=r"decay must be a number from 0.0 to 1.0, not 1.1"
    ):
        make("ewc", decay=1.1)


def test_a_graph_without_features_is_refused(make: Make) -> None:
    bare = Graph.from_edges(
        torch.tensor([[0], [1]]), features=torch.zeros(8, 0), labels=torch.arange(8) // 4
    )
    with pytest.raises(ConfigurationError, match="the graph has no features to learn from"):
        make("finetune").fit_task(GraphStream(bare).open(0))


@pytest.mark.parametrize("name", DEFAULTS)
def test_published_numbers_rest_on_these_defaults(name: str) -> None:
    options = inspect.signature(methods.resolve(name)).parameters
    found = {n: option.default for n, option in options.items() if n not in PARTS}
    assert found == DEFAULTS[name]
