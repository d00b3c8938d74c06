"""A run comes to the same numbers in little memory and with any number of threads."""

from typing import Any

import pytest
import torch

import evergraph as eg
from evergraph.core.errors import ResourceError, ResultsError
from evergraph.core.mapped import is_mapped
from evergraph.core.resources import Resources, exactly_threads
from evergraph.datasets import load
from evergraph.experiments.build import build_stream
from evergraph.experiments.config import RunConfig
from evergraph.experiments.runner import run
from evergraph.nn import Tuned
from evergraph.topology import SGC, EmbeddingCache, column_blocks

NODES = 600


class Tight(Resources):
    """Room for a few columns of features at a time, and for no array that stays."""

    @property
    def left(self) -> int:
        reserve = column_blocks.LEAST_RESERVE + column_blocks.NODE_RESERVE * NODES
        return reserve + 34_000  # adjacency 24,000, a column 7,200

    def fits(self, size: int) -> bool:
        return False


def config_of(method: str, **over: Any) -> RunConfig:
    return RunConfig.of(
        {
            "dataset": {"name": "synthetic", "nodes": NODES, "classes": 4, "features": 10},
            "method": method,
            "training": {"epochs": 3},
            "device": "cpu",
            **over,
        }
    )


def numbers(config: RunConfig, resources: Resources) -> Any:
    found = run(config, resources=resources).to_dict()
    return found["average_accuracy"], found["average_forgetting"], found["memory"]


BACKBONES = {
    "tem": None,
    "analytic": {"name": "random-features", "width": 64},
    "joint": {"name": "pdgnn"},
}


@pytest.mark.parametrize(
    ("method", "edges"), [("tem", "within"), ("analytic", "all"), ("joint", "all")]
)
def test_the_same_numbers_in_little_memory(method, edges):
    config = config_of(method, stream={"edges": edges}, backbone=BACKBONES[method])
    assert numbers(config, Tight()) == numbers(config, Resources())


def test_embeddings_and_subgraphs_lie_in_files_then():
    graph = load("synthetic", nodes=NODES, classes=4, features=10)
    stream = build_stream(config_of("tem"), graph, 0, resources=Tight())
    task = stream.open(1)
    assert task.graph.mapped
    embeddings = EmbeddingCache(SGC(), resources=Tight())(task.graph)
    assert is_mapped(embeddings)
    assert embeddings.equal(EmbeddingCache(SGC())(task.graph))
    # A limit too small for one column is one sentence.
    with pytest.raises(ResourceError, match=r"a single column of .* left within"):
        EmbeddingCache(SGC(), resources=Resources(memory_limit=1)).encode(graph)


def test_half_precision_takes_half_the_memory():
    graph = load("synthetic", nodes=NODES, classes=4, features=10)
    whole = EmbeddingCache(SGC())(graph)
    for resources in (Resources(), Tight()):
        half = EmbeddingCache(SGC(), storage="float16", resources=resources)(graph)
        assert half.nbytes * 2 == whole.nbytes
        torch.testing.assert_close(half.float(), whole, atol=1e-3, rtol=1e-3)
        assert not half.float().equal(whole)
    result = run(config_of("tem", head={"storage": "float16"})).to_dict()
    expected = run(config_of("tem")).to_dict()
    mine, theirs = (r["average_accuracy"]["local"]["balanced"] for r in (result, expected))
    assert mine["mean"] == pytest.approx(theirs["mean"], abs=0.05)


# Long sums, which torch and BLAS cut by the number of threads: 1,500 rows, 600 features.
FULL = {"epochs": 2, "batch_size": "full"}
NETWORKS = FULL | {"backbone": {"name": "tuned", "hidden": 128}}
WIDE = {"backbone": {"name": "random-features", "width": 600}}
VIEWS = {"backbone": {"name": "view-features", "width": 600, "views": ["2", "0"]}}


@pytest.fixture(scope="module")
def graph() -> eg.Graph:
    """A task of 2,500 nodes."""
    return eg.load("synthetic", nodes=2500, classes=2, features=160, noise=2.0)


@pytest.mark.parametrize(
    ("method", "settings"),
    [("tem", FULL), ("joint", NETWORKS), ("analytic", WIDE), ("auto", VIEWS)],
)
def test_a_run_is_the_same_with_any_number_of_threads(method, settings, graph, monkeypatch):
    monkeypatch.setattr(Tuned, "CANDIDATES", Tuned.CANDIDATES[:1])
    one, two = (learned(graph, method, threads, **settings) for threads in (1, 2))
    assert one.seeds[0].rows == two.seeds[0].rows
    assert (two.to_dict()["machine"]["threads"], two.config.threads) == (2, None)
    pairs = zip(one.learner.state().items(), two.learner.state().values(), strict=True)
    assert [name for (name, ours), theirs in pairs if not torch.equal(ours, theirs)] == []


def learned(graph: eg.Graph, method: str, threads: int, **settings: Any) -> eg.RunResult:
    with exactly_threads(threads):
        return eg.run(graph, method, device="cpu", progress=False, **settings)


def test_a_number_of_threads_is_part_of_what_a_run_is(tmp_path):
    def again(**settings):
        return eg.run(
            "synthetic", "slda", out=tmp_path, resume=True, progress=False, device="cpu", **settings
        )

    result = again(threads=2)
    assert result.to_dict()["config"]["threads"] == 2
    with pytest.raises(ResultsError, match="threads is 2 there and None here"):
        again()
