"""What of a graph a learner does not look at is said in one line."""

from __future__ import annotations

import pytest
import torch

from evergraph.experiments.build import resolved, say_unseen
from evergraph.experiments.config import RunConfig
from evergraph.graphs import Graph, NodeTypes, Relations

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
        ({"method": "tem"}, "relations and types of nodes"),
        ({"method": "tem", "topology": "h2gcn"}, "weights of edges and relations and types"),
        ({"method": "joint", "backbone": "gat"}, "weights of edges and relations and types"),
        (
            {"method": "auto", "backbone": {"name": "view-features", "views": ["2"]}},
            "relations and types of nodes are not looked at by auto on backbone view-features",
        ),
    ],
)
def test_it_is_said(
    values: dict[str, object], unseen: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = resolved(RunConfig.of(values))
    say_unseen(config, GRAPH)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == bool(unseen)
    assert unseen in "".join(said)
    caplog.clear()
    plain = Graph.from_edges(EDGES, features=torch.eye(3), labels=torch.tensor([0, 1, 0]))
    say_unseen(config, plain)
    assert not caplog.records
