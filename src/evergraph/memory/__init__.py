"""What is kept of earlier tasks."""

from evergraph.memory.budget import Budget, class_budgets
from evergraph.memory.coverage_ratio import coverage_ratio
from evergraph.memory.ego_networks import EgoNetworks, ego_networks, isolated
from evergraph.memory.embedding_memory import EmbeddingMemory
from evergraph.memory.samplers import Candidates, Sampler, samplers
from evergraph.memory.subgraph_memory import SubgraphMemory
from evergraph.memory.usage import MemoryUsage

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
