"""Deltas from tables, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from evergraph.core.errors import DataError
from evergraph.online.table_deltas import read_deltas

NODES = "id,label,f,time\na,x,1,5\nb,,2,5\nc,y,3,6\nd,x,4,7\ne,x,5,8\n"
# a-b and b-a can come with b, c-a and known-c with c, e-d with e; old-older at once.
EDGES = "source,target\ne,d\na,b\nc,a\nb,a\nold,older\nknown,c\n"


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)
    return tmp_path / "nodes.csv", tmp_path / "edges.csv"


def test_an_edge_comes_with_the_later_of_its_nodes(tables: tuple[Path, Path]) -> None:
    deltas = read_deltas(*tables, batch=2, integers=False)
    assert len(deltas) == 3
    first, second, third = deltas
    assert (first.nodes, second.nodes, third.nodes) == (("a", "b"), ("c", "d"), ("e",))
    assert first.edges == (("a", "b"), ("b", "a"), ("old", "older"))
    assert second.edges == (("c", "a"), ("known", "c"))
    assert third.edges == (("e", "d"),)
    assert (first.labels, second.labels) == (("x", None), ("y", "x"))
    assert second.features.tolist() == [[3.0], [4.0]]  # the time is no feature


def test_keys_follow_from_contents(tables: tuple[Path, Path]) -> None:
    keys = [delta.key for delta in read_deltas(*tables, batch=2, integers=False)]
    assert keys == [delta.key for delta in read_deltas(*tables, batch=2, integers=False)]
    assert len(set(keys)) == 3
    others = [delta.key for delta in read_deltas(*tables, batch=3, integers=False)]
    assert not set(keys) & set(others[:1])
    tables[0].write_text(NODES.replace("a,x,1", "a,x,9"))
    changed = [delta.key for delta in read_deltas(*tables, batch=2, integers=False)]
    assert [a == b for a, b in zip(keys, changed, strict=True)] == [False, True, True]


def test_nodes_alone_and_integers(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("id,f\n7,1\n8,2\n")
    (delta,) = read_deltas(path, None, batch=100, integers=True)
    assert (delta.nodes, delta.labels, delta.edges) == ((7, 8), (None, None), ())
    path.write_text("id,f\n7,1\neight,2\n")
    with pytest.raises(DataError, match=r"nodes\.csv: column 'id' holds ids that are no integers"):
        read_deltas(path, None, batch=100, integers=True)
