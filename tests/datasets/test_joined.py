"""Several graphs as one whose nodes arrive graph by graph, of one feature space or of several."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import evergraph as eg
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.datasets import join, load
from evergraph.datasets.arrays import write_npz
from evergraph.datasets.joined import aligned, join_domains, projection
from evergraph.graphs import Graph


@pytest.fixture
def other() -> Graph:
    """2 -> 0; three nodes of two classes."""
    return Graph.from_edges(
        torch.tensor([[2], [0]]),
        features=torch.tensor([[5.0, 6.0], [7.0, 8.0], [9.0, 1.0]]),
        labels=torch.tensor([0, 2, 0]),
    )


def test_graphs_stand_side_by_side_by_hand(tiny, other):
    graph = join([tiny, other])
    assert graph.time.tolist() == [0, 0, 0, 0, 1, 1, 1]  # the graphs' own times are given up
    assert graph.labels.tolist() == [1, 0, 1, -1, 0, 2, 0]  # a class means the same everywhere
    assert [graph.neighbours(node).tolist() for node in range(7)] == [
        [],
        [0],
        [0, 3],
        [],
        [6],
        [],
        [],
    ]
    assert graph.features[4:].equal(other.features)
    assert tiny.time.tolist() == [2001, 2002, 2003, 2004]


def test_parts_are_loaded_by_path_or_name(tmp_path, tiny, other, assert_same, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_npz(tiny, tmp_path / "a.npz")
    write_npz(other, tmp_path / "b.npz")
    parts = ["a.npz", "b.npz"]
    assert_same(load("joined", parts=parts, undirected=False), join([tiny, other]))
    assert_same(load("joined", parts=parts), join([tiny, other]).to_undirected())
    assert load("joined", parts=["synthetic", "synthetic"]).num_nodes == 4000


def test_what_cannot_be_joined_is_refused(tiny):
    wide = tiny.with_features(torch.ones(4, 3))
    message = "graph 1 has 3 features and graph 0 has 2: they must be equal"
    with pytest.raises(DataError, match=message):
        join([tiny, wide])
    with pytest.raises(DataError, match="graphs must not be empty"):
        join([])
    for parts in ({"parts": []}, {"parts": "a.npz"}, {"parts": [1]}, {}):
        with pytest.raises(ConfigurationError, match="parts must be a non-empty list"):
            load("joined", **parts)


def _matrix(nodes: int, dims: int, rank: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(nodes, rank, generator=generator)
    return left @ torch.randn(rank, dims, generator=generator)


def test_svd_by_hand():
    # XᵀX = diag(1, 9, 0): the second column is strongest, then the first; both signs are +.
    features = torch.tensor([[0.0, -3.0, 0.0], [1.0, 0.0, 0.0]])
    expected = torch.tensor([[-3.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    torch.testing.assert_close(aligned(features, width=4), expected)
    torch.testing.assert_close(aligned(features, width=1), expected[:, :1])
    torch.testing.assert_close(aligned(features.to_sparse_csr(), width=4), expected)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(0, 99))
def test_svd_keeps_inner_products_of_few_directions(n, d, rank, seed):
    features = _matrix(n, d, rank, seed)
    found = aligned(features, width=5)
    assert found.shape == (n, 5)
    near = 1e-5 * (float(features.norm()) ** 2 + 1)
    torch.testing.assert_close(found @ found.t(), features @ features.t(), atol=near, rtol=0)


@pytest.mark.parametrize("nodes", [40, 4])
def test_the_strongest_few_are_those_of_all(nodes):
    features = _matrix(nodes, 12, 12)
    few = aligned(features, width=4)
    torch.testing.assert_close(aligned(features, width=12)[:, :4], few, atol=1e-4, rtol=1e-4)
    sparse = aligned(features.to_sparse_csr(), width=4)
    torch.testing.assert_close(sparse, few, atol=1e-4, rtol=1e-4)


def test_projection_keeps_inner_products_to_its_bound():
    features, width = _matrix(30, 200, 200), 256
    found = aligned(features, width=width, align="projection")
    lengths = features.norm(dim=1)
    off = (found @ found.t() - features @ features.t()).abs() / torch.outer(lengths, lengths)
    assert float(off.max()) < 5 * (2 / width) ** 0.5  # five standard deviations
    assert float(off.mean()) > 0  # it is no identity
    assert aligned(features, width=width, align="projection").equal(found)
    assert not aligned(features, width=width, align="projection", seed=1).equal(found)
    assert projection(3, 4, seed=0).abs().eq(0.5).all()


@pytest.fixture
def domains() -> list[Graph]:
    return [
        eg.load("synthetic", nodes=60, classes=4, features=features, noise=0.2, seed=features)
        for features in (8, 20)
    ]


def test_domains_bring_their_own_classes(domains):
    joined = join_domains(domains, width=12)
    assert (joined.num_nodes, joined.num_features, joined.num_classes) == (120, 12, 8)
    assert joined.time.unique(return_counts=True)[1].tolist() == [60, 60]
    assert eg.GraphStream(joined, by="time").tasks == [(0, 1, 2, 3), (4, 5, 6, 7)]
    shared = join_domains(domains, width=12, classes="shared")
    assert eg.GraphStream(shared, by="time").tasks == [(0, 1, 2, 3), ()]
    assert join_domains(domains, width=12).features.equal(joined.features)
    hidden = domains[1].with_labels(torch.full((60,), -1))
    assert join_domains([domains[0], hidden], width=4).labels[60:].eq(-1).all()


def test_a_run_over_domains_by_name(domains, tmp_path):
    parts = []
    for number, graph in enumerate(domains):
        parts.append(str(tmp_path / f"{number}.npz"))
        write_npz(graph, Path(parts[-1]))
    dataset = {"name": "joined", "parts": parts, "width": 12}
    config = eg.RunConfig.of({"dataset": dataset | {"classes": "own"}, "stream": {"by": "time"}})
    result = eg.run(config, "finetune", epochs=1, device="cpu", progress=False)
    assert (len(result.seeds[0].rows), result.dataset["classes"]) == (2, 8)


def test_mistakes(domains):
    with pytest.raises(ConfigurationError, match="unknown align 'pca'"):
        join_domains(domains, align="pca")
    with pytest.raises(ConfigurationError, match="width must be an integer of at least 1, not 0"):
        join_domains(domains, width=0)
    with pytest.raises(ConfigurationError, match="need a width"):
        eg.load("joined", parts=["synthetic"], classes="own")
