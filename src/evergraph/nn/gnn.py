"""The base of graph neural networks: layers that aggregate by sparse products."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from evergraph.core.component import integer, number
from evergraph.core.errors import ConfigurationError
from evergraph.core.resources import Resources
from evergraph.core.seeding import exponential
from evergraph.graphs import Graph
from evergraph.graphs.csr import (
    csr_tensor,
    densify,
    first_of_each_row,
    row_entries,
    row_pointers,
    take_rows,
)
from evergraph.graphs.operator import SparseOperator
from evergraph.graphs.propagation import stays_sparse
from evergraph.nn.backbone import Backbone, Recipe
from evergraph.nn.dropout import dropout_mask
from evergraph.nn.linear import tiled_linear

Features = Tensor | SparseOperator
"""Dense features, or sparse ones that can be multiplied with weights."""

Between = Callable[[Tensor], Tensor]
"""What happens to states between two layers."""

ALL = -1
"""A fan-out that includes all neighbours."""


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
        """Return the next layer's states.  [in, d] -> [out, width]"""

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
        fanout: maximum number of neighbours per node in each layer of a training step, the layer
            next to the features first (-1: all); None computes the whole graph. Useful with a
            ``batch_size``, on graphs whose states do not fit in memory.
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
    fanout: Sequence[int] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        super().__init__(hops=self.layers)
        if self.fanout is not None:
            few = isinstance(self.fanout, Sequence) and len(self.fanout) == self.layers
            if not few or not all(_is_fanout(each) for each in self.fanout):
                raise ConfigurationError(
                    f"fanout must be {self.layers} integers, one per layer, each at least 1 or -1 "
                    f"for all, not {self.fanout!r}"
                )
            self.fanout = tuple(self.fanout)
        self.convolutions: nn.ModuleList | None = None
        self._prepared: WeakKeyDictionary[Graph, GraphInputs] = WeakKeyDictionary()

    @abstractmethod
    def _convolution(
        self, inputs: int, outputs: int, *, last: bool, generator: torch.Generator
    ) -> Convolution:
        """Create one layer."""

    @abstractmethod
    def _adjacency(self, graph: Graph) -> Tensor:
        """Return the CSR matrix by which layers aggregate."""

    def begin(self, dims: int, *, generator: torch.Generator) -> None:
        """Create the layers."""
        widths = [dims, *[self.hidden] * (self.layers - 1)]
        hidden = [
            self._convolution(width, self.hidden, last=False, generator=generator)
            for width in widths[:-1]
        ]
        last = self._convolution(widths[-1], 0, last=True, generator=generator)
        self.convolutions = nn.ModuleList([*hidden, last]).to(self.device)

    def place(self, device: torch.device, resources: Resources | None = None) -> None:
        """Move weights to a device, and prepare graphs there, within ``resources``."""
        super().place(device, resources)
        self._prepared = WeakKeyDictionary()

    @property
    def begun(self) -> bool:
        """Whether the layers exist."""
        return self.convolutions is not None

    def grow(self, classes: int, *, generator: torch.Generator) -> None:
        """Widen the last layer."""
        self._layers()[-1].grow(classes, generator=generator)

    def prepare(self, graph: Graph) -> GraphInputs:
        """Return the graph's matrix, its transpose and its features, ready to be multiplied."""
        graph = graph.structure
        if graph not in self._prepared:
            here = graph.to(self.device)
            raw = here.features if stays_sparse(here.features) else densify(here.features)
            adjacency = SparseOperator.of(self._adjacency(here))
            self._prepared[graph] = GraphInputs(adjacency, raw, multipliable(raw))
        return self._prepared[graph]

    def width_of(self, inputs: GraphInputs) -> int:
        """Return the width of the features."""
        return inputs.raw.shape[1]

    def forward(
        self, inputs: Any, rows: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return class scores.  -> [rows, classes]"""
        if self.training and self.fanout is not None and rows is not None:
            assert generator is not None, "sampling neighbours needs a generator"
            nodes, operators = sample_neighbourhood(
                inputs.adjacency.matrix, rows, fanouts=self.fanout, generator=generator
            )
            features = multipliable(take_rows(inputs.raw, nodes))
            return self._scores(operators, features, partial(self._between, generator=generator))
        scores = self._scores(
            [inputs.adjacency] * self.layers,
            inputs.features,
            partial(self._between, generator=generator),
        )
        return scores if rows is None else scores[rows]

    def _scores(
        self, adjacencies: Sequence[SparseOperator], features: Features, between: Between
    ) -> Tensor:
        states = self._states(adjacencies, features, between)
        scores: Tensor = self._layers()[-1](adjacencies[-1], states[-1])
        return scores

    def _states(
        self, adjacencies: Sequence[SparseOperator], features: Features, between: Between
    ) -> list[Any]:
        """Return what enters each layer: the features, then the states after each layer."""
        states: list[Features] = [features]
        for layer, adjacency in zip(self._layers()[:-1], adjacencies, strict=False):
            states.append(between(layer(adjacency, states[-1])))
        return states

    def _between(self, state: Tensor, generator: torch.Generator | None) -> Tensor:
        # Without a bias the state may be a view of a product's result, which must not be changed.
        state = torch.relu(state) if state._is_view() else torch.relu_(state)
        if not (self.training and self.dropout):
            return state
        assert generator is not None, "dropout needs a generator"
        return state * dropout_mask(state.shape, self.dropout, generator=generator)

    def hidden_states(self, inputs: Any, rows: Tensor | None = None) -> Tensor:
        """Return the inputs of the last layer; with one layer, the features.  -> [rows, width]"""
        state = self._states([inputs.adjacency] * self.layers, inputs.features, torch.relu)[-1]
        dense = densify(inputs.raw) if isinstance(state, SparseOperator) else state
        return dense if rows is None else dense[rows]

    def edge_scores(self, inputs: Any) -> list[Tensor] | None:
        """Return the score of each edge, layer by layer; None without edges."""
        if not self.scores_edges:
            return None
        states = self._states([inputs.adjacency] * self.layers, inputs.features, torch.relu)
        pairs = zip(self._layers(), states, strict=False)
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
    """Return A H Wᵀ, multiplying the narrower matrix by A.  -> [out, width]"""
    outputs, inputs = weight.shape
    if isinstance(state, SparseOperator) or outputs <= inputs:
        return adjacency @ times(state, weight)
    return times(adjacency @ state, weight)


def multipliable(raw: Tensor) -> Features:
    """Return features, dense or CSR, in the form that ``times`` accepts."""
    return raw if raw.layout == torch.strided else SparseOperator.of(raw)


def _is_fanout(value: object) -> bool:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and (value == ALL or value >= 1)  # type: ignore[operator]


def sample_neighbourhood(
    adjacency: Tensor, rows: Tensor, *, fanouts: Sequence[int], generator: torch.Generator
) -> tuple[Tensor, list[SparseOperator]]:
    """Draw at most ``fanouts[l]`` neighbours per node for layer l, counted from the features.

    Weights of a row are scaled by its degree over the number drawn, so that a sampled sum
    estimates the whole one without bias (GraphSAGE's sampling, Hamilton et al. 2017).

    Return the nodes whose features are needed, and one matrix [out, in] per layer, the outermost
    first: its rows are the nodes of the next layer, which are its first columns as well.

    adjacency: CSR [all nodes, all nodes]; rows: the target nodes, each once.
    """
    nodes, operators = rows, []
    for fanout in reversed(fanouts):
        block, nodes = _block(adjacency, nodes, fanout, generator)
        operators.append(SparseOperator.of(block))
    return nodes, operators[::-1]


def _block(
    adjacency: Tensor, targets: Tensor, fanout: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return one layer's matrix and the nodes of its columns, the targets first."""
    owners, entries = row_entries(adjacency.crow_indices(), targets)
    values = adjacency.values()[entries]
    if fanout != ALL:
        keys = exponential(len(entries), generator=generator).to(targets.device)
        drawn = first_of_each_row(owners, keys, fanout)
        degrees = torch.bincount(owners, minlength=len(targets))
        scale = degrees / degrees.clamp(1, fanout)
        owners, entries = owners[drawn], entries[drawn]
        values = values[drawn] * scale[owners].to(values.dtype)
    columns = adjacency.col_indices()[entries].long()
    place = torch.full((adjacency.shape[0],), -1, device=targets.device)
    place[targets] = torch.arange(len(targets), device=targets.device)
    new = columns[place[columns] < 0].unique()
    place[new] = torch.arange(len(targets), len(targets) + len(new), device=targets.device)
    nodes = torch.cat([targets, new])
    indptr = row_pointers(owners, len(targets))
    return csr_tensor(indptr, place[columns].int(), values, (len(targets), len(nodes))), nodes
