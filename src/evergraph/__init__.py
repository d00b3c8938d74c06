"""evergraph: continual node classification on graphs that grow.

The names that most programs need are here; parts are in namespaces: ``eg.methods.TEM``,
``eg.samplers.CoverageSampler``, ``eg.errors.DataError``. All are imported on first use, so that
``import evergraph`` and ``evergraph --help`` cost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import evergraph.core.errors as errors
    import evergraph.datasets as datasets
    import evergraph.evaluation as metrics
    import evergraph.memory.samplers as samplers
    import evergraph.methods as methods
    import evergraph.nn as backbones
    import evergraph.topology as topologies
    from evergraph.core.errors import EvergraphError
    from evergraph.core.packages import load_plugin
    from evergraph.core.seeding import seeded
    from evergraph.datasets import as_graph, load
    from evergraph.experiments.config import RunConfig
    from evergraph.experiments.protocol import learn_stream
    from evergraph.experiments.result import RunResult
    from evergraph.experiments.runner import run
    from evergraph.graphs import Graph
    from evergraph.methods import load_learner
    from evergraph.online import ContinualNodeClassifier, Delta, LearnerFolder, OnlineLearner
    from evergraph.reports.comparing import compare
    from evergraph.streams import GraphStream

_NAMES = {
    "ContinualNodeClassifier": "online",
    "Delta": "online",
    "EvergraphError": "core.errors",
    "Graph": "graphs",
    "GraphStream": "streams",
    "LearnerFolder": "online",
    "OnlineLearner": "online",
    "RunConfig": "experiments.config",
    "RunResult": "experiments.result",
    "as_graph": "datasets",
    "compare": "reports.comparing",
    "learn_stream": "experiments.protocol",
    "load": "datasets",
    "load_learner": "methods",
    "load_plugin": "core.packages",
    "run": "experiments.runner",
    "seeded": "core.seeding",
}
_NAMESPACES = {
    "backbones": "nn",
    "datasets": "datasets",
    "errors": "core.errors",
    "methods": "methods",
    "metrics": "evaluation",
    "samplers": "memory.samplers",
    "topologies": "topology",
}
_PACKAGES = ("closed_form", "experiments", "graphs", "memory", "online", "streams", "training")
__all__ = [
    "ContinualNodeClassifier",
    "Delta",
    "EvergraphError",
    "Graph",
    "GraphStream",
    "LearnerFolder",
    "OnlineLearner",
    "RunConfig",
    "RunResult",
    "as_graph",
    "backbones",
    "compare",
    "datasets",
    "errors",
    "learn_stream",
    "load",
    "load_learner",
    "load_plugin",
    "methods",
    "metrics",
    "run",
    "samplers",
    "seeded",
    "topologies",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module(f"{__name__}.core.packages").own_version()
    if name in _NAMESPACES or name in _PACKAGES:
        return import_module(f"{__name__}.{_NAMESPACES.get(name, name)}")
    if name in _NAMES:
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
