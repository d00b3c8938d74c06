"""What every backbone promises, whichever it is."""

import copy
import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import evergraph.closed_form  # noqa: F401  (one of the backbones is registered there)
from evergraph.core.errors import ConfigurationError
from evergraph.core.resources import Resources
from evergraph.graphs import Graph, reach
from evergraph.graphs.operator import SparseOperator
from evergraph.graphs.propagation import stays_sparse
from evergraph.nn import PDGNN, Backbone, backbones
from evergraph.nn.gnn import GNN
from evergraph.nn.residual import Residual
from graphs_to_draw import few_each, generator, graph_of, path_pairs

NAMES = backbones.names()
REDUCED = {"untrained-gcn": 1024, "feature-graph": 64}  # what makes few features of many: how many
GNNS = [name for name in NAMES if issubclass(backbones.resolve(name), GNN)]
every_backbone = pytest.mark.parametrize("name", NAMES)
# Residual networks have an input and an output layer of their own.
PLAIN_GNNS = [name for name in GNNS if not issubclass(backbones.resolve(name), Residual)]
every_gnn = pytest.mark.parametrize("name", GNNS)
close = torch.testing.assert_close

edges = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8)
seeds = st.integers(0, 1000)


#  0 - 1 - 2 - 3 - 4 - 5
X = torch.randn(6, 4, generator=generator())
PATH = graph_of(path_pairs(6), features=X)


def narrow(name: str, **options: Any) -> Backbone:
    sizes = {"width": 64} if "width" in backbones.parameters(name) else {}
    sizes |= {"hidden": 16} if name in GNNS else {}
    return backbones.make(name, **(sizes | options))


def ready(name: str, graph: Graph, *, classes: int = 3, seed: int = 0, **options: Any) -> Backbone:
    """A backbone with weights for the graph's features, in evaluation mode."""
    backbone = narrow(name, **options)
    backbone.begin(backbone.width_of(backbone.prepare(graph)), generator=generator(seed))
    backbone.grow(classes, generator=generator(seed + 1))
    return backbone.eval()


def scores_of(backbone: Backbone, graph: Graph, rows: Tensor | None = None) -> Tensor:
    scores = backbone(backbone.prepare(graph), rows)
    return scores.detach()


@every_backbone
def test_a_backbone_is_begun_grown_and_called(name):
    backbone = backbones.make(name)
    assert not backbone.begun
    inputs = backbone.prepare(PATH)
    backbone.begin(backbone.width_of(inputs), generator=generator())
    assert backbone.begun
    for classes in (0, 1, 4):
        backbone.grow(classes, generator=generator())
        for mode in (backbone.train(), backbone.eval()):
            assert mode(inputs, generator=generator()).shape == (6, classes)
            rows = torch.tensor([4, 0])
            assert mode(inputs, rows, generator=generator()).shape == (2, classes)
    assert backbone.recipe.epochs >= 1


@every_backbone
def test_rows_are_looked_up_and_edges_scored_and_weighed(name):
    backbone = ready(name, PATH)
    inputs, scores = backbone.prepare(PATH), scores_of(backbone, PATH)
    close(scores_of(backbone, PATH, torch.arange(6)), scores)  # without rows all are given
    close(scores_of(backbone, PATH, torch.tensor([5, 2, 2])), scores[[5, 2, 2]])
    narrowed, rows = backbone.narrowed(inputs, torch.tensor([5, 1]))
    close(backbone(narrowed, rows).detach(), scores[[5, 1]])
    # Weights of edges count unless all are one.
    assert scores_of(backbone, replace(PATH, weights=torch.ones(10))).equal(scores)
    heavy = scores_of(backbone, replace(PATH, weights=torch.arange(1.0, 11.0)))
    # Attention learns weights of its own, and a perceptron sees none.
    assert heavy.allclose(scores) == (name in ("gat", "mlp"))
    # Edges are scored layer by layer where gathering is trained.
    layers = backbone.edge_scores(inputs)
    assert (layers is not None) == (name in GNNS)
    if layers is not None:
        entries = len(inputs.adjacency.order)
        assert [len(layer) for layer in layers] == [entries, entries]
        sum(layer.square().sum() for layer in layers).backward()
        assert any(w.grad is not None and w.grad.any() for w in backbone.parameters())


@every_backbone
def test_growing_keeps_what_was_learned_for_the_other_classes(name):
    backbone = ready(name, PATH, classes=2)
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    scores, states = scores_of(backbone, PATH), hidden(backbone, PATH)
    backbone.grow(5, generator=generator(9))
    for key, value in backbone.state_dict().items():
        assert value[: len(before[key])].equal(before[key])
    close(scores_of(backbone, PATH)[:, :2], scores)
    close(hidden(backbone, PATH), states)
    assert all(weight.requires_grad for weight in backbone.parameters())


def hidden(backbone: Backbone, graph: Graph, rows: Tensor | None = None) -> Tensor:
    return backbone.hidden_states(backbone.prepare(graph), rows).detach()


@every_backbone
def test_hidden_states_are_those_of_the_rows_and_never_dropped(name):
    backbone = ready(name, PATH, dropout=0.5)
    states = hidden(backbone, PATH)
    assert states.shape[0] == 6
    if name in ("linear", "untrained-gcn"):  # nothing lies in between
        assert states.equal(backbone.prepare(PATH))
    elif name != "prototypes":  # of any direction
        assert float(states.min()) >= 0.0  # a ReLU's
    close(hidden(backbone, PATH, torch.tensor([3, 1])), states[[3, 1]])
    backbone.train()
    close(hidden(backbone, PATH), states)


@every_gnn
def test_a_single_layer_reads_features_dense_or_sparse(name):
    dense = graph_of(path_pairs(6), features=bag_of_words(0.01))
    thin = dense.with_features(dense.features.to_sparse_csr())
    backbone = ready(name, dense, layers=1)
    close(scores_of(backbone, thin), scores_of(backbone, dense))
    if name in PLAIN_GNNS:  # they are its hidden states
        for graph in (dense, thin):
            close(hidden(backbone, graph, torch.tensor([3, 1])), dense.features[[3, 1]])


@every_backbone
def test_weights_come_from_the_generator_given_and_nowhere_else(name):
    before = torch.get_rng_state()
    first, again, other = (ready(name, PATH, seed=seed) for seed in (0, 0, 7))
    inputs = first.prepare(PATH)
    first.train()(inputs, torch.tensor([0]), generator=generator()).sum().backward()
    first.hidden_states(inputs)
    first.edge_scores(inputs)
    assert torch.get_rng_state().equal(before)
    for one, same, another in zip(
        first.parameters(), again.parameters(), other.parameters(), strict=True
    ):
        assert one.equal(same)
        # A norm begins with a scale of one and no shift, whatever the seed.
        assert one.unique().numel() == 1 or not one.equal(another)


@every_backbone
def test_dropout_follows_its_generator_and_training_reaches_every_weight(name):
    backbone = ready(name, PATH, dropout=0.5).train()
    inputs = backbone.prepare(PATH)
    first, again, other = (backbone(inputs, generator=generator(seed)) for seed in (1, 1, 2))
    assert first.equal(again)
    assert not first.equal(other)
    backbone(inputs, torch.tensor([1, 4]), generator=generator()).square().sum().backward()
    for weight in backbone.parameters():
        assert bool(weight.grad.isfinite().all())
        assert bool(weight.grad.any())


@every_backbone
def test_a_score_looks_as_far_as_it_says(name):
    long = graph_of(path_pairs(9), features=torch.randn(9, 4, generator=generator()))
    near = {"views": ("0|1", "8")} if name == "view-features" else {}
    backbone, end = ready(name, long, **near), torch.tensor([0])
    before, moved = scores_of(backbone, long, end), long.features.clone()
    moved[backbone.hops + 1 :] += 5.0
    close(scores_of(backbone, long.with_features(moved), end), before)
    moved[backbone.hops] += 500.0
    after = scores_of(backbone, long.with_features(moved), end)
    assert not torch.allclose(after, before, atol=1e-3)


@every_gnn
@few_each
@given(
    edges=edges,
    undirected=st.booleans(),
    node=st.integers(0, 5),
    seed=seeds,
    layers=st.sampled_from([1, 3]),
)
def test_a_score_depends_on_what_is_within_reach_alone(name, edges, undirected, node, seed, layers):
    graph = graph_of(edges, features=X, undirected=undirected)
    backbone, rows = ready(name, graph, layers=layers), torch.tensor([node])
    inside = torch.zeros(6, dtype=torch.bool)
    inside[reach(graph, rows, hops=layers)[0]] = True
    noise = 3.0 * torch.randn(6, 4, generator=generator(seed))
    before = scores_of(backbone, graph, rows)
    outside = graph.with_features(graph.features + noise * ~inside[:, None])
    close(scores_of(backbone, outside, rows), before)
    moved = graph.with_features(graph.features + noise * inside[:, None])
    assert not torch.allclose(scores_of(backbone, moved, rows), before, atol=1e-4)


@every_backbone
@few_each
@given(edges=edges, undirected=st.booleans(), order=st.permutations(range(6)))
def test_renumbering_the_nodes_renumbers_the_scores(name, edges, undirected, order):
    graph = graph_of(edges, features=X, undirected=undirected)
    backbone = ready(name, graph)
    turned = scores_of(backbone, graph.subgraph(torch.tensor(order)))
    close(turned, scores_of(backbone, graph)[order], atol=1e-5, rtol=1e-5)


@every_backbone
def test_without_edges_every_node_stands_alone(name):
    lonely = graph_of([], features=X)
    backbone = ready(name, lonely)
    scores = scores_of(backbone, lonely)
    assert bool(scores.isfinite().all())
    for node in range(6):
        close(scores_of(backbone, lonely.subgraph(torch.tensor([node])))[0], scores[node])
    backbone.train()(backbone.prepare(lonely), generator=generator()).sum().backward()
    assert all(bool(weight.grad.isfinite().all()) for weight in backbone.parameters())


def bag_of_words(density: float) -> Tensor:
    features = torch.randn(6, 100, generator=generator(3))
    return features * (torch.rand(6, 100, generator=generator(4)) < density)


@every_backbone
@pytest.mark.parametrize(("density", "sparse"), [(0.01, True), (0.5, False)])
def test_sparse_features_give_the_scores_and_gradients_of_dense_ones(name, density, sparse):
    dense = graph_of(path_pairs(6), features=bag_of_words(density))
    thin = dense.with_features(dense.features.to_sparse_csr())
    assert stays_sparse(thin.features) is sparse
    results = []
    for graph in (dense, thin):
        backbone = ready(name, graph).train()
        inputs = backbone.prepare(graph)
        assert backbone.width_of(inputs) == REDUCED.get(name, 100)
        scores = backbone(inputs, torch.tensor([3, 1]), generator=generator())
        scores.square().sum().backward()
        results.append([scores, hidden(backbone, graph), *(w.grad for w in backbone.parameters())])
        if name in GNNS:
            kept = isinstance(inputs.features, SparseOperator)
            assert kept is (sparse and graph is thin)
    close(*results)


@every_backbone
def test_copies_share_what_was_prepared_and_no_weights(name):
    backbone = ready(name, PATH)
    twin = copy.deepcopy(backbone)
    assert name not in GNNS or twin.prepare(PATH) is backbone.prepare(PATH)
    before = scores_of(backbone, PATH)
    close(scores_of(twin, PATH), before)
    with torch.no_grad():
        for weight in twin.parameters():
            weight.add_(1.0)
    assert not torch.allclose(scores_of(twin, PATH), before)
    assert scores_of(backbone, PATH).equal(before)
    twin.grow(5, generator=generator())
    assert scores_of(backbone, PATH).shape == (6, 3)


def test_a_graph_is_prepared_once_and_let_go_with_it():
    traces = {}
    for name in NAMES:
        graph = graph_of([(0, 1)], features=X)
        backbone = ready(name, graph)
        assert backbone.prepare(graph) is backbone.prepare(graph), name
        features, traces[name] = graph.features.clone(), weakref.ref(graph)
        backbone.train()(backbone.prepare(graph), generator=generator()).sum().backward()
        assert graph.features.equal(features), name
    del graph
    gc.collect()  # takes long, so once for all
    assert [name for name, gone in traces.items() if gone() is not None] == []


@every_backbone
def test_a_backbone_is_placed_before_or_after_it_has_weights(name):
    device = torch.device("cpu")
    backbone = ready(name, PATH)
    before = scores_of(backbone, PATH)
    backbone.place(device)
    close(scores_of(backbone, PATH), before)
    assert backbone.device == device
    unbegun = narrow(name)
    unbegun.place(device)
    unbegun.begin(unbegun.width_of(unbegun.prepare(PATH)), generator=generator())
    unbegun.grow(3, generator=generator(1))
    close(scores_of(unbegun.eval(), PATH), before)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gat", {"heads": 3}, "hidden must be a multiple of the 3 heads, not 256"),
        ("pdgnn", {"hidden": (4, 0)}, "hidden must be an integer of at least 1, not 0"),
    ],
)
def test_senseless_options_are_refused(name, options, message):
    with pytest.raises(ConfigurationError, match=message):
        backbones.make(name, **options)


def test_a_training_step_does_not_ask_how_much_memory_is_free():
    class Unasked(Resources):
        def fits(self, size):
            pytest.fail("asked")

    model = PDGNN(hidden=(2,))
    model.place(torch.device("cpu"), Unasked())
    model.begin(3, generator=torch.Generator())
    model.grow(2, generator=torch.Generator())
    scores = model(torch.eye(3), torch.tensor([2, 0]), generator=torch.Generator())
    assert scores.shape == (2, 2)
