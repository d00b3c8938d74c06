"""One layer of each kind: by hand, by its dense formula, and without a tensor of edges x width."""

from math import log
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from evergraph.graphs import Graph, normalised
from evergraph.graphs.operator import SparseOperator
from evergraph.nn import GAT, GCN, GIN, Backbone, GraphSAGE, backbones
from evergraph.nn.gcn import (
    GraphConvolution,
    HeadAttention,
    IsomorphismConvolution,
    MeanConvolution,
    OutputAttention,
)
from evergraph.nn.gnn import GNN
from graphs_to_draw import generator, graph_of, path_pairs, random_graph

close = torch.testing.assert_close
seeds = st.integers(0, 10_000)


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None]


#  0 - 1 - 2, and in the second graph 3 apart
PATH = graph_of(path_pairs(3), features=column(1, 2, 3))
PATH_AND_ONE = graph_of(path_pairs(3), features=column(1, 2, 3, 5))


def one_layer(backbone: Backbone) -> nn.Module:
    backbone.begin(1, generator=generator())
    backbone.grow(2, generator=generator())
    layer = backbone.eval().convolutions[0]
    return layer


@torch.no_grad()
def put(layer: object, weight: list[list[float]], bias: list[float] | None = None) -> None:
    layer.weight.copy_(torch.tensor(weight))
    if bias is not None:
        layer.bias.copy_(torch.tensor(bias))


@torch.no_grad()
def scores_of(backbone: Backbone, graph: Graph) -> Tensor:
    scores = backbone(backbone.prepare(graph))
    return scores


def test_a_convolution_by_hand():
    s = 6**-0.5  # Â of the path: [[1/2, s, 0], [s, 1/3, s], [0, s, 1/2]]
    for options, gathered in (
        ({}, [1 / 2 + 2 * s, s + 2 / 3 + 3 * s, 2 * s + 3 / 2]),
        ({"aggregation": "sum"}, [3, 6, 5]),  # over each node and its neighbours
    ):
        backbone = GCN(layers=1, **options)
        put(one_layer(backbone).linear, [[2.0], [-1.0]], [0.5, 0.0])
        expected = torch.tensor([[2 * value + 0.5, -value] for value in gathered])
        close(scores_of(backbone, PATH), expected)
    backbone = GCN(layers=1, aggregation="sum", bias=False)
    put(one_layer(backbone).linear, [[2.0], [-1.0]])
    assert scores_of(backbone, PATH).tolist() == [[6, -3], [12, -6], [10, -5]]
    assert len(list(backbone.parameters())) == 1


def test_narrow_layers_without_bias_can_be_trained():
    graph = random_graph(0)
    backbone = GCN(bias=False, hidden=1)
    backbone.begin(graph.num_features, generator=generator())
    backbone.grow(2, generator=generator())
    backbone.train()
    backbone(backbone.prepare(graph), torch.arange(2), generator=generator()).sum().backward()
    assert all(weights.grad is not None for weights in backbone.parameters())


def test_an_isomorphism_layer_by_hand():
    backbone = GIN(layers=1, hidden=2)
    layer = one_layer(backbone)
    put(layer.first, [[1.0], [-1.0]], [-4.0, 4.0])
    put(layer.second, [[1.0, 10.0], [2.0, -1.0]], [0.0, 1.0])
    # sums 3, 6, 5; hidden units relu(s - 4), relu(4 - s): [0, 1], [2, 0], [1, 0]
    assert scores_of(backbone, PATH).tolist() == [[10, 0], [2, 5], [1, 3]]


def test_own_state_and_neighbours_mean_by_hand():
    backbone = GraphSAGE(layers=1)
    layer = one_layer(backbone)
    put(layer.own, [[1.0], [2.0]], [0.0, 1.0])
    put(layer.near, [[10.0], [-1.0]])
    # means of the neighbours: 2, 2, 2, and 0 where there are none
    assert scores_of(backbone, PATH_AND_ONE).tolist() == [[21, 1], [22, 3], [23, 5], [5, 11]]


def test_attention_by_hand():
    backbone = GAT(layers=1)
    layer = one_layer(backbone)
    put(layer.linear, [[1.0], [-2.0]], [0.0, 1.0])
    with torch.no_grad():
        layer.query.fill_(0.0)
        layer.key.fill_(log(2.0))
    graph = graph_of(path_pairs(3), 3)
    # weights before the softmax's denominator: 1, 2 and 4, whoever looks
    means = [(0 + 2) / 3, (0 + 2 + 8) / 7, (2 + 8) / 6]
    close(scores_of(backbone, graph), torch.tensor([[mean, 1 - 2 * mean] for mean in means]))


def test_scores_below_zero_count_a_fifth_by_hand():
    backbone = GAT(layers=1)
    layer = one_layer(backbone)
    put(layer.linear, [[1.0], [1.0]], [0.0, 0.0])
    with torch.no_grad():
        layer.query.fill_(-5 * log(2.0))
        layer.key.fill_(0.0)
    graph = graph_of([(0, 1)], features=column(1, -3))
    # node 0 sees -5 log 2 everywhere and node 1 +15 log 2: a plain mean for both, below and above
    close(scores_of(backbone, graph), torch.full((2, 2), -1.0))
    with torch.no_grad():
        layer.query.fill_(0.0)
        layer.key.fill_(5 * log(2.0))
    # scores of 0 and 1: 5 log 2 and -15 log 2 / 5, so weights 32 and 1/8
    close(scores_of(backbone, graph), torch.full((2, 2), (32 - 3 / 8) / (32 + 1 / 8)))


def test_attention_stays_finite_however_large_its_scores():
    backbone = GAT(layers=1)
    layer = one_layer(backbone)
    with torch.no_grad():
        layer.key.fill_(1000.0)
    graph = graph_of(path_pairs(3), features=column(-3, 1, 2))
    put(layer.linear, [[1.0], [2.0]], [0.0, 0.0])
    close(scores_of(backbone, graph), torch.tensor([[1.0, 2.0], [2.0, 4.0], [2.0, 4.0]]))
    backbone(backbone.prepare(graph)).sum().backward()
    assert all(bool(weight.grad.isfinite().all()) for weight in backbone.parameters())


def sparse_graph(seed: int, *, undirected: bool) -> Graph:
    """About three neighbours a node, and a few nodes without any."""
    return random_graph(seed, edges=36, dims=5, apart=2, undirected=undirected)


def attended(
    adjacency: Tensor, values: Tensor, queries: Tensor, keys: Tensor
) -> Tensor:  # all dense
    scores = nn.functional.leaky_relu(queries[:, None] + keys[None, :], 0.2)
    return torch.softmax(scores.masked_fill(adjacency == 0, -torch.inf), dim=1) @ values


@given(seed=seeds, undirected=st.booleans(), heads=st.sampled_from([1, 2, 4]))
def test_every_head_attends_over_its_own_part(seed, undirected, heads):
    graph = sparse_graph(seed, undirected=undirected)
    matrix = normalised(graph, scheme="none")
    layer = HeadAttention(5, 8, heads=heads, generator=generator(seed))
    mapped = graph.features @ layer.linear.weight.T
    parts = [
        attended(matrix.to_dense(), part, part @ layer.query[head], part @ layer.key[head])
        for head, part in enumerate(mapped.split(8 // heads, dim=1))
    ]
    expected = torch.cat(parts, dim=1) + layer.linear.bias
    ours = layer(SparseOperator.of(matrix), graph.features)
    close(ours, expected)
    weights, probe = list(layer.parameters()), torch.randn(12, 8, generator=generator(seed))
    close(
        *(torch.autograd.grad((out * probe).sum(), weights) for out in (ours, expected)),
        atol=1e-4,
        rtol=1e-4,
    )


@given(seed=seeds)
def test_the_last_layer_attends_by_the_hidden_states(seed):
    graph = sparse_graph(seed, undirected=True)
    matrix = normalised(graph, scheme="none")
    layer = OutputAttention(5, 3, generator=generator(seed))
    H = graph.features
    queries, keys = H @ layer.query[0], H @ layer.key[0]
    expected = attended(matrix.to_dense(), H @ layer.linear.weight.T, queries, keys)
    close(layer(SparseOperator.of(matrix), H), expected + layer.linear.bias)


@given(seed=seeds)
def test_edge_scores_are_read_where_the_edges_are(seed):
    graph = sparse_graph(seed, undirected=False)
    H, source = graph.features, generator(seed)
    adjacency = SparseOperator.of(normalised(graph))
    i, j = adjacency.rows, adjacency.matrix.col_indices().long()
    for layer, linear in (
        (gcn := GraphConvolution(5, 3, bias=True, generator=source), gcn.linear),
        (gin := IsomorphismConvolution(5, 4, 3, generator=source), gin.first),
        (sage := MeanConvolution(5, 3, generator=source), sage.near),
    ):
        mapped = H @ linear.weight.T
        close(layer.edge_scores(adjacency, H), (mapped[i] * mapped[j].tanh()).sum(1))
    heads = HeadAttention(5, 8, heads=2, generator=source)
    by_head = (H @ heads.linear.weight.T).view(12, 2, 4)
    queries, keys = (by_head * heads.query).sum(2), (by_head * heads.key).sum(2)
    expected = nn.functional.leaky_relu(queries[i] + keys[j], 0.2)
    close(heads.edge_scores(adjacency, H), expected)
    last = OutputAttention(5, 3, generator=source)
    expected = nn.functional.leaky_relu((H @ last.query.T)[i] + (H @ last.key.T)[j], 0.2)
    close(last.edge_scores(adjacency, H), expected)


@pytest.mark.parametrize("outputs", [3, 9])  # fewer and more than the 5 inputs
@settings(max_examples=8)
@given(seed=seeds)
def test_the_order_of_the_products_changes_nothing(outputs, seed):
    graph = sparse_graph(seed, undirected=True)
    A, H, source = normalised(graph), graph.features, generator(seed)
    gcn = GraphConvolution(5, outputs, bias=True, generator=source)
    close(gcn(SparseOperator.of(A), H), gcn.linear(A.to_dense() @ H))
    gin = IsomorphismConvolution(5, outputs, 2, generator=source)
    close(gin(SparseOperator.of(A), H), gin.second(gin.first(A.to_dense() @ H).relu()))
    sage = MeanConvolution(5, outputs, generator=source)
    close(sage(SparseOperator.of(A), H), sage.own(H) + sage.near(A.to_dense() @ H))


def test_layers_follow_one_another_with_a_relu_between():
    graph = sparse_graph(1, undirected=True)
    backbone = GCN(hidden=7, layers=3)
    backbone.begin(5, generator=generator())
    backbone.grow(2, generator=generator())
    A = normalised(graph).to_dense()
    first, second, last = (layer.linear for layer in backbone.convolutions)
    states = second(A @ first(A @ graph.features).relu()).relu()
    inputs = backbone.prepare(graph)
    close(backbone.hidden_states(inputs), states)
    close(backbone(inputs), last(A @ states))


NODES, DIMS, WIDTH, HEADS = 80, 24, 64, 8
GNNS = [name for name in backbones.names() if issubclass(backbones.resolve(name), GNN)]


class Watch(TorchDispatchMode):
    """Notes the largest tensor that any operation, forward or backward, puts out."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for output in tree_leaves(outputs):
            if isinstance(output, Tensor):
                dense = output.layout == torch.strided
                self.largest = max(self.largest, output.numel() if dense else output._nnz())
        return outputs


@pytest.fixture(scope="module")
def crowd() -> Graph:
    """Everyone is everyone's neighbour: edges x width is 80 times nodes x width."""
    return Graph.from_edges(
        torch.combinations(torch.arange(NODES)).T,
        features=torch.randn(NODES, DIMS, generator=torch.Generator().manual_seed(0)),
        labels=torch.zeros(NODES, dtype=torch.int64),
        undirected=True,
    )


def largest_of_a_step(model: Any, *inputs: Any, **options: Any) -> int:
    with Watch() as watch:
        scores = model(*inputs, **options)
        scores.square().sum().backward()
    return watch.largest


@pytest.mark.parametrize("name", GNNS)
def test_a_training_step_makes_nothing_as_large_as_messages(name, crowd):
    generator = torch.Generator().manual_seed(0)
    backbone = backbones.make(name, hidden=WIDTH)
    backbone.begin(DIMS, generator=generator)
    backbone.grow(5, generator=generator)
    inputs, rows = backbone.prepare(crowd), torch.arange(NODES)
    largest = largest_of_a_step(backbone.train(), inputs, rows, generator=generator)
    assert largest >= NODES * WIDTH  # the states were seen
    assert largest <= HEADS * (crowd.num_edges + NODES)
    assert HEADS * (crowd.num_edges + NODES) < crowd.num_edges * DIMS  # messages of any layer


def test_messages_would_have_been_noticed(crowd):
    weights = torch.ones(DIMS, WIDTH, requires_grad=True)

    def materialised(features, targets, sources):
        messages = (features @ weights)[sources]
        return torch.zeros(NODES, WIDTH).index_add(0, targets, messages)

    ends = crowd.edge_rows(), crowd.indices.long()
    assert largest_of_a_step(materialised, crowd.features, *ends) >= crowd.num_edges * WIDTH
