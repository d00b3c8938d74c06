"""From a configuration to the objects it describes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import fields
from functools import cache
from typing import Any

from evergraph.core.device import choose_device
from evergraph.core.errors import ConfigurationError
from evergraph.core.plugins import load_plugins
from evergraph.core.resolver import Resolver
from evergraph.core.resources import Resources
from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.experiments.config import (
    Component,
    HeadConfig,
    MemoryConfig,
    RunConfig,
)
from evergraph.experiments.protocols import POOLED, read_protocol
from evergraph.graphs import Graph
from evergraph.memory import samplers
from evergraph.methods import methods
from evergraph.methods.backbone_learner import BackboneLearner, WholeTaskLearner
from evergraph.methods.refresh import NEEDS_ALL_EDGES
from evergraph.nn import Backbone, Recipe, backbones
from evergraph.streams import GraphStream
from evergraph.topology import TopologyEncoder, topologies
from evergraph.training import Learner, Trainer

# A stream on a device holds the graph, its tasks' and the one of everything seen so far.
DEVICE_COPIES = 4


def load_graph(config: RunConfig) -> Graph:
    """Load the configured dataset."""
    load_plugins(config.plugins)
    return load(
        config.dataset.name,
        undirected=config.undirected,
        directions=config.directions,
        **config.dataset.parameters,
    )


def build_stream(
    config: RunConfig, graph: Graph, seed: int, *, resources: Resources | None = None
) -> GraphStream:
    """Cut the graph into the configured tasks, on the device where it has room for them."""
    resources = Resources() if resources is None else resources
    options = config.stream.model_dump(exclude={"split_seed"})
    split_seed = config.stream.split_seed
    device = choose_device(config.device)
    if DEVICE_COPIES * graph.nbytes > resources.left_on(device):
        device = graph.device
    return GraphStream(
        graph,
        **options,
        seed=seed if split_seed == "run" else split_seed,
        device=device,
        resources=resources,
    )


def build_topology(config: RunConfig) -> TopologyEncoder:
    """Make the configured f_topo."""
    topology: TopologyEncoder = _make(
        topologies.make, config.topology.name, config.topology.parameters
    )
    return topology


def build_backbone(config: RunConfig) -> Backbone:
    """Make the configured backbone, or the method's own."""
    name, parameters = backbone_of(config).name, backbone_of(config).parameters
    if "topology" in backbones.parameters(name):
        parts = {"topology": build_topology(config), **config.head.model_dump()}
        taken = backbones.parameters(name)
        parameters = {key: part for key, part in parts.items() if key in taken} | parameters
    backbone: Backbone = _make(backbones.make, name, parameters)
    return backbone


def build_memory(config: RunConfig) -> Any:
    """Make the configured memory, empty; None for a method without one."""
    name = config.method.name
    if "memory" not in methods.parameters(name):
        return None
    options: dict[str, Any] = {}
    if config.memory.budget is not None:
        options["budget"] = config.memory.budget
    if config.memory.sampler is not None:
        sampler = config.memory.sampler
        options["sampler"] = _make(samplers.make, sampler.name, sampler.parameters)
    return methods.resolve(name).make_memory(**options)


def build_learner(
    config: RunConfig,
    seed: int,
    *,
    on_epoch: Callable[[int, int], None] | None = None,
    resources: Resources | None = None,
) -> Learner:
    """Make the configured learner, of the configured parts."""
    load_plugins(config.plugins)
    backbone = build_backbone(config)
    training = vars(backbone.recipe) | config.training.model_dump(exclude_none=True)
    if training["batch_size"] == "full":
        training["batch_size"] = None
    memory = build_memory(config)
    parts = {
        "backbone": backbone,
        "trainer": Trainer(
            **training, device=config.device, resources=resources, on_epoch=on_epoch
        ),
        "generator": seeded(seed, "learner"),
        **({} if memory is None else {"memory": memory}),
    }
    learner: Learner = _make(methods.make, config.method.name, config.method.parameters | parts)
    return learner


def resolved(config: RunConfig) -> RunConfig:
    """Return the configuration with every default spelled out, and as its protocol asks."""
    load_plugins(config.plugins)
    config = _suited(pooled(config))
    backbone = backbone_of(config)
    recipe = _spelled_recipe(backbones.resolve(backbone.name).recipe)
    training = recipe | config.training.model_dump(exclude_none=True)
    return config.model_copy(
        update={
            "topology": spelled_out(topologies, config.topology),
            "backbone": spelled_out(backbones, backbone, leave_out=_PDGNN_PARTS),
            "method": spelled_out(methods, config.method, leave_out=_METHOD_PARTS),
            "memory": _resolved_memory(config),
            "training": config.training.model_copy(update=training),
        }
    )


def _suited(config: RunConfig) -> RunConfig:
    """Return a configuration whose method makes use of what its stream leaves at hand."""
    method, stream = config.method, config.stream
    # In small batches whatever is done again with each is done too often.
    if config.backbone is not None or stream.batch is not None:
        return config
    more = methods.resolve(method.name).suited_to(edges=stream.edges)
    suited = Component.model_validate({"name": method.name, **more, **method.parameters})
    return config.model_copy(update={"method": suited})


def pooled(config: RunConfig) -> RunConfig:
    """Return a configuration whose method answers as its protocol asks, where there is such a one.

    >>> pooled(RunConfig.of({"protocol": "tpp", "method": "tpp"})).method.name
    'tpp-per-test-set'
    >>> pooled(RunConfig.of({"protocol": "tpp", "method": "tem"})).method.name
    'tem'
    """
    asked = config.protocol is not None and read_protocol(config.protocol).pooled
    name = f"{config.method.name}{POOLED}"
    if not asked or name not in methods.names():
        return config
    return config.model_copy(update={"method": config.method.model_copy(update={"name": name})})


def _spelled_recipe(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as a configuration says it.

    Of values that recipes did not always have, what is off is left unsaid: runs and rows that were
    made before them are then still of the same configuration.
    """
    later = ("decay", "smoothing", "patience", "evaluate_every")
    off = {field.name: field.default for field in fields(Recipe) if field.name in later}
    said = {key: v for key, v in vars(recipe).items() if key not in off or v != off[key]}
    return said | {"batch_size": recipe.batch_size or "full"}


def epochs_of(config: RunConfig) -> int:
    """Return how many epochs a task of a resolved configuration has at the most."""
    return (config.training.epochs or 1) * backbones.resolve(backbone_of(config).name).rivals


_METHOD_PARTS = ("trainer", "generator", "memory", "backbone")
_PDGNN_PARTS = ("topology", *HeadConfig.model_fields)


def backbone_of(config: RunConfig) -> Component:
    """Return the configured backbone, or the method's own."""
    if config.backbone is not None:
        return config.backbone
    method = methods.resolve(config.method.name)
    return Component(name=method.backbone_by_default(**config.method.parameters))


@cache
def _memory_defaults(method: type[BackboneLearner]) -> tuple[int | float, str]:
    """Return how much a method keeps and by which sampler, where nothing else is asked for."""
    memory = method.make_memory()
    return memory.budget, memory.sampler.name


def _resolved_memory(config: RunConfig) -> MemoryConfig:
    if "memory" not in methods.parameters(config.method.name):
        return config.memory
    budget, sampler = _memory_defaults(methods.resolve(config.method.name))
    return MemoryConfig(
        budget=budget if config.memory.budget is None else config.memory.budget,
        sampler=spelled_out(samplers, config.memory.sampler or Component(name=sampler)),
    )


def spelled_out(
    resolver: Resolver[Any], component: Component, *, leave_out: Collection[str] = ()
) -> Component:
    """Return a component with the defaults of its constructor."""
    signature = inspect.signature(resolver.resolve(component.name))
    defaults = {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if name not in leave_out and parameter.default not in (parameter.empty, None)
    }
    return Component(name=component.name, **{**defaults, **component.parameters})


def parts_used(config: RunConfig) -> set[str]:
    """Return which of ``topology``, ``memory`` and ``training`` mean anything to the method."""
    load_plugins(config.plugins)
    method = methods.resolve(config.method.name)
    used = set()
    if "topology" in backbones.parameters(backbone_of(config).name):
        used.add("topology")
    if "memory" in methods.parameters(config.method.name):
        used.add("memory")
    if not issubclass(method, WholeTaskLearner):
        used.add("training")
    return used


def check(config: RunConfig) -> None:
    """Raise on anything wrong that shows before data is loaded."""
    build_checked(config, seed=0)


def build_checked(
    config: RunConfig,
    seed: int,
    *,
    on_epoch: Callable[[int, int], None] | None = None,
    resources: Resources | None = None,
) -> Learner:
    """Make the configured learner; raise on anything wrong that shows before data is loaded.

    What a part takes is known to its constructor alone: to make the parts is the check.
    """
    learner = build_learner(config, seed, on_epoch=on_epoch, resources=resources)
    used = parts_used(config)
    # A typing error is one also where the method has no use for it.
    if "topology" not in used:
        build_topology(config)
    if "memory" not in used and config.memory.sampler is not None:
        samplers.resolve(config.memory.sampler.name)
    if config.method.parameters.get("refresh", "none") != "none" and config.stream.edges != "all":
        raise ConfigurationError(NEEDS_ALL_EDGES)
    return learner


def _make(make: Callable[..., Any], name: str, parameters: dict[str, Any]) -> Any:
    """Call a resolver; a value of the wrong type is the user's mistake, not ours."""
    try:
        return make(name, **parameters)
    except TypeError as error:
        raise ConfigurationError(f"{name!r} cannot be made with {parameters}: {error}") from error
