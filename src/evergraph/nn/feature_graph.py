"""The feature graph network: a node becomes a small graph of its features."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn

from evergraph.core.errors import ConfigurationError, check_integer
from evergraph.nn.backbone import backbones
from evergraph.nn.linear import Linear
from evergraph.nn.pdgnn import PDGNN, GrowingHead, check_head
from evergraph.topology.mixhop import ViewHops

# A feature graph has width² entries per relation. At 256 a step on 512 nodes holds 134 MB of them,
# about as much as everything else in a run; the 767 features of Computers would take 1.2 GB.
MAX_WIDTH = 256
# Entries of feature graphs held at a time in prediction: 64 MB.
BLOCK_VALUES = 1 << 24


def feature_adjacency(features: Tensor, neighbour_sums: Tensor) -> Tensor:
    """Return the interaction strength of each pair of a node's features.  2 x [n, F] -> [n, F, F]

    A = sgnroot(x sᵀ + s xᵀ), sgnroot(a) = sign(a) √|a|, each row divided by the sum of its absolute
    values. With s = Σ_w Â_vw x_w this is the sum of the cross-correlations x_v x_wᵀ + x_w x_vᵀ over
    the neighbours w, since a sum of products with one and the same x_v is a product with the sum.

    >>> feature_adjacency(torch.tensor([[1., 0.]]), torch.tensor([[2., 8.]]))  # sgnroot [4 8; 8 0]
    tensor([[[0.4142, 0.5858],
             [1.0000, 0.0000]]])
    """
    crossed = features[:, :, None] * neighbour_sums[:, None, :]
    crossed = crossed + crossed.transpose(1, 2)
    rooted = crossed.abs().sqrt_().copysign_(crossed)
    sizes = rooted.abs().sum(2, keepdim=True)
    return rooted.div_(sizes.clamp_min_(torch.finfo(sizes.dtype).tiny))


class FeatureConvolution(nn.Module):
    """Convolution on every node's feature graph: H ← H W_0ᵀ + Σ_k A_k H W_kᵀ + b; k: relations."""

    def __init__(self, inputs: int, outputs: int, *, relations: int, generator: Generator) -> None:
        super().__init__()
        self.own = Linear(inputs, outputs, generator=generator)
        self.near = nn.ModuleList(
            Linear(inputs, outputs, bias=False, generator=generator) for _ in range(relations)
        )

    def forward(self, adjacencies: Sequence[Tensor], state: Tensor) -> Tensor:
        """Return the next states.  [n, F, F] each, [n, F, inputs] -> [n, F, outputs]"""
        result: Tensor = self.own(state)
        for adjacency, linear in zip(adjacencies, self.near, strict=True):
            result = torch.baddbmm(result, adjacency, linear(state))
        return result


class FeatureGraphHead(GrowingHead):
    """f_out on feature graphs: from x_v and s_v of every relation to class scores.

    A node's features start with one channel, the value itself; convolutions with ReLU between them
    widen it, and a linear map reads all channels of all features.

    Args:
        dims: F, the number of features.
        relations: number of vectors s_v that follow x_v in an embedding.
        channels: channels of every convolution.
        dropout: share of the last layer's inputs dropped in training.
    """

    def __init__(
        self,
        dims: int,
        *,
        relations: int,
        channels: Sequence[int],
        dropout: float,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.dims = dims
        self.dropout = dropout
        self.convolutions = nn.ModuleList(
            FeatureConvolution(i, o, relations=relations, generator=generator)
            for i, o in pairwise((1, *channels))
        )
        self.out = Linear(dims * channels[-1], 0, generator=generator)

    def hidden_states(self, embeddings: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Return all channels of all features.  [n, (relations + 1) F] -> [n, F channels]"""
        block_rows = len(embeddings) if self.training else max(BLOCK_VALUES // self.dims**2, 1)
        states = []
        for part in embeddings.split(max(block_rows, 1)):
            own_features, *neighbour_features = part.split(self.dims, dim=1)
            adjacencies = [
                feature_adjacency(own_features, features) for features in neighbour_features
            ]
            # Rows have length 1: this scales their values to about 1.
            state: Tensor = (own_features * self.dims**0.5)[:, :, None]
            for convolution in self.convolutions:
                state = torch.relu_(convolution(adjacencies, state))
            states.append(state.flatten(1))
        return self._dropped(torch.cat(states), generator)


@backbones.register
class FeatureGraph(PDGNN):
    """Classifies a node by the graph of its features (after Wang et al., CVPR 2022).

    A_k(v) = sgnroot(Σ_w (Â^k)_vw (x_v x_wᵀ + x_w x_vᵀ)), k = 1 .. ``hops``, joins the features of
    v; a convolution on it is H ← ReLU(H W_0ᵀ + Σ_k A_k H W_kᵀ + b), see ``feature_adjacency``.
    Every node is an independent sample, so any method that learns from a sequence of samples can
    learn from a growing graph.

    A_k(v) is computed from x_v and (Â^k X)_v alone, which have no trained parameters: a memory
    keeps these (hops + 1) x width numbers per node, not width².

    Args:
        hops: number of relations; the k-th joins a node with those k hops away.
        width: F, the maximum number of features, 256 or fewer. Wider features are projected by a
            fixed random matrix, see ``ViewHops``.
        channels: channels of every convolution.
        dropout: share of the last layer's inputs dropped in training.

    >>> from evergraph.graphs import Graph
    >>> graph = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.eye(2),
    ...                          labels=torch.tensor([0, 1]), undirected=True)
    >>> model = FeatureGraph(channels=(4,))
    >>> model.begin(2, generator=torch.Generator())
    >>> model.grow(3, generator=torch.Generator())
    >>> model.eval()(model.prepare(graph)).shape
    torch.Size([2, 3])
    """

    name = "feature-graph"
    head: FeatureGraphHead | None  # type: ignore[assignment]

    def __init__(
        self,
        *,
        hops: int = 1,
        width: int = 64,
        channels: Sequence[int] = (16, 16),
        dropout: float = 0.5,
    ) -> None:
        check_integer("hops", hops, least=1)
        check_integer("width", width, least=1)
        if width > MAX_WIDTH:
            raise ConfigurationError(
                f"width must be at most {MAX_WIDTH}, since a node costs width² numbers, not {width}"
            )
        check_integer("number of channels", len(channels), least=1)
        check_head(tuple(channels), dropout)
        topology = ViewHops(kept_hops=range(hops + 1), widest=width)
        super().__init__(topology=topology, hidden=(), dropout=dropout)
        self.width = width
        self.channels = tuple(channels)

    def begin(self, dims: int, *, generator: Generator) -> None:
        self.head = FeatureGraphHead(
            dims,
            relations=self.hops,
            channels=self.channels,
            dropout=self.dropout,
            generator=generator,
        ).to(self.device)

    def width_of(self, inputs: Tensor) -> int:
        return inputs.shape[1] // (self.hops + 1)

    def step_work(self, rows: int) -> int | None:
        if self.head is None:
            return None
        convolution_work = self.head.dims**2 * self.hops * (1 + sum(self.channels))
        return rows * (convolution_work + self.head.out.weight.numel())
