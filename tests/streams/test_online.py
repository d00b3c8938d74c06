"""Tasks whose training nodes arrive in small batches.

Every node's feature is its own number in the whole graph, so any position can be traced back.
"""

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.graphs import Graph
from evergraph.graphs.reachability import covered_nodes
from evergraph.streams import GraphStream
from evergraph.streams.task import ClassSizes
from evergraph.topology import SGC
from traced_graph import ids

NODES = 80


def whole_graph(seed: int = 3) -> Graph:
    """Four classes of twenty nodes, edges anywhere."""
    generator = torch.Generator().manual_seed(seed)
    return Graph.from_edges(
        torch.randint(NODES, (2, 160), generator=generator),
        features=torch.arange(float(NODES)).unsqueeze(1),
        labels=torch.arange(NODES) // 20,
        undirected=True,
    )


WHOLE = whole_graph()


def online(**options: Any) -> GraphStream:
    return GraphStream(WHOLE, **{"by": "online", "batch": 5, **options})


def test_every_training_node_comes_once_and_in_no_order_of_its_own():
    stream, by_class = online(), GraphStream(WHOLE)
    # 24 training nodes a task: 5 + 5 + 5 + 5 + 4
    assert len(stream) == 10
    assert stream.tasks == by_class.tasks == [(0, 1), (2, 3)]
    assert [len(step.train) for step in stream] == [5, 5, 5, 5, 4] * 2
    for task, steps in ((0, range(5)), (1, range(5, 10))):
        came = torch.cat([stream.splits[step].train for step in steps])
        assert sorted(came.tolist()) == by_class.splits[task].train.tolist()
        assert came.tolist() != sorted(came.tolist())
    assert not stream.splits[0].train.equal(online(seed=1).splits[0].train)


def test_a_task_is_tested_on_the_same_nodes_from_its_first_batch_on():
    stream, by_class = online(), GraphStream(WHOLE)
    assert [stream.met(step) for step in range(10)] == [1] * 5 + [2] * 5
    for step in (0, 3, 5, 9):
        [union] = stream.exams(step, "global")
        exams = stream.exams(step, "local")
        assert len(exams) == stream.met(step)
        for task, exam in enumerate(exams):
            assert ids(exam.graph, exam.nodes) == by_class.splits[task].test.tolist()
            assert set(exam.tasks.tolist()) == {task}
        assert sorted(union.tasks.unique().tolist()) == [*range(stream.met(step))]


def test_nothing_is_seen_before_it_comes():
    stream = online(edges="all")
    for step in range(len(stream)):
        come = set(torch.cat([s.train for s in stream.splits[: step + 1]]).tolist())
        held = {n for s in stream.splits[: step + 1] for n in (*s.validation, *s.test)}
        seen = come | {int(n) for n in held}
        [union] = stream.exams(step, "global")
        assert set(ids(union.graph)) == seen
        near = stream.open(step, sight=1)
        assert set(ids(near.graph)) <= seen
        shown = near.ids[near.graph.labels >= 0].tolist()
        assert set(shown) <= come  # no label but those of training nodes that have come


def test_classes_are_those_of_the_tasks_that_have_begun():
    stream = online(setting="task-il")
    assert stream.label_space(4).sizes == (2,)
    assert stream.label_space(5).sizes == (2, 2)
    [_, second] = stream.exams(5, "local")
    allowed = stream.label_space(5).allowed(second.tasks)
    assert allowed[0].tolist() == [False, False, True, True]


@given(seed=st.integers(0, 50), edges=st.sampled_from(["within", "all"]), hops=st.integers(0, 3))
def test_a_batch_comes_with_all_that_its_embeddings_need(seed, edges, hops):
    stream = GraphStream(whole_graph(seed), by="online", batch=4, edges=edges)
    step = seed % len(stream)
    topology = SGC(hops=hops)
    near = stream.open(step, sight=hops)
    inside = topology.encode(near.graph)[near.train]
    far = stream.open(step)
    torch.testing.assert_close(inside, topology.encode(far.graph)[far.train])
    assert len(near.ids) <= len(far.ids)
    assert near.met_sizes == far.met_sizes


def test_a_batch_comes_with_no_more_than_that():
    path = Graph.from_edges(
        torch.stack([torch.arange(59), torch.arange(1, 60)]),
        features=torch.arange(60.0).unsqueeze(1),
        labels=torch.arange(60) // 30,
        undirected=True,
    )
    stream = GraphStream(path, by="online", batch=1, edges="all")
    last = stream.open(len(stream) - 1, sight=1)
    [node] = last.ids[last.train].tolist()
    wanted = [n for n in range(60) if abs(n - node) <= 2]  # one hop, and one more for degrees
    assert last.ids.tolist() == wanted
    assert stream.open(len(stream) - 1).graph.num_nodes == 60
    whole = GraphStream(path).open(0, sight=1)  # a whole task always has its whole graph
    assert whole.graph.num_nodes == 60


@given(seed=st.integers(0, 50), hops=st.integers(0, 4), few=st.integers(1, 5))
def test_available_nodes_are_those_covered_in_the_subgraph(seed, hops, few):
    graph = whole_graph(seed)
    there = torch.rand(NODES, generator=torch.Generator().manual_seed(seed)) < 0.7
    inside = there.nonzero().flatten()
    start = inside[:few]
    found = covered_nodes(graph, start, hops=hops, available=lambda nodes: there[nodes])
    places = torch.searchsorted(inside, start)
    within = inside[covered_nodes(graph.subgraph(inside), places, hops=hops)]
    assert found.nonzero().flatten().equal(within)


def test_sizes_met_by_hand():
    met = ClassSizes(torch.tensor([0, 2, 2, -1, 0]), torch.tensor([1, 1, 0, 0, -1]), steps=3)
    assert [met.between(0, step) for step in range(3)] == [{1: 1}, {1: 1}, {0: 1, 1: 2}]
