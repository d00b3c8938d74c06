"""A graph convolutional network that is never trained, below a linear head."""

from __future__ import annotations

from typing import Any

from evergraph.nn.backbone import backbones
from evergraph.nn.linear_head import LinearHead
from evergraph.topology import Reservoir
from evergraph.topology.cached import Scaling


@backbones.register
class UntrainedGCN(LinearHead):
    """f_out(e) = V e + b on e = [H^1, ..., H^L], H^i = tanh(Â H^{i-1} W_i), H^0 = X, W_i random.

    The frozen encoder of Donghi et al. (2025). W_i are Gaussian with variance 1 / (width of
    H^{i-1}), drawn from ``seed`` alone: every graph, and every learner, has the same ones.

    Args:
        hops: L, how many layers.
        dims: width of a layer; embeddings are L times as wide.
        seed: which weights.
        dropout, scaling: see ``LinearHead``.

    >>> model = UntrainedGCN(hops=2, dims=4)
    >>> model.topology.hops, model.topology.own_weights
    (2, False)
    """

    name = "untrained-gcn"
    topology: Reservoir

    def __init__(
        self,
        *,
        hops: int = 2,
        dims: int = 512,
        seed: int = 0,
        dropout: float = 0.5,
        scaling: Scaling = "unit",
    ) -> None:
        topology = Reservoir(
            hops=hops, dims=dims, seed=seed, own_weights=False, layers="all", self_loops=True
        )
        super().__init__(topology=topology, dropout=dropout, scaling=scaling)

    def _parameter_value(self, name: str) -> Any:
        own = name in ("dims", "seed")
        return getattr(self.topology, name) if own else super()._parameter_value(name)
