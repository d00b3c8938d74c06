"""evergraph: continual node classification on graphs that grow.

The names that most programs need are here; parts are in namespaces: ``eg.methods.TEM``,
``eg.samplers.CoverageSampler``, ``eg.errors.DataError``. All are imported on first use, so that
``import evergraph`` and ``evergraph --help`` cost nothing.
"""

from __future__ import annotations

import warnings
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
    from evergraph.core.plugins import load_plugin
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
    "load_plugin": "core.plugins",
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
# Where names are that were here until 0.1: they go on working for a version, with a warning.
_MOVED = {
    "backbones": """
        Backbone FeatureGraph GAT GCN GIN GraphSAGE LinearHead Modulated PDGNN PrototypeNetwork
        RandomFeatures SimpleConvolution UntrainedGCN
    """,
    "core.label_space": "LabelSpace",
    "core.resources": "Resources",
    "datasets": """
        Arxiv CoauthorCS CoauthorPhysics Computers CoraFull Dataset Joined NamedGraph Papers
        Photo Products Reddit Synthetic WordNet WordNetDepth WordNetPartsOfSpeech
        WordNetRelations join join_domains named_graph
    """,
    "errors": """
        ClusterError ConfigurationError DataError DeviceError DivergedError DownloadError
        DroppedError DuplicateNodeError KeyReusedError LockedError LooseEdgeError
        NothingLearnedError ResourceError ResultsError StoppedError TaskClosedError TooMuchError
        UnknownEdgeError UnknownNameError UnknownNodeError WrongFileError
    """,
    "experiments.protocol": "TaskReport",
    "experiments.result": "SeedResult",
    "graphs": """
        Targets estimate_reach_sizes forman_curvature homophily propagate reach reach_sizes
    """,
    "closed_form": "ClassStatistics ViewFeatures",
    "memory": "EmbeddingMemory SubgraphMemory coverage_ratio",
    "methods": """
        ADR AGEM Analytic Auto BackboneLearner ERGNN EWC FGN Finetune FullSubgraph GEM HPN Joint
        LwF MAS OCGL SEM SLDA SSM TAAM TAAMPerTestSet TEM TPP TPPPerTestSet TWP
    """,
    "metrics": """
        AccuracyMatrix anytime_accuracy area_under_curve average_accuracy average_accuracy_curve
        average_forgetting average_forgetting_curve balanced_accuracy evaluate
        expected_calibration_error plain_accuracy rejection_auroc
    """,
    "online.heads": "AnalyticHead FusedHead OnlineHead TargetHead",
    "reports.comparing": "Comparison",
    "samplers": """
        CoverageSampler DegreeSampler DistributionMatchingSampler EmbeddingCoverageSampler
        GradientMatchingSampler GreedyCoverageSampler HerdingSampler InfluenceSampler
        KCentreSampler MeanFeatureSampler Sampler UniformSampler
    """,
    "streams": "Exam Task",
    "topologies": "APPNP H2GCN Identity MixHop PPR Reservoir S2GC SGC TopologyEncoder",
    "training": "Learner Trainer",
}

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
        return import_module(f"{__name__}.core.extras").own_version()
    if name in _NAMESPACES or name in _PACKAGES:
        return import_module(f"{__name__}.{_NAMESPACES.get(name, name)}")
    if name in _NAMES:
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    for home, names in _MOVED.items():
        if name in names.split():
            place = f"{__name__}.{home}.{name}"
            warnings.warn(
                f"evergraph.{name} is {place} now: the old name works for one more version",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(import_module(f"{__name__}.{_NAMESPACES.get(home, home)}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
