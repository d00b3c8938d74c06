"""Papers' protocols: values under what is given, said where they are departed from."""

import json
import logging
from typing import Any

import pytest
import torch

from evergraph.datasets import load
from evergraph.experiments.build import build_stream, departures, resolved
from evergraph.experiments.config import RunConfig
from evergraph.experiments.presets import layered, protocols, read_protocol
from evergraph.experiments.runner import run
from evergraph.experiments.settings import configured
from evergraph.graphs import Graph

AXES = ("by", "classes_per_task", "order", "edges", "split", "split_seed")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load("synthetic", nodes=120, classes=6, features=8, noise=0.3)


@pytest.mark.parametrize("name", protocols())
def test_every_protocol_is_a_configuration_and_says_where_it_was_read(name):
    protocol = read_protocol(name)
    assert protocol.source.startswith("https://")
    assert protocol.notes
    assert protocol.testing in ("local", "global")
    assert protocol.averaging in ("balanced", "plain")
    assert isinstance(protocol.pooled, bool)
    assert set(AXES) <= protocol.run["stream"].keys(), "a departure from a default goes unnoticed"
    assert "undirected" in protocol.run
    for dataset in ("wordnet", "arxiv"):  # of which some have values of their own
        config = configured(RunConfig(), {"protocol": name, "dataset": dataset})
        assert config.protocol == name
        assert departures(config) == []
        assert RunConfig.of(config.to_dict()) == config


def test_a_dataset_may_differ_and_is_known_by_its_file_too():
    cglb = read_protocol("cglb")
    assert cglb.values("arxiv")["undirected"] is False
    assert cglb.values("data/arxiv.npz")["undirected"] is False
    assert cglb.values("reddit")["undirected"] is True
    assert read_protocol("llm4gcl").values("arxiv")["stream"]["classes_per_task"] == 4
    assert read_protocol("llm4gcl").values("arxiv")["stream"]["edges"] == "within"


def test_what_is_given_wins_in_whatever_order_and_is_said_to_depart():
    given = {"stream": {"split": [0.8, 0.1, 0.1], "edges": "all"}}
    for layers in ([given, {"protocol": "cglb"}], [{"protocol": "cglb"}, given]):
        config = RunConfig.of(layered(RunConfig().to_dict(), *layers))
        assert config.stream.split == (0.8, 0.1, 0.1)
        assert departures(config) == [
            "stream.edges is 'all' and not 'within'",
            "stream.split is [0.8, 0.1, 0.1] and not [0.6, 0.2, 0.2]",
        ]
    # The last protocol named is the one.
    values = layered(RunConfig().to_dict(), {"protocol": "llm4gcl"}, {"protocol": "puma"})
    assert values["stream"]["classes_per_task"] == 2
    assert values["memory"]["budget"] == 0.005
    # A name alone changes nothing, and says so.
    config = RunConfig(protocol="llm4gcl")
    assert config.stream.classes_per_task == 2
    assert "stream.classes_per_task is 2 and not 3" in departures(config)
    assert "stream.by is 'class' and not 'online'" in departures(RunConfig(protocol="ocgl"))


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "protocol" in record.getMessage()]


def quick(graph: Graph, method: str, **settings: Any) -> Any:
    return run(graph, method, epochs=1, device="cpu", progress=False, **settings)


def test_test_sets_may_be_answered(graph, caplog):
    with caplog.at_level(logging.WARNING):
        pooled = quick(graph, "tpp", protocol="tpp")
    assert pooled.config.method.name == "tpp-per-test-set"
    assert said(caplog)[0].startswith("tpp under protocol tpp: tpp-per-test-set is run instead")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        alone = quick(graph, "finetune", protocol="tpp")
    assert alone.config.method.name == "finetune"
    assert said(caplog)[0].startswith("finetune under protocol tpp: it predicts node by node")
    asked = RunConfig.of({"method": "tpp", "protocol": "cglb"})
    assert resolved(asked).method.name == "tpp", "only where test sets are asked for"


def test_departures_are_said_once_each_and_silence_means_none(graph, caplog):
    with caplog.at_level(logging.WARNING):
        quick(graph, "finetune", protocol="cglb")
        assert said(caplog) == []
        quick(graph, "finetune", protocol="cglb", classes_per_task=3)
    (line,) = said(caplog)
    assert line.startswith("finetune under protocol cglb: stream.classes_per_task is 3 and not 2")


@pytest.mark.parametrize(("name", "what"), [("llm4gcl", "all sessions"), ("puma", "60/20/20")])
def test_what_a_protocol_cannot_follow_is_said_by_every_run(graph, caplog, name, what):
    with caplog.at_level(logging.WARNING):
        quick(graph, "finetune", protocol=name)
    (line,) = said(caplog)
    assert line.startswith(f"finetune under protocol {name}: the paper")
    assert what in line


def test_llm4gcl_brings_the_largest_classes_first():
    labels = torch.repeat_interleave(torch.arange(6), torch.tensor([20, 50, 30, 50, 40, 25]))
    sorted_ = Graph.from_edges(
        torch.empty(2, 0, dtype=torch.long), features=torch.zeros(215, 1), labels=labels
    )
    config = configured(RunConfig(), {"protocol": "llm4gcl"})
    assert build_stream(config, sorted_, seed=0).tasks == [(1, 3, 4), (2, 5, 0)]


def test_a_result_tells_its_protocol_and_the_number_to_quote(graph, tmp_path):
    result = quick(graph, "finetune", protocol="llm4gcl", out=tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    assert stored["protocol"] == "llm4gcl"
    assert stored["headline"] == {"testing": "global", "averaging": "plain"}
    quoted = stored["average_accuracy"]["global"]["plain"]["mean"]
    assert result.average_accuracy() == quoted
    assert result.average_accuracy("local", "balanced") != quoted
    assert result.average_forgetting() == stored["average_forgetting"]["global"]["plain"]["mean"]
    plain = quick(graph, "finetune").to_dict()
    assert plain["protocol"] is None
    assert plain["headline"] == {"testing": "local", "averaging": "balanced"}
