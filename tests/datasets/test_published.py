"""The readers that go through PyG, on tiny files in the publishers' own raw formats."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
import torch_geometric.datasets

from evergraph.core.errors import DataError, DownloadError
from evergraph.datasets.catalogue import Facts
from evergraph.datasets.download import SUMS, sha256
from evergraph.datasets.published import (
    KEPT,
    CoauthorCS,
    CoauthorPhysics,
    Computers,
    CoraFull,
    Photo,
    Published,
    Reddit,
)

GNPZ = [CoraFull, Computers, Photo, CoauthorCS, CoauthorPhysics]
FACTS = Facts(
    title="tiny", nodes=3, edges=4, features=3, classes=2, tasks=1, directed=False, source="there"
)


@pytest.fixture(autouse=True)
def _no_facts(set_facts: Any) -> None:
    set_facts()


def in_cache(cache: Path) -> list[str]:
    return sorted(str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file())


def write_reddit(root: Path) -> None:
    (root / "raw").mkdir(parents=True)
    features = np.array([[0.5, 1.0], [2.0, 3.0], [4.0, 5.0]], np.float32)
    types, labels = np.array([1, 2, 3]), np.array([2, 0, 1])
    np.savez(root / "raw" / "reddit_data.npz", feature=features, label=labels, node_types=types)
    edges = scipy.sparse.coo_matrix((np.ones(2), ([0, 1], [1, 0])), shape=(3, 3))
    scipy.sparse.save_npz(root / "raw" / "reddit_graph.npz", edges)


@pytest.mark.parametrize("dataset", GNPZ)
def test_gnpz(tmp_path: Path, write_gnpz: Any, assert_same: Any, dataset: type[Published]) -> None:
    root = tmp_path / dataset.name
    write_gnpz(root / dataset.raw_files[0])
    graph = dataset().load(tmp_path)
    # PyG drops the self-loop, adds the reverse edges and turns counts into 1.
    assert [graph.neighbours(v).tolist() for v in range(3)] == [[1], [0, 2], [1]]
    assert graph.features.tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]
    assert graph.labels.tolist() == [0, 1, 1]
    assert in_cache(root) == sorted([dataset.raw_files[0], SUMS, KEPT])
    assert_same(dataset().load(tmp_path), graph)


def test_features_that_are_mostly_zero_come_as_csr(
    tmp_path: Path, write_gnpz: Any, assert_same: Any
) -> None:
    write_gnpz(tmp_path / "corafull" / CoraFull.raw_files[0], width=100)
    graph = CoraFull().load(tmp_path)
    assert graph.features.layout == torch.sparse_csr
    assert graph.features.to_dense().nonzero().tolist() == [[0, 1], [2, 0]]
    assert_same(CoraFull().load(tmp_path), graph)


def test_reddit(tmp_path: Path, assert_same: Any) -> None:
    write_reddit(tmp_path / "reddit")
    graph = Reddit().load(tmp_path)
    assert [graph.neighbours(v).tolist() for v in range(3)] == [[1], [0], []]
    assert graph.features.tolist() == [[0.5, 1], [2, 3], [4, 5]]
    assert graph.labels.tolist() == [2, 0, 1]
    assert_same(Reddit().load(tmp_path), graph)


def test_later_loads_read_our_own_file(
    tmp_path: Path, write_gnpz: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_gnpz(tmp_path / "photo" / Photo.raw_files[0])
    Photo().load(tmp_path)
    monkeypatch.setattr(torch_geometric.datasets, "Amazon", None)
    assert Photo().load(tmp_path).num_nodes == 3


def test_pyg_is_never_made_to_unpickle_what_lies_in_the_cache(
    tmp_path: Path, write_gnpz: Any
) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    root = tmp_path / "photo"
    write_gnpz(root / Photo.raw_files[0])
    (root / "Photo" / "processed").mkdir()
    for file in ("data.pt", "pre_transform.pt", "pre_filter.pt"):
        torch.save(Bomb(), root / "Photo" / "processed" / file)
    assert Photo().load(tmp_path).num_nodes == 3
    assert not (tmp_path / "ran").exists()


def test_a_download_is_moved_in_whole(
    tmp_path: Path, write_gnpz: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(self: Any) -> None:
        write_gnpz(Path(self.raw_paths[0]))

    monkeypatch.setattr(torch_geometric.datasets.Amazon, "download", download)
    cache = tmp_path / "not" / "there" / "yet"
    assert Computers().load(cache).num_edges == 4
    raw = f"computers/{Computers.raw_files[0]}"
    assert in_cache(cache) == sorted([raw, f"computers/{SUMS}", f"computers/{KEPT}"])


@pytest.mark.parametrize(
    "error", [OSError("network is unreachable"), zipfile.BadZipFile("cut"), EOFError()]
)
def test_a_failed_download_leaves_nothing(
    tmp_path: Path, set_facts: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def download(self: Any) -> None:
        Path(self.raw_dir, "reddit_data.npz").write_bytes(b"half")
        raise error

    set_facts(reddit=FACTS)
    monkeypatch.setattr(torch_geometric.datasets.Reddit, "download", download)
    with pytest.raises(DownloadError) as caught:
        Reddit().load(tmp_path)
    message = str(caught.value)
    assert message.startswith("dataset 'reddit' could not be fetched from there (")
    assert f"put raw/reddit_data.npz, raw/reddit_graph.npz under {tmp_path / 'reddit'}" in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_is_no_archive_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(self: Any) -> None:
        Path(self.raw_paths[0]).write_bytes(b"<html>404</html>")

    monkeypatch.setattr(torch_geometric.datasets.Amazon, "download", download)
    with pytest.raises(DataError, match=r"raw files of dataset 'photo' under .* cannot be read"):
        Photo().load(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match="could not be fetched"):
        Photo().load(tmp_path / "file" / "cache")


def test_a_raw_file_that_changed_is_refused(tmp_path: Path, write_gnpz: Any) -> None:
    raw = tmp_path / "photo" / Photo.raw_files[0]
    write_gnpz(raw)
    Photo().load(tmp_path)
    write_gnpz(raw, width=4)
    with pytest.raises(DataError, match=r"amazon_electronics_photo\.npz: its SHA-256"):
        Photo().load(tmp_path)


def test_a_pinned_checksum_is_checked_on_first_use(
    tmp_path: Path, write_gnpz: Any, set_facts: Any
) -> None:
    raw = tmp_path / "photo" / Photo.raw_files[0]
    write_gnpz(raw)
    pinned = {Photo.raw_files[0]: "0" * 64}
    set_facts(photo=Facts(**{**vars(FACTS), "sha256": pinned}))
    with pytest.raises(DataError, match=r"but 0{64} was expected"):
        Photo().load(tmp_path)
    pinned[Photo.raw_files[0]] = sha256(raw)
    assert Photo().load(tmp_path).num_nodes == 3


def test_a_file_with_other_facts_is_not_kept(
    tmp_path: Path, write_gnpz: Any, set_facts: Any
) -> None:
    set_facts(photo=Facts(**{**vars(FACTS), "classes": 8}))
    write_gnpz(tmp_path / "photo" / Photo.raw_files[0])
    with pytest.raises(DataError, match="classes should be 8 but are 2"):
        Photo().load(tmp_path)
    assert not (tmp_path / "photo" / KEPT).exists()
    assert not (tmp_path / "photo" / SUMS).exists()
