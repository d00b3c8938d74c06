"""What a method keeps between tasks, in the paper's units."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryUsage:
    """What a method keeps between tasks besides the model itself.

    The paper's memory table counts float32 values: features of stored nodes, embeddings,
    gradients. Edges are pairs of integers and count in bytes only.

    Attributes:
        samples: values of stored nodes' features, neighbours' included, or of embeddings.
        gradients: values of gradients held for old tasks.
        importance: values of importance weights and of the parameters they hold on to.
        models: values of old models.
        statistics: values of sufficient statistics.
        edges: adjacency entries.
        bytes: of everything, labels, positions and edges included.
    """

    samples: int = 0
    gradients: int = 0
    importance: int = 0
    models: int = 0
    edges: int = 0
    bytes: int = 0
    statistics: int = 0

    @property
    def floats(self) -> int:
        """How many float32 values are kept, as the paper counts."""
        return self.samples + self.gradients + self.importance + self.models + self.statistics
