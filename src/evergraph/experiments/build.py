"""Build objects from a configuration, and adapt it to a graph or protocol."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from evergraph.closed_form.views import View
from evergraph.core.component import SURROUNDINGS, Resolver, signature_of
from evergraph.core.errors import ConfigurationError, say
from evergraph.core.label_space import Setting
from evergraph.core.packages import load_plugins
from evergraph.core.resources import Resources, choose_device
from evergraph.core.seeding import seeded
from evergraph.core.targets import target_of
from evergraph.datasets import load
from evergraph.experiments.config import (
    Component,
    HeadConfig,
    MemoryConfig,
    RunConfig,
    TrainingConfig,
    flat,
)
from evergraph.experiments.presets import POOLED, read_protocol
from evergraph.graphs import Graph
from evergraph.graphs.targets import MASKS
from evergraph.memory import samplers
from evergraph.methods import methods
from evergraph.methods.base import BackboneLearner, WholeTaskLearner
from evergraph.methods.refresh import NEEDS_ALL_EDGES
from evergraph.nn import Backbone, Recipe, backbones
from evergraph.streams import GraphStream
from evergraph.streams.arrival import SHARES
from evergraph.streams.ways import without_classes
from evergraph.topology import topologies
from evergraph.topology.embedding_folder import embedding_in
from evergraph.training import Learner, Trainer

# A stream on a device holds the graph, the tasks' graphs and the graph of everything seen so far.
DEVICE_COPIES = 4
T = TypeVar("T")
PARTS = {"topology", "head", "memory", "training"}  # sections that some methods do not use
_METHOD_PARTS = ("trainer", "generator", "memory", "backbone")
_PDGNN_PARTS = ("topology", *HeadConfig.model_fields)
_FOR_OTHER_TARGETS: dict[str, Any] = {
    "method": Component(name="analytic"),
    "backbone": None,
    "training": TrainingConfig(),
}


def load_graph(config: RunConfig) -> Graph:
    """Load the configured dataset, with a column of ones if it has no features."""
    load_plugins(config.plugins)
    options: dict[str, Any] = config.model_dump(include={"undirected", "directions"})
    graph = load(config.dataset.name, **options, **config.dataset.parameters)
    return with_some_features(graph, config.dataset.name)


def with_some_features(graph: Graph, where: str) -> Graph:
    """Return a graph with a column of ones if it has no features.  where: what it came from"""
    if graph.num_features or not graph.num_nodes:
        return graph
    say(
        where,
        "there are no features: a column of ones is used, and methods see edges and labels alone",
    )
    return graph.with_features(torch.ones(graph.num_nodes, 1))


def build_stream(
    config: RunConfig, graph: Graph, seed: int, *, resources: Resources | None = None
) -> GraphStream:
    """Cut the graph into the configured tasks, on the device if they fit there."""
    resources = Resources() if resources is None else resources
    options = config.stream.model_dump()
    split_seed = options.pop("split_seed")
    options["seed"] = seed if split_seed == "run" else split_seed
    device = choose_device(config.device)
    if DEVICE_COPIES * graph.nbytes > resources.left_on(device):
        device = graph.device
    return GraphStream(graph, **options, device=device, resources=resources)


def build_backbone(config: RunConfig) -> Backbone:
    """Make the configured backbone, or the method's own."""
    component = backbone_of(config)
    accepted = backbones.parameters(component.name)
    parts = {}
    if "topology" in accepted:
        topology = _make(topologies, config.topology)
        for key, part in {"topology": topology, **config.head.model_dump()}.items():
            if key in accepted and key not in component.parameters:
                parts[key] = part
    return _make(backbones, component, **parts)


def has_memory(method: str) -> bool:
    """Return whether a method keeps nodes in a memory; parameter ``memory`` may also be bytes."""
    own = methods.resolve(method).make_memory.__func__  # type: ignore[attr-defined]
    base = BackboneLearner.make_memory.__func__  # type: ignore[attr-defined]
    return "memory" in methods.parameters(method) and own is not base


def build_memory(config: RunConfig) -> Any:
    """Make the configured memory, empty; None if the method has none."""
    name = config.method.name
    if not has_memory(name):
        return None
    if (size := config.method.parameters.get("memory")) is not None:
        raise ConfigurationError(
            f"memory in bytes needs method auto; {name} keeps nodes: set a budget of nodes per "
            f"class instead of {size!r}"
        )
    options: dict[str, Any] = config.memory.model_dump(include={"budget"}, exclude_none=True)
    if config.memory.sampler is not None:
        options["sampler"] = _make(samplers, config.memory.sampler)
    return methods.resolve(name).make_memory(**options)


def build_learner(config: RunConfig, seed: int, *, resources: Resources | None = None) -> Learner:
    """Make the configured learner from the configured components."""
    load_plugins(config.plugins)
    config = _with_objective(config)
    backbone = build_backbone(config)
    training = vars(backbone.recipe) | config.training.model_dump(exclude_none=True)
    if training["batch_size"] == "full":
        training["batch_size"] = None
    trainer = Trainer(**training, device=config.device, resources=resources)
    parts = {"backbone": backbone, "trainer": trainer, "generator": seeded(seed, "learner")}
    if (memory := build_memory(config)) is not None:
        parts["memory"] = memory
    return _make(methods, config.method, **parts)


def resolved(config: RunConfig) -> RunConfig:
    """Return the configuration with every default filled in, adapted to its protocol."""
    load_plugins(config.plugins)
    config = _with_objective(pooled(config))
    if config.backbone is None and config.stream.batch is None:
        # Some methods suit a stream with other defaults; but with small batches, work repeated for
        # each batch would be repeated too often.
        name, parameters = config.method.name, config.method.parameters
        suited = methods.resolve(name).suited_to(edges=config.stream.edges)
        method = Component.model_validate({"name": name, **suited, **parameters})
        config = config.model_copy(update={"method": method})
    backbone = backbone_of(config)
    recipe = backbones.resolve(backbone.name).recipe
    # Newer values are left out if they are off, so that older runs and rows still have the same
    # configuration.
    newer = ("decay", "smoothing", "patience", "evaluate_every")
    off = {field.name: field.default for field in fields(Recipe) if field.name in newer}
    training = {key: v for key, v in vars(recipe).items() if key not in off or v != off[key]}
    training |= {"batch_size": recipe.batch_size or "full"}
    training |= config.training.model_dump(exclude_none=True)
    memory = config.memory
    if has_memory(config.method.name):
        default = methods.resolve(config.method.name).make_memory()
        sampler = memory.sampler or Component(name=default.sampler.name)
        memory = MemoryConfig(
            budget=default.budget if memory.budget is None else memory.budget,
            sampler=spelled_out(samplers, sampler),
        )
    return config.model_copy(
        update={
            "topology": spelled_out(topologies, config.topology),
            "backbone": spelled_out(backbones, backbone, leave_out=_PDGNN_PARTS),
            "method": spelled_out(methods, config.method, leave_out=_METHOD_PARTS),
            "memory": memory,
            "training": config.training.model_copy(update=training),
        }
    )


def pooled(config: RunConfig) -> RunConfig:
    """Return a configuration with the variant of its method that its protocol needs, if any."""
    required = config.protocol is not None and read_protocol(config.protocol).pooled
    name = f"{config.method.name}{POOLED}"
    if not required or name not in methods.names():
        return config
    return config.model_copy(update={"method": config.method.model_copy(update={"name": name})})


def _with_objective(config: RunConfig) -> RunConfig:
    """Return a configuration with its objective as a parameter of the method, if it has one."""
    objective, method = config.training.objective, config.method
    if objective is None:
        return config
    if "objective" in methods.parameters(method.name):
        method = Component.model_validate(method.get_params() | {"objective": objective})
        training = config.training.model_copy(update={"objective": None})
        return config.model_copy(update={"method": method, "training": training})
    if not methods.resolve(method.name).follows_objective:
        raise ConfigurationError(
            f"objective cannot be {objective!r} for {method.name}, which weighs nodes by a rule of "
            "its own: leave it out, or use a method such as auto or finetune"
        )
    return config


def epochs_of(config: RunConfig) -> int:
    """Return the most epochs per task of a resolved configuration."""
    networks = backbones.resolve(backbone_of(config).name).networks_trained
    return (config.training.epochs or 1) * networks


def backbone_of(config: RunConfig) -> Component:
    """Return the configured backbone, or the method's own."""
    if config.backbone is not None:
        return config.backbone
    method = methods.resolve(config.method.name)
    return Component(name=method.backbone_by_default(**config.method.parameters))


def spelled_out(
    resolver: Resolver[Any], component: Component, *, leave_out: Collection[str] = ()
) -> Component:
    """Return a component with its constructor's defaults."""
    signature = signature_of(resolver.resolve(component.name))
    defaults = {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if name not in leave_out and parameter.default not in (parameter.empty, None)
    }
    return Component(name=component.name, **{**defaults, **component.parameters})


def parts_used(config: RunConfig) -> set[str]:
    """Return which of ``PARTS`` the method uses."""
    load_plugins(config.plugins)
    method = methods.resolve(config.method.name)
    embedded = "topology" in backbones.parameters(backbone_of(config).name)
    used = {
        "topology": embedded,
        "head": embedded,
        "memory": has_memory(config.method.name),
        "training": not issubclass(method, WholeTaskLearner),
    }
    return {part for part, is_used in used.items() if is_used}


def unused(config: RunConfig, given: Mapping[str, Any]) -> list[str]:
    """Return the keys of given values that the method does not use; defaults do not count.

    An objective is refused where it cannot be followed, see ``resolved``.
    """
    used = parts_used(config)
    backbone = backbone_of(config)
    patience = config.training.patience or backbones.resolve(backbone.name).recipe.patience
    accepted = set(backbones.parameters(backbone.name)) - backbone.parameters.keys()
    ignored = {f"head.{key}" for key in HeadConfig.model_fields if key not in accepted}
    if "training" not in used:
        ignored.add("head.dropout")
    if not patience:
        ignored.add("training.evaluate_every")
    if not methods.resolve(config.method.name).carries_moments:
        ignored.add("training.momentum")
    defaults = flat(RunConfig().to_dict())
    return [
        key
        for key, value in flat(given).items()
        if value not in (None, defaults.get(key), defaults.get(f"{key}.name"))
        and key != "training.objective"
        and (key in ignored or key.partition(".")[0] in PARTS - used)
    ]


def check(config: RunConfig, seed: int = 0, *, resources: Resources | None = None) -> Learner:
    """Make the configured learner; raise on every error that can be found before data is loaded.

    Only constructors know their parameters, so making the components is the check.
    """
    learner = build_learner(config, seed, resources=resources)
    used = parts_used(config)
    # A misspelt name is an error even if the method does not use it.
    if "topology" not in used:
        _make(topologies, config.topology)
    if "memory" not in used and config.memory.sampler is not None:
        samplers.resolve(config.memory.sampler.name)
    if config.method.parameters.get("refresh", "none") != "none" and config.stream.edges != "all":
        raise ConfigurationError(NEEDS_ALL_EDGES)
    return learner


def _make(resolver: Resolver[T], component: Component, **parts: Any) -> T:
    for key in component.parameters.keys() & parts.keys():
        reason = "it is made from the settings backbone, training and seeds"
        raise ConfigurationError(f"{resolver.kind}.{key} cannot be set: {reason}")
    # A memory of nodes is made here; of bytes, it is a setting of the method.
    hidden = {"backbone", "topology", "trainer", *SURROUNDINGS} | ({"memory"} & parts.keys())
    resolver.check(component.name, component.parameters, hidden=hidden)
    parameters = component.parameters | parts
    try:
        return resolver.make(component.name, **parameters)
    except TypeError as error:
        message = f"{component.name!r} cannot be made with {parameters}: {error}"
        raise ConfigurationError(message) from error


def departures(config: RunConfig) -> list[str]:
    """Return the differences between a configuration and its protocol, as phrases."""
    if config.protocol is None:
        return []
    prescribed = flat(read_protocol(config.protocol).values(config.dataset.name))
    values = flat(config.to_dict())
    return [
        f"{key} is {values.get(key)!r} and not {value!r}"
        for key, value in prescribed.items()
        if values.get(key) != value
    ]


def say_protocol(configured: RunConfig, config: RunConfig) -> None:
    """Log how a run under a protocol differs from the paper's.

    configured: the configuration as given; config: the one that will run.
    """
    if config.protocol is None:
        return
    where = f"{configured.method.name} under protocol {config.protocol}"
    for departure in read_protocol(config.protocol).departs:
        say(where, departure)
    for departure in departures(config):
        say(where, f"{departure}, so the result is not comparable with that paper's")
    if config.method.name != configured.method.name:
        say(where, f"{config.method.name} is run instead, because whole test sets are predicted")
    elif read_protocol(config.protocol).pooled and not config.method.name.endswith(POOLED):
        say(where, "it predicts node by node; the paper's method predicts whole test sets")


def fitted_to(graph: Graph, config: RunConfig) -> RunConfig:
    """Return a resolved configuration adapted to a graph; raise if its method cannot learn it.

    If nodes have several labels or numeric targets, the default method ``auto`` is replaced by
    ``analytic``, and tasks are cut without classes. Both are logged in one line.
    """
    target = target_of("class" if graph.targets is None else graph.targets.kind)
    changes = []
    default_method = resolved(RunConfig(stream=config.stream)).method  # adapted to the stream
    if not target.is_class and config.method == default_method:
        changes.append("method analytic in place of auto, which learns classes")
        config = resolved(config.model_copy(update=_FOR_OTHER_TARGETS))
    methods.resolve(config.method.name).check_kind(target.name)
    stream = config.stream
    if not target.is_class and stream.by == "class":
        timed = graph.time is not None
        setting = cast("Setting", stream.setting)
        by, tasks = without_classes("class", tasks=stream.tasks, timed=timed, setting=setting)
        changes.append(f"{tasks} tasks {'by time' if timed else 'in random order'}")
        cut = {"by": by, "tasks": tasks}
        config = config.model_copy(update={"stream": stream.model_copy(update=cut)})
    config = _not_embedded_twice(graph, config)
    if changes:
        say(config.dataset.name, f"its nodes have {target.described}: {', '.join(changes)}")
    return config


def _not_embedded_twice(graph: Graph, config: RunConfig) -> RunConfig:
    """Return a configuration that does not embed features that are embeddings already.

    If an f_topo other than the default is configured, it is kept and its effect is logged. Without
    edges there is nothing to smooth.
    """
    folder = Path(config.dataset.name)
    embedding = embedding_in(folder) if folder.is_dir() else None
    if embedding is None or not graph.num_edges:
        return config
    name, hops = embedding["topology"]["name"], embedding["topology"].get("hops", 0)
    reason = f"its features are already embeddings, by {name} over {hops} hops"
    if "topology" in parts_used(config) and config.topology == resolved(RunConfig()).topology:
        say(config.dataset.name, f"{reason}: topology identity in place of {config.topology.name}")
        identity = spelled_out(topologies, Component(name="identity"))
        return config.model_copy(update={"topology": identity})
    say(config.dataset.name, f"{reason}: {config.method.name} smooths them once more")
    return config


def say_unseen(config: RunConfig, graph: Graph) -> None:
    """Log which parts of a graph the configured learner does not use."""
    backbone = build_backbone(config)
    parts: list[Any] = [backbone]
    if "topology" in parts_used(config):
        parts.append(topologies.resolve(config.topology.name))
    if graph.masks is not None and config.stream.split == SHARES:
        text = f"{', '.join(MASKS)} are not used: split='masks' (--split) uses them"
        say(config.dataset.name, text)
    unseen = []
    if graph.weights is not None and not all(part.sees_weights for part in parts):
        unseen.append("edge weights")
    if not any(view.related for view in map(View.parse, getattr(backbone, "views", ()))):
        unseen += ["relations"] if graph.relations is not None else []
        unseen += ["node types"] if graph.types is not None else []
    if unseen:
        learner = f"{config.method.name} on backbone {backbone_of(config).name}"
        say(config.dataset.name, f"{' and '.join(unseen)} are not used by {learner}")
