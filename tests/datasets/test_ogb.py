"""OGB's graphs, on tiny folders in OGB's own raw format."""

import builtins
import gzip
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from evergraph.core.errors import ConfigurationError, DataError, WrongFileError
from evergraph.datasets.base import Facts, catalogue
from evergraph.datasets.fetching import SUMS
from evergraph.datasets.ogb import Arxiv, Papers, Products, ogb_master
from evergraph.datasets.published import KEPT

TINY: Any = {
    "title": "tiny",
    "nodes": 3,
    "edges": 4,
    "features": 2,
    "classes": 3,
    "tasks": 1,
    "directed": False,
    "source": "there",
}
RAW = {
    "edge": "0,1\n2,1\n2,2\n",
    "num-node-list": "3\n",
    "num-edge-list": "3\n",
    "node-feat": "0.5,1\n2,3\n4,-5\n",
    "node-label": "1\n0\n2\n",
}

# Not pytest.importorskip: every worker reads this file, one runs it.
pytestmark = pytest.mark.skipif(not find_spec("ogb"), reason="ogb is an extra")


@pytest.fixture(autouse=True)
def _no_facts(set_facts: Any) -> None:
    set_facts()


def write_raw(raw: Path, **more: str) -> None:
    raw.mkdir(parents=True)
    for name, text in {**RAW, **more}.items():
        with gzip.open(raw / f"{name}.csv.gz", "wt") as file:
            file.write(text)


def test_arxiv_runs_from_citing_to_cited_and_has_years(tmp_path, assert_same, capsys):
    write_raw(tmp_path / "arxiv" / "arxiv" / "raw", node_year="2013\n2012\n2015\n")
    graph = Arxiv().load(tmp_path)
    assert [graph.neighbours(v).tolist() for v in range(3)] == [[], [0, 2], []]
    assert graph.features.tolist() == [[0.5, 1], [2, 3], [4, -5]]
    assert graph.labels.tolist() == [1, 0, 2]
    assert graph.time.tolist() == [2013, 2012, 2015]
    assert capsys.readouterr().out == ""  # ogb prints; our standard output is for results
    assert_same(Arxiv().load(tmp_path), graph)
    assert {path.name for path in (tmp_path / "arxiv").iterdir()} == {"arxiv", SUMS, KEPT}
    with np.load(tmp_path / "arxiv" / KEPT, allow_pickle=False) as archive:
        assert set(archive.files) == {"edge_index", "y", "x", "year"}
        assert archive["edge_index"].tolist() == [[0, 2], [1, 1]]


def test_products_runs_both_ways(tmp_path, assert_same):
    write_raw(tmp_path / "products" / "products" / "raw")
    graph = Products().load(tmp_path)
    assert [graph.neighbours(v).tolist() for v in range(3)] == [[1], [0, 2], [1]]
    assert graph.time is None
    assert_same(Products().load(tmp_path), graph)


@pytest.mark.parametrize("dataset", [Arxiv, Products, Papers])
def test_raw_files_lie_where_ogb_unpacks_them(dataset):
    master = ogb_master(dataset.ogb_name)
    assert master["url"] in catalogue()[dataset.name].urls
    assert all(file.startswith(f"{master['download_name']}/raw/") for file in dataset.raw_files)
    if dataset is not Papers:  # whose years are in its one archive
        extra = [f for f in dataset.raw_files if "node_year" in f]
        assert bool(extra) == (master["additional node files"] == "node_year")


def test_an_archive_is_unpacked_without_a_question(tmp_path, set_facts, monkeypatch):
    ask = Mock(side_effect=AssertionError("a question was asked"))
    write_raw(tmp_path / "site" / "raw")
    archive = tmp_path / "products.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("products/split/sales_ranking/train.csv.gz", gzip.compress(b"0\n"))
        for path in (tmp_path / "site" / "raw").iterdir():
            file.write(path, f"products/raw/{path.name}")
    monkeypatch.setattr(builtins, "input", ask)
    set_facts(products=Facts(**TINY, urls=(archive.as_uri(),)))
    assert Products().load(tmp_path / "cache").num_edges == 4
    kept = {p.name for p in (tmp_path / "cache" / "products").iterdir()}
    assert kept == {"products", SUMS, KEPT}
    assert not list((tmp_path / "cache").rglob("split"))


def test_an_archive_without_what_it_should_hold(tmp_path, set_facts):
    archive = tmp_path / "arxiv.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("../../escaped", "no")
    set_facts(arxiv=Facts(**TINY, urls=(archive.as_uri(),)))
    with pytest.raises(WrongFileError, match=r"zip: does not contain arxiv/raw/edge\.csv\.gz"):
        Arxiv().load(tmp_path / "cache")
    archive.write_bytes(archive.read_bytes()[:-30])
    with pytest.raises(WrongFileError, match=r"arxiv\.zip: is not a complete zip archive"):
        Arxiv().load(tmp_path / "cache")
    assert not (tmp_path / "cache" / "arxiv").exists()
    # Raw files that are damaged.
    write_raw(tmp_path / "products" / "products" / "raw")
    (tmp_path / "products" / "products" / "raw" / "edge.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(DataError, match=r"raw files of dataset 'products' .* cannot be read"):
        Products().load(tmp_path)


def test_without_ogb_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'evergraph\[ogb\]'"):
        Arxiv().load(tmp_path)
    assert list(tmp_path.iterdir()) == []
