"""Kernel values to landmark nodes, and what `auto` makes of them."""

import copy
import math
from statistics import NormalDist
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.closed_form import LandmarkFeatures, engine
from evergraph.closed_form.kept_nodes import LedgerEntries, certain, guessed
from evergraph.closed_form.kernel_map import KernelMap
from evergraph.closed_form.landmarks import FEW_COLUMNS, Landmarks, column_weights
from evergraph.closed_form.own_features import shape_of
from evergraph.closed_form.ridge import balanced_ridge
from evergraph.closed_form.statistics import ClassStatistics
from evergraph.closed_form.view_map import RandomMap
from evergraph.closed_form.views import View, ViewRows
from evergraph.core.errors import ConfigurationError
from evergraph.datasets import load
from evergraph.experiments.build import resolved
from evergraph.experiments.config import RunConfig
from evergraph.graphs import Graph
from evergraph.methods.auto import Auto
from evergraph.streams import GraphStream
from evergraph.topology.rowwise import unit_rows
from view_rows import view_rows

OWN = View((0,))


def rows_of(*angles: float) -> ViewRows:
    """Return unit vectors in the plane."""
    turned = torch.tensor(angles)
    return view_rows(torch.stack([turned.cos(), turned.sin()], 1), None)


def test_the_kernel_by_hand():
    """k = (sin t + (π - t) cos t) / π: 1 for the same node, 1/π at right angles, 0 opposite."""
    one = KernelMap.of([OWN], {0: rows_of(0.0).hops})
    asked = rows_of(0.0, math.pi / 2, math.pi, math.pi / 3)
    found = one.features(OWN, one.projected_rows(asked, [OWN]))[:, 0]
    third = (math.sin(math.pi / 3) + (2 * math.pi / 3) * 0.5) / math.pi
    assert found.tolist() == pytest.approx([1.0, 1 / math.pi, 0.0, third], abs=1e-6)


def test_weights_of_columns_turn_nodes_as_they_turn_landmarks():
    """√3 on the second column turns 45 degrees to 60, and 135 to 120."""
    degrees, columns = math.pi / 180, torch.tensor([1.0, math.sqrt(3)])
    one = KernelMap.of([OWN], {0: rows_of(45 * degrees, 135 * degrees).hops}, columns=columns)
    found = one.features(OWN, one.projected_rows(rows_of(45 * degrees), [OWN]))[0]
    third = (math.sin(math.pi / 3) + (2 * math.pi / 3) * 0.5) / math.pi
    assert found.tolist() == pytest.approx([1.0, third], abs=1e-6)


def test_random_features_estimate_it():
    """The kernel is what the features of `RandomMap` have as inner products on the average."""
    rows = rows_of(0.1, 1.0, 2.0)
    (drawn,) = RandomMap.drawn([OWN], {0: 2}, width=200_000, seed=3)(rows)
    one = KernelMap.of([OWN], {0: rows.hops})
    exact = one.features(OWN, one.projected_rows(rows, [OWN]))
    assert torch.allclose(drawn @ drawn.t(), exact, atol=0.01)


def test_all_nodes_as_landmarks_are_kernel_ridge_regression():
    """V on features is α on the kernel: (K + λ I)⁻¹ Y, here with a node a class."""
    rows = rows_of(0.0, 0.7, 2.0)
    one = KernelMap.of([OWN], {0: rows.hops})
    (features,), (penalty,) = one(rows), one.penalties().values()
    statistics = ClassStatistics(3, precise=True)
    statistics.add(features, torch.arange(3), torch.ones(3))
    said = features.double() @ balanced_ridge(statistics, 0.1, penalty=penalty)
    kernel = features.double()
    by_hand = kernel @ torch.linalg.inv(kernel + 0.1 * torch.eye(3))
    assert torch.allclose(said, by_hand, atol=1e-3)


@given(seed=st.integers(0, 1000), classes=st.integers(1, 6), most=st.integers(1, 30))
def test_landmarks_depend_on_ids_and_classes_alone(seed, classes, most):
    """The order of nodes does not matter, and no class has two more than another could have."""
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randperm(100, generator=generator)[:40]
    labels = torch.randint(classes, (40,), generator=generator)
    rows = view_rows(nodes[:, None].float(), None)

    def chosen(places):
        kept = Landmarks(most)
        kept.keep(rows.of(places), labels=labels[places], nodes=nodes[places])
        assert len(kept) <= most
        return kept

    kept, other = chosen(torch.arange(40)), chosen(torch.randperm(40, generator=generator))
    assert set(kept.nodes_.tolist()) == set(other.nodes_.tolist())
    counts, found = torch.bincount(labels), torch.bincount(kept.labels_, minlength=0)
    full = int(found.max())
    if len(found) == len(counts) and bool((found > 0).all()):
        assert all(count < full for count in counts[found < full].tolist())


@pytest.mark.parametrize(
    ("nodes", "most", "kept"),
    [(1024, 9999, 1024), (19 * 1024, 9999, 1024), (60, 7, 7), (19 * 1025, 9999, 1025)],
)
def test_few_nodes_are_all_landmarks_and_of_many_one_in_so_many(nodes, most, kept):
    """The numbers of decisions 82 and 92."""
    ids = torch.arange(nodes)
    found = Landmarks(most)
    found.keep(view_rows(ids[:, None].float(), None), labels=0 * ids, nodes=ids)
    assert len(found) == kept


@pytest.mark.parametrize("most", [5, 6, 40])
def test_guesses_fill_the_places_that_are_left(most):
    """As many as there is room for, by their ids alone."""
    ids, others = torch.arange(6), torch.arange(10, 30)
    rows = view_rows(torch.arange(30.0)[:, None], None)
    filled = []
    for order in (others, others.flip(0)):
        found = Landmarks(most)
        found.keep(rows.of(ids), labels=ids % 2, nodes=ids)
        found.fill(rows.of(order), labels=torch.zeros(20).long(), nodes=order)
        assert len(found) == min(most, 26)
        assert found.rows_.hops.flatten().tolist() == found.nodes_.tolist()
        filled.append(set(found.nodes_.tolist()))
    assert filled[0] == filled[1]


def test_shape_tells_degree_and_length_and_nothing_else():
    """Nodes of one degree and length are alike whatever their features; others are not."""
    edges, labels = torch.tensor([[0, 0, 3], [1, 2, 4]]), torch.zeros(5).long()
    features = torch.tensor([[3.0, 4.0], [5.0, 0.0], [0.0, 5.0], [1.0, 0.0], [0.0, 2.0]])
    graph = Graph.from_edges(edges, features=features, labels=labels, undirected=True)
    found = shape_of(graph)
    alike = found @ found.t()
    assert float(alike[1, 2]) == pytest.approx(1.0)  # a neighbour and a length of 5 each
    assert float(alike[0, 1]) < 0.9  # two neighbours and one
    assert float(alike[3, 4]) < 0.9  # lengths of 1 and 2
    assert torch.allclose(alike.diagonal(), torch.ones(5))
    sparse = Graph.from_edges(
        edges, features=features.to_sparse_csr(), labels=labels, undirected=True
    )
    assert torch.allclose(shape_of(sparse), found)
    some = torch.tensor([3, 0, 4, 0])  # in any order
    for each in (graph, sparse):
        assert torch.allclose(shape_of(each, some), found[some])


def test_shape_by_hand():
    """Waves of log₂ of the degree plus 1, and of the length plus a millionth."""
    edges, features = (
        torch.tensor([[0, 0, 0], [1, 2, 3]]),
        torch.tensor([[0.0], [4.0], [1.0], [0.5]]),
    )
    graph = Graph.from_edges(
        edges, features=features, labels=torch.zeros(4).long(), undirected=True
    )
    slowest = NormalDist().inv_cdf(0.5 + 1 / 32) / 0.5
    degree, length = shape_of(graph)[:, [0, 32]].t() * math.sqrt(2 * 16)
    assert degree.tolist() == pytest.approx([math.cos(turns * slowest) for turns in (2, 1, 1, 1)])
    turns = (math.log2(1e-6), 2, 0, -1)
    assert length.tolist() == pytest.approx([math.cos(t * slowest) for t in turns], abs=1e-5)


def beginner(**options: Any) -> Auto:
    """Return a learner with room for all training nodes as landmarks."""
    backbone = LandmarkFeatures(width=256)
    generator = torch.Generator().manual_seed(0)
    return Auto(refresh="embeddings", backbone=backbone, generator=generator, **options)


def learned(stream: GraphStream, **options: Any) -> Auto:
    learner = beginner(**options)
    for task in stream:
        learner.fit_task(task)
    return learner


@pytest.fixture(scope="module")
def known(stream: GraphStream) -> Auto:
    """A learner of all tasks, to be asked or copied."""
    learner = learned(stream)
    learner.solve()
    return learner


def test_where_the_graph_is_at_hand_auto_stands_on_landmarks(known):
    by_default = Auto(refresh="embeddings", generator=torch.Generator()).backbone
    assert isinstance(by_default, LandmarkFeatures)
    train = known.ledger_.part("train")
    assert set(known.landmarks_.nodes_.tolist()) == set(train.ids.tolist())  # few: all of them
    assert known.usage.statistics == 0  # everything is counted again when something comes
    assert not len(known.probes_)
    with pytest.raises(ConfigurationError, match="needs refresh='embeddings'"):
        Auto(backbone=LandmarkFeatures(), generator=torch.Generator())


@pytest.mark.parametrize(
    ("values", "refresh"),
    [
        ({"stream": {"edges": "all"}}, "embeddings"),
        ({"stream": {"edges": "within"}}, "none"),
        ({"stream": {"edges": "all"}, "method": {"name": "auto", "refresh": "none"}}, "none"),
        ({"stream": {"edges": "all"}, "backbone": "view-features"}, "none"),
        ({"stream": {"edges": "all", "by": "online", "batch": 10}}, "none"),
    ],
)
def test_a_run_refreshes_where_the_graph_is_at_hand(values, refresh):
    config = resolved(RunConfig.of({"method": "auto", **values}))
    assert config.method.parameters["refresh"] == refresh


def test_all_at_once_is_what_task_by_task_is(stream, known):
    """Landmarks, sums and heads are functions of what was learned, not of how it came."""
    once = beginner()
    once.fit_task(stream.open(len(stream) - 1, cumulative=True))
    graph = stream.union_graph(len(stream) - 1)
    nodes = torch.arange(graph.num_nodes)
    found, expected = once.logits(graph, nodes), known.logits(graph, nodes)
    assert float((found - expected).abs().max()) < 1e-4 * float(expected.abs().max())


def test_a_forgotten_landmark_leaves_no_trace(small_graph, known):
    """After ``forget`` all that is kept is that of a learner which never met the node."""
    learner, other, everyone = copy.deepcopy(known), copy.deepcopy(known), torch.arange(360)
    gone = learner.landmarks_.nodes_[:3]
    learner.forget(gone, small_graph)
    other.ledger_.strike(gone)
    other._learn_on_landmarks(other._rows_of(small_graph, everyone))
    mine, theirs = learner.state(), other.state()
    assert not set(learner.landmarks_.nodes_.tolist()) & set(gone.tolist())
    for name in mine:
        if name.startswith(("landmarks.", "columns", "backbone")):
            assert torch.allclose(mine[name].double(), theirs[name].double(), atol=1e-5), name


@pytest.mark.parametrize("scale", [0.0, 1e20, 1e-20])
def test_features_of_any_length_are_learned_from(small_graph, scale):
    """Zeros show nothing, and lengths beyond what float32 can square are still lengths."""
    graph = small_graph.with_features(small_graph.features * scale)
    learner = learned(GraphStream(graph, edges="all", classes_per_task=6))
    assert bool(learner.logits(graph, torch.arange(9)).isfinite().all())


def test_after_all_nodes_are_forgotten_nothing_is_said(small_graph, known):
    learner = copy.deepcopy(known)
    parts = [learner.ledger_.part(part).ids for part in ("train", "validation")]
    learner.forget(torch.cat(parts), small_graph)
    assert not len(learner.landmarks_)
    assert not bool(learner.logits(small_graph, torch.arange(9)).any())
    learner.state()


def test_columns_that_tell_classes_apart_count_more():
    """Half of many columns are noise: a node is nearer to its class once these count less."""
    half = FEW_COLUMNS // 2 + 1
    noise = torch.randn(40, half, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(40) % 2
    told = torch.cat([(labels - 0.5)[:, None].expand(-1, half), noise], 1)
    rows = view_rows(unit_rows(told), None)
    weights = column_weights(rows, labels, dims=2 * half)
    assert float(weights[:half].min()) > 2 * float(weights[half:].mean())
    assert column_weights(rows, 2 * labels, dims=2 * half).equal(weights)  # none is of class 1
    once, twice = (rows.of(torch.tensor(nodes)) for nodes in ([0, 2, 1], [0, 2, 1, 1]))
    alone = column_weights(once, torch.tensor([0, 0, 1]), dims=2 * half)  # a class of one node
    both = column_weights(twice, torch.tensor([0, 0, 1, 1]), dims=2 * half)
    torch.testing.assert_close(alone, both)
    few = view_rows(rows.hops[:, :FEW_COLUMNS], None)
    assert column_weights(few, labels, dims=FEW_COLUMNS).tolist() == [1.0] * FEW_COLUMNS
    near = []
    for columns in (None, weights):
        made = KernelMap.of([OWN], {0: rows.hops}, columns=columns)
        kernel = made.features(OWN, made.projected_rows(rows, [OWN]))
        same = labels[:, None] == labels[None]
        near.append(float(kernel[same].mean() - kernel[~same].mean()))
    assert near[1] > near[0]
    backbone = LandmarkFeatures(views=("0",), width=40)
    backbone.use_landmarks(rows, weights)
    assert backbone.expansion().landmarks[0].equal(made.landmarks[0])


def test_guesses_are_learned_from_where_they_help(monkeypatch):
    """With two labels of a class, guesses add what most nodes are like; the probes decide."""
    graph = load("synthetic", nodes=400, classes=4, features=64)
    stream = GraphStream(graph, edges="all", split=(0.02, 0.1, 0.88), classes_per_task=4)
    alone, guessing = (learned(stream, self_training=each) for each in (False, True))
    assert guessing.error_ < alone.error_
    assert set(alone.landmarks_.nodes_.tolist()) < set(guessing.landmarks_.nodes_.tolist())
    held_back = guessing.ledger_.part("validation").ids
    assert not torch.isin(guessing.landmarks_.nodes_, held_back).any()  # they judge the guesses

    def wrong(chances, counts):
        places, labels = certain(chances, counts)
        return places, (labels + 1) % 4

    monkeypatch.setattr("evergraph.closed_form.kept_nodes.certain", wrong)
    misled = learned(stream)
    assert misled.error_ == pytest.approx(alone.error_)
    assert misled.landmarks_.nodes_.equal(alone.landmarks_.nodes_)


def test_guesses_that_change_nothing_are_not_learned_from(monkeypatch):
    graph = load("synthetic", nodes=200, classes=2, features=16)
    stream = GraphStream(graph, edges="all", split=(0.02, 0.1, 0.88), classes_per_task=2)
    monkeypatch.setattr(engine, "mixture_loss", lambda *given, **options: 1.0)
    alone, guessing = (learned(stream, self_training=each) for each in (False, True))
    assert guessing.landmarks_.nodes_.equal(alone.landmarks_.nodes_)


def test_a_guess_weighs_what_a_training_node_of_its_class_does():
    """Classes 0 and 1 have weights 2 and 5 on the average; class 2 was never met."""
    labels, weights = torch.tensor([0, 0, 1]), torch.tensor([1.0, 3.0, 5.0])
    train = LedgerEntries(torch.tensor([7, 8, 9]), labels, weights)
    scores = torch.tensor([[0.0, 3.0, 9.0], [3.0, 0.0, 9.0], [2.0, 0.0, 9.0]])
    found = guessed(scores, torch.tensor([40, 41, 42]), train)
    assert found.ids.tolist() == [41, 42, 40]
    assert found.labels.tolist() == [0, 0, 1]
    assert found.weights.tolist() == [2.0, 2.0, 5.0]


def test_objectives_differ_where_classes_do(stream, known):
    plain = learned(stream, objective="plain")
    plain.solve()
    first, second = (each.backbone.head.weight for each in (known, plain))
    assert not torch.allclose(first, second)
