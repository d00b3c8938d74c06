import numpy as np
import pytest
import torch
from benchmarks.speed import twin_graphs as twins
from benchmarks.speed.streamed_blocks import StreamedBlockModel, StubMatching, geometric_sizes
from benchmarks.speed.twin_graphs import (
    PapersTwin,
    ProductsTwin,
    RedditTwin,
    sketch_twin,
    twin_class_sizes,
    twin_facts,
)

import evergraph
from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph, homophily
from evergraph.graphs.graph_folder import read_facts


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return ProductsTwin(scale=0.005).load(tmp_path_factory.mktemp("cache"))


def test_facts_of_the_original_are_met(products):
    original = twin_facts()["products-twin"].original
    assert products.num_nodes == round(0.005 * original.nodes)
    assert products.num_classes == original.classes
    assert homophily(products) == pytest.approx(original.homophily, abs=0.01)
    assert products.num_features == 100
    assert products.num_edges == pytest.approx(0.005 * 123_718_024, rel=0.005)


def test_class_sizes_are_exact(products):
    sizes = np.sort(np.bincount(products.labels))[::-1]
    assert sizes.tolist() == twin_class_sizes(twin_facts()["products-twin"], 0.005).tolist()
    assert sizes[-2:].tolist() == [20, 1]
    whole = twin_class_sizes(twin_facts()["products-twin"], 1.0)
    assert (len(whole), int(whole.sum())) == (47, 2_449_029)
    whole = twin_class_sizes(twin_facts()["reddit-twin"], 1.0)
    assert (len(whole), int(whole.sum()), int(whole[-1])) == (41, 232_965, 300)


def test_edges_run_both_ways_and_are_on_disk(products):
    assert products.mapped
    assert products.undirected
    rows, columns = products.edge_rows(), products.indices.long()
    forward = torch.sort(rows * products.num_nodes + columns).values
    assert torch.equal(forward, torch.sort(columns * products.num_nodes + rows).values)
    assert bool((forward.diff() > 0).all())
    assert bool((rows != columns).all())


def assert_same(found: Graph, expected: Graph) -> None:
    for name in ("indptr", "indices", "features", "labels"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


def test_a_seed_gives_one_graph(tmp_path):
    knobs = {"scale": 0.001, "features": 8}
    first = ProductsTwin(**knobs, seed=3).load(tmp_path / "a")
    assert_same(ProductsTwin(**knobs, seed=3).load(tmp_path / "b"), first)
    other = ProductsTwin(**knobs, seed=4).load(tmp_path / "a")
    assert not torch.equal(other.labels, first.labels)
    assert not torch.equal(other.features, first.features)
    assert not torch.equal(other.indices[:1000], first.indices[:1000])


def test_a_second_load_reads_the_first(tmp_path, monkeypatch):
    first = evergraph.load("products-twin", cache=tmp_path, scale=0.001, features=8)
    monkeypatch.setattr(twins, "sketch_twin", None)  # whoever draws, fails
    assert_same(evergraph.load("products-twin", cache=tmp_path, scale=0.001, features=8), first)
    kept = [path.name for path in (tmp_path / "products-twin").iterdir()]
    assert kept == [ProductsTwin(scale=0.001, features=8).folder(tmp_path).name]


# What is drawn must not change with how it is drawn: graphs are kept, and compared, for years.
SUMS = {
    "0.002-8-0-a3d990f5": "d54ba837959fcd46176dc8b31598249f48bbfd00aa74927f3e763fd3471a4e06",
    "0.002-8-0-b6d7dbb3": "d26cfd488905beb523ad968a5ad1551e1cca8f5fdaaa36eed857152b4a9758b4",
}


@pytest.mark.parametrize("kind", [ProductsTwin, RedditTwin])
def test_twins_stay_what_they_were(kind, tmp_path):
    twin = kind(scale=0.002, features=8)
    twin.load(tmp_path)
    folder = twin.folder(tmp_path)
    assert read_facts(folder)["sha256"] == SUMS[folder.name]


def test_a_twin_of_papers_shows_some_labels_of_every_class(tmp_path):
    graph = PapersTwin(scale=0.0002, features=4).load(tmp_path)
    facts = twin_facts()["papers-twin"]
    assert (graph.num_nodes, graph.num_classes) == (22_212, 172)
    assert graph.num_edges == pytest.approx(0.0002 * 2 * 1_615_685_872, rel=0.01)
    shown = np.bincount(graph.labels[graph.labels >= 0], minlength=172)
    sizes = np.bincount(sketch_twin(facts, scale=0.0002, seed=0).labels)
    share = 1_546_782 / 111_059_956
    assert shown.tolist() == [max(3, round(share * size)) for size in sizes.tolist()]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_what_cannot_be_had_and_sizes_by_hand():
    labels = np.arange(100) % 10
    model = StreamedBlockModel(labels, np.ones(100), np.ones(100), generator=rng())
    with pytest.raises(ConfigurationError, match=r"1,000 edges of homophily 0\.9 cannot be had"):
        model.plan(1000, 0.9, labels=labels)  # classes of 10 have 450 pairs
    # Geometric sizes by hand.
    assert geometric_sizes(31, 5, 1).tolist() == [16, 8, 4, 2, 1]
    assert geometric_sizes(9, 1, 2).tolist() == [9]


def test_groups_without_nodes_change_nothing():
    groups, weights = np.array([2, 2, 4]), np.array([1.0, 3.0, 2.0])
    left, _ = StubMatching(groups, weights).draw(6, generator=rng())
    assert sorted(left.tolist()) == [0, 1, 1, 1, 2, 2]
