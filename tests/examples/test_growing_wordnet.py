"""The example's service is killed halfway and ends as one that lived."""

from pathlib import Path
from types import ModuleType

import pytest

from evergraph.datasets import load
from from_file import module_of

pytest.importorskip("uvicorn", reason="uvicorn is not installed")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "growing_wordnet.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return module_of(EXAMPLE)


def test_every_edge_comes_once_both_ends_are_there(example):
    graph = load("synthetic", nodes=200, classes=4, features=8)
    story = example.tell(graph, nodes=200, batch=30)
    met = set()
    edges = set()
    for delta in story.deltas:
        met |= set(delta.nodes)
        assert {end for edge in delta.edges for end in edge} <= met
        edges |= {frozenset(edge) for edge in delta.edges}
    assert len(edges) == graph.num_edges // 2
    labels = [label for delta in story.deltas for label in delta.labels]
    assert labels.count(None) == len(story.asked) > 20
    known = [label for label in labels if label is not None]
    assert known == sorted(known)  # file by file


@pytest.mark.slow
def test_a_killed_service_ends_as_one_that_lived(example, tmp_path):
    story = example.tell(
        load("synthetic", nodes=200, classes=4, features=8, noise=0.3), nodes=200, batch=40
    )
    killed = example.killed_halfway(tmp_path / "killed", story)
    assert killed == example.uninterrupted(tmp_path / "whole", story)
    right = sum(a == b for a, b in zip(killed, story.answers, strict=True)) / len(killed)
    assert right > 0.7
