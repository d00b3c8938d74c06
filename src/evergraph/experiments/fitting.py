"""A configuration beside a graph and a protocol: what gives way, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from evergraph.closed_form.views import View
from evergraph.core.label_space import Setting
from evergraph.core.notices import say
from evergraph.experiments.build import (
    backbone_of,
    build_backbone,
    parts_used,
    resolved,
    spelled_out,
)
from evergraph.experiments.config import Component, RunConfig, TrainingConfig, flat
from evergraph.experiments.protocols import POOLED, read_protocol
from evergraph.graphs import Graph
from evergraph.methods import methods
from evergraph.streams.ways import without_classes
from evergraph.topology import topologies
from evergraph.topology.embedding_folder import embedding_in


def departures(config: RunConfig) -> list[str]:
    """Return where a configuration is not what its protocol says, a phrase each.

    >>> config = RunConfig.of({"protocol": "cglb", "stream": {"split": [0.8, 0.1, 0.1]}})
    >>> departures(config)
    ['stream.split is [0.8, 0.1, 0.1] and not [0.6, 0.2, 0.2]']
    """
    if config.protocol is None:
        return []
    said = flat(read_protocol(config.protocol).values(config.dataset.name))
    found = flat(config.to_dict())
    return [
        f"{key} is {found.get(key)!r} and not {value!r}"
        for key, value in said.items()
        if found.get(key) != value
    ]


def say_protocol(asked: RunConfig, config: RunConfig) -> None:
    """Say how a run under a protocol is not what the paper ran.

    asked: as it was given; config: as it is going to run.
    """
    if config.protocol is None:
        return
    where = f"{asked.method.name} under protocol {config.protocol}"
    for departure in read_protocol(config.protocol).departs:
        say(where, departure)
    for departure in departures(config):
        say(where, f"{departure}, so the result is not comparable with that paper's")
    if config.method.name != asked.method.name:
        say(where, f"{config.method.name} is run instead, since test sets are answered")
    elif read_protocol(config.protocol).pooled and not config.method.name.endswith(POOLED):
        say(where, "it answers node by node, and the paper's method whole test sets")


def fitted_to(graph: Graph, config: RunConfig) -> RunConfig:
    """Return a resolved configuration as a graph needs it, and raise if its method cannot learn it.

    Where nodes have several labels or numbers, the default method, auto as it comes, gives way to
    analytic, and tasks are cut without classes; both are said in one line.
    """
    kind = "class" if graph.targets is None else graph.targets.kind
    told = []
    if kind != "class" and config.method == resolved(RunConfig()).method:
        told.append("method analytic in place of auto, which learns classes")
        config = resolved(config.model_copy(update=_OF_TARGETS))
    methods.resolve(config.method.name).check_kind(kind)
    if kind != "class" and config.stream.by == "class":
        timed, asked = graph.time is not None, config.stream.tasks
        by, tasks = without_classes(
            "class", tasks=asked, timed=timed, setting=cast("Setting", config.stream.setting)
        )
        told.append(f"{tasks} tasks {'by time' if timed else 'in random order'}")
        cut = {"by": by, "tasks": tasks}
        config = config.model_copy(update={"stream": config.stream.model_copy(update=cut)})
    config = _not_embedded_twice(graph, config)
    if told:
        nodes = "several labels" if kind == "labels" else "numbers to predict"
        say(config.dataset.name, f"its nodes have {nodes}: {', '.join(told)}")
    return config


def _not_embedded_twice(graph: Graph, config: RunConfig) -> RunConfig:
    """Return a configuration that takes features which are embeddings already as they are.

    Unless another f_topo than the default was asked for: then it is said what that does. Without
    edges there is nothing to smooth.
    """
    made = embedding_in(Path(config.dataset.name))
    if made is None or not graph.num_edges:
        return config
    name, hops = made["topology"]["name"], made["topology"].get("hops", 0)
    known = f"its features are embeddings already, by {name} over {hops} hops"
    if "topology" in parts_used(config) and config.topology == resolved(RunConfig()).topology:
        say(config.dataset.name, f"{known}: topology identity in place of {config.topology.name}")
        identity = spelled_out(topologies, Component(name="identity"))
        return config.model_copy(update={"topology": identity})
    say(config.dataset.name, f"{known}: {config.method.name} smooths them once more")
    return config


_OF_TARGETS: dict[str, Any] = {
    "method": Component(name="analytic"), "backbone": None, "training": TrainingConfig(),
}  # fmt: skip


def say_unseen(config: RunConfig, graph: Graph) -> None:
    """Say what of a graph the configured learner does not look at."""
    backbone = backbone_of(config)
    made = build_backbone(config)
    parts: list[Any] = [made]
    if "topology" in parts_used(config):
        parts.append(topologies.resolve(config.topology.name))
    unseen = []
    if graph.weights is not None and not all(part.sees_weights for part in parts):
        unseen.append("weights of edges")
    if not any(view.related for view in map(View.parse, getattr(made, "views", ()))):
        unseen += ["relations"] if graph.relations is not None else []
        unseen += ["types of nodes"] if graph.types is not None else []
    if unseen:
        learner = f"{config.method.name} on backbone {backbone.name}"
        say(config.dataset.name, f"{' and '.join(unseen)} are not looked at by {learner}")
