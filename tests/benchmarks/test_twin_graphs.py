from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.twin_graphs import (
    PapersTwin,
    ProductsTwin,
    RedditTwin,
    Twin,
    sketch_twin,
    twin_class_sizes,
    twin_facts,
)

import evergraph
from benchmarks import twin_graphs as twins
from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph, homophily
from evergraph.graphs.graph_folder import read_facts
from evergraph.topology import SGC


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return ProductsTwin(scale=0.01).load(tmp_path_factory.mktemp("cache"))


def ridge_accuracy(x: torch.Tensor, labels: torch.Tensor) -> float:
    """Fit a linear head on even nodes, ask it about odd ones."""
    x = torch.cat([x, torch.ones(len(x), 1)], dim=1).double()
    x, answers = x / x.std(), torch.nn.functional.one_hot(labels).double()
    gram = x[::2].T @ x[::2] + 1e-3 * torch.eye(x.shape[1])
    head = torch.linalg.solve(gram, x[::2].T @ answers[::2])
    return float(((x[1::2] @ head).argmax(1) == labels[1::2]).float().mean())


def test_facts_of_the_original_are_met(products: Graph) -> None:
    original = twin_facts()["products-twin"].original
    assert products.num_nodes == round(0.01 * original.nodes)
    assert products.num_classes == original.classes
    assert homophily(products) == pytest.approx(original.homophily, abs=0.01)
    assert products.num_features == 100
    assert products.num_edges == pytest.approx(0.01 * 123_718_024, rel=0.005)


def test_class_sizes_are_exact(products: Graph) -> None:
    sizes = np.sort(np.bincount(products.labels))[::-1]
    assert sizes.tolist() == twin_class_sizes(twin_facts()["products-twin"], 0.01).tolist()
    assert sizes[-2:].tolist() == [20, 1]
    whole = twin_class_sizes(twin_facts()["products-twin"], 1.0)
    assert (len(whole), int(whole.sum())) == (47, 2_449_029)
    whole = twin_class_sizes(twin_facts()["reddit-twin"], 1.0)
    assert (len(whole), int(whole.sum()), int(whole[-1])) == (41, 232_965, 300)


def test_edges_run_both_ways_and_are_on_disk(products: Graph) -> None:
    assert products.mapped
    assert products.undirected
    rows, columns = products.edge_rows(), products.indices.long()
    forward = torch.sort(rows * products.num_nodes + columns).values
    assert torch.equal(forward, torch.sort(columns * products.num_nodes + rows).values)
    assert bool((forward.diff() > 0).all())
    assert bool((rows != columns).all())


@pytest.mark.slow
def test_neighbours_tell_more_than_features_and_not_all(products: Graph) -> None:
    alone = ridge_accuracy(products.features.clone(), products.labels)
    around = ridge_accuracy(SGC(hops=2).encode(products), products.labels)
    assert 0.4 < alone < 0.8 <= around < 0.95


def test_some_nodes_live_elsewhere_and_homes_are_as_large_as_classes() -> None:
    sketch = sketch_twin(twin_facts()["products-twin"], scale=0.01, seed=0)
    assert np.bincount(sketch.homes).tolist() == np.bincount(sketch.labels).tolist()
    moved = sketch.homes != sketch.labels
    # Of 6 % who change places among each other, one in eight finds a place in its own class.
    assert 0.045 < moved.mean() < 0.06


def assert_same(found: Graph, expected: Graph) -> None:
    for name in ("indptr", "indices", "features", "labels"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


def test_a_seed_gives_one_graph(tmp_path: Path) -> None:
    knobs: dict[str, Any] = {"scale": 0.002, "features": 8}
    first = ProductsTwin(**knobs, seed=3).load(tmp_path / "a")
    assert_same(ProductsTwin(**knobs, seed=3).load(tmp_path / "b"), first)
    other = ProductsTwin(**knobs, seed=4).load(tmp_path / "a")
    assert not torch.equal(other.labels, first.labels)
    assert not torch.equal(other.features, first.features)
    assert not torch.equal(other.indices[:1000], first.indices[:1000])


def test_a_second_load_reads_what_the_first_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = evergraph.load("products-twin", cache=tmp_path, scale=0.001, features=8)
    monkeypatch.setattr(twins, "sketch_twin", None)  # whoever draws, fails
    assert_same(evergraph.load("products-twin", cache=tmp_path, scale=0.001, features=8), first)
    kept = [path.name for path in (tmp_path / "products-twin").iterdir()]
    assert kept == [ProductsTwin(scale=0.001, features=8).folder(tmp_path).name]


def test_a_killed_attempt_is_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = RedditTwin(scale=0.002, features=4)
    folder = twin.folder(tmp_path)
    dead = folder.with_name(f".{folder.name}-{2**31 - 1}")  # no process has this number
    dead.mkdir(parents=True)
    (dead / "features.npy").write_bytes(b"half")

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(twins, "write_edges", stop)
        with pytest.raises(KeyboardInterrupt):
            twin.load(tmp_path)
    assert list(folder.parent.iterdir()) == []  # neither the dead one's nor ours
    assert twin.load(tmp_path).num_nodes == 466


def test_a_damaged_graph_is_drawn_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    twin = RedditTwin(scale=0.002, features=4)
    entries = twin.load(tmp_path).num_edges
    file = twin.folder(tmp_path) / "indices.npy"
    file.write_bytes(file.read_bytes()[:-4])
    with caplog.at_level(logging.WARNING):
        assert twin.load(tmp_path).num_edges == entries
    assert "is rebuilt" in caplog.text


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"scale": -1.0}, "scale must be a number of at least 0.0, not -1.0"),
        ({"seed": -1}, "seed must be an integer of at least 0, not -1"),
        ({"features": 0}, "features must be an integer of at least 1, not 0"),
    ],
)
def test_every_knob_has_a_rule(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        RedditTwin(**knobs)


def test_a_scale_without_room_for_the_classes(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"scale must be at least 0\.0014, not 0\.001"):
        RedditTwin(scale=0.001).load(tmp_path)


# What is drawn must not change with how it is drawn: graphs are kept, and compared, for years.
SUMS = {
    "0.002-8-0-a3d990f5": "d54ba837959fcd46176dc8b31598249f48bbfd00aa74927f3e763fd3471a4e06",
    "0.002-8-0-b6d7dbb3": "d26cfd488905beb523ad968a5ad1551e1cca8f5fdaaa36eed857152b4a9758b4",
}


@pytest.mark.parametrize("kind", [ProductsTwin, RedditTwin])
def test_twins_stay_what_they_were(kind: type[Twin], tmp_path: Path) -> None:
    twin = kind(scale=0.002, features=8)
    twin.load(tmp_path)
    folder = twin.folder(tmp_path)
    assert read_facts(folder)["sha256"] == SUMS[folder.name]


def test_a_twin_of_papers_shows_some_labels_of_every_class(tmp_path: Path) -> None:
    graph = PapersTwin(scale=0.0002, features=4).load(tmp_path)
    facts = twin_facts()["papers-twin"]
    assert (graph.num_nodes, graph.num_classes) == (22_212, 172)
    assert graph.num_edges == pytest.approx(0.0002 * 2 * 1_615_685_872, rel=0.01)
    shown = np.bincount(graph.labels[graph.labels >= 0], minlength=172)
    sizes = np.bincount(sketch_twin(facts, scale=0.0002, seed=0).labels)
    share = 1_546_782 / 111_059_956
    assert shown.tolist() == [max(3, round(share * size)) for size in sizes.tolist()]
