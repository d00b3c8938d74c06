"""Samplers that choose which embeddings to keep."""

from evergraph.memory.samplers.base import (
    Candidates,
    CoverageSampler,
    DegreeSampler,
    Sampler,
    UniformSampler,
    samplers,
)
from evergraph.memory.samplers.condensing import (
    DistributionMatchingSampler,
    GradientMatchingSampler,
)
from evergraph.memory.samplers.er_gnn import (
    EmbeddingCoverageSampler,
    InfluenceSampler,
    MeanFeatureSampler,
)
from evergraph.memory.samplers.stepwise import GreedyCoverageSampler, HerdingSampler, KCentreSampler

__all__ = [
    "Candidates",
    "CoverageSampler",
    "DegreeSampler",
    "DistributionMatchingSampler",
    "EmbeddingCoverageSampler",
    "GradientMatchingSampler",
    "GreedyCoverageSampler",
    "HerdingSampler",
    "InfluenceSampler",
    "KCentreSampler",
    "MeanFeatureSampler",
    "Sampler",
    "UniformSampler",
    "samplers",
]
