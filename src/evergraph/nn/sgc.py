"""Simple graph convolution, as a backbone of its own."""

from __future__ import annotations

from typing import Any

from evergraph.nn.backbone import Recipe, backbones
from evergraph.nn.pdgnn import PDGNN
from evergraph.topology import SGC


@backbones.register
class SimpleConvolution(PDGNN):
    """Â^L X through a small MLP, embeddings as they come (Wu et al. 2019, as CGLB uses it).

    Args:
        hops: L.
        hidden: width of the hidden layer; 0 for the linear model of the SGC paper.
        bias, dropout: see ``MLP``.
    """

    name = "sgc"
    recipe = Recipe(epochs=200, lr=0.005, weight_decay=5e-4, batch_size=None)

    def __init__(
        self, *, hops: int = 2, hidden: int = 256, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__(
            topology=SGC(hops=hops),
            hidden=(hidden,) if hidden else (),
            bias=bias,
            dropout=dropout,
            scaling="none",
        )

    def _parameter_value(self, name: str) -> Any:
        if name == "hidden":  # layers of f_out elsewhere, one width here
            return self.hidden[0] if self.hidden else 0
        return super()._parameter_value(name)
