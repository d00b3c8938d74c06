"""ogbn-papers100M, on a tiny folder in OGB's binary raw format."""

import logging
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import evergraph
from evergraph.core.errors import DataError, DownloadError
from evergraph.datasets import Papers
from evergraph.datasets import ogb as binary
from evergraph.datasets.base import Facts
from evergraph.datasets.fetching import SUMS
from evergraph.graphs import Graph

# Four papers: 0 cites 1 and 2, twice 1; 2 cites 1 and itself; nobody knows 3.
EDGES = np.array([[0, 0, 2, 0, 2], [1, 2, 1, 1, 2]])
LISTED = [[], [0, 2], [0], []]
BOTH_WAYS = [[1, 2], [0, 2], [0, 1], []]
FEATURES = np.arange(8, dtype=np.float32).reshape(4, 2)
LABELS = np.array([[1.0], [np.nan], [0.0], [np.nan]])
YEARS = np.array([[2013], [2014], [1999], [2001]])

TINY = Facts(
    title="tiny", nodes=4, edges=5, features=2, classes=2, tasks=1, directed=True, source="there"
)


@pytest.fixture(autouse=True)
def _tiny(set_facts: Any) -> None:
    set_facts(papers=TINY)


def write_raw(
    cache: Path, *, save: Callable[..., None] = np.savez_compressed, **changed: Any
) -> Path:
    """Write the raw files as the publisher does; None leaves an array out."""
    raw = cache / "papers" / "papers100M-bin" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    arrays = {
        "edge_index": EDGES,
        "node_feat": FEATURES,
        "node_year": YEARS,
        "num_nodes_list": np.array([4]),
        "num_edges_list": np.array([5]),
        "node_label": LABELS,
        **changed,
    }
    save(raw / "node-label.npz", node_label=arrays.pop("node_label"))
    save(raw / "data.npz", **{name: each for name, each in arrays.items() if each is not None})
    return raw


def around(graph: Graph) -> list[list[int]]:
    return [graph.neighbours(node).tolist() for node in range(graph.num_nodes)]


@pytest.mark.parametrize(
    ("save", "edges", "values", "years"),
    [
        (np.savez, EDGES, 1, YEARS),
        (np.savez, np.asfortranarray(EDGES), 3, None),
        (np.savez_compressed, EDGES, 3, YEARS),
        (np.savez_compressed, np.asfortranarray(EDGES), 1 << 22, YEARS),
    ],
)
def test_it_is_read_in_pieces(tmp_path, save, edges, values, years, monkeypatch):
    monkeypatch.setattr(binary, "_VALUES", values)
    kind = np.float32 if years is not None else np.float16  # half floats become floats
    changed = {"edge_index": edges, "node_year": years, "node_feat": FEATURES.astype(kind)}
    write_raw(tmp_path, save=save, **changed)
    graph = evergraph.load("papers", cache=tmp_path, undirected=False)
    assert around(graph) == LISTED
    assert not graph.undirected
    assert graph.mapped
    assert graph.features.tolist() == FEATURES.tolist()
    assert graph.labels.tolist() == [1, -1, 0, -1]
    if years is None:
        assert graph.time is None
    else:
        assert graph.time.tolist() == YEARS[:, 0].tolist()


def test_both_ways_has_its_own_folder_and_the_same_features(tmp_path, caplog):
    raw = write_raw(tmp_path)
    with caplog.at_level(logging.INFO, logger="evergraph"):
        graph = evergraph.load("papers", cache=tmp_path)
    for stage in ("reading features", "reading edges", "sorting edges"):
        assert f"{stage}: 100 %" in caplog.text
    assert around(graph) == BOTH_WAYS
    assert graph.undirected
    directed = evergraph.load("papers", cache=tmp_path, undirected=False)
    assert around(directed) == LISTED
    root = tmp_path / "papers"
    assert {path.name for path in root.iterdir()} == {
        "papers100M-bin",
        SUMS,
        "both-ways",
        "as-listed",
    }
    for name in ("features", "labels", "time"):
        one, other = (root / folder / f"{name}.npy" for folder in Papers.folders)
        assert one.samefile(other), name
    assert not (root / "as-listed" / "runs").exists()
    for path in raw.iterdir():  # they are not needed again
        path.unlink()
    assert around(evergraph.load("papers", cache=tmp_path)) == BOTH_WAYS
    assert around(Papers().load_outline(tmp_path)) == BOTH_WAYS


def test_a_stopped_reader_begins_again(tmp_path, monkeypatch):
    write_raw(tmp_path)
    stop = Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as patch:
        patch.setattr(binary.EdgeTable, "write", stop)
        with pytest.raises(KeyboardInterrupt):
            Papers().load(tmp_path)
    assert [path.name for path in (tmp_path / "papers").iterdir()] == ["papers100M-bin"]
    assert around(Papers().load(tmp_path)) == LISTED


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_nodes_list": np.array([2, 2])}, r"holds more than one graph: expected one"),
        ({"num_edges_list": np.array([4])}, r"has shape \[2, 5\]: expected \[2, 4\]"),
        ({"edge_index": None}, "has no array 'edge_index'"),
        ({"edge_index": np.array([[0] * 5, [4] * 5])}, "ends at node 4: expected 0 to 3"),
        ({"node_feat": FEATURES[:3]}, r"has shape \[3, 2\]: expected a row for each of 4 nodes"),
        ({"node_feat": np.asfortranarray(FEATURES)}, "stored by column: expected rows"),
        ({"node_feat": np.where(FEATURES == 5, np.inf, FEATURES)}, "a feature of node 2 is not"),
        ({"node_label": LABELS + 0.5}, r"node 0 has the label 1\.5: expected a whole number"),
        ({"node_label": -1 - LABELS}, r"node 0 has the label -2\.0: expected a whole number"),
        ({"node_feat": FEATURES[:, :1]}, "features should be 2 but are 1"),
        (
            {"num_edges_list": np.array([4]), "edge_index": EDGES[:, :4]},
            "edges should be 5 but are 4",
        ),
    ],
)
def test_other_facts_are_refused(tmp_path, changed, message):
    write_raw(tmp_path, **changed)
    with pytest.raises(DataError, match=message):
        evergraph.load("papers", cache=tmp_path)


def test_damaged_and_changed_raw_files(tmp_path):
    raw = write_raw(tmp_path, save=np.savez)
    evergraph.load("papers", cache=tmp_path)
    write_raw(tmp_path, node_feat=FEATURES + 1)
    with pytest.raises(DataError, match=r"the SHA-256 is .* was expected"):
        evergraph.load("papers", cache=tmp_path, undirected=False)
    (tmp_path / "papers" / SUMS).unlink()
    (raw / "data.npz").write_bytes((raw / "data.npz").read_bytes()[:-100])
    with pytest.raises(DataError, match=r"is not an \.npz archive"):
        evergraph.load("papers", cache=tmp_path, undirected=False)


def test_a_download_is_unpacked_where_it_belongs(tmp_path, set_facts):
    raw = write_raw(tmp_path / "site")
    archive = tmp_path / "papers100M-bin.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in raw.iterdir():
            file.write(path, f"papers100M-bin/raw/{path.name}")
    set_facts(papers=Facts(**{**vars(TINY), "urls": (archive.as_uri(),)}))
    assert around(evergraph.load("papers", cache=tmp_path / "cache")) == BOTH_WAYS
    archive.unlink()
    with pytest.raises(DownloadError, match="dataset 'papers' could not be fetched from there"):
        evergraph.load("papers", cache=tmp_path / "other")
