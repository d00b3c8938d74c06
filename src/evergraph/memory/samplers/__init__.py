"""Samplers that choose which embeddings to keep."""

from evergraph.memory.samplers.base import (
    Candidates,
    CoverageSampler,
    DegreeSampler,
    Sampler,
    UniformSampler,
    samplers,
)
from evergraph.memory.samplers.choosing import (
    EmbeddingCoverageSampler,
    GreedyCoverageSampler,
    HerdingSampler,
    InfluenceSampler,
    KCentreSampler,
    MeanFeatureSampler,
)
from evergraph.memory.samplers.condensing import (
    DistributionMatchingSampler,
    GradientMatchingSampler,
)

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
