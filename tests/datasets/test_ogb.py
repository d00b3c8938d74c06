"""OGB's graphs, on tiny folders in OGB's own raw format."""

from __future__ import annotations

import builtins
import gzip
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergraph.core.errors import ConfigurationError, DataError, DownloadError
from evergraph.datasets.download import SUMS
from evergraph.datasets.ogb import Arxiv, OgbDataset, Products, ogb_master
from evergraph.datasets.published import KEPT

RAW = {
    "edge": "0,1\n2,1\n2,2\n",
    "num-node-list": "3\n",
    "num-edge-list": "3\n",
    "node-feat": "0.5,1\n2,3\n4,-5\n",
    "node-label": "1\n0\n2\n",
}

pytest.importorskip("ogb", reason="ogb is an extra")


@pytest.fixture(autouse=True)
def _no_facts(set_facts: Any) -> None:
    set_facts()


def write_raw(raw: Path, **more: str) -> None:
    raw.mkdir(parents=True)
    for name, text in {**RAW, **more}.items():
        with gzip.open(raw / f"{name}.csv.gz", "wt") as file:
            file.write(text)


def test_arxiv_runs_from_citing_to_cited_and_has_years(
    tmp_path: Path, assert_same: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write_raw(tmp_path / "arxiv" / "arxiv" / "raw", node_year="2013\n2012\n2015\n")
    graph = Arxiv().load(tmp_path)
    assert [graph.neighbours(v).tolist() for v in range(3)] == [[], [0, 2], []]
    assert graph.features.tolist() == [[0.5, 1], [2, 3], [4, -5]]
    assert graph.labels.tolist() == [1, 0, 2]
    assert graph.time is not None
    assert graph.time.tolist() == [2013, 2012, 2015]
    assert capsys.readouterr().out == ""  # ogb prints; our standard output is for results
    assert_same(Arxiv().load(tmp_path), graph)


def test_products_runs_both_ways(tmp_path: Path, assert_same: Any) -> None:
    write_raw(tmp_path / "products" / "products" / "raw")
    graph = Products().load(tmp_path)
    assert [graph.neighbours(v).tolist() for v in range(3)] == [[1], [0, 2], [1]]
    assert graph.time is None
    assert_same(Products().load(tmp_path), graph)


def test_what_is_kept_needs_no_pickle(tmp_path: Path) -> None:
    write_raw(tmp_path / "arxiv" / "arxiv" / "raw", node_year="1\n2\n3\n")
    Arxiv().load(tmp_path)
    files = {path.name for path in (tmp_path / "arxiv").iterdir()}
    assert files == {"arxiv", SUMS, KEPT}
    with np.load(tmp_path / "arxiv" / KEPT, allow_pickle=False) as archive:
        assert set(archive.files) == {"edge_index", "y", "x", "year"}
        assert archive["edge_index"].tolist() == [[0, 2], [1, 1]]


@pytest.mark.parametrize("dataset", [Arxiv, Products])
def test_raw_files_lie_where_ogb_unpacks_them(dataset: type[OgbDataset]) -> None:
    master = ogb_master(dataset.ogb_name)
    assert all(file.startswith(f"{master['download_name']}/raw/") for file in dataset.raw_files)
    extra = [f for f in dataset.raw_files if "node_year" in f]
    assert bool(extra) == (master["additional node files"] == "node_year")


def test_a_download_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(url: str, folder: str) -> str:
        assert url == "http://snap.stanford.edu/ogb/data/nodeproppred/products.zip"
        write_raw(tmp_path / "site" / "raw")
        archive = Path(folder, "products.zip")
        with zipfile.ZipFile(archive, "w") as file:
            for path in (tmp_path / "site" / "raw").iterdir():
                file.write(path, f"products/raw/{path.name}")
        return str(archive)

    def ask(*_: object) -> str:
        raise AssertionError("a question was asked")

    monkeypatch.setattr("ogb.utils.url.download_url", download)
    monkeypatch.setattr(builtins, "input", ask)
    assert Products().load(tmp_path / "cache").num_edges == 4
    assert {p.name for p in (tmp_path / "cache").iterdir()} == {"products"}
    assert {p.name for p in (tmp_path / "cache" / "products").iterdir()} == {"products", SUMS, KEPT}


def test_a_failed_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(url: str, folder: str) -> str:
        Path(folder, "arxiv.zip").write_bytes(b"half")
        raise RuntimeError("Stopped downloading due to interruption.")

    monkeypatch.setattr("ogb.utils.url.download_url", download)
    with pytest.raises(DownloadError, match="dataset 'arxiv' could not be fetched") as caught:
        Arxiv().load(tmp_path)
    assert f"arxiv/raw/node_year.csv.gz under {tmp_path / 'arxiv'}" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_damaged_raw_files(tmp_path: Path) -> None:
    write_raw(tmp_path / "products" / "products" / "raw")
    (tmp_path / "products" / "products" / "raw" / "edge.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(DataError, match=r"raw files of dataset 'products' .* cannot be read"):
        Products().load(tmp_path)


def test_without_ogb_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ogb", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'evergraph\[ogb\]'"):
        Arxiv().load(tmp_path)
    assert list(tmp_path.iterdir()) == []
