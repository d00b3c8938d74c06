"""Floor 4: what is kept of earlier tasks."""

from evergraph.memory.budget import Budget, class_budgets
from evergraph.memory.coverage_ratio import coverage_ratio
from evergraph.memory.embedding_memory import EmbeddingMemory
from evergraph.memory.samplers import Candidates, Sampler, samplers
from evergraph.memory.usage import MemoryUsage

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
