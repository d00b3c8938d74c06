"""The bundled dataset: its facts, its features and their cache."""

import io
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.datasets import datasets, wordnet
from evergraph.datasets.base import catalogue, check_facts
from evergraph.datasets.loading import load_outline
from evergraph.datasets.wordnet import tf_idf, truncated_svd
from evergraph.graphs import Graph, homophily

NOTICE = Path(__file__).resolve().parents[2] / "NOTICE"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def graph(cache: Path) -> Graph:
    return datasets.make("wordnet", dims=8).load(cache)  # 256 take a minute


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a graph of four nodes and three words where the bundled file is; return its cache."""
    file = tmp_path / "small.npz"
    file.write_bytes(packed())
    monkeypatch.setattr(wordnet, "BUNDLED", file)
    return tmp_path / "cache"


def packed(**changed: Any) -> bytes:
    arrays = {
        "labels": [0, 1, 1, 0],
        "edge_lengths": [2, 0, 1, 0],  # 0-1 0-3 2-3
        "edge_gaps": [1, 2, 3],
        "word_lengths": [2, 1, 1, 2],  # words 0 1, 1, 2, 0 2
        "word_gaps": [0, 1, 1, 2, 0, 2],
        "word_counts": [1, 2, 1, 3, 1, 1],
        "edge_kinds": [0, 1, 0],  # 0-1 and 2-3 by the first line, 0-3 by the second
        "kinds": list(b"part-of>\nantonym< antonym> part-of<"),
        "types": list(b"nnar"),
    }
    content = io.BytesIO()
    kept = {k: np.array(v) for k, v in (arrays | changed).items()}
    for text in ("kinds", "types"):
        kept[text] = kept[text].astype(np.uint8)
    np.savez_compressed(content, **kept)
    return content.getvalue()


def fail(*_: Any, **__: Any) -> None:
    raise AssertionError("the features were computed again")


# The bundled file


def test_facts(graph):
    assert (graph.num_nodes, graph.num_edges) == (117_659, 367_578)
    assert graph.labels.unique().tolist() == list(range(45))
    assert graph.features.shape == (117_659, 8)
    assert wordnet.WordNet().dims == 256
    assert graph.features.dtype == torch.float32
    assert bool(graph.features.isfinite().all())
    # data.noun begins: 00001740 03 n 01 entity 0 003 ~ 00001930 n ~ 00002137 n ~ 04424418 n
    assert graph.labels[0] == 3
    assert graph.neighbours(0).tolist()[:2] == [1, 2]
    assert len(graph.neighbours(0)) == 3
    rows, columns = graph.edge_rows(), graph.indices.long()  # edges run both ways
    backward = columns * graph.num_nodes + rows
    assert torch.equal(rows * graph.num_nodes + columns, backward.sort().values)
    assert not bool((rows == columns).any())


def test_licence_is_in_the_file_and_in_the_notice():
    content = wordnet.BUNDLED.read_bytes()
    assert len(content) < 4_000_000
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        licence = arrays["licence"].tobytes().decode()
    assert "WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved." in licence
    assert licence in NOTICE.read_text()


def test_features_hold_neither_labels_nor_edges(small, tmp_path):
    before = wordnet.WordNet(dims=2).load(small)
    (tmp_path / "small.npz").write_bytes(
        packed(labels=[5, 6, 7, 8], edge_lengths=[0, 0, 0, 0], edge_gaps=[], edge_kinds=[])
    )
    after = wordnet.WordNet(dims=2).load(small)
    assert after.labels.tolist() == [5, 6, 7, 8]
    assert after.num_edges == 0
    assert torch.equal(before.features, after.features)


def test_small_graph_by_hand(small):
    graph = wordnet.WordNet(dims=3).load(small)
    assert graph.labels.tolist() == [0, 1, 1, 0]
    assert graph.edge_rows().tolist() == [0, 0, 1, 2, 3, 3]
    assert graph.indices.tolist() == [1, 3, 0, 3, 0, 2]
    # all three directions are kept, so that the inner products of the TF-IDF rows are too:
    # words 0, 1 and 2 are in two rows each and weigh the same; word 1 counts twice in row 0
    twice = 1 + math.log(2)
    cosine = twice / math.hypot(1, twice)
    products = graph.features @ graph.features.T
    assert products[0, 1].item() == pytest.approx(cosine, abs=1e-5)
    assert products[0, 2].item() == pytest.approx(0, abs=1e-5)
    assert products[2, 3].item() == pytest.approx(math.sqrt(0.5), abs=1e-5)


def test_relations_parts_of_speech_and_depth_by_hand(small, tmp_path):
    plain = wordnet.WordNet(dims=2).load(small)
    assert plain.relations is None
    assert plain.types is None
    graph = wordnet.WordNet(dims=2, relations=True).load(small)
    assert graph.indices.equal(plain.indices)
    ends, relations = graph.relations.edges()
    named = zip(*ends.tolist(), (graph.relations.names[r] for r in relations), strict=True)
    assert sorted(named) == [
        (0, 1, "part-of"),
        (0, 3, "antonym"),
        (2, 3, "part-of"),
        (3, 0, "antonym"),
        (3, 0, "part-of"),
    ]
    assert graph.types.of(torch.arange(4)) == ["noun", "noun", "adjective", "adverb"]
    graph = wordnet.WordNet(dims=2, classes="parts-of-speech").load(small)
    assert graph.labels.tolist() == [0, 0, 2, 4]  # noun, noun, adjective, adverb
    assert graph.types is None  # which would tell the answer
    # 0-1, 0-3 and 2-3: 1 below 0, 3 below 0 and 2, an instance; 2 is an adjective
    kinds = list(b"hypernym<\ninstance-of<")
    (tmp_path / "small.npz").write_bytes(packed(kinds=kinds, types=list(b"nnan")))
    graph = wordnet.WordNet(dims=2, classes="depth").load(small)
    assert graph.labels.tolist() == [0, 1, -1, 1]


# Counted by walking up from every synset in scripts of our own: the last is 13 to 18.
DEPTHS = [560, 3289, 3949, 3229, 3611, 6978, 12625, 19085, 14215, 11105, 7239, 4278, 2506, 3213]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("wordnet-relations", None),
        ("wordnet-pos", [82_115, 13_767, 7_463, 10_693, 3_621]),
        ("wordnet-depth", DEPTHS),
    ],
)
def test_ways_agree_with_the_catalogue(name, sizes):
    outline = load_outline(name)
    check_facts(name, outline)
    labelled = outline.labels[outline.labels >= 0]
    assert len(labelled) == catalogue()[name].labelled or catalogue()[name].labelled is None
    if sizes is not None:
        assert labelled.bincount().tolist() == sizes
        assert outline.relations is None
        return
    assert outline.relations is not None  # and every edge has one
    joined = outline.relations.rows() * outline.num_nodes + outline.relations.indices
    assert joined.unique().equal(outline.edge_rows() * outline.num_nodes + outline.indices)
    assert outline.relations.names[:3] == ("also-see", "antonym", "attribute")


@pytest.mark.parametrize(
    "wrong", [{"dims": 0}, {"dims": 2.5}, {"dims": "256"}, {"classes": "pos"}], ids=str
)
def test_what_a_user_may_not_ask_for(wrong, small):
    (name,) = wrong
    with pytest.raises(ConfigurationError, match=name):
        wordnet.WordNet(**wrong)
    with pytest.raises(ConfigurationError, match="between 1 and 3"):
        wordnet.WordNet(dims=4).load(small)


# The cache


def test_other_dims_other_file_and_other_recipe_have_their_own_features(
    small, tmp_path, monkeypatch
):
    wordnet.WordNet(dims=2).load(small)
    (kept,) = small.iterdir()
    assert (kept.name.startswith("wordnet-2-"), kept.suffix) == (True, ".npy")
    wordnet.WordNet(dims=1).load(small)
    assert len(list(small.iterdir())) == 2
    monkeypatch.setattr(wordnet, "RECIPE", wordnet.RECIPE + 1)
    wordnet.WordNet(dims=1).load(small)
    assert len(list(small.iterdir())) == 3
    (tmp_path / "small.npz").write_bytes(packed(word_counts=[9, 9, 9, 9, 9, 9]))
    wordnet.WordNet(dims=1).load(small)
    assert len(list(small.iterdir())) == 4


def as_npy(array: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"junk",
        as_npy(np.zeros((4, 2), np.float32))[:-5],
        as_npy(np.zeros((4, 3), np.float32)),
        as_npy(np.zeros((4, 2), np.float64)),
        as_npy(np.full((4, 2), np.nan, np.float32)),
        packed(),
    ],
)
def test_corrupt_cache_is_computed_again(small, content, caplog, monkeypatch):
    first = wordnet.WordNet(dims=2).load(small).features
    (kept,) = small.iterdir()
    kept.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert torch.equal(wordnet.WordNet(dims=2).load(small).features, first)
    assert "computed again" in caplog.text
    monkeypatch.setattr(wordnet, "truncated_svd", fail)  # and the sound ones are kept
    assert torch.equal(wordnet.WordNet(dims=2).load(small).features, first)


def test_a_cache_that_cannot_be_written_is_tolerated(small, tmp_path, caplog, monkeypatch):
    def full(file, _):
        file.write(b"half of it")
        raise OSError("no space left on device")

    # below a file no folder can be made, not even by root, whom permissions do not stop
    found = wordnet.WordNet(dims=2).load(tmp_path / "small.npz" / "cache").features
    assert "cannot be cached" in caplog.text
    monkeypatch.setattr(np, "save", full)
    assert torch.equal(wordnet.WordNet(dims=2).load(small).features, found)
    assert list(small.iterdir()) == []  # nothing is left behind


# TF-IDF and SVD


def test_tf_idf_by_hand():
    # two rows; word 0 is in both, words 1 and 2 in one: idf 1 + ln(3/3) = 1 and 1 + ln(3/2)
    counts = scipy.sparse.csr_matrix(np.array([[1.0, 2.0, 0.0], [3.0, 0.0, 1.0]]))
    rare = 1 + math.log(1.5)
    first = np.array([1.0, (1 + math.log(2)) * rare, 0.0])
    second = np.array([1 + math.log(3), 0.0, rare])
    expected = np.stack([first / np.linalg.norm(first), second / np.linalg.norm(second)])
    np.testing.assert_allclose(tf_idf(counts).toarray(), expected, rtol=1e-6)
    assert counts.toarray().tolist() == [[1, 2, 0], [3, 0, 1]]  # as before


def decaying(rows: int, columns: int, *, ratio: float = 0.8) -> np.ndarray:
    """Return a matrix with singular values 1, ratio, ratio², ..."""
    random = np.random.default_rng(0)
    rank = min(rows, columns)
    left = np.linalg.qr(random.normal(size=(rows, rank)))[0]
    right = np.linalg.qr(random.normal(size=(columns, rank)))[0]
    return (left * ratio ** np.arange(rank)) @ right.T


@pytest.mark.parametrize("shape", [(90, 60), (60, 90)])
def test_truncated_svd_agrees_with_numpy(shape):
    matrix = decaying(*shape)
    found = truncated_svd(scipy.sparse.csr_matrix(matrix), dims=6, generator=seeded(0)).numpy()
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    signs = np.sign(right[np.arange(6), np.abs(right[:6]).argmax(1)])
    np.testing.assert_allclose(found, left[:, :6] * values[:6] * signs, atol=1e-3)


def test_truncated_svd_converges_with_power_iterations(monkeypatch):
    monkeypatch.setattr(wordnet, "OVERSAMPLING", 0)
    matrix = decaying(90, 60, ratio=0.95)
    best = 0.95 ** np.arange(6)

    def captured(iterations):
        found = truncated_svd(
            scipy.sparse.csr_matrix(matrix),
            dims=6,
            generator=seeded(0),
            power_iterations=iterations,
        )
        return float(found.square().sum()) / float((best**2).sum())

    assert captured(0) < captured(2) < captured(20) <= 1 + 1e-5
    assert captured(20) > 0.99


def test_truncated_svd_follows_its_generator_only_and_points_the_same_way():
    matrix = scipy.sparse.csr_matrix(decaying(50, 40, ratio=0.6))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first = truncated_svd(matrix, dims=4, generator=seeded(3))
        assert torch.get_num_threads() == 2  # as before
    finally:
        torch.set_num_threads(threads)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(truncated_svd(matrix, dims=4, generator=seeded(3)), first)
    assert torch.equal(torch.get_rng_state(), state)
    other = truncated_svd(matrix, dims=4, generator=seeded(1))
    torch.testing.assert_close(first, other, atol=1e-4, rtol=0)


def test_an_outline_counts_like_the_graph_and_computes_no_features(
    graph, cache, tmp_path, monkeypatch
):
    monkeypatch.setattr(wordnet, "_compute_features", fail)
    assert torch.equal(wordnet.WordNet(dims=8).load(cache).features, graph.features)  # kept
    outline = wordnet.WordNet(dims=7).load_outline(tmp_path)
    facts = catalogue()["wordnet"]
    counts = (outline.num_nodes, outline.num_edges, outline.num_features, outline.num_classes)
    assert counts == (facts.nodes, facts.edges, 7, facts.classes)
    assert homophily(outline) == homophily(graph)
    assert list(tmp_path.iterdir()) == []  # nor anything kept
