"""Samplers that choose which embeddings to keep."""

from evergraph.memory.samplers.base import Candidates, Sampler, samplers
from evergraph.memory.samplers.coverage import CoverageSampler
from evergraph.memory.samplers.degree import DegreeSampler
from evergraph.memory.samplers.distribution_matching import DistributionMatchingSampler
from evergraph.memory.samplers.embedding_coverage import EmbeddingCoverageSampler
from evergraph.memory.samplers.gradient_matching import GradientMatchingSampler
from evergraph.memory.samplers.greedy_coverage import GreedyCoverageSampler
from evergraph.memory.samplers.herding import HerdingSampler
from evergraph.memory.samplers.influence import InfluenceSampler
from evergraph.memory.samplers.k_centre import KCentreSampler
from evergraph.memory.samplers.mean_feature import MeanFeatureSampler
from evergraph.memory.samplers.uniform import UniformSampler

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
