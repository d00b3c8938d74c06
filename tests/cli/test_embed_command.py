"""``evergraph embed`` as a user meets it."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from evergraph.core.resources import Resources
from evergraph.datasets import load
from evergraph.topology import embedding_folder, topologies
from evergraph.topology.column_blocks import encode_within


@pytest.fixture
def graph_file(tmp_path: Path) -> str:
    draw = np.random.default_rng(0)
    np.savez(
        tmp_path / "g.npz",
        edge_index=draw.integers(60, size=(2, 150)),
        x=draw.standard_normal((60, 5), dtype=np.float32),
        y=np.where(np.arange(60) % 5 == 0, -1, np.arange(60) % 4),
    )
    return "g.npz"


def embedded(source: str, **parameters: Any) -> torch.Tensor:
    topology = topologies.make("sgc", **parameters)
    return encode_within(topology, load(source), resources=Resources(memory_limit=10**12))


def test_embed_then_run(call, graph_file):
    command = ("embed", graph_file, "--out", "e", "--nodes", "labelled")
    assert "48 embeddings of width 5 in e" in call(*command)[0]
    assert "which already existed" in call(*command)[0]
    found, known = load("e"), load(graph_file).labels >= 0
    assert torch.equal(found.features, embedded(graph_file)[known])
    narrow = ("--backbone", "random-features", "--set", "backbone.width=32")
    out, err = call("run", "--dataset", "e", "--method", "analytic", *narrow, "--json")
    assert "already embeddings" not in err  # without edges nothing is smoothed again
    assert len(json.loads(out)["accuracy_matrix"][0]["local"]["plain"]) == 2  # tasks


def test_embeddings_are_not_embedded_again_in_silence(call, graph_file):
    call("embed", graph_file, "--out", "e")
    assert torch.equal(load("e").features, embedded(graph_file))
    twice = ("run", "--dataset", "e", "--json", "--budget", "5", "--epochs", "1")
    out, err = call(*twice, "--method", "tem")
    told = "its features are already embeddings, by sgc over 2 hops"
    assert f"e: {told}: topology identity in place of sgc" in err
    assert json.loads(out)["config"]["topology"]["name"] == "identity"
    out, err = call(*twice, "--method", "tem", "--topology", "ppr", "--out", "again")
    assert f"e: {told}: tem smooths them once more" in err
    assert json.loads(out)["config"]["topology"]["name"] == "ppr"


def test_options_reach_the_f_topo(call, graph_file):
    call("embed", graph_file, "--out", "a", "--hops", "1", "--dtype", "bfloat16")
    assert torch.equal(load("a").features, embedded(graph_file, hops=1, dtype="bfloat16"))
    call("embed", graph_file, "--out", "b", "--topology", "ppr", "--set", "topology.alpha=1.0")
    assert torch.equal(load("b").features, load(graph_file).features)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("--topology", "reservoir"), "topology must be one whose columns do not mix"),
        (("--nodes", "few"), "unknown nodes 'few': choose one of all, labelled"),
        (
            ("--set", "stream.by=time"),
            "--set must begin with topology. for embed, not with 'stream'",
        ),
        (("--dtype", "int8"), "unknown dtype 'int8'"),
        (("--memory-limit", "1KB"), "encoding a single column of the features takes"),
    ],
)
def test_refusals(call, graph_file, typed, said):
    _, err = call("embed", graph_file, "--out", "e", *typed, expect=2)
    assert said in err
    assert "Traceback" not in err


def test_interrupted_embedding(call, graph_file, monkeypatch):
    interrupted = Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as patch:
        patch.setattr(embedding_folder, "encoded_blocks", interrupted)
        _, err = call("embed", graph_file, "--out", "e", expect=130)
    assert "interrupted: run the same command again to continue" in err
    call("embed", graph_file, "--out", "e")
    assert torch.equal(load("e").features, embedded(graph_file))
