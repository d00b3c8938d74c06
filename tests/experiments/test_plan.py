"""Plans: copies that are like their graph, and costs drawn out from them."""

from multiprocessing import get_context

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.datasets import load
from evergraph.experiments import plan as plan_module
from evergraph.experiments.config import RunConfig
from evergraph.experiments.plan import (
    CLASS_NODES,
    FEWEST_TASKS,
    LearnedCopy,
    extrapolated,
    plan_run,
    shrunk,
)
from evergraph.graphs import Graph
from evergraph.graphs.relations import NodeTypes, Relations
from evergraph.graphs.targets import Targets


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def _homophily(graph: Graph) -> float:
    same = graph.labels[graph.edge_rows()] == graph.labels[graph.indices.long()]
    return float(same.double().mean())


def test_a_copy_is_like_its_graph():
    graph = load("synthetic", nodes=4000, classes=5, features=8, homophily=0.6)
    small = shrunk(graph, 0.25, generator=_seeded())
    assert small.num_nodes == pytest.approx(1000, abs=5)
    assert small.num_edges == pytest.approx(graph.num_edges / 4, rel=0.1)  # of few hubs
    halves = (shrunk(graph, 0.5, generator=torch.Generator().manual_seed(s)) for s in range(6))
    entries = sum(half.num_edges for half in halves)
    assert entries == pytest.approx(6 * graph.num_edges / 2, rel=0.03)
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
def test_every_class_stays_large_enough_to_be_split(share, seed):
    labels = torch.arange(200) % 3
    graph = Graph.from_edges(torch.empty(2, 0).long(), features=torch.rand(200, 2), labels=labels)
    small = shrunk(graph, share, generator=torch.Generator().manual_seed(seed))
    assert int(small.labels.bincount(minlength=3).min()) >= CLASS_NODES


def test_relations_types_and_targets_come_along():
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


def test_costs_of_tasks_and_sizes_that_no_copy_has_are_found():
    # A task: 1 s, 2 s for each share that arrives or that a memory has kept, at most 0.15 a task,
    # 10 s for each share so far; the first 3 s more. Bytes: 100, and 50 for each share so far.
    sizes = (3, 1, 2, 4)

    def copy(share, learned):
        arrived, kept, costs = 0.0, 0.0, []
        for number, size in enumerate(sizes[:learned], 1):
            new = share * size / 10
            arrived += new
            seconds = 1 + 2 * (new + kept) + 10 * arrived + 3 * (number == 1)
            kept += min(new, 0.15 * share)
            costs.append((seconds, 1.0, 100 + 50 * arrived, 0.0))
        nodes = tuple(int(1000 * share * size) for size in sizes)
        return LearnedCopy(share, nodes, tuple(costs), 0.15 * sum(nodes))

    whole, truth = extrapolated([copy(0.1, 4), copy(0.4, 3)]), copy(1.0, 4).cost
    assert (whole.share, whole.tasks) == (1.0, 4)
    assert whole.processor == pytest.approx(truth.processor)
    assert whole.clock == pytest.approx(4.0)
    assert whole.memory == pytest.approx(150.0)
    # what is learned of the largest copy costs the whole no less
    falling = LearnedCopy(0.1, sizes, ((9.0, 9.0, 900.0, 0.0),) * 4)
    assert extrapolated([falling, copy(0.4, 4)]).processor >= copy(0.4, 4).cost.processor


@pytest.mark.parametrize("seconds", [0.0, 600.0])
def test_a_plan_runs_the_method_on_growing_copies(seconds, monkeypatch):
    # Forked: the command's test starts processes as a plan does.
    monkeypatch.setattr(plan_module, "get_context", lambda _: get_context("fork"))
    graph = load("synthetic", nodes=480, classes=10, features=8)
    config = RunConfig.of({"method": "slda", "repeats": 2, "device": "cpu"})
    seen = []
    plan = plan_run(config, seconds=seconds, load=lambda _: graph, on_copy=seen.append)
    assert seen == [120, 240]  # no class has fewer than 12 nodes
    assert [cost.share for cost in plan.copies] == [0.25, 0.5]
    # without time, the fewest tasks are learned
    assert [cost.tasks for cost in plan.copies] == ([5, 5] if seconds else [FEWEST_TASKS] * 2)
    assert (plan.seed.tasks, plan.seeds, plan.nodes) == (5, 2, 480)
    assert plan.seed.processor > 0
    assert plan.seed.memory > 1e8  # Python with torch
    assert plan.seed.device_memory == 0
