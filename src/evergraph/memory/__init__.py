"""Memories of earlier tasks, and the samplers that fill them."""

from evergraph.memory.budget import Budget, MemoryUsage, class_budgets
from evergraph.memory.embedding_memory import EmbeddingMemory, coverage_ratio
from evergraph.memory.samplers import Candidates, Sampler, samplers
from evergraph.memory.subgraph_memory import EgoNetworks, SubgraphMemory, ego_networks, isolated

__all__ = [
    "Budget",
    "Candidates",
    "EgoNetworks",
    "EmbeddingMemory",
    "MemoryUsage",
    "Sampler",
    "SubgraphMemory",
    "class_budgets",
    "coverage_ratio",
    "ego_networks",
    "isolated",
    "samplers",
]
