"""From a configuration to the objects it describes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from evergraph.closed_form import ViewFeatures
from evergraph.closed_form.view_features import VIEWS
from evergraph.closed_form.views import View
from evergraph.core.device import choose_device
from evergraph.core.errors import ConfigurationError
from evergraph.core.label_space import Setting
from evergraph.core.notices import say
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
    TrainingConfig,
)
from evergraph.experiments.under_protocol import pooled
from evergraph.graphs import Graph
from evergraph.memory import samplers
from evergraph.methods import methods
from evergraph.methods.backbone_learner import WholeTaskLearner
from evergraph.methods.refresh import NEEDS_ALL_EDGES
from evergraph.nn import Backbone, Recipe, backbones
from evergraph.streams import GraphStream
from evergraph.streams.ways import without_classes
from evergraph.topology import TopologyEncoder, topologies
from evergraph.topology.embedding_folder import embedding_in
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
    name, parameters = _backbone_of(config).name, _backbone_of(config).parameters
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
    config = pooled(config)
    backbone = _backbone_of(config)
    recipe = _spelled_recipe(backbones.resolve(backbone.name).recipe)
    training = recipe | config.training.model_dump(exclude_none=True)
    return config.model_copy(
        update={
            "topology": _spelled_out(topologies, config.topology),
            "backbone": _spelled_out(backbones, backbone, leave_out=_PDGNN_PARTS),
            "method": _spelled_out(methods, config.method, leave_out=_METHOD_PARTS),
            "memory": _resolved_memory(config),
            "training": config.training.model_copy(update=training),
        }
    )


def _spelled_recipe(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as a configuration says it.

    Of values that recipes did not always have, what is off is left unsaid: runs and rows that were
    made before them are then still of the same configuration.
    """
    later = ("decay", "smoothing", "patience", "evaluate_every")
    off = {field.name: field.default for field in fields(Recipe) if field.name in later}
    said = {key: v for key, v in vars(recipe).items() if key not in off or v != off[key]}
    return said | {"batch_size": recipe.batch_size or "full"}


_METHOD_PARTS = ("trainer", "generator", "memory", "backbone")
_PDGNN_PARTS = ("topology", *HeadConfig.model_fields)


def _backbone_of(config: RunConfig) -> Component:
    if config.backbone is not None:
        return config.backbone
    method = methods.resolve(config.method.name)
    return Component(name=method.backbone_by_default(**config.method.parameters))


def _resolved_memory(config: RunConfig) -> MemoryConfig:
    memory = build_memory(config)
    if memory is None:
        return config.memory
    sampler = config.memory.sampler or Component(name=memory.sampler.name)
    return MemoryConfig(budget=memory.budget, sampler=_spelled_out(samplers, sampler))


def _spelled_out(
    resolver: Resolver[Any], component: Component, *, leave_out: Collection[str] = ()
) -> Component:
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
    if "topology" in backbones.parameters(_backbone_of(config).name):
        used.add("topology")
    if "memory" in methods.parameters(config.method.name):
        used.add("memory")
    if not issubclass(method, WholeTaskLearner):
        used.add("training")
    return used


def epochs_of(config: RunConfig) -> int:
    """Return how many epochs a task of a resolved configuration has at the most."""
    return (config.training.epochs or 1) * backbones.resolve(_backbone_of(config).name).rivals


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
        identity = _spelled_out(topologies, Component(name="identity"))
        return config.model_copy(update={"topology": identity})
    say(config.dataset.name, f"{known}: {config.method.name} smooths them once more")
    return config


# Backbone and training are then analytic's own.
_OF_TARGETS: dict[str, Any] = {
    "method": Component(name="analytic"), "backbone": None, "training": TrainingConfig(),
}  # fmt: skip


def say_unseen(config: RunConfig, graph: Graph) -> None:
    """Say what of a graph the configured learner does not look at."""
    backbone = _backbone_of(config)
    parts: list[Any] = [build_backbone(config)]
    if "topology" in parts_used(config):
        parts.append(topologies.resolve(config.topology.name))
    unseen = []
    if graph.weights is not None and not all(part.sees_weights for part in parts):
        unseen.append("weights of edges")
    views = backbone.parameters.get("views", VIEWS if backbone.name == ViewFeatures.name else ())
    if not any(view.related for view in map(View.parse, views)):
        unseen += ["relations"] if graph.relations is not None else []
        unseen += ["types of nodes"] if graph.types is not None else []
    if unseen:
        learner = f"{config.method.name} on backbone {backbone.name}"
        say(config.dataset.name, f"{' and '.join(unseen)} are not looked at by {learner}")


def check(config: RunConfig) -> None:
    """Raise on anything wrong that shows before data is loaded."""
    build_learner(config, seed=0)
    build_topology(config)  # also where the method has no use for it: a typing error is one
    if config.memory.sampler is not None:
        samplers.resolve(config.memory.sampler.name)
    if config.method.parameters.get("refresh", "none") != "none" and config.stream.edges != "all":
        raise ConfigurationError(NEEDS_ALL_EDGES)


def _make(make: Callable[..., Any], name: str, parameters: dict[str, Any]) -> Any:
    """Call a resolver; a value of the wrong type is the user's mistake, not ours."""
    try:
        return make(name, **parameters)
    except TypeError as error:
        raise ConfigurationError(f"{name!r} cannot be made with {parameters}: {error}") from error
