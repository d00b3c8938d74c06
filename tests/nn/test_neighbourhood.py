"""Neighbours drawn layer by layer: all give the whole graph's scores, some estimate them."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph, normalised, reach
from evergraph.graphs.disjoint import disjoint_union
from evergraph.graphs.operator import SparseOperator
from evergraph.nn import Backbone, backbones
from evergraph.nn.gnn import ALL, sample_neighbourhood
from graphs_to_draw import few_each, generator, graph_of, star_pairs

GNNS = [name for name in backbones.names() if "fanout" in backbones.parameters(name)]
every_gnn = pytest.mark.parametrize("name", GNNS)
close = torch.testing.assert_close

edges = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14)
seeds = st.integers(0, 10_000)
some_rows = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)


X = torch.randn(6, 4, generator=generator())
STAR = graph_of(star_pairs(5), features=X)


class Around(NamedTuple):
    nodes: Tensor
    operators: list[SparseOperator]


def drawn(
    graph: Graph, rows: list[int], fanouts: list[int], *, seed: int = 0, self_loops: bool = False
) -> Around:
    adjacency = normalised(graph, self_loops=self_loops, scheme="none")
    draw = generator(seed)
    return Around(
        *sample_neighbourhood(adjacency, torch.tensor(rows), fanouts=fanouts, generator=draw)
    )


def test_all_neighbours_of_two_nodes_by_hand() -> None:
    around = drawn(STAR, [3, 0], [ALL])
    assert around.nodes.tolist() == [3, 0, 1, 2, 4, 5]
    (block,) = around.operators
    # 3 gathers from 0, which is column 1; 0 from all but itself
    assert block.matrix.to_dense().tolist() == [[0, 1, 0, 0, 0, 0], [1, 0, 1, 1, 1, 1]]


def test_two_of_five_neighbours_count_five_halves_each() -> None:
    around = drawn(STAR, [0], [2])
    (block,) = around.operators
    assert around.nodes[0] == 0
    assert len(around.nodes) == 3
    assert block.matrix.to_dense().tolist() == [[0, 2.5, 2.5]]


def test_layers_are_drawn_from_the_rows_outwards() -> None:
    # the features' layer comes first: one neighbour there, all of them next to the rows
    around = drawn(STAR, [1], [1, ALL])
    outer, inner = around.operators
    assert around.nodes[:2].tolist() == [1, 0]
    assert inner.matrix.to_dense().tolist() == [[0, 1]]
    assert outer.matrix.values().tolist() == [1, 5]  # node 1 has one neighbour, node 0 five
    assert outer.shape == (2, len(around.nodes))


@given(edges=edges, rows=some_rows, seed=seeds, self_loops=st.booleans(),
       fanouts=st.lists(st.sampled_from([ALL, 1, 2, 3]), min_size=1, max_size=3))  # fmt: skip
def test_what_is_drawn_are_neighbours_each_once_and_no_more_than_asked(
    edges: list[tuple[int, int]], rows: list[int], seed: int, self_loops: bool, fanouts: list[int]
) -> None:
    graph = graph_of(edges, features=X)
    around = drawn(graph, rows, fanouts, seed=seed, self_loops=self_loops)
    whole = normalised(graph, self_loops=self_loops, scheme="none").to_dense()
    assert around.nodes[: len(rows)].tolist() == rows
    assert len(around.nodes.unique()) == len(around.nodes)
    assert set(around.nodes.tolist()) <= set(
        torch.cat(reach(graph, torch.tensor(rows), hops=len(fanouts))).tolist()
    )
    outputs = [operator.shape[0] for operator in around.operators]
    inputs = [operator.shape[1] for operator in around.operators]
    assert outputs[-1] == len(rows)
    assert inputs == [len(around.nodes), *outputs[:-1]]
    for operator, fanout in zip(around.operators, fanouts, strict=True):
        targets, sources = around.nodes[: operator.shape[0]], around.nodes[: operator.shape[1]]
        degrees = whole[targets].sum(1)
        counts = operator.matrix.crow_indices().diff()
        assert counts.equal((degrees if fanout == ALL else degrees.clamp(max=fanout)).int())
        matrix = operator.matrix.to_dense()
        assert bool((whole[targets][:, sources][matrix != 0] == 1).all())
        assert int((matrix != 0).sum()) == int(counts.sum())  # so none twice
        close(matrix.sum(1), degrees)  # weights make up for those left out


def test_the_same_seed_draws_the_same() -> None:
    before = torch.get_rng_state()
    first, again = (drawn(STAR, [0, 3], [2, 2], seed=4) for _ in range(2))
    assert first.nodes.equal(again.nodes)
    for one, same in zip(first.operators, again.operators, strict=True):
        assert one.matrix.to_dense().equal(same.matrix.to_dense())
    others = {tuple(sorted(drawn(STAR, [0], [2], seed=seed).nodes.tolist())) for seed in range(60)}
    assert len(others) == 10  # every pair out of five
    assert torch.get_rng_state().equal(before)


DRAWS = 1500


@pytest.mark.parametrize("scheme", ["none", "symmetric", "row"])
@pytest.mark.parametrize("fanout", [1, 2, 4])
def test_a_sampled_sum_is_right_on_average(scheme: str, fanout: int) -> None:
    stars = disjoint_union([STAR] * DRAWS)  # one call draws around every middle
    adjacency, middles = normalised(stars, scheme=scheme), 6 * torch.arange(DRAWS)  # type: ignore[arg-type]
    nodes, (block,) = sample_neighbourhood(
        adjacency, middles, fanouts=[fanout], generator=generator(1)
    )
    draws = (block @ stars.features[nodes]).double()
    exact = (normalised(STAR, scheme=scheme).to_dense() @ STAR.features)[0]  # type: ignore[arg-type]
    error = (draws.mean(0) - exact).abs()
    assert bool((draws.std(0) > 0.01).all())
    assert bool((error <= 4 * draws.std(0) / DRAWS**0.5).all())


def ready(name: str, graph: Graph, **options: object) -> Backbone:
    backbone = backbones.make(name, **{"dropout": 0.0, "hidden": 16, **options})
    backbone.begin(graph.num_features, generator=generator())
    backbone.grow(3, generator=generator(1))
    return backbone


def learned(backbone: Backbone, graph: Graph, rows: Tensor) -> list[Tensor]:
    """The scores of some rows in training, and the gradients they give."""
    scores = backbone.train()(backbone.prepare(graph), rows, generator=generator(5))
    scores.square().sum().backward()
    return [scores.detach(), *(weight.grad for weight in backbone.parameters())]  # type: ignore[misc]


@every_gnn
@few_each
@given(edges=edges, rows=some_rows, layers=st.integers(1, 3), sparse=st.booleans())
def test_with_all_neighbours_scores_and_gradients_are_the_whole_graphs(
    name: str, edges: list[tuple[int, int]], rows: list[int], layers: int, sparse: bool
) -> None:
    graph = graph_of(edges, features=torch.eye(6, 60) * 3.0 if sparse else X)
    if sparse:
        graph = graph.with_features(graph.features.to_sparse_csr())
    wanted = torch.tensor(rows)
    whole = learned(ready(name, graph, layers=layers), graph, wanted)
    sampled = learned(ready(name, graph, layers=layers, fanout=[ALL] * layers), graph, wanted)
    close(sampled, whole, atol=1e-4, rtol=1e-4)


@every_gnn
def test_few_neighbours_train_every_weight(name: str) -> None:
    wanted = torch.tensor([0, 4])
    scores, *gradients = learned(ready(name, STAR, fanout=(3, 2)), STAR, wanted)
    assert scores.shape == (2, 3)
    assert all(bool(gradient.isfinite().all()) and bool(gradient.any()) for gradient in gradients)
    again, *_ = learned(ready(name, STAR, fanout=(3, 2)), STAR, wanted)
    assert again.equal(scores)


@every_gnn
def test_neighbours_are_drawn_for_rows_in_training_alone(name: str) -> None:
    backbone, whole = ready(name, STAR, fanout=(1, 1)), ready(name, STAR)
    inputs, rows = backbone.prepare(STAR), torch.tensor([0, 1])
    close(backbone.train()(inputs), whole(inputs))
    close(backbone.eval()(inputs, rows), whole(inputs)[rows])
    assert not torch.allclose(
        backbone.train()(inputs, rows, generator=generator()), whole(inputs)[rows]
    )


@pytest.mark.parametrize(
    "fanout", [(), (5,), (5, 5, 5), (5, 0), (-2, 5), (2.5, 1), (True, 1), ("5", "5"), "55", 5]
)
def test_fan_outs_that_make_no_sense_are_refused(fanout: object) -> None:
    message = "fanout must be 2 integers, one per layer, each at least 1 or -1 for all, not "
    with pytest.raises(ConfigurationError, match=message):
        backbones.make("gcn", fanout=fanout)
