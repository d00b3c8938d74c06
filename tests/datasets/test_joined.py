"""Several graphs as one whose nodes arrive graph by graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.datasets import join, load
from evergraph.datasets.files.npz import write_npz
from evergraph.graphs import Graph


@pytest.fixture
def other() -> Graph:
    """2 -> 0; three nodes of two classes."""
    return Graph.from_edges(
        torch.tensor([[2], [0]]),
        features=torch.tensor([[5.0, 6.0], [7.0, 8.0], [9.0, 1.0]]),
        labels=torch.tensor([0, 2, 0]),
    )


def test_graphs_stand_side_by_side_by_hand(tiny: Graph, other: Graph) -> None:
    graph = join([tiny, other])
    assert graph.time is not None
    assert graph.time.tolist() == [0, 0, 0, 0, 1, 1, 1]  # the graphs' own times are given up
    assert graph.labels.tolist() == [1, 0, 1, -1, 0, 2, 0]  # a class means the same everywhere
    assert [graph.neighbours(node).tolist() for node in range(7)] == [
        [], [0], [0, 3], [], [6], [], [],
    ]  # fmt: skip
    assert graph.features[4:].equal(other.features)
    assert tiny.time is not None
    assert tiny.time.tolist() == [2001, 2002, 2003, 2004]


def test_parts_are_loaded_by_path_or_name(
    tmp_path: Path, tiny: Graph, other: Graph, assert_same: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_npz(tiny, tmp_path / "a.npz")
    write_npz(other, tmp_path / "b.npz")
    parts = ["a.npz", "b.npz"]
    assert_same(load("joined", parts=parts, undirected=False), join([tiny, other]))
    assert_same(load("joined", parts=parts), join([tiny, other]).to_undirected())
    assert load("joined", parts=["synthetic", "synthetic"]).num_nodes == 4000


def test_what_cannot_be_joined_is_refused(tiny: Graph) -> None:
    wide = tiny.with_features(torch.ones(4, 3))
    message = "graph 1 has 3 features and graph 0 has 2: they must be equal"
    with pytest.raises(DataError, match=message):
        join([tiny, wide])
    with pytest.raises(DataError, match="graphs must not be empty"):
        join([])
    for given in ({"parts": []}, {"parts": "a.npz"}, {"parts": [1]}, {}):
        with pytest.raises(ConfigurationError, match="parts must be a non-empty list"):
            load("joined", **given)
