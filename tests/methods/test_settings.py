"""Settings of components: what they are unless given, and what each may be."""

import inspect
import math
import re
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import pytest
import torch

from evergraph.core.errors import ConfigurationError, check_choice, check_integer
from evergraph.graphs import Graph
from evergraph.memory import samplers
from evergraph.methods import methods
from evergraph.nn import backbones
from evergraph.streams import GraphStream
from evergraph.topology import topologies
from evergraph.training import Trainer

DEFAULTS: dict[str, dict[str, Any]] = {
    "a-gem": {"sample": 256},
    "adr": {"merging": 1e-3, "regularisation": 1e-2},
    "analytic": {
        "regularisation": "validation",
        "weights": "class-sizes",
        "ledger": False,
        "refresh": "none",
    },
    "auto": {
        "probes": 100,
        "budget": 400,
        "weights": "class-sizes",
        "objective": "balanced",
        "ledger": False,
        "refresh": "none",
        "self_training": True,
    },
    "ewc": {"strength": 1e5, "anchors": "task", "decay": 0.9, "fisher": "samples", "probes": 32},
    "gem": {"margin": 0.5},
    "lwf": {"strength": 1.0, "temperature": 2.0},
    "mas": {"strength": 1e4},
    "ocgl": {"shrinkage": 0.1, "weights": "equal", "ledger": False},
    "sem": {"neighbours": 5},
    "slda": {"shrinkage": 0.1, "weights": "class-sizes", "ledger": False, "refresh": "none"},
    "ssm": {"neighbours": 5, "choice": "degree"},
    "taam": {"steps": 2, "anchor": 0.1, "distance": "angle"},
    "tem": {
        "weighting": "class-balanced",
        "replay_weight": 1.0,
        "store": "after",
        "arrivals": 1,
        "refresh": "none",
        "pseudo_labels": None,
        "restart": False,
    },
    "tpp": {"steps": 2, "distance": "angle"},
    "twp": {"loss_strength": 1e4, "topology_strength": 1e2, "beta": 1e-4},
}
PARTS = {"memory", "backbone", "trainer", "generator"}
# What no value can be wrong for: all that counts of a seed is that it differs.
ANYTHING = {"identity": {"hops"}, "reservoir": {"seed"}, "untrained-gcn": {"seed"}}


def wrong_and_right(rule: Any, given: object) -> tuple[list[object], list[object]]:
    """Return values that a rule forbids, and those at the very edge of what it allows."""
    if rule is None:  # numbers and texts are looked at all the same, by their component
        plain = isinstance(given, (int, float, str)) and not isinstance(given, bool)
        return (["none such", -7.5] if plain else []), []
    if rule.func is check_choice:
        return ["none such", 1], [*rule.keywords["choices"]]
    least = rule.keywords["least"]
    if rule.func is check_integer:
        return [least - 1, least + 0.5, str(least), True], [least]
    most = rule.keywords["most"]
    less = least * 0.9 if least > 0 else least - 0.01
    return [less, most * 1.1 + 0.01, math.nan, str(least)], [least, *([most] * math.isfinite(most))]


def test_a_parameter_is_held_to_its_rule():
    """Of every component that can be made, each number and each choice."""
    makers = {"trainer": Trainer} | {
        name: partial(resolver.make, name)
        for resolver in (backbones, samplers, topologies)
        for name in resolver.names()
    }
    for name in methods.names():
        makers[name] = partial(methods.make, name, generator=torch.Generator())
    held = 0
    for component, maker in makers.items():
        part = maker()
        known = fields(type(part)) if is_dataclass(part) else ()
        rules = {each.name: each.metadata.get("check") for each in known}
        for name, given in part.get_params().items():
            if name in ANYTHING.get(component, ()):
                continue
            rule = rules.get(name)
            wrong, right = wrong_and_right(rule, given)
            for value in wrong:
                with pytest.raises(
                    ConfigurationError, match=rf"{name}\b.*{re.escape(repr(value))}"
                ):
                    maker(**{name: value})
            for value in right:
                rule(name, value)
            held += bool(wrong)
    assert held > 100


@pytest.mark.parametrize(
    ("name", "backbone", "use"),
    [
        ("adr", "gin", "'gcn'"),
        ("analytic", "pdgnn", "'random-features'"),
        ("auto", "gcn", "'landmark-features'"),
        ("fgn", "pdgnn", "'feature-graph'"),
        ("hpn", "gcn", "'prototypes'"),
        ("ocgl", "linear", "'untrained-gcn'"),
        ("slda", "random-features", "'linear'"),
        ("taam", "pdgnn", "'modulated'"),
        ("tem", "gcn", "'pdgnn' or 'sgc'"),  # whose stored embeddings would go stale
        ("tpp", "gcn", "'pdgnn' or 'sgc'"),
    ],
)
def test_a_backbone_that_a_method_cannot_use_is_refused(name, backbone, use, make):
    with pytest.raises(ConfigurationError, match=f"{use}, not '{backbone}'"):
        make(name, backbone=backbones.make(backbone))


def test_a_graph_without_features_is_refused(make):
    bare = Graph.from_edges(
        torch.tensor([[0], [1]]), features=torch.zeros(8, 0), labels=torch.arange(8) // 4
    )
    with pytest.raises(ConfigurationError, match="the graph has no features to learn from"):
        make("finetune").fit_task(GraphStream(bare).open(0))


def test_published_numbers_rest_on_these_defaults():
    for name, expected in DEFAULTS.items():
        options = inspect.signature(methods.resolve(name)).parameters
        found = {n: option.default for n, option in options.items() if n not in PARTS}
        assert found == expected, name
