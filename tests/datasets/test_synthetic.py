from pathlib import Path
from typing import Any

import pytest
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.datasets.synthetic import BlockModel, Synthetic, class_sizes
from evergraph.graphs import Graph, homophily


def drawn(**knobs: Any) -> Graph:
    return Synthetic(**knobs).load(Path())


def nearest_centre_accuracy(graph: Graph) -> float:
    one_hot = torch.nn.functional.one_hot(graph.labels).float()
    centres = (one_hot.T @ graph.features) / one_hot.sum(0)[:, None]
    nearest = torch.cdist(graph.features, centres).argmin(1)
    return float((nearest == graph.labels).float().mean())


@pytest.mark.parametrize("homophily_knob", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("exponent", [None, 2.2])
def test_homophily_and_mean_degree_are_met(homophily_knob, exponent):
    graph = drawn(nodes=3000, homophily=homophily_knob, mean_degree=12.0, degree_exponent=exponent)
    assert homophily(graph) == pytest.approx(homophily_knob, abs=0.005)
    assert float(graph.degrees.float().mean()) == pytest.approx(12.0, rel=0.01)


def test_a_graph_can_be_filled_to_the_last_edge():
    graph = drawn(nodes=20, classes=2, mean_degree=9.0, homophily=1.0, degree_exponent=2.1)
    assert graph.num_edges == 2 * 2 * 45  # two complete graphs of 10
    with pytest.raises(ConfigurationError, match="require 400 edges within classes"):
        drawn(nodes=100, mean_degree=10.0, classes=50, homophily=0.8)


def test_a_power_law_has_hubs_and_equal_weights_have_none():
    hubs = int(drawn(nodes=5000, degree_exponent=2.2).degrees.max())
    equal = int(drawn(nodes=5000, degree_exponent=0).degrees.max())
    assert equal < 35 < 150 < hubs


def test_degrees_follow_the_weights():
    weights = torch.tensor([1.0, 3.0] * 500, dtype=torch.float64)
    model = BlockModel(torch.tensor([500, 500]), weights, generator=seeded(0))
    pairs = torch.cat([model.draw(4000, within=True), model.draw(4000, within=False)])
    degrees = torch.bincount(pairs.flatten(), minlength=1000).float()
    assert float(degrees[1::2].mean() / degrees[0::2].mean()) == pytest.approx(3.0, rel=0.08)


def test_every_two_classes_meet_equally_often():
    weights = torch.ones(1200, dtype=torch.float64)
    model = BlockModel(torch.tensor([300] * 4), weights, generator=seeded(0))
    ends = model.labels[model.draw(12_000, within=False)].sort(1).values
    counts = torch.bincount(ends[:, 0] * 4 + ends[:, 1], minlength=16).reshape(4, 4)
    between = counts[tuple(torch.triu_indices(4, 4, offset=1))]
    assert between.tolist() == pytest.approx([2000] * 6, rel=0.08)


def test_pairs_are_distinct_and_of_the_kind_asked_for():
    model = BlockModel(
        torch.tensor([4, 5, 6]), torch.ones(15, dtype=torch.float64), generator=seeded(0)
    )
    for within, count in ((True, 6 + 10 + 15), (False, 20 + 24 + 30)):
        pairs = model.draw(count, within=within)
        assert len({frozenset(pair) for pair in pairs.tolist()}) == count
        same = model.labels[pairs[:, 0]] == model.labels[pairs[:, 1]]
        assert bool((same == within).all())


def test_class_sizes():
    graph = drawn(nodes=1003, classes=10)
    sizes = torch.bincount(graph.labels)
    assert int(sizes.sum()) == 1003
    assert int(sizes.max() - sizes.min()) <= 1
    skewed = torch.bincount(drawn(nodes=10_000, classes=5, class_imbalance=0.9).labels)
    assert int(skewed.argmax()) == 0
    assert float(skewed[-1] / skewed[0]) == pytest.approx(0.1, rel=0.02)
    assert class_sizes(7, 7, 0.99).tolist() == [1] * 7


def test_numbers_do_not_tell_classes():
    labels = drawn(nodes=1000, classes=2).labels
    assert 400 < int((labels[:-1] != labels[1:]).sum()) < 600


def test_a_seed_gives_one_graph_that_runs_both_ways(assert_same):
    before = torch.get_rng_state()
    first = drawn(nodes=500, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert_same(drawn(nodes=500, seed=3), first)
    other = drawn(nodes=500, seed=4)
    assert not torch.equal(other.features, first.features)
    assert not torch.equal(other.indices, first.indices)
    assert first.to_undirected().num_edges == first.num_edges


def test_noise_hides_the_class():
    accuracy = [nearest_centre_accuracy(drawn(noise=noise)) for noise in (0.0, 0.3, 1.0, 10.0)]
    assert accuracy[0] == 1.0
    assert accuracy == sorted(accuracy, reverse=True)
    assert accuracy[1] > 0.9
    assert accuracy[-1] < 0.35


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"nodes": 5}, "nodes must be an integer of at least 10, not 5"),
        ({"nodes": 20.0}, "nodes must be an integer of at least 10, not 20.0"),
        ({"classes": 0}, "classes must be an integer of at least 1, not 0"),
        ({"classes": "2"}, "classes must be an integer of at least 1, not '2'"),
        ({"features": 0}, "features must be an integer of at least 1, not 0"),
        ({"seed": -1}, "seed must be an integer of at least 0, not -1"),
        ({"mean_degree": -1.0}, "mean_degree must be a number of at least 0.0, not -1.0"),
        ({"mean_degree": "9"}, "mean_degree must be a number of at least 0.0, not '9'"),
        ({"homophily": 1.5}, "homophily must be a number from 0.0 to 1.0, not 1.5"),
        ({"homophily": float("nan")}, "homophily must be a number from 0.0 to 1.0, not nan"),
        ({"noise": -0.1}, "noise must be a number of at least 0.0, not -0.1"),
        ({"class_imbalance": 1.0}, "class_imbalance must be below 1, not 1.0"),
        ({"class_imbalance": -0.5}, "class_imbalance must be a number of at least 0.0, not -0.5"),
        ({"degree_exponent": 2.0}, "degree_exponent must be above 2, or 0, not 2.0"),
        ({"degree_exponent": "2.5"}, "degree_exponent must be a number of at least 0.0, not '2.5'"),
    ],
)
def test_every_knob_has_a_rule(knobs, message):
    with pytest.raises(ConfigurationError, match=message):
        Synthetic(**knobs)
