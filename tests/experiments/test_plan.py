"""Plans: copies that are like their graph, and costs drawn out from them."""

from __future__ import annotations

from multiprocessing import get_context

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.datasets import load
from evergraph.experiments import plan as plan_module
from evergraph.experiments.config import RunConfig
from evergraph.experiments.plan import CLASS_NODES, Cost, plan_run, shrunk
from evergraph.graphs import Graph
from evergraph.graphs.relations import NodeTypes, Relations
from evergraph.graphs.targets import Targets


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def _homophily(graph: Graph) -> float:
    same = graph.labels[graph.edge_rows()] == graph.labels[graph.indices.long()]
    return float(same.double().mean())


def test_a_copy_is_like_its_graph() -> None:
    graph = load("synthetic", nodes=4000, classes=5, features=8, homophily=0.6)
    small = shrunk(graph, 0.25, generator=_seeded())
    assert small.num_nodes == pytest.approx(1000, abs=5)
    assert small.num_edges == pytest.approx(graph.num_edges / 4, rel=0.05)
    assert _homophily(small) == pytest.approx(_homophily(graph), abs=0.03)
    assert small.undirected
    assert (small.labels.bincount() - graph.labels.bincount() / 4).abs().max() <= 1
    # a star: the hub, of class 0, has 40 leaves of class 1; half of it is a hub with 20 leaves
    ends = torch.stack([torch.arange(1, 41), torch.zeros(40, dtype=torch.int64)])
    labels = torch.tensor([0] + [1] * 40)
    star = Graph.from_edges(ends, features=torch.eye(41), labels=labels, undirected=False)
    small = shrunk(star, 0.5, generator=_seeded())
    [hub] = torch.nonzero(small.labels == 0).flatten().tolist()
    assert len(small.neighbours(hub)) == 20
    assert small.num_edges == 20
    assert (small.labels[small.neighbours(hub).long()] == 1).all()


@given(share=st.floats(0.01, 0.5), seed=st.integers(0, 99))
def test_every_class_stays_large_enough_to_be_split(share: float, seed: int) -> None:
    labels = torch.arange(200) % 3
    graph = Graph.from_edges(torch.empty(2, 0).long(), features=torch.rand(200, 2), labels=labels)
    small = shrunk(graph, share, generator=torch.Generator().manual_seed(seed))
    assert int(small.labels.bincount(minlength=3).min()) >= CLASS_NODES


def test_relations_types_and_targets_come_along() -> None:
    ends = torch.stack([torch.arange(100), (torch.arange(100) + 1) % 100])
    relations = Relations.of(ends, torch.arange(100) % 2, ("likes", "knows"), nodes=100)
    types = NodeTypes(("person", "page"), (torch.arange(100) % 2).to(torch.int16))
    targets = Targets(torch.rand(100, 2), "numbers", ("age", "height"))
    graph = Graph.from_edges(ends, features=torch.rand(100, 2), undirected=True, targets=targets)
    small = shrunk(graph.with_relations(relations).with_types(types), 0.5, generator=_seeded())
    assert small.num_nodes == 50
    assert small.types.numbers.bincount().tolist() == [25, 25]
    edges, _ = small.relations.edges()
    assert (small.types.numbers[edges[0]] != small.types.numbers[edges[1]]).all()


def test_costs_lie_on_a_line_and_never_fall() -> None:
    small, large = Cost(0.1, 2.0, 3.0, 1000.0, 0.0), Cost(0.3, 6.0, 2.0, 1400.0, 50.0)
    whole = Cost.extrapolated(small, large)
    assert whole.processor == pytest.approx(20.0)  # 0 + 20 * share
    assert whole.clock == pytest.approx(2.0)  # it fell: what the larger copy took
    assert whole.memory == pytest.approx(2800.0)
    assert whole.device_memory == pytest.approx(225.0)


def test_a_plan_runs_the_method_on_growing_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    # Forked: the command's test starts processes as a plan does.
    monkeypatch.setattr(plan_module, "get_context", lambda _: get_context("fork"))
    graph = load("synthetic", nodes=400, classes=4, features=8)
    config = RunConfig.of({"method": "slda", "repeats": 2, "device": "cpu"})
    seen: list[int] = []
    plan = plan_run(config, seconds=0.0, load=lambda _: graph, on_copy=seen.append)
    assert seen == [100, 200]
    assert [cost.share for cost in plan.copies] == [0.25, 0.5]
    assert plan.seeds == 2
    assert plan.nodes == 400
    assert plan.seed.processor > 0
    assert plan.seed.memory > 1e8  # Python with torch
    assert plan.seed.device_memory == 0
