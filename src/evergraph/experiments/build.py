"""From a configuration to the objects it describes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any

from evergraph.core.errors import ConfigurationError
from evergraph.core.resolver import Resolver
from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.experiments.config import Component, HeadConfig, RunConfig
from evergraph.graphs import Graph
from evergraph.memory import EmbeddingMemory, samplers
from evergraph.methods import methods
from evergraph.streams import GraphStream
from evergraph.topology import TopologyEncoder, topologies
from evergraph.training import Learner, Trainer


def load_graph(config: RunConfig) -> Graph:
    """Load the configured dataset."""
    return load(config.dataset.name, undirected=config.undirected, **config.dataset.parameters)


def build_stream(config: RunConfig, graph: Graph, seed: int) -> GraphStream:
    """Cut the graph into the configured tasks."""
    options = config.stream.model_dump(exclude={"split_seed"})
    split_seed = config.stream.split_seed
    return GraphStream(graph, **options, seed=seed if split_seed == "run" else split_seed)


def build_topology(config: RunConfig) -> TopologyEncoder:
    """Make the configured f_topo."""
    topology: TopologyEncoder = _make(
        topologies.make, config.topology.name, config.topology.parameters
    )
    return topology


def build_memory(config: RunConfig) -> EmbeddingMemory:
    """Make the configured memory, empty."""
    sampler = config.memory.sampler
    return EmbeddingMemory(
        budget=config.memory.budget, sampler=_make(samplers.make, sampler.name, sampler.parameters)
    )


def build_learner(
    config: RunConfig, seed: int, *, on_epoch: Callable[[int, int], None] | None = None
) -> Learner:
    """Make the configured learner; it is given those of the parts that it takes."""
    training = config.training.model_dump()
    if training["batch_size"] == "full":
        training["batch_size"] = None
    parts: dict[str, Any] = {
        "topology": build_topology(config),
        "memory": build_memory(config),
        **config.head.model_dump(),
    }
    name = config.method.name
    taken = {key: part for key, part in parts.items() if key in methods.parameters(name)}
    trainer = Trainer(**training, device=config.device, on_epoch=on_epoch)
    own = {**config.method.parameters, "trainer": trainer, "generator": seeded(seed, "learner")}
    learner: Learner = _make(methods.make, name, taken | own)
    return learner


def resolved(config: RunConfig) -> RunConfig:
    """Return the configuration with the default of every component's parameter spelled out."""
    parts = {"trainer", "generator", "memory", "topology", *HeadConfig.model_fields}
    sampler = _spelled_out(samplers, config.memory.sampler)
    return config.model_copy(
        update={
            "topology": _spelled_out(topologies, config.topology),
            "method": _spelled_out(methods, config.method, leave_out=parts),
            "memory": config.memory.model_copy(update={"sampler": sampler}),
        }
    )


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


def check(config: RunConfig) -> None:
    """Raise on anything wrong that shows before data is loaded."""
    build_learner(config, seed=0)


def _make(make: Callable[..., Any], name: str, parameters: dict[str, Any]) -> Any:
    """Call a resolver; a value of the wrong type is the user's mistake, not ours."""
    try:
        return make(name, **parameters)
    except TypeError as error:
        raise ConfigurationError(f"{name!r} cannot be made with {parameters}: {error}") from error
