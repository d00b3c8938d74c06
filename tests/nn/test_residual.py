"""Residual networks: the formula by hand, and each of its terms."""

import pytest
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.methods import methods
from evergraph.nn import Residual, Tuned
from evergraph.nn.residual import KINDS
from graphs_to_draw import graph_of, path_pairs

close = torch.testing.assert_close

#  0 - 1 - 2   3
X = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0], [1.0, 1.0]])
FOUR = graph_of(path_pairs(3), features=X)


def made(kind: str, *, graph: Graph = FOUR, **options: float) -> Residual:
    """A network of one layer of three units and two classes, with random weights."""
    given = {"layers": 1, "hidden": 3, "heads": 1, "dropout": 0.0} | options
    model = Residual(kind=kind, **given)
    model.begin(2, generator=torch.Generator().manual_seed(1))
    model.grow(2, generator=torch.Generator().manual_seed(2))
    return model.eval()


def scores(model: Residual, graph: Graph = FOUR) -> torch.Tensor:
    return model(model.prepare(graph)).detach()


# Rows of A for the path 0 - 1 - 2 and the lone node 3, worked out by hand.
ROOT = 6**-0.5
BY_HAND = {
    "gcn": [[1 / 2, ROOT, 0, 0], [ROOT, 1 / 3, ROOT, 0], [0, ROOT, 1 / 2, 0], [0, 0, 0, 1]],
    "sage": [[0, 1, 0, 0], [1 / 2, 0, 1 / 2, 0], [0, 1, 0, 0], [0, 0, 0, 0]],
}


@pytest.mark.parametrize("kind", ["gcn", "sage", "mlp"])
def test_the_formula_on_four_nodes_by_hand(kind):
    model = made(kind)
    entry, (layer,), out = model.entry, model._layers(), model.out
    with torch.no_grad():
        layer.scale.copy_(torch.tensor([1.0, 2.0, 0.5]))
        layer.shift.copy_(torch.tensor([0.1, 0.0, -0.2]))
        state = (X @ entry.weight.t() + entry.bias).clamp_min(0)
        total = state @ layer.own.weight.t() + layer.own.bias
        if kind != "mlp":
            total = total + torch.tensor(BY_HAND[kind]) @ state @ layer.near.linear.weight.t()
        mean = total.mean(1, keepdim=True)
        spread = ((total - mean).square().mean(1, keepdim=True) + 1e-5).sqrt()
        state = ((total - mean) / spread * layer.scale + layer.shift).clamp_min(0)
        expected = state @ out.weight.t() + out.bias
    close(scores(model), expected)
    close(model.hidden_states(model.prepare(FOUR)).detach(), state)


def test_attention_among_equal_neighbours_is_their_mean():
    alike = FOUR.with_features(torch.ones(4, 2))
    model = made("gat")
    (layer,) = model._layers()
    state = model.entry(torch.ones(1, 2)).relu()
    total = layer.own(state) + layer.near.linear(state)  # weights that sum to one
    expected = model.out(torch.nn.functional.layer_norm(total, (3,)).relu())
    close(scores(model, alike), expected.detach().expand(4, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_residual_weights_are_a_way_past_the_neighbours(kind):
    model = made(kind, layers=2)
    before = scores(model)
    with torch.no_grad():
        for layer in model._layers():
            layer.own.weight.zero_()
    assert not torch.allclose(scores(model), before)
    if kind == "mlp":  # nothing else brings features in
        assert scores(model).unique(dim=0).shape == (1, 2)


def test_the_norm_makes_states_of_one_size():
    model, width = made("gcn", hidden=64), 64
    (layer,) = model._layers()
    inputs = model.prepare(FOUR)
    for size in (1.0, 1000.0):
        state = layer(inputs.adjacency, size * torch.rand(4, width)).detach()
        close(state.mean(1), torch.zeros(4), atol=1e-4, rtol=0.0)
        close(state.square().mean(1), torch.ones(4), atol=1e-2, rtol=0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_looks_as_far_as_it_says(kind):
    model = made(kind, layers=2)
    assert model.hops == (0 if kind == "mlp" else 2)
    far = X.clone()
    far[2] += 5.0
    moved = scores(model, FOUR.with_features(far))[0]
    assert torch.equal(moved, scores(model)[0]) is (kind == "mlp")
    edges = model.edge_scores(model.prepare(FOUR))
    assert (edges is None) is (kind == "mlp")
    assert model.scores_edges is (kind != "mlp")


def test_a_network_without_edges_keeps_the_rows_asked_for_alone():
    model = made("mlp")
    inputs, rows = model.narrowed(model.prepare(FOUR), torch.tensor([3, 1]))
    assert rows is None
    assert inputs.raw.equal(X[[3, 1]])
    close(model(inputs).detach(), scores(model)[[3, 1]])


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ConfigurationError, match="hidden must be a multiple of the 3 heads"):
        Residual(kind="gat", heads=3)
    with pytest.raises(
        ConfigurationError, match="finetune does not support: use backbone 'residual'"
    ):
        methods.make("finetune", backbone=Tuned(), generator=seeded(0))
