"""Rows of the accuracy matrix from predictors whose answers are known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from evergraph.core.errors import UnknownNameError
from evergraph.evaluation import accuracy_rows
from evergraph.graphs import Graph
from evergraph.streams import GraphStream

# Four classes of 5, 15, 10 and 20 nodes: a fifth of each, 1, 3, 2 and 4, is for testing.
SIZES = [5, 15, 10, 20]
LABELS = torch.cat([torch.full((size,), label) for label, size in enumerate(SIZES)])
LABELS = LABELS[torch.randperm(50, generator=torch.Generator().manual_seed(0))]
ORDER = [2, 1, 3, 0]  # task 0 tests 2 and 3 nodes, task 1 tests 4 and 1
ONES = [1.0, 1.0]


def stream_of(**options: Any) -> GraphStream:
    ring = torch.stack([torch.arange(50), torch.arange(50).roll(1)])
    graph = Graph.from_edges(
        ring, features=torch.arange(50.0).unsqueeze(1), labels=LABELS, undirected=True
    )
    return GraphStream(graph, order=ORDER, **options)


class Answers:
    """Reads the truth off the node's number, changes it as told, and keeps the questions."""

    def __init__(self, change: Callable[[int], int] = lambda label: label) -> None:
        self.change = change
        self.asked: list[tuple[Graph, Tensor, Tensor | None]] = []

    def predict(self, graph: Graph, nodes: Tensor, tasks: Tensor | None = None) -> Tensor:
        self.asked.append((graph, nodes, tasks))
        numbers = graph.features[nodes, 0].long()
        arrival = [ORDER.index(label) for label in LABELS[numbers].tolist()]
        return torch.tensor([self.change(label) for label in arrival])


@pytest.mark.parametrize("setting", ["class-il", "task-il"])
@pytest.mark.parametrize("edges", ["within", "all"])
def test_a_perfect_predictor_is_right_everywhere(setting: str, edges: str) -> None:
    stream = stream_of(setting=setting, edges=edges)
    both = {"balanced": ONES, "plain": ONES}
    for part in ("test", "validation"):
        assert accuracy_rows(Answers(), stream, 1, part=part) == {"local": both, "global": both}
    first = {"balanced": [1.0], "plain": [1.0]}
    assert accuracy_rows(Answers(), stream, 0) == {"local": first, "global": first}


def test_a_predictor_that_is_wrong_on_one_class_by_hand() -> None:
    # class 1 (three nodes of five in task 0) is always called 0
    rows = accuracy_rows(Answers(lambda label: 0 if label == 1 else label), stream_of(), 1)
    for testing in ("local", "global"):
        assert rows[testing]["balanced"] == pytest.approx([0.5, 1.0])
        assert rows[testing]["plain"] == pytest.approx([2 / 5, 1.0])
    # class 2 (four nodes of five in task 1) is always called 0
    rows = accuracy_rows(Answers(lambda label: 0 if label == 2 else label), stream_of(), 1)
    for testing in ("local", "global"):
        assert rows[testing]["balanced"] == pytest.approx([1.0, 0.5])
        assert rows[testing]["plain"] == pytest.approx([1.0, 1 / 5])


def test_a_predictor_that_only_knows_the_newest_task_forgot_the_first() -> None:
    rows = accuracy_rows(Answers(lambda label: max(label, 2)), stream_of(), 1)
    for testing in ("local", "global"):
        assert rows[testing] == {"balanced": [0.0, 1.0], "plain": [0.0, 1.0]}


@pytest.mark.parametrize("setting", ["class-il", "task-il"])
def test_local_and_global_ask_in_their_own_graphs_and_say_the_task(setting: str) -> None:
    stream, learner = stream_of(setting=setting), Answers()
    accuracy_rows(learner, stream, 1)
    graphs = [graph for graph, _, _ in learner.asked]
    assert graphs[0] is stream.local_graph(0)
    assert graphs[1] is stream.local_graph(1)
    assert graphs[2] is stream.union_graph(1)
    assert len(graphs) == 3
    for graph, nodes, tasks in learner.asked:
        assert tasks is not None
        numbers = graph.features[nodes, 0].long()
        owners = [ORDER.index(label) // 2 for label in LABELS[numbers].tolist()]
        assert tasks.tolist() == owners
        assert set(graph.labels.tolist()) == {-1}  # the answers stay with the evaluator


def test_the_right_nodes_are_asked_about() -> None:
    stream = stream_of()
    for part in ("test", "validation"):
        wanted = torch.cat([getattr(split, part) for split in stream.splits]).sort().values
        for testing in ("local", "global"):
            learner = Answers()
            accuracy_rows(learner, stream, 1, testings=[testing], part=part)  # type: ignore[list-item]
            asked = torch.cat([g.features[nodes, 0].long() for g, nodes, _ in learner.asked])
            assert asked.sort().values.equal(wanted)


def test_a_predictor_that_errs_in_the_union_only_is_told_apart() -> None:
    class Confused(Answers):
        def predict(self, graph: Graph, nodes: Tensor, tasks: Tensor | None = None) -> Tensor:
            right = super().predict(graph, nodes, tasks)
            return right if graph.num_nodes < 50 else torch.zeros_like(right)

    rows = accuracy_rows(Confused(), stream_of(), 1)
    assert rows["local"] == {"balanced": ONES, "plain": ONES}
    assert rows["global"]["balanced"] == pytest.approx([0.5, 0.0])
    assert rows["global"]["plain"] == pytest.approx([2 / 5, 0.0])


def test_only_the_testings_asked_for_are_run() -> None:
    learner = Answers()
    assert accuracy_rows(learner, stream_of(), 1, testings=["global"]).keys() == {"global"}
    assert len(learner.asked) == 1
    with pytest.raises(UnknownNameError, match="unknown testing 'remote'"):
        accuracy_rows(learner, stream_of(), 1, testings=["remote"])  # type: ignore[list-item]
