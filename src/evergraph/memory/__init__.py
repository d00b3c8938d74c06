"""Floor 4: what is kept of earlier tasks."""

from evergraph.memory.budget import Budget, class_budgets
from evergraph.memory.coverage_ratio import coverage_ratio
from evergraph.memory.embedding_memory import EmbeddingMemory, MemoryUsage
from evergraph.memory.samplers import Candidates, Sampler, samplers

__all__ = [
    "Budget",
    "Candidates",
    "EmbeddingMemory",
    "MemoryUsage",
    "Sampler",
    "class_budgets",
    "coverage_ratio",
    "samplers",
]
