"""Settings of what lives online: what they are unless given, and the least each may be.

A learner's folder holds the settings it was made with and refuses others, so a default that
changes shuts out every folder made before.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.online import ContinualNodeClassifier
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.heads import AnalyticHead, FusedHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.monitor import Prequential

LEAST: list[tuple[Callable[..., Any], str, float, float]] = [
    (AnalyticHead, "regularisation", 0.0, -0.01),
    (FusedHead, "codes", 1, 0),
    (FusedHead, "regularisation", 0.0, -0.01),
    (FusedHead, "width", 1, 0),
    (GrowingGraph, "num_features", 1, 0),
    (OnlineLearner, "patience", 1, 0),
    (OnlineLearner, "seed", 0, -1),
    (OnlineLearner, "tolerance", 0.0, -0.1),
]
DEFAULTS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (AnalyticHead, {"width": 1024, "regularisation": None}),
    (FusedHead, {"views": None, "width": None, "regularisation": None, "codes": 64}),
    (OnlineLearner, {"scaling": "unit", "undirected": True, "seed": 0}),
    (Prequential, {"points": 512, "latest": 2048}),
    (ContinualNodeClassifier, {"head": "auto", "scaling": "unit", "undirected": True, "seed": 0}),
    (
        LearnerFolder.open,
        {"readonly": False, "snapshot_every": 1000, "snapshot_bytes": 2**26, "retry": 30.0},
    ),
]


@pytest.mark.parametrize(("make", "option", "least", "less"), LEAST)
def test_the_least_is_taken_and_less_is_refused(make, option, least, less):
    assert getattr(make(**{option: least}), option) == least
    with pytest.raises(ConfigurationError, match=f"{option} must be .* of at least {least}, not"):
        make(**{option: less})


@pytest.mark.parametrize(
    ("option", "least", "less"),
    [
        *((name, 1, 0) for name in ("snapshot_every", "snapshot_bytes")),
        *((name, 0, -0.01) for name in ("replay_seconds", "close_seconds", "retry", "key_age")),
        ("keys_kept", 0, -1),
    ],
)
def test_a_folder_needs_as_much(option, least, less, tmp_path):
    with pytest.raises(ConfigurationError, match=f"{option} must be .* of at least {least}, not"):
        LearnerFolder.open(tmp_path / "folder", make=OnlineLearner, **{option: less})
    assert not (tmp_path / "folder").exists()
    LearnerFolder.open(tmp_path / "folder", make=OnlineLearner, **{option: least}).close()


def test_a_neighbourhood_is_at_least_the_node_itself():
    pair = GrowingGraph(num_features=1)
    pair.add(torch.zeros(2, 1), torch.tensor([[0], [1]]))
    assert pair.ego(1, hops=0, limit=1).nodes.tolist() == [1]
    with pytest.raises(ConfigurationError, match="hops must be an integer of at least 0, not -1"):
        pair.ego(1, hops=-1, limit=1)
    with pytest.raises(ConfigurationError, match="limit must be an integer of at least 1, not 0"):
        pair.ego(1, hops=0, limit=0)


@pytest.mark.parametrize(("made", "expected"), DEFAULTS)
def test_folders_and_published_numbers_rest_on_these_defaults(made, expected):
    parameters = inspect.signature(made).parameters
    assert {name: parameters[name].default for name in expected} == expected


def test_a_learner_is_the_live_form_of_auto_unless_told():
    learner = OnlineLearner()
    assert learner.parameters["topology"] == {
        "name": "mixhop",
        "hops": 2,
        "self_loops": True,
        "kept_hops": None,
        "unit": True,
    }
    assert learner.head.name == "auto"


def test_another_head_learns_from_two_hops_of_sgc_unless_told(tmp_path):
    with ContinualNodeClassifier.open(tmp_path / "new", head="analytic") as model:
        made = model.learner_
    for learner in (made, ContinualNodeClassifier(head="analytic").learner_):
        assert learner.parameters["topology"] == {"name": "sgc", "hops": 2, "self_loops": True}


@pytest.mark.parametrize("hops", [0, 3])
def test_with_other_hops_all_are_kept(hops, tmp_path):
    with LearnerFolder.open(tmp_path / "new", {"topology": {"hops": hops}}) as folder:
        topology = folder.learner.parameters["topology"]
    assert (topology["name"], topology["hops"], topology["kept_hops"]) == ("mixhop", hops, None)


def test_a_classifier_hands_all_its_settings_on_and_its_folder_gives_them_back(tmp_path):
    given = {"scaling": "none", "undirected": False, "seed": 3, "tolerance": 0.5, "patience": 7}
    beside = {"width": 16, "objective": "plain", "targets": "class", "head": "auto"}
    with ContinualNodeClassifier.open(
        tmp_path / "new", topology="mixhop", head_options={"codes": 8}, **given, **beside
    ) as model:
        made = model.learner_.parameters
    assert {name: made[name] for name in given} == given
    assert made["topology"]["name"] == "mixhop"
    head = {"name": "auto", "width": 16, "codes": 8, "objective": "plain"}
    assert {name: made["head"][name] for name in head} == head
    with ContinualNodeClassifier.open(tmp_path / "new", random_state=3) as model:
        kept = model.get_params()
    assert {name: kept[name] for name in given | beside} == given | beside
    assert (kept["topology"].name, kept["head_options"]["codes"]) == ("mixhop", 8)
    drawn = np.random.RandomState(7).randint(2**31 - 1)
    assert ContinualNodeClassifier(random_state=np.random.RandomState(7)).learner_.seed == drawn
    with pytest.raises(ConfigurationError, match="head 'analytic' has no parameter 'codes'"):
        ContinualNodeClassifier(head="analytic", head_options={"codes": 8}).status()


@pytest.mark.parametrize(
    ("made", "other", "said"),
    [
        ({"objective": "plain"}, {"objective": "balanced"}, "objective"),
        ({"seed": 3}, {"random_state": 4}, "seed"),
        ({"targets": "labels"}, {"targets": "class"}, "cannot be 'class': the folder has 'labels'"),
    ],
)
def test_settings_that_are_not_those_of_a_folder_are_refused(made, other, said, tmp_path):
    cannot = pytest.raises(
        ConfigurationError, match="width cannot change: the model is in a folder"
    )
    with ContinualNodeClassifier.open(tmp_path / "new", **made) as model, cannot:
        model.set_params(width=4)
    with pytest.raises(ConfigurationError, match=said):
        ContinualNodeClassifier.open(tmp_path / "new", **other)
    with pytest.raises(ConfigurationError, match="only one of given and make"):
        LearnerFolder.open(tmp_path / "new", made, make=OnlineLearner)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="file must be a folder, but is a file"):
        ContinualNodeClassifier.open(tmp_path / "file")
