"""evergraph: continual node classification on graphs that grow.

Names are imported on first use, so that ``import evergraph`` and ``evergraph --help`` cost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergraph.core.errors import EvergraphError
    from evergraph.core.seeding import seeded
    from evergraph.datasets import Synthetic, load
    from evergraph.evaluation import average_accuracy, average_forgetting
    from evergraph.experiments.config import RunConfig
    from evergraph.experiments.protocol import learn_stream
    from evergraph.experiments.result import RunResult
    from evergraph.experiments.runner import run
    from evergraph.graphs import Graph
    from evergraph.memory import EmbeddingMemory
    from evergraph.memory.samplers import (
        CoverageSampler,
        DegreeSampler,
        GreedyCoverageSampler,
        MeanFeatureSampler,
        UniformSampler,
    )
    from evergraph.methods import TEM, Finetune, Joint
    from evergraph.nn import GAT, GCN, GIN, PDGNN, GraphSAGE
    from evergraph.online import ContinualNodeClassifier
    from evergraph.streams import GraphStream, Task
    from evergraph.topology import APPNP, H2GCN, PPR, S2GC, SGC, Identity, MixHop, Reservoir
    from evergraph.training import Learner, Trainer

_HOMES = {
    "core.errors": ("EvergraphError",),
    "core.seeding": ("seeded",),
    "datasets": ("Synthetic", "load"),
    "evaluation": ("average_accuracy", "average_forgetting"),
    "experiments.config": ("RunConfig",),
    "experiments.protocol": ("learn_stream",),
    "experiments.result": ("RunResult",),
    "experiments.runner": ("run",),
    "graphs": ("Graph",),
    "memory": ("EmbeddingMemory",),
    "memory.samplers": (
        "CoverageSampler",
        "DegreeSampler",
        "GreedyCoverageSampler",
        "MeanFeatureSampler",
        "UniformSampler",
    ),
    "methods": ("TEM", "Finetune", "Joint"),
    "nn": ("GAT", "GCN", "GIN", "PDGNN", "GraphSAGE"),
    "online": ("ContinualNodeClassifier",),
    "streams": ("GraphStream", "Task"),
    "topology": ("APPNP", "H2GCN", "PPR", "S2GC", "SGC", "Identity", "MixHop", "Reservoir"),
    "training": ("Learner", "Trainer"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "APPNP",
    "GAT",
    "GCN",
    "GIN",
    "H2GCN",
    "PDGNN",
    "PPR",
    "S2GC",
    "SGC",
    "TEM",
    "ContinualNodeClassifier",
    "CoverageSampler",
    "DegreeSampler",
    "EmbeddingMemory",
    "EvergraphError",
    "Finetune",
    "Graph",
    "GraphSAGE",
    "GraphStream",
    "GreedyCoverageSampler",
    "Identity",
    "Joint",
    "Learner",
    "MeanFeatureSampler",
    "MixHop",
    "Reservoir",
    "RunConfig",
    "RunResult",
    "Synthetic",
    "Task",
    "Trainer",
    "UniformSampler",
    "average_accuracy",
    "average_forgetting",
    "learn_stream",
    "load",
    "run",
    "seeded",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module(f"{__name__}.core.versions").own_version()
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
