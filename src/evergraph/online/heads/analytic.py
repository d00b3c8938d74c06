"""Head ``analytic``: ridge regression on random features of the embedding."""

from __future__ import annotations

from typing import Any

from evergraph.closed_form.views import View
from evergraph.online.heads.fused import FusedHead, heads
from evergraph.topology import SGC, TopologyEncoder


@heads.register
class AnalyticHead(FusedHead):
    """Ridge regression on random features of the embedding, from sums over all labelled nodes.

    The live form of method ``analytic``: head ``auto`` with one view, the whole embedding, on
    random directions. A delta costs m² for each labelled node that came or moved, and m³/3 once.

    Args:
        width: m, the number of random features; memory is 4 m² bytes.
        regularisation: λ as a share of A's mean diagonal; chosen by the engine by default.

    >>> import torch
    >>> from evergraph.topology import Identity
    >>> head = AnalyticHead(width=64)
    >>> head.begin(2, topology=Identity(), generator=torch.Generator())
    >>> head.learn(torch.eye(2), torch.tensor([1, 0]))
    >>> head.settle()
    >>> head.scores(torch.eye(2)).argmax(1)
    tensor([1, 0])
    """

    name = "analytic"
    takes_relations = False

    def __init__(self, *, width: int = 1024, regularisation: float | None = None) -> None:
        super().__init__(width=width, regularisation=regularisation, basis="random")

    def default_topology(self) -> TopologyEncoder:
        return SGC()

    def begin(self, dims: int, *, topology: TopologyEncoder, **others: Any) -> None:
        self.views, self.parsed = (), (View(tuple(topology.kept)),)
        super().begin(dims, topology=topology, **others)
