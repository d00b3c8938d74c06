"""Embeddings that are others now."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from torch import Tensor


class EmbeddingUpdate:
    """Whose embeddings are others now; what they were and are is made when somebody asks.

    Mostly nobody does, and a change may be felt by most of a graph.

    Args:
        nodes: positions, ascending, new nodes among them; removed ones are not.  int64 [k]
        before: makes what the embeddings were, zeros for new nodes; good until the next change.
        after: makes what they are; good until then, too.

    >>> import torch
    >>> update = EmbeddingUpdate(torch.tensor([3]), lambda: torch.zeros(1, 2),
    ...                          lambda: torch.ones(1, 2))
    >>> update.nodes, update.after
    (tensor([3]), tensor([[1., 1.]]))
    """

    def __init__(
        self, nodes: Tensor, before: Callable[[], Tensor], after: Callable[[], Tensor]
    ) -> None:
        self.nodes = nodes
        self._before, self._after = before, after

    @cached_property
    def before(self) -> Tensor:
        """What the embeddings were.  float32 [k, dims]"""
        return self._before()

    @cached_property
    def after(self) -> Tensor:
        """What they are.  float32 [k, dims]"""
        return self._after()
