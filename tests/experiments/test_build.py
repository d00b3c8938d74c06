"""From a configuration to its parts, and what of a graph they do not look at."""

from typing import Any

import pytest
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.experiments.build import build_backbone, build_learner, resolved, say_unseen
from evergraph.experiments.config import RunConfig
from evergraph.graphs import Graph, NodeTypes, Relations
from evergraph.methods import Analytic
from evergraph.nn import GCN, PDGNN, RandomFeatures


def config_of(method: str, **sections: Any) -> RunConfig:
    head = {"hidden": [7], "bias": False, "dropout": 0.25, "scaling": "none"}
    topology = {"name": "ppr", "hops": 3}
    return RunConfig.model_validate(
        {"method": method, "head": head, "topology": topology, "dataset": "synthetic", **sections}
    )


def test_random_features_take_what_they_know_of_topology_and_head():
    backbone = build_backbone(config_of("analytic", backbone={"name": "random-features"}))
    assert isinstance(backbone, RandomFeatures)
    assert (backbone.topology.name, backbone.hops) == ("ppr", 3)
    assert (backbone.dropout, backbone.scaling) == (0.25, "none")
    assert backbone.hidden == ()  # of a head that it does not have
    # PDGNN takes all of them, and a GNN none.
    pdgnn = build_backbone(config_of("tem"))
    assert isinstance(pdgnn, PDGNN)
    assert (pdgnn.hidden, pdgnn.bias, pdgnn.dropout) == ((7,), False, 0.25)
    network = build_backbone(config_of("ewc", backbone={"name": "gcn"}))
    assert isinstance(network, GCN)
    assert network.dropout == 0.0


def test_a_backbones_own_parameters_are_given_too():
    section = {"name": "random-features", "width": 32, "activation": "fourier", "dropout": 0.1}
    learner = build_learner(config_of("analytic", backbone=section, device="cpu"), seed=0)
    assert isinstance(learner, Analytic)
    assert (learner.backbone.width, learner.backbone.activation) == (32, "fourier")
    assert learner.backbone.dropout == 0.1
    spelled = resolved(config_of("analytic")).backbone
    assert (spelled.name, spelled.parameters["width"]) == ("random-features", 4096)


@pytest.mark.parametrize("method", ["tem", "finetune", "tpp", "taam"])
def test_the_default_penalty_does_not_depend_on_the_graph(method):
    assert resolved(config_of(method)).training.weight_decay == 1e-5


def test_a_configuration_with_a_penalty_by_size_is_read_but_not_run():
    old = config_of("joint", training={"weight_decay": "by-size"})
    assert RunConfig.of(old.to_dict()) == old
    with pytest.raises(ConfigurationError, match=r"weight_decay must be a number .* 'by-size'"):
        build_learner(old, seed=0)
    with pytest.raises(ConfigurationError, match="depth"):
        build_backbone(config_of("analytic", backbone={"name": "random-features", "depth": 2}))


EDGES = torch.tensor([[0, 1], [1, 2]])
GRAPH = (
    Graph.from_edges(
        EDGES, features=torch.eye(3), labels=torch.tensor([0, 1, 0]), weights=torch.ones(2) * 2
    )
    .with_relations(Relations.of(EDGES, torch.tensor([0, 0]), ("cites",), nodes=3))
    .with_types(NodeTypes(("paper",), torch.zeros(3).short()))
)


@pytest.mark.parametrize(
    ("values", "unseen"),
    [
        ({"method": "auto"}, ""),
        ({"method": "tem"}, "relations and node types"),
        ({"method": "tem", "topology": "h2gcn"}, "edge weights and relations and node types"),
        ({"method": "joint", "backbone": "gat"}, "edge weights and relations and node types"),
        (
            {"method": "auto", "backbone": {"name": "view-features", "views": ["2"]}},
            "relations and node types are not used by auto on backbone view-features",
        ),
    ],
)
def test_notes(values, unseen, caplog):
    config = resolved(RunConfig.of(values))
    say_unseen(config, GRAPH)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == bool(unseen)
    assert unseen in "".join(said)
    caplog.clear()
    plain = Graph.from_edges(EDGES, features=torch.eye(3), labels=torch.tensor([0, 1, 0]))
    say_unseen(config, plain)
    assert not caplog.records
