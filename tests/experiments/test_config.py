"""Configurations: typed, to and from TOML, in step with the constructors and parts they feed."""

import inspect
from typing import Any

import pytest
import torch

from evergraph.core.errors import ConfigurationError, DataError, UnknownNameError
from evergraph.experiments.build import build_backbone, build_learner, check, resolved, say_unseen
from evergraph.experiments.config import (
    HeadConfig,
    RunConfig,
    StreamConfig,
    merged,
    read_toml,
    tomllib,
)
from evergraph.experiments.presets import presets, read_preset
from evergraph.graphs import Graph, NodeTypes, Relations
from evergraph.methods import Analytic
from evergraph.nn import GCN, PDGNN, RandomFeatures
from evergraph.streams import GraphStream


@pytest.mark.parametrize(
    ("section", "owner"), [(HeadConfig(), PDGNN), (StreamConfig(), GraphStream)]
)
def test_defaults_are_the_constructors(section, owner):
    signature = inspect.signature(owner).parameters
    for name, value in section.model_dump(exclude={"split_seed"}, exclude_none=True).items():
        assert signature[name].default == value, name


def test_toml_round_trip_of_a_resolved_configuration():
    config = resolved(
        RunConfig.of({"topology": {"name": "ppr", "alpha": 0.2}, "seeds": [3, 4], "device": "cpu"})
    )
    assert RunConfig.of(tomllib.loads(config.to_toml())).to_dict() == config.to_dict()
    # Resolving spells out every default.
    values = resolved(RunConfig.of({"method": "tem"})).to_dict()
    assert values["topology"] == {"name": "sgc", "hops": 2, "self_loops": True, "dtype": "float32"}
    assert values["method"]["weighting"] == "class-balanced"
    assert values["method"]["store"] == "after"


def test_every_preset_fits_the_constructors():
    for name in presets():
        check(RunConfig.of(merged(RunConfig().to_dict(), read_preset(name))))


def test_the_papers_preset_is_the_papers_recipe():
    learner = build_learner(RunConfig.of(read_preset("paper")), seed=0)
    model = learner.backbone
    assert (model.topology.name, model.topology.hops) == ("sgc", 2)
    assert (model.hidden, model.bias, model.scaling) == ((256,), False, "none")
    assert (learner.memory.budget, learner.memory.sampler.name) == (400, "coverage")
    trainer = learner.trainer
    assert (trainer.epochs, trainer.lr, trainer.weight_decay) == (200, 0.005, 5e-4)
    assert (trainer.batch_size, trainer.momentum) == (None, "carried")
    # A preset serves other methods too.
    values = merged(merged(RunConfig().to_dict(), read_preset("paper")), {"method": "finetune"})
    learner = build_learner(RunConfig.of(values), seed=0)
    assert learner.name == "finetune"
    assert learner.trainer.epochs == 200


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"epochs": 3},
            "unknown key 'epochs': did you mean 'training.epochs'. the configuration takes dataset",
        ),
        (
            {"training": {"epohcs": 3}},
            "unknown key 'training.epohcs': did you mean 'training.epochs'. training takes epochs,",
        ),
        ({"budgte": 3}, "unknown key 'budgte': did you mean 'memory.budget'. the configuration"),
        ({"zzz": 3}, "unknown key 'zzz': the configuration takes dataset, undirected, directions"),
        ({"seeds": 0}, "seeds must be a list such as"),
        ({"training": {"epochs": "many"}}, "training.epochs: .*not 'many'"),
        ({"seeds": []}, "seeds: "),
        ({"threads": 0}, "threads: "),
    ],
)
def test_a_wrong_value_is_named(values, message):
    with pytest.raises(ConfigurationError, match=message):
        RunConfig.of(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": "ewc2"}, "unknown method 'ewc2'"),
        ({"topology": "sgd"}, "did you mean 'sgc'"),
        ({"memory": {"sampler": "best"}}, "unknown sampler 'best'"),
        ({"topology": {"name": "sgc", "alpha": 0.1}}, "topology 'sgc' has no parameter 'alpha'"),
        ({"topology": {"hops": -1, "name": "sgc"}}, "hops must be an integer of at least 0"),
        ({"memory": {"budget": -3}}, "budget must be .*not -3"),
        ({"head": {"dropout": 1.5}}, "dropout must be a number from 0.0 to 0.99"),
        ({"method": {"name": "tem", "backbone": "gcn"}}, "method.backbone cannot be set: it is"),
        ({"method": {"name": "tem", "restart": "no"}}, "restart must be true or false, not 'no'"),
        # Only what can be set here is offered.
        ({"method": {"name": "ewc", "generator": 1}}, "method.generator cannot be set"),
        (
            {"method": {"name": "ewc", "strnegth": 1}},
            "did you mean 'strength'. it takes s(?!.*trainer)",
        ),
        ({"method": {"name": "auto", "memry": 1}}, "did you mean 'memory'.*it takes (?!.*trainer)"),
    ],
)
def test_wrong_components_are_refused_early(values, message):
    with pytest.raises(ConfigurationError, match=message):
        check(RunConfig.of({"method": "tem"} | values))


def test_unknown_presets_and_broken_files_are_said(tmp_path):
    nearest = rf"did you mean 'paper'\? the nearest of {len(presets())} are"
    with pytest.raises(UnknownNameError, match=nearest):
        read_preset("papper")
    broken = tmp_path / "broken.toml"
    broken.write_text("epochs = = 3")
    with pytest.raises(DataError, match="not valid TOML"):
        read_preset(str(broken))
    with pytest.raises(DataError, match="cannot be read"):
        read_toml(tmp_path / "absent.toml")


def test_unknown_methods_in_a_preset(tmp_path, caplog):
    path = tmp_path / "mine.toml"
    path.write_text("[methods.tme.training]\nepochs = 3\n[methods.joint.training]\nepochs = 2\n")
    assert read_preset(str(path), "joint") == {"training": {"epochs": 2}}
    said = "[methods.tme] is not used: did you mean 'tem'? no method has that name"
    assert caplog.messages == [f"preset {path}: {said}"]
    caplog.clear()
    assert read_preset(str(path), "tme") == {"training": {"epochs": 3}}  # perhaps a plugin's
    assert not caplog.messages


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


def test_a_backbone_takes_its_own_parameters_only():
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
