"""The readers that go through PyG, on tiny files in the publishers' own raw formats."""

import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from evergraph.core.errors import DataError, DownloadError, ResourceError, WrongFileError
from evergraph.datasets.base import Facts
from evergraph.datasets.fetching import SUMS, Fetch
from evergraph.datasets.published import (
    KEPT,
    CoauthorCS,
    CoauthorPhysics,
    Computers,
    CoraFull,
    Photo,
    Reddit,
)
from evergraph.graphs.graph_folder import checksum
from faulty_server import faulty

GNPZ = [CoraFull, Computers, Photo, CoauthorCS, CoauthorPhysics]
FACTS = Facts(
    title="tiny", nodes=3, edges=4, features=3, classes=2, tasks=1, directed=False, source="there"
)


@pytest.fixture(autouse=True)
def _no_facts(set_facts: Any) -> None:
    set_facts()


def at(*urls: str, **changed: Any) -> Facts:
    """Return the facts of a tiny graph at some addresses."""
    return Facts(**{**vars(FACTS), "urls": urls, **changed})


def zipped(path: Path, folder: Path) -> Path:
    """Put all files of a folder into an archive, beside others that nobody needs."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README.txt", "the publisher's own words")
        for file in folder.iterdir():
            archive.write(file, file.name)
    return path


@pytest.fixture
def served(tmp_path: Path, write_gnpz: Any, set_facts: Any) -> Callable[..., Any]:
    """Serve a tiny graph as photo.npz, with faults, and set the facts that say where."""

    @contextmanager
    def serve(*faults: str, **facts: Any) -> Iterator[Any]:
        write_gnpz(tmp_path / "site.npz")
        with faulty({"/photo.npz": (tmp_path / "site.npz").read_bytes()}, *faults) as server:
            set_facts(photo=at(f"{server.url}/photo.npz", **facts))
            yield server

    return serve


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
def test_gnpz(tmp_path, write_gnpz, assert_same, dataset):
    root = tmp_path / dataset.name
    width = 100 if dataset is CoraFull else 3  # features that are mostly zero come as CSR
    write_gnpz(root / dataset.raw_files[0], width=width)
    graph = dataset().load(tmp_path)
    # PyG drops the self-loop, adds the reverse edges and turns counts into 1.
    assert [graph.neighbours(v).tolist() for v in range(3)] == [[1], [0, 2], [1]]
    assert (graph.features.layout == torch.sparse_csr) == (width == 100)
    assert graph.features.to_dense()[:, :3].tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]
    assert graph.labels.tolist() == [0, 1, 1]
    assert in_cache(root) == sorted([dataset.raw_files[0], SUMS, KEPT])
    assert_same(dataset().load(tmp_path), graph)


def test_reddit(tmp_path, assert_same):
    write_reddit(tmp_path / "reddit")
    graph = Reddit().load(tmp_path)
    assert [graph.neighbours(v).tolist() for v in range(3)] == [[1], [0], []]
    assert graph.features.tolist() == [[0.5, 1], [2, 3], [4, 5]]
    assert graph.labels.tolist() == [2, 0, 1]
    assert_same(Reddit().load(tmp_path), graph)


def test_pyg_never_unpickles_what_lies_in_the_cache_and_later_loads_do_without_it(
    tmp_path, write_gnpz, monkeypatch
):
    class Bomb:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    root = tmp_path / "photo"
    write_gnpz(root / Photo.raw_files[0])
    (root / "Photo" / "processed").mkdir()
    for file in ("data.pt", "pre_transform.pt", "pre_filter.pt"):
        torch.save(Bomb(), root / "Photo" / "processed" / file)
    assert Photo().load(tmp_path).num_nodes == 3
    assert not (tmp_path / "ran").exists()
    monkeypatch.setattr("torch_geometric.datasets.Amazon", None)
    assert Photo().load(tmp_path).num_nodes == 3


def test_a_download_is_moved_in_whole_and_whoever_comes_second_waits_for_it(tmp_path, served):
    cache = tmp_path / "not" / "there" / "yet"
    with served() as server:
        with ThreadPoolExecutor(3) as pool:
            graphs = list(pool.map(lambda _: Photo().load(cache), range(3)))
        assert [graph.num_edges for graph in graphs] == [4, 4, 4]
        assert len(server.requests) == 1
    raw = f"photo/{Photo.raw_files[0]}"
    lock = "downloads/photo.lock"
    assert in_cache(cache) == sorted([raw, f"photo/{SUMS}", f"photo/{KEPT}", lock])


def test_reddits_archive_is_unpacked_where_pyg_expects_it(tmp_path, set_facts):
    write_reddit(tmp_path / "site")
    archive = zipped(tmp_path / "reddit.zip", tmp_path / "site" / "raw")
    set_facts(reddit=at(archive.as_uri(), features=2, classes=3, edges=2))
    assert Reddit().load(tmp_path / "cache").num_nodes == 3
    assert in_cache(tmp_path / "cache" / "reddit") == sorted([*Reddit.raw_files, SUMS, KEPT])
    assert archive.exists()  # it is not ours to remove


def test_files_that_were_carried_by_hand(tmp_path, write_gnpz, set_facts):
    write_gnpz(tmp_path / "stick" / "graphs" / "photo.npz")
    set_facts(photo=at("https://nowhere.invalid/photo.npz"))
    cache, how = tmp_path / "cache", Fetch(folder=tmp_path / "stick")
    assert Photo().load(cache, how).num_nodes == 3
    (tmp_path / "empty").mkdir()
    with pytest.raises(DownloadError, match=r"photo\.npz is not in .*empty or a folder below"):
        Photo().load(tmp_path / "other", Fetch(folder=tmp_path / "empty"))


def test_a_download_that_breaks_off_leaves_nothing_and_the_next_one_is_whole(tmp_path, served):
    how = Fetch(tries=1)
    with served("cut"):
        with pytest.raises(DownloadError) as caught:
            Photo().load(tmp_path / "cache", how)
        message = str(caught.value)
        assert message.startswith("dataset 'photo' could not be fetched from there (photo.npz co")
        assert f"put {Photo.raw_files[0]} under {tmp_path / 'cache' / 'photo'}" in message
        assert "\n" not in message
        assert in_cache(tmp_path / "cache") == ["downloads/photo.lock"]
        assert Photo().load(tmp_path / "cache", how).num_nodes == 3


@pytest.mark.parametrize("fault", ["html", "wrong"])
def test_what_is_no_dataset_is_fetched_once_more(tmp_path, served, fault):
    with served(fault) as server:
        assert Photo().load(tmp_path / "cache").num_nodes == 3
        assert len(server.requests) == 2
    assert in_cache(tmp_path / "cache" / "downloads") == ["photo.lock"]


def test_a_wrong_checksum_is_fetched_once_more_and_then_refused(tmp_path, served, set_facts):
    path = tmp_path / "cache" / "downloads" / "photo.npz"
    how = Fetch(sums={"photo.npz": "0" * 64})
    with served() as server:
        found = checksum(tmp_path / "site.npz")
        with pytest.raises(WrongFileError) as caught:
            Photo().load(tmp_path / "cache", how)
        assert str(caught.value) == (
            f"{path}: the SHA-256 is {found}, but {'0' * 64} was expected: it is kept as "
            "photo.npz.wrong"
        )
        assert len(server.requests) == 2
        assert in_cache(path.parent) == ["photo.lock", "photo.npz.wrong"]
        assert not (tmp_path / "cache" / "photo").exists()
        set_facts(photo=at(f"{server.url}/photo.npz", sha256={"photo.npz": found}))
        assert Photo().load(tmp_path / "cache").num_nodes == 3
    assert in_cache(path.parent) == ["photo.lock"]


def test_a_raw_file_that_changed_is_fetched_again_where_it_is_asked_for(
    tmp_path, write_gnpz, set_facts
):
    raw = tmp_path / "photo" / Photo.raw_files[0]
    write_gnpz(tmp_path / "site" / "photo.npz")
    set_facts(photo=at((tmp_path / "site" / "photo.npz").as_uri()))
    Photo().load(tmp_path)
    write_gnpz(raw, width=4)
    with pytest.raises(DataError, match=r"amazon_electronics_photo\.npz: the SHA-256"):
        Photo().load(tmp_path)
    assert Photo().load(tmp_path, Fetch()).num_features == 3
    assert raw.with_name(f"{raw.name}.wrong").exists()


def test_a_disk_that_is_too_small_is_said_before_anything_is_fetched(tmp_path, set_facts):
    with faulty({}) as server:
        set_facts(reddit=at(f"{server.url}/reddit.zip", download=10**17, room=10**18))
        with pytest.raises(
            ResourceError, match=r"dataset 'reddit' takes about .* GB too few: free"
        ):
            Reddit().load(tmp_path)
        assert server.requests == []


def test_checksums_are_checked_at_first(tmp_path, write_gnpz, set_facts):
    raw = tmp_path / "photo" / Photo.raw_files[0]
    write_gnpz(raw)
    for wrong, said in (
        ({"sha256": {Photo.raw_files[0]: "0" * 64}}, r"but 0{64} was expected"),
        ({"classes": 8}, "classes should be 8 but are 2"),
    ):
        set_facts(photo=Facts(**{**vars(FACTS), **wrong}))
        with pytest.raises(DataError, match=said):
            Photo().load(tmp_path)
        assert in_cache(tmp_path / "photo") == [Photo.raw_files[0]]  # and nothing is kept
    set_facts(photo=Facts(**{**vars(FACTS), "sha256": {Photo.raw_files[0]: checksum(raw)}}))
    assert Photo().load(tmp_path).num_nodes == 3
    with pytest.raises(DownloadError, match="could not be fetched"):
        Photo().load(raw / "cache")  # where none can be made
