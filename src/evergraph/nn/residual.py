"""Residual networks: what a graph neural network does once it is tuned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from evergraph.core.checks import check_choice, check_integer
from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph, normalised
from evergraph.graphs.csr import csr_tensor, take_rows
from evergraph.graphs.operator import SparseOperator
from evergraph.nn.backbone import Recipe, backbones
from evergraph.nn.gat import HeadAttention
from evergraph.nn.gcn import GraphConvolution
from evergraph.nn.gnn import GNN, Convolution, Features, GraphInputs, multipliable, times
from evergraph.nn.linear import Linear

Kind = Literal["gcn", "sage", "gat", "mlp"]
KINDS: tuple[str, ...] = get_args(Kind)


@backbones.register
class Residual(GNN):
    """h ← dropout(relu(LayerNorm(A W h + R h + b))), after an input layer and before a linear one.

    The input layer is dropout(relu(W x + b)). R lets a node keep what it has, whatever its
    neighbours say, and the norm keeps several layers trainable: such networks are the strong
    baselines of Luo et al. (2024), where plain ones of the same kind are weak.

    Args:
        kind: what A is. ``gcn``: D^-1/2 (A + I) D^-1/2; ``sage``: the neighbours' mean; ``gat``:
            attention, which does not look at the weights of edges; ``mlp``: nothing, so that a
            node stands alone.
        heads: of attention.
        layers: how many such layers, and so how far a score looks.
        hidden, dropout, fanout: see ``GNN``.
    """

    name = "residual"
    # AdamW at a constant rate; the best weights on validation nodes are kept, so that the last
    # epoch may be a leap (docs/decisions/0012) and nothing is learned by heart.
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

    def __init__(
        self,
        *,
        kind: Kind = "gcn",
        heads: int = 8,
        layers: int = 2,
        hidden: int = 512,
        dropout: float = 0.5,
        fanout: Sequence[int] | None = None,
    ) -> None:
        check_choice("kind", kind, KINDS)
        check_integer("heads", heads, least=1)
        super().__init__(layers=layers, hidden=hidden, dropout=dropout, fanout=fanout)
        if kind == "gat" and hidden % heads:
            raise ConfigurationError(
                f"hidden must be a multiple of the {heads} heads, not {hidden!r}"
            )
        self.kind: Kind = kind
        self.heads = heads
        if kind == "mlp":
            self.hops = 0
        self.scores_edges = kind != "mlp"
        self.sees_weights = kind in ("gcn", "sage")
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
        near: Convolution | None = None
        if self.kind == "gat":
            near = HeadAttention(inputs, outputs, heads=self.heads, generator=generator)
        elif self.kind != "mlp":
            near = GraphConvolution(inputs, outputs, bias=False, generator=generator)
        return ResidualLayer(inputs, outputs, near=near, generator=generator)

    def begin(self, dims: int, *, generator: torch.Generator) -> None:
        """Make the layers."""
        width = self.hidden
        self.entry = Linear(dims, width, generator=generator).to(self.device)
        self.convolutions = nn.ModuleList(
            self._convolution(width, width, last=False, generator=generator)
            for _ in range(self.layers)
        ).to(self.device)
        self.out = Linear(width, 0, generator=generator).to(self.device)

    def grow(self, classes: int, *, generator: torch.Generator) -> None:
        """Widen the output."""
        assert self.out is not None, "begin comes first"
        self.out.grow(classes, generator=generator)

    def narrowed(self, inputs: GraphInputs, rows: Tensor) -> tuple[GraphInputs, Tensor | None]:
        """Return the features of some nodes alone where no other node is needed."""
        if self.kind != "mlp":
            return inputs, rows
        raw = take_rows(inputs.raw, rows)
        nothing = SparseOperator.of(_nothing(len(rows), like=raw))
        return GraphInputs(nothing, raw, multipliable(raw)), None

    def _run(
        self,
        adjacencies: Sequence[SparseOperator],
        features: Features,
        generator: torch.Generator | None,
    ) -> Tensor:
        assert self.out is not None, "begin comes first"
        between = partial(self._between, generator=generator)
        scores: Tensor = self.out(self._states(adjacencies, features, between)[-1])
        return scores

    def _states(
        self,
        adjacencies: Sequence[SparseOperator],
        features: Features,
        between: Callable[[Tensor], Tensor],
    ) -> list[Tensor]:
        """Return what leaves the input layer and each one after it."""
        assert self.entry is not None, "begin comes first"
        states = [between(self.entry.plus_bias(times(features, self.entry.weight)))]
        for layer, adjacency in zip(self._layers(), adjacencies, strict=True):
            states.append(between(layer(adjacency, states[-1])))
        return states

    def hidden_states(self, inputs: Any, rows: Tensor | None = None) -> Tensor:
        """Return what enters the last layer.  -> [rows, width]"""
        state = self._states([inputs.adjacency] * self.layers, inputs.features, torch.relu)[-1]
        return state if rows is None else state[rows]

    def edge_scores(self, inputs: Any) -> list[Tensor] | None:
        """Return how much each edge counts, layer by layer; None without edges."""
        if self.kind == "mlp":
            return None
        states = self._states([inputs.adjacency] * self.layers, inputs.features, torch.relu)
        pairs = zip(self._layers(), states[:-1], strict=True)
        return [layer.edge_scores(inputs.adjacency, state) for layer, state in pairs]


@backbones.register
class Tuned(Residual):
    """A residual network whose kind, depth and dropout validation nodes choose: see ``Joint``.

    ``kind``, ``layers`` and ``dropout`` are those of the network chosen; before a choice is made,
    of the first candidate. Other parameters hold for all of them.

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
    rivals = len(CANDIDATES)

    def candidates(self) -> list[Tuned]:
        """Return the networks to choose among, without weights."""
        if self.fanout is not None:
            raise ConfigurationError(
                "fanout is a number for each layer, and networks of two and of three layers are "
                "chosen among: use backbone 'residual' with it"
            )
        return [Tuned(heads=self.heads, hidden=self.hidden, **each) for each in self.CANDIDATES]


class ResidualLayer(Convolution):
    """LayerNorm(A W h + R h + b), with ``near`` for A W."""

    def __init__(
        self, inputs: int, outputs: int, *, near: Convolution | None, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.near = near
        self.own = Linear(inputs, outputs, generator=generator)
        self.scale = nn.Parameter(torch.ones(outputs))
        self.shift = nn.Parameter(torch.zeros(outputs))

    def forward(self, adjacency: SparseOperator, state: Features) -> Tensor:
        """Return the next layer's states, before ReLU.  [in, d] -> [out, width]"""
        assert isinstance(state, Tensor), "the input layer has made them dense"
        total: Tensor = self.own(state[: adjacency.shape[0]])  # rows are the first columns
        if self.near is not None:
            total = total + self.near(adjacency, state)
        # The norm's own scale and shift would be summed over threads: bits would depend on them.
        return layer_norm(total, total.shape[1:]) * self.scale + self.shift

    def grow(self, outputs: int, *, generator: torch.Generator) -> None:
        """Refuse: hidden layers keep their width."""
        raise AssertionError("only the output grows")

    def edge_scores(self, adjacency: SparseOperator, state: Features) -> Tensor:
        """Return how much each edge counts.  -> [entries] or [entries, heads]"""
        assert self.near is not None, "without edges there is nothing to score"
        return self.near.edge_scores(adjacency, state)


def _nothing(nodes: int, *, like: Tensor) -> Tensor:
    """Return a matrix without entries, where ``like`` is.  -> CSR [nodes, nodes]"""
    indptr = torch.zeros(nodes + 1, dtype=torch.int32, device=like.device)
    columns = torch.zeros(0, dtype=torch.int32, device=like.device)
    return csr_tensor(indptr, columns, torch.zeros(0, device=like.device), (nodes, nodes))
