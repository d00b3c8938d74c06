"""PDGNN: a parameter-free f_topo with a trainable f_out, an MLP; and SGC, a special case."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Generator, Tensor, nn

from evergraph.core.component import Made
from evergraph.core.errors import check_integer, check_number
from evergraph.core.resources import Resources
from evergraph.graphs import Graph
from evergraph.graphs.csr import take_rows
from evergraph.nn.backbone import Backbone, Recipe, backbones
from evergraph.nn.linear import Linear, dropout_mask
from evergraph.topology import SGC, EmbeddingCache, TopologyEncoder, topologies
from evergraph.topology.cached import Scaling, Storage


class GrowingHead(nn.Module):
    """Class scores from hidden states by a linear map that grows with the classes seen.

    ``forward`` needs a generator only if dropout is active.
    """

    dropout: float
    out: Linear

    def grow(self, classes: int, *, generator: Generator) -> None:
        """Widen the output to ``classes``; existing classes keep their weights."""
        self.out.grow(classes, generator=generator)

    def forward(self, embeddings: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Return class scores.  [n, dims] -> [n, classes]"""
        if self.training and self.dropout:
            assert generator is not None, "dropout needs a generator"
        scores: Tensor = self.out(self.hidden_states(embeddings, generator=generator))
        return scores

    @abstractmethod
    def hidden_states(self, embeddings: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Return the inputs of the last layer; without a generator nothing is dropped.

        [n, dims] -> [n, width]
        """

    def _dropped(self, states: Tensor, generator: Generator | None) -> Tensor:
        if not (self.training and self.dropout and generator is not None):
            return states
        return states * dropout_mask(states.shape, self.dropout, generator=generator)


class MLP(GrowingHead):
    """f_out of the paper: an MLP from embeddings to class scores, with ReLU between layers.

    Args:
        dims: width of an embedding.
        hidden: width of each hidden layer; empty for a linear head.
        bias: whether layers have a bias (the released code's have none).
        dropout: share of hidden units dropped in training.

    >>> head = MLP(3, hidden=(4,), generator=torch.Generator().manual_seed(0))
    >>> head.grow(2, generator=torch.Generator().manual_seed(0))
    >>> head(torch.ones(5, 3)).shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        dims: int,
        *,
        hidden: tuple[int, ...] = (256,),
        bias: bool = True,
        dropout: float = 0.0,
        generator: Generator,
    ) -> None:
        super().__init__()
        check_head(hidden, dropout)
        self.dropout = dropout
        widths = (dims, *hidden)
        self.hidden = nn.ModuleList(
            Linear(i, o, bias=bias, generator=generator) for i, o in pairwise(widths)
        )
        self.out = Linear(widths[-1], 0, bias=bias, generator=generator)

    def hidden_states(self, embeddings: Tensor, *, generator: Generator | None = None) -> Tensor:
        state = embeddings
        for layer in self.hidden:
            state = self._dropped(torch.relu_(layer(state)), generator)
        return state


def check_head(hidden: tuple[int, ...], dropout: float) -> None:
    """Raise unless an MLP can be made with these parameters."""
    for width in hidden:
        check_integer("hidden", width, least=1)
    check_number("dropout", dropout, least=0.0, most=0.99)


# Rows classified at a time, so that hidden layers of a large test set fit in memory.
PREDICT_ROWS = 1 << 16


@backbones.register
@dataclass(kw_only=True, eq=False, repr=False)
class PDGNN(Backbone):
    """The paper's decoupled model f_out(f_topo(ego-subnetwork)), f_topo computed once per graph.

    Args:
        topology: f_topo; ``SGC(hops=2)``, the paper's, by default.
        hidden, bias, dropout: parameters of f_out, see ``MLP``.
        scaling: ``unit`` scales embeddings to unit length, ``none`` leaves them unchanged.
        storage: of embeddings, see ``EmbeddingCache``.

    >>> graph = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.eye(2),
    ...                          labels=torch.tensor([0, 1]), undirected=True)
    >>> model = PDGNN(hidden=(4,))
    >>> model.begin(2, generator=torch.Generator())
    >>> model.grow(3, generator=torch.Generator())
    >>> model.eval()(model.prepare(graph), torch.tensor([0])).shape
    torch.Size([1, 3])
    """

    name = "pdgnn"
    recipe = Recipe(epochs=30, lr=0.005, weight_decay=1e-5, batch_size=512)

    topology: Made[TopologyEncoder] = Made(topologies, default=SGC)
    hidden: Sequence[int] = (512,)
    bias: bool = True
    dropout: float = 0.5
    scaling: Scaling = "unit"
    storage: Storage = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        super().__init__(hops=self.topology.hops)
        self.hidden = tuple(self.hidden)
        check_head(self.hidden, self.dropout)
        self.embeddings = EmbeddingCache(self.topology, scaling=self.scaling, storage=self.storage)
        self.head: MLP | None = None

    def begin(self, dims: int, *, generator: torch.Generator) -> None:
        options: dict[str, Any] = {n: getattr(self, n) for n in ("hidden", "bias", "dropout")}
        self.head = MLP(dims, generator=generator, **options).to(self.device)

    @property
    def begun(self) -> bool:
        return self.head is not None

    def grow(self, classes: int, *, generator: torch.Generator) -> None:
        assert self.head is not None
        self.head.grow(classes, generator=generator)

    def prepare(self, graph: Graph) -> Tensor:
        return self.embeddings(graph)

    def width_of(self, inputs: Tensor) -> int:
        return inputs.shape[1]

    def narrowed(self, inputs: Tensor, rows: Tensor) -> tuple[Tensor, None]:
        return self.taken(inputs, rows), None

    def taken(self, inputs: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return some embeddings on the model's device.  -> float32 [rows, dims]"""
        if rows is not None:
            inputs = take_rows(inputs, rows.to(inputs.device), resources=self.embeddings.resources)
        return inputs.to(self.device, torch.float32)

    def forward(
        self, inputs: Any, rows: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        assert self.head is not None
        if self.training:
            # A step's rows are multiplied at once, without a check of free memory.
            batch = inputs if rows is None else take_rows(inputs, rows.to(inputs.device))
            scores: Tensor = self.head(batch.to(self.device, torch.float32), generator=generator)
            return scores
        embeddings = self.taken(inputs, rows)
        return torch.cat([self.head(part) for part in embeddings.split(PREDICT_ROWS)])

    def step_work(self, rows: int) -> int | None:
        return rows * sum(parameter.numel() for parameter in self.parameters())

    def hidden_states(self, inputs: Any, rows: Tensor | None = None) -> Tensor:
        assert self.head is not None
        return self.head.hidden_states(self.taken(inputs, rows))

    def place(self, device: torch.device, resources: Resources | None = None) -> None:
        super().place(device, resources)
        self.embeddings = EmbeddingCache(
            self.topology,
            scaling=self.scaling,
            device=device,
            storage=self.storage,
            resources=resources,
        )

    @property
    def embed_seconds(self) -> float:
        return self.embeddings.seconds


@backbones.register
class SimpleConvolution(PDGNN):
    """Â^L X with a small MLP, without scaling (Wu et al. 2019, as used by CGLB).

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
        if name == "hidden":  # a list of widths elsewhere, one width here
            return self.hidden[0] if self.hidden else 0
        return super()._parameter_value(name)
