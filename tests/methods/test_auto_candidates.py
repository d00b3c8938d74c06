"""What the candidates of ``auto`` are: which hops they see, and with which head."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from evergraph.graphs import Graph
from evergraph.methods.auto import VIEWS
from evergraph.nn import PDGNN
from evergraph.streams import GraphStream

Make = Any


def path_of_four() -> Graph:
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    features = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0], [0.0, 4.0]])
    return Graph.from_edges(
        edges, features=features, labels=torch.zeros(4, dtype=torch.long), undirected=True
    )


def smoothed(hops: int) -> Tensor:
    """Return Â^hops X of the path: degrees with loops are 2, 3, 3 and 2."""
    far, near = 6**-0.5, 1 / 3
    step = torch.tensor(
        [[0.5, far, 0, 0], [far, near, near, 0], [0, near, near, far], [0, 0, far, 0.5]]
    )
    return torch.linalg.matrix_power(step, hops) @ path_of_four().features


@pytest.mark.parametrize(
    ("view", "hops"), [("2", [2]), ("4", [4]), ("6", [6]), ("2+4", [2, 4]), ("0+2", [0, 2])]
)
def test_a_view_sees_the_hops_in_its_name(view: str, hops: list[int]) -> None:
    parts = [smoothed(hop) for hop in hops]
    expected = torch.cat([normalize(p, dim=1) if len(parts) > 1 else p for p in parts], dim=1)
    torch.testing.assert_close(VIEWS[view].encode(path_of_four()), expected)
    assert VIEWS[view].hops == max(hops)


def test_every_view_is_tried() -> None:
    assert list(VIEWS) == ["2", "4", "6", "2+4", "0+2"]


def test_heads_are_those_of_the_backbone_given(make: Make, two_pairs: Graph) -> None:
    model = PDGNN(hidden=(3,), bias=False, dropout=0.25, scaling="none")
    learner = make("auto", candidates=("tem:2", "tem:0+2"), budget=2, probes=1, backbone=model)
    learner.fit_task(GraphStream(two_pairs).open(0))
    weights = {"tem:2": 4 * 3 + 3 * 2, "tem:0+2": 8 * 3 + 3 * 2}  # no biases
    for candidate in learner.alive_:
        parameters = candidate.learner.named_parameters().values()
        assert sum(p.numel() for p in parameters) == weights[candidate.name]
        assert candidate.learner.backbone.dropout == 0.25
        assert candidate.learner.backbone.scaling == "none"
    other = next(c.name for c in learner.alive_ if c is not learner.chosen_)
    assert learner.usage.models == weights[other]


def test_candidates_train_as_the_whole_does(make: Make) -> None:
    learner = make("auto", candidates=("tem:2", "analytic:2"), width=8, epochs=7, lr=0.125)
    for candidate in learner.alive_:
        trainer = candidate.learner.trainer
        assert trainer is not learner.trainer  # its moments are its own
        assert (trainer.epochs, trainer.lr, trainer.batch_size) == (7, 0.125, None)
        assert (trainer.weight_decay, trainer.device.type) == (0.0, "cpu")
