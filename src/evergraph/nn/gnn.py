"""The base of graph neural networks: layers that aggregate by sparse products."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from evergraph.core.component import integer, number
from evergraph.core.resources import Resources
from evergraph.graphs import Graph, normalised
from evergraph.graphs.csr import densify
from evergraph.graphs.operator import SparseOperator
from evergraph.graphs.propagation import stays_sparse
from evergraph.nn.backbone import Backbone, Recipe
from evergraph.nn.linear import dropout_mask, tiled_linear

Features = Tensor | SparseOperator
"""Dense features, or sparse ones that can be multiplied with weights."""

Between = Callable[[Tensor], Tensor]
"""What happens to states between two layers."""


@dataclass(frozen=True, eq=False)
class GraphInputs:
    """A graph prepared for a GNN.

    Attributes:
        adjacency: the matrix by which layers aggregate.  [nodes, nodes]
        raw: features, dense or CSR.  [nodes, dims]
        features: the same, ready to be multiplied.
    """

    adjacency: SparseOperator
    raw: Tensor
    features: Features

    def __deepcopy__(self, memo: object) -> GraphInputs:
        """Return itself: nothing here is trained, so a copied backbone can share it."""
        return self


class Convolution(nn.Module):
    """One layer: aggregates by a matrix and transforms.

    Attributes:
        growing: names of its linear maps that get more outputs if the layer is the last one.
        scoring: name of the linear map W in the scores of edges.
    """

    growing: ClassVar[tuple[str, ...]] = ("linear",)
    scoring: ClassVar[str] = "linear"

    @abstractmethod
    def forward(self, adjacency: SparseOperator, state: Features) -> Tensor:
        """Return the next layer's states.  [nodes, d] -> [nodes, width]"""

    def grow(self, outputs: int, *, generator: torch.Generator) -> None:
        """Add outputs; the others stay unchanged. Hidden layers keep their width."""
        for name in self.growing:
            getattr(self, name).grow(outputs, generator=generator)

    def edge_scores(self, adjacency: SparseOperator, state: Features) -> Tensor:
        """Return the score of each edge in this layer.  -> [entries] or [entries, heads]

        Without attention it is TWP's, ⟨W h_i, tanh(W h_j)⟩.
        """
        mapped = times(state, getattr(self, self.scoring).weight)
        return adjacency.sampled(mapped, torch.tanh(mapped))


@dataclass(kw_only=True, eq=False, repr=False)
class GNN(Backbone):
    """A stack of convolutions of one kind with ReLU between them.

    Args:
        layers: number of layers, and so of hops that a score depends on.
        hidden: width between layers.
        dropout: share of hidden units dropped in training.
    """

    scores_edges = True
    # The rate falls to 0: with a constant one Adam takes a large step now and then, and a task that
    # ends on such a step is lost (docs/decisions/0012).
    recipe = Recipe(
        epochs=200,
        lr=0.005,
        weight_decay=5e-4,
        batch_size=None,
        momentum="fresh",
        schedule="cosine",
    )

    layers: int = integer(2, least=1)
    hidden: int = integer(256, least=1)
    dropout: float = number(0.0, least=0.0, most=0.99)

    def __post_init__(self) -> None:
        super().__post_init__()
        super().__init__(hops=self.layers)
        self.convolutions: nn.ModuleList | None = None
        self._prepared: WeakKeyDictionary[Graph, GraphInputs] = WeakKeyDictionary()

    @abstractmethod
    def _convolution(
        self, inputs: int, outputs: int, *, last: bool, generator: torch.Generator
    ) -> Convolution:
        """Create one layer."""

    def _adjacency(self, graph: Graph) -> Tensor:
        """Return the CSR matrix by which layers aggregate; A + I by default."""
        return normalised(graph, scheme="none")

    def begin(self, dims: int, *, generator: torch.Generator) -> None:
        widths = [dims, *[self.hidden] * (self.layers - 1)]
        hidden = [
            self._convolution(width, self.hidden, last=False, generator=generator)
            for width in widths[:-1]
        ]
        last = self._convolution(widths[-1], 0, last=True, generator=generator)
        self.convolutions = nn.ModuleList([*hidden, last]).to(self.device)

    def place(self, device: torch.device, resources: Resources | None = None) -> None:
        super().place(device, resources)
        self._prepared = WeakKeyDictionary()

    @property
    def begun(self) -> bool:
        return self.convolutions is not None

    def grow(self, classes: int, *, generator: torch.Generator) -> None:
        self._layers()[-1].grow(classes, generator=generator)

    def prepare(self, graph: Graph) -> GraphInputs:
        """Return the graph's matrix, its transpose and its features, ready to be multiplied."""
        graph = graph.structure
        if graph not in self._prepared:
            moved = graph.to(self.device)
            raw = moved.features if stays_sparse(moved.features) else densify(moved.features)
            adjacency = SparseOperator.of(self._adjacency(moved))
            self._prepared[graph] = GraphInputs(adjacency, raw, multipliable(raw))
        return self._prepared[graph]

    def width_of(self, inputs: GraphInputs) -> int:
        return inputs.raw.shape[1]

    def forward(
        self, inputs: Any, rows: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        scores = self._scores(inputs, partial(self._between, generator=generator))
        return scores if rows is None else scores[rows]

    def _scores(self, inputs: GraphInputs, between: Between) -> Tensor:
        state = self._states(inputs, between)[-1]
        scores: Tensor = self._layers()[-1](inputs.adjacency, state)
        return scores

    def _states(self, inputs: GraphInputs, between: Between) -> list[Any]:
        """Return what enters each layer: the features, then the states after each layer."""
        states: list[Features] = [inputs.features]
        for layer in self._layers()[:-1]:
            states.append(between(layer(inputs.adjacency, states[-1])))
        return states

    def _between(self, state: Tensor, generator: torch.Generator | None) -> Tensor:
        # Without a bias the state may be a view of a product's result, which must not be changed.
        state = torch.relu(state) if state._is_view() else torch.relu_(state)
        if not (self.training and self.dropout):
            return state
        return state * dropout_mask(state.shape, self.dropout, generator=generator)

    def hidden_states(self, inputs: Any, rows: Tensor | None = None) -> Tensor:
        state = self._states(inputs, torch.relu)[-1]
        dense = densify(inputs.raw) if isinstance(state, SparseOperator) else state
        return dense if rows is None else dense[rows]

    def edge_scores(self, inputs: Any) -> list[Tensor] | None:
        if not self.scores_edges:
            return None
        pairs = zip(self._layers(), self._states(inputs, torch.relu), strict=False)
        return [layer.edge_scores(inputs.adjacency, state) for layer, state in pairs]

    def _layers(self) -> list[Any]:
        assert self.convolutions is not None, "call begin first"
        return list(self.convolutions)


def times(features: Features, weight: Tensor) -> Tensor:
    """Return features @ weightᵀ.  [n, d], [width, d] -> [n, width]"""
    if isinstance(features, SparseOperator):
        return features @ weight.t().contiguous()
    return tiled_linear(features, weight)


def gather(adjacency: SparseOperator, state: Features, weight: Tensor) -> Tensor:
    """Return A H Wᵀ, multiplying the narrower matrix by A.  -> [nodes, width]"""
    outputs, inputs = weight.shape
    if isinstance(state, SparseOperator) or outputs <= inputs:
        return adjacency @ times(state, weight)
    return times(adjacency @ state, weight)


def multipliable(raw: Tensor) -> Features:
    """Return features, dense or CSR, in the form that ``times`` accepts."""
    return raw if raw.layout == torch.strided else SparseOperator.of(raw)
