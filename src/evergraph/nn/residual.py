"""Residual networks, the strong baselines among tuned graph neural networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from evergraph.core.component import choice, integer, number
from evergraph.graphs import Graph, normalised
from evergraph.graphs.csr import csr_tensor, take_rows
from evergraph.graphs.operator import SparseOperator
from evergraph.nn.backbone import Recipe, backbones
from evergraph.nn.gcn import GraphConvolution, HeadAttention, check_heads
from evergraph.nn.gnn import GNN, Between, Convolution, Features, GraphInputs, multipliable, times
from evergraph.nn.linear import Linear

Kind = Literal["gcn", "sage", "gat", "mlp"]
KINDS: tuple[str, ...] = get_args(Kind)


@backbones.register
@dataclass(kw_only=True, eq=False, repr=False)
class Residual(GNN):
    """A residual GNN with layer norm, a strong baseline of Luo et al. (2024).

    h ← dropout(relu(LayerNorm(A W h + R h + b))), after an input layer dropout(relu(W x + b)) and
    before a linear one. R preserves a node's own state, and the norm keeps several layers
    trainable; plain networks of the same kind are weak.

    Args:
        kind: the matrix A. ``gcn``: D^-1/2 (A + I) D^-1/2; ``sage``: the neighbours' mean; ``gat``:
            attention, which does not use edge weights; ``mlp``: none, so that nodes are
            independent.
        heads: number of attention heads.
        layers: number of such layers, and so of hops that a score depends on.
    """

    name = "residual"
    # AdamW at a constant rate; the best weights on validation nodes are kept, so that a bad last
    # epoch does no harm (docs/decisions/0012) and overfitting is limited.
    recipe = Recipe(
        epochs=500,
        lr=0.003,
        weight_decay=0.01,
        batch_size=None,
        momentum="fresh",
        decay="decoupled",
        smoothing=0.1,
        patience=100,
        evaluate_every=5,
    )

    kind: Kind = choice("gcn", KINDS)
    heads: int = integer(8, least=1)
    hidden: int = integer(512, least=1)
    dropout: float = number(0.5, least=0.0, most=0.99)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind == "gat":
            check_heads(self.hidden, self.heads)
        if self.kind == "mlp":
            self.hops = 0
        self.scores_edges = self.kind != "mlp"
        self.sees_weights = self.kind in ("gcn", "sage")
        self.entry: Linear | None = None
        self.out: Linear | None = None

    def _adjacency(self, graph: Graph) -> Tensor:
        if self.kind == "mlp":
            return _nothing(graph.num_nodes, like=graph.features)
        if self.kind == "sage":
            return normalised(graph, self_loops=False, scheme="row")
        return normalised(graph, scheme="symmetric" if self.kind == "gcn" else "none")

    def _convolution(
        self, inputs: int, outputs: int, *, last: bool, generator: torch.Generator
    ) -> Convolution:
        convolution: Convolution | None = None
        if self.kind == "gat":
            convolution = HeadAttention(inputs, outputs, heads=self.heads, generator=generator)
        elif self.kind != "mlp":
            convolution = GraphConvolution(inputs, outputs, bias=False, generator=generator)
        return ResidualLayer(inputs, outputs, near=convolution, generator=generator)

    def begin(self, dims: int, *, generator: torch.Generator) -> None:
        width = self.hidden
        self.entry = Linear(dims, width, generator=generator).to(self.device)
        self.convolutions = nn.ModuleList(
            self._convolution(width, width, last=False, generator=generator)
            for _ in range(self.layers)
        ).to(self.device)
        self.out = Linear(width, 0, generator=generator).to(self.device)

    def grow(self, classes: int, *, generator: torch.Generator) -> None:
        assert self.out is not None, "call begin first"
        self.out.grow(classes, generator=generator)

    def narrowed(self, inputs: GraphInputs, rows: Tensor) -> tuple[GraphInputs, Tensor | None]:
        if self.kind != "mlp":
            return inputs, rows
        raw = take_rows(inputs.raw, rows)
        nothing = SparseOperator.of(_nothing(len(rows), like=raw))
        return GraphInputs(nothing, raw, multipliable(raw)), None

    def _scores(self, inputs: GraphInputs, between: Between) -> Tensor:
        assert self.out is not None, "call begin first"
        scores: Tensor = self.out(self._states(inputs, between)[-1])
        return scores

    def _states(self, inputs: GraphInputs, between: Between) -> list[Any]:
        assert self.entry is not None, "call begin first"
        states = [between(self.entry.plus_bias(times(inputs.features, self.entry.weight)))]
        for layer in self._layers():
            states.append(between(layer(inputs.adjacency, states[-1])))
        return states


@backbones.register
class Tuned(Residual):
    """A residual network tuned on validation nodes, by kind, depth and dropout: see ``Joint``.

    ``kind``, ``layers`` and ``dropout`` are those of the chosen network; before a choice is made,
    those of the first candidate. Other parameters hold for all candidates.

    >>> [(rival.kind, rival.layers) for rival in Tuned(hidden=64).candidates()]
    [('gcn', 2), ('gcn', 3), ('sage', 2), ('sage', 3), ('mlp', 2)]
    """

    name = "tuned"
    CANDIDATES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"kind": "gcn", "layers": 2, "dropout": 0.5},
        {"kind": "gcn", "layers": 3, "dropout": 0.3},
        {"kind": "sage", "layers": 2, "dropout": 0.5},
        {"kind": "sage", "layers": 3, "dropout": 0.3},
        {"kind": "mlp", "layers": 2, "dropout": 0.5},
    )
    networks_trained = len(CANDIDATES)

    def candidates(self) -> list[Tuned]:
        """Return the networks to choose among, without weights."""
        return [
            Tuned(heads=self.heads, hidden=self.hidden, **candidate)
            for candidate in self.CANDIDATES
        ]


class ResidualLayer(Convolution):
    """A residual layer, LayerNorm(A W h + R h + b), with ``near`` for A W."""

    def __init__(
        self, inputs: int, outputs: int, *, near: Convolution | None, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.near = near
        self.own = Linear(inputs, outputs, generator=generator)
        self.scale = nn.Parameter(torch.ones(outputs))
        self.shift = nn.Parameter(torch.zeros(outputs))

    def forward(self, adjacency: SparseOperator, state: Features) -> Tensor:
        assert isinstance(state, Tensor), "states are dense after the input layer"
        total: Tensor = self.own(state)
        if self.near is not None:
            total = total + self.near(adjacency, state)
        # The norm's own scale and shift would be summed per thread, which changes bits.
        return layer_norm(total, total.shape[1:]) * self.scale + self.shift

    def edge_scores(self, adjacency: SparseOperator, state: Features) -> Tensor:
        assert self.near is not None, "a layer without edges has no edge scores"
        return self.near.edge_scores(adjacency, state)


def _nothing(nodes: int, *, like: Tensor) -> Tensor:
    """Return an empty matrix on the device of ``like``.  -> CSR [nodes, nodes]"""
    indptr = torch.zeros(nodes + 1, dtype=torch.int32, device=like.device)
    columns = torch.zeros(0, dtype=torch.int32, device=like.device)
    return csr_tensor(indptr, columns, torch.zeros(0, device=like.device), (nodes, nodes))
