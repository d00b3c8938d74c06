"""Graphs by name and by path, and what the catalogue says of them."""

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from evergraph.core.errors import ConfigurationError, DataError, UnknownNameError
from evergraph.datasets.arrays import read_npz, write_npz
from evergraph.datasets.base import Facts, catalogue, check_facts
from evergraph.datasets.loading import load
from evergraph.graphs import Graph

FACTS = Facts(
    title="tiny", nodes=3, edges=4, features=3, classes=2, tasks=1, directed=False, source="there"
)


def as_folder(graph: Graph, path: Path) -> None:
    path.mkdir()
    rows = zip(graph.labels.tolist(), graph.features.tolist(), strict=True)
    nodes = [f"{i},{label},{x},{y}" for i, (label, (x, y)) in enumerate(rows)]
    pairs = zip(graph.indices.tolist(), graph.edge_rows().tolist(), strict=True)
    (path / "nodes.csv").write_text("\n".join(["id,label,x,y", *nodes]))
    (path / "edges.csv").write_text("\n".join(["source,target", *(f"{s},{t}" for s, t in pairs)]))


WRITERS: dict[str, Callable[[Graph, Path], None]] = {
    "graph.npz": write_npz,
    "graph.pt": lambda graph, path: torch.save(graph.to_data(), path),
    "graph": as_folder,
}


@pytest.fixture
def timeless(tiny: Graph) -> Graph:
    return Graph(tiny.indptr, tiny.indices, tiny.features, tiny.labels)


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_graph(tmp_path, timeless, assert_same, name):
    WRITERS[name](timeless, tmp_path / name)
    raw = {"columns": {"*": "raw"}} if name == "graph" else {}  # tables are scaled otherwise
    assert_same(load(tmp_path / name, undirected=False, **raw), timeless)
    assert_same(load(str(tmp_path / name), **raw), timeless.to_undirected())


def test_a_registered_name_wins_over_a_file_and_says_so(tmp_path, timeless, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    as_folder(timeless, tmp_path / "synthetic")
    as_folder(timeless, tmp_path / "mine")
    assert load("synthetic", nodes=50, mean_degree=4.0, classes=2).num_nodes == 50
    said = "synthetic: the dataset of this name is loaded; for what is in this folder, write ./syn"
    assert [line[: len(said)] for line in caplog.messages] == [said]
    caplog.clear()
    assert load("mine").num_nodes == 4
    assert caplog.messages == []
    assert load(Path("synthetic")).num_nodes == 4


@pytest.mark.parametrize(
    ("source", "error", "said"),
    [
        ("no/such/place", DataError, "no such file or folder: no/such/place"),
        ("missing.npz", DataError, "no such file or folder: missing.npz"),
        (Path("missing"), DataError, "no such file or folder: missing"),
        (Path(__file__), DataError, r"'\.py' is not supported: expected \.npz or \.pt, or a f"),
        (
            "coraful",
            UnknownNameError,
            "unknown dataset, and no file or folder, called 'coraful'.*"
            "did you mean 'corafull'?.*synthetic",
        ),
    ],
)
def test_what_cannot_be_found(source, error, said):
    with pytest.raises(error, match=said):
        load(source)


def test_parameters_go_to_datasets_and_not_to_paths(tmp_path, tiny):
    write_npz(tiny, tmp_path / "graph.npz")
    with pytest.raises(ConfigurationError, match="'nodes' was given with the path"):
        load(tmp_path / "graph.npz", nodes=3)
    with pytest.raises(ConfigurationError, match="dataset 'synthetic' has no parameter 'node'"):
        load("synthetic", node=3)


def test_facts_of_a_named_dataset_are_checked_and_the_cache_may_be_chosen(
    tmp_path, write_gnpz, set_facts, monkeypatch
):
    write_gnpz(tmp_path / "photo" / "Photo" / "raw" / "amazon_electronics_photo.npz")
    set_facts(photo=FACTS)
    monkeypatch.setenv("EVERGRAPH_CACHE", str(tmp_path))
    assert load("photo").num_edges == 4
    set_facts(photo=Facts(**{**vars(FACTS), "edges": 9}))
    with pytest.raises(DataError, match="edges should be 9 but are 4"):
        load("photo", cache=tmp_path)  # also when it is read from the cache


def test_every_published_dataset_has_facts():
    for module in ("published", "ogb"):
        importlib.import_module(f"evergraph.datasets.{module}")
    from evergraph.datasets.base import datasets
    from evergraph.datasets.published import PublishedDataset

    published = {n for n in datasets.names() if issubclass(datasets.resolve(n), PublishedDataset)}
    bundled = {name for name in catalogue() if name.startswith("wordnet")}
    assert published == set(catalogue()) - bundled


def test_facts_agree_with_each_other():
    for name, facts in catalogue().items():
        assert facts.tasks == facts.classes // 2, name  # two classes each
        assert facts.directed or facts.edges % 2 == 0, name  # both ways
        names = {url.rpartition("/")[2] for url in facts.urls}
        assert len(names) == (not name.startswith("wordnet"))  # mirrors differ in where
        assert facts.room >= facts.download
        assert all(len(digest) == 64 for digest in facts.sha256.values())


def test_each_fact_that_differs_is_named(tiny, set_facts):
    known = {**vars(FACTS), "nodes": 4, "edges": 3, "features": 2}
    set_facts(tiny=Facts(**{**known, "edges": 7, "kept_edges": 3}))
    check_facts("tiny", tiny)  # as many as were kept of those that were published
    set_facts(tiny=Facts(**known))
    check_facts("tiny", tiny)
    check_facts("unheard-of", tiny)
    other = Graph.from_edges(
        torch.tensor([[0], [1]]), features=torch.ones(5, 1), labels=torch.tensor([0, 1, 2, 3, 4])
    )
    with pytest.raises(DataError) as caught:
        check_facts("tiny", other)
    assert str(caught.value) == (
        "dataset 'tiny' is not the published one: nodes should be 4 but are 5, edges should be 3 "
        "but are 1, features should be 2 but are 1, classes should be 2 but are 5"
    )


@pytest.mark.parametrize(
    ("name", "file"), [("coauthor-cs", "coauthor_cs"), ("computers", "amazon_computers")]
)
def test_facts_hold_for_real_data(shared, name, file):
    check_facts(name, read_npz(shared / f"{file}.npz").to_undirected())


def test_an_own_catalogue_is_laid_over_it(tmp_path, monkeypatch):
    for name, text in (("absent", None), ("no", "[reddit"), ("wrong", "[reddit]\nurl = 'x'")):
        path = tmp_path / f"{name}.toml"
        if text is not None:
            path.write_text(text)
        monkeypatch.setenv("EVERGRAPH_CATALOGUE", str(path))
        with pytest.raises(DataError, match=rf"EVERGRAPH_CATALOGUE: .*{name}\.toml: "):
            catalogue()
    path = tmp_path / "mine.toml"
    path.write_text("[reddit]\nurls = ['https://mirror.example.org/reddit.zip']\n")
    monkeypatch.setenv("EVERGRAPH_CATALOGUE", str(path))
    assert catalogue()["reddit"].urls == ["https://mirror.example.org/reddit.zip"]
    assert catalogue()["reddit"].nodes == 232_965
