from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from evergraph.core.errors import DataError
from evergraph.datasets.catalogue import Facts, catalogue, check_facts
from evergraph.datasets.files.npz import read_npz
from evergraph.graphs import Graph

TINY = Facts(
    title="tiny", nodes=4, edges=3, features=2, classes=2, tasks=1, directed=True, source="here"
)


def test_every_published_dataset_has_facts() -> None:
    for module in ("published", "ogb"):
        importlib.import_module(f"evergraph.datasets.{module}")
    from evergraph.datasets.base import datasets
    from evergraph.datasets.published import PublishedDataset

    published = {n for n in datasets.names() if issubclass(datasets.resolve(n), PublishedDataset)}
    bundled = {name for name in catalogue() if name.startswith("wordnet")}
    assert published == set(catalogue()) - bundled


def test_facts_agree_with_each_other() -> None:
    for name, facts in catalogue().items():
        assert facts.tasks == facts.classes // 2, name  # two classes each
        assert facts.directed or facts.edges % 2 == 0, name  # both ways
        names = {url.rpartition("/")[2] for url in facts.urls}
        assert len(names) == (not name.startswith("wordnet"))  # mirrors differ in where
        assert facts.room >= facts.download
        assert all(len(digest) == 64 for digest in facts.sha256.values())


def test_each_fact_that_differs_is_named(tiny: Graph, set_facts: Any) -> None:
    set_facts(tiny=Facts(**{**vars(TINY), "edges": 7, "kept_edges": 3}))
    check_facts("tiny", tiny)  # as many as were kept of those that were published
    set_facts(tiny=TINY)
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
def test_facts_hold_for_real_data(shared: Path, name: str, file: str) -> None:
    check_facts(name, read_npz(shared / f"{file}.npz").to_undirected())


def test_a_catalogue_of_ones_own_is_laid_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
