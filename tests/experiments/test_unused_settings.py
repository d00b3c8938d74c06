"""No setting is taken without effect: it changes what a method learns, or is refused."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.datasets import load
from evergraph.experiments.build import build_stream, check, resolved
from evergraph.experiments.config import HeadConfig, MemoryConfig, RunConfig, TrainingConfig
from evergraph.experiments.settings import configured
from evergraph.methods import methods
from evergraph.training import Learner

# A value of every setting that is no method's default, or both values.
OTHER: dict[str, Any] = {
    "training__epochs": 3,
    "training__lr": 0.02,
    "training__weight_decay": 0.1,
    "training__batch_size": 7,
    "training__momentum": ("carried", "fresh"),
    "training__schedule": ("constant", "cosine"),
    "training__decay": ("coupled", "decoupled"),
    "training__smoothing": 0.3,
    "training__patience": 1,
    "training__evaluate_every": 9,
    "training__objective": "plain",
    "memory__budget": 3,
    "memory__sampler": "degree",
    "head__hidden": (5,),
    "head__bias": False,
    "head__dropout": 0.1,
    "head__scaling": "none",
    "head__storage": "float16",
    "topology": "ppr",
    "hops": 3,
}
NAMES = methods.names()
SMALL = {
    "analytic": {"name": "random-features", "width": 32},
    "auto": {"name": "view-features", "width": 32},
    "joint": {"name": "tuned", "hidden": 8},
}


def made(name: str, **settings: Any) -> tuple[RunConfig, Learner]:
    # Few stored nodes, so that samplers have a choice.
    base = {
        "method": name,
        "device": "cpu",
        "training": {"epochs": 6, "lr": 0.1},
        "head": {"hidden": (8,)},
        "memory": {"budget": 2},
    }
    small = {"backbone": SMALL[name]} if name in SMALL else {}
    config = resolved(configured(RunConfig.of(base | small), settings))
    return config, check(config)


def matters(name: str, key: str, look: Callable[..., Any], **others: Any) -> bool:
    """Whether a method refuses a setting, or something about it differs with its value."""
    value = OTHER[key]
    pair = [{key: each} for each in value] if isinstance(value, tuple) else [{key: value}, {}]
    try:
        one, other = (look(name, **others, **each) for each in pair)
        return one != other
    except ConfigurationError:
        return True


@cache
def built(name: str, **settings: Any) -> str:
    return repr(made(name, **settings)[1].get_params(deep=True))


def learned(name: str, tasks: int = 4, **settings: Any) -> list[float]:
    config, learner = made(name, **settings)
    graph = load("synthetic", nodes=120, classes=8, features=6, noise=1.0, class_imbalance=0.6)
    stream = build_stream(config, graph, 0)
    for index in range(tasks):
        learner.fit_task(stream.open(index, cumulative=learner.cumulative, sight=learner.sight))
    return learner.logits(graph, torch.arange(40)).flatten().tolist()


def test_every_setting_of_a_part_is_looked_at():
    sections = {"training": TrainingConfig, "memory": MemoryConfig, "head": HeadConfig}
    every = {f"{name}__{key}" for name, kind in sections.items() for key in kind.model_fields}
    assert every | {"topology", "hops"} == set(OTHER)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_changes_what_is_built_or_is_refused(name):
    for key in OTHER:
        assert matters(name, key, built), key


@pytest.mark.parametrize("name", NAMES)
def test_an_objective_changes_what_is_learned_or_is_refused(name):
    # Two tasks are enough for the two to differ.
    assert matters(name, "training__objective", learned, tasks=2, training__epochs=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_setting_changes_what_is_learned_or_is_refused(name):
    # Patience matters once a task gets worse, and joint carries moments once tasks grow slowly.
    depends = {"training__patience"} | ({"training__momentum"} if name == "joint" else set())
    assert [key for key in OTHER if key not in depends and not matters(name, key, learned)] == []
