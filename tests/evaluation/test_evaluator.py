"""Rows of the accuracy matrix from predictors whose answers are known beforehand."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from evergraph.core.errors import UnknownNameError
from evergraph.core.label_space import Predictions
from evergraph.evaluation import evaluate
from evergraph.evaluation.evaluator import AccuracyRows, Measures
from evergraph.graphs import Graph
from evergraph.streams import GraphStream

# Four classes of 5, 15, 10 and 20 nodes: a fifth of each, 1, 3, 2 and 4, is for testing.
SIZES = [5, 15, 10, 20]
LABELS = torch.cat([torch.full((size,), label) for label, size in enumerate(SIZES)])
LABELS = LABELS[torch.randperm(50, generator=torch.Generator().manual_seed(0))]
ORDER = [2, 1, 3, 0]  # task 0 tests 2 and 3 nodes, task 1 tests 4 and 1
ONES = [1.0, 1.0]
NOVELTY = [0.0, 2.0, 1.0, 3.0]  # by arrival


def stream_of(**options: Any) -> GraphStream:
    ring = torch.stack([torch.arange(50), torch.arange(50).roll(1)])
    graph = Graph.from_edges(
        ring, features=torch.arange(50.0).unsqueeze(1), labels=LABELS, undirected=True
    )
    return GraphStream(graph, order=ORDER, **options)


class Oracle:
    """Reads the truth off the node's number, changes it as told, and keeps the questions."""

    def __init__(self, change: Callable[[int], int] = lambda label: label, sure: float = 1) -> None:
        self.change = change
        self.sure = sure
        self.asked: list[tuple[Graph, Tensor, Tensor | None]] = []

    def answer(self, graph: Graph, nodes: Tensor, tasks: Tensor | None = None) -> Predictions:
        self.asked.append((graph, nodes, tasks))
        numbers = graph.features[nodes, 0].long()
        arrival = [ORDER.index(label) for label in LABELS[numbers].tolist()]
        classes = torch.tensor([self.change(label) for label in arrival])
        return Predictions(
            classes, torch.full((len(nodes),), self.sure), self.novelty(arrival, graph)
        )

    def novelty(self, arrival: list[int], graph: Graph) -> Tensor:
        return torch.tensor([NOVELTY[label] for label in arrival])


def rows_of(learner: Oracle, stream: GraphStream, index: int, **options: Any) -> AccuracyRows:
    return evaluate(learner, stream, index, **options).rows


def measures_of(learner: Oracle, index: int = 0, **options: Any) -> Measures:
    return evaluate(learner, stream_of(), index, **options).measures


@pytest.mark.parametrize(("setting", "edges"), [("class-il", "within"), ("task-il", "all")])
def test_a_perfect_predictor_is_right_everywhere(setting, edges):
    stream = stream_of(setting=setting, edges=edges)
    both = {"balanced": ONES, "plain": ONES}
    for part in ("test", "validation"):
        assert rows_of(Oracle(), stream, 1, part=part) == {"local": both, "global": both}
    first = {"balanced": [1.0], "plain": [1.0]}
    assert rows_of(Oracle(), stream, 0) == {"local": first, "global": first}


def test_a_predictor_that_is_wrong_on_one_class_by_hand():
    # class 1 (three nodes of five in task 0) is always called 0
    rows = rows_of(Oracle(lambda label: 0 if label == 1 else label), stream_of(), 1)
    for testing in ("local", "global"):
        assert rows[testing]["balanced"] == pytest.approx([0.5, 1.0])
        assert rows[testing]["plain"] == pytest.approx([2 / 5, 1.0])
    # class 2 (four nodes of five in task 1) is always called 0
    rows = rows_of(Oracle(lambda label: 0 if label == 2 else label), stream_of(), 1)
    for testing in ("local", "global"):
        assert rows[testing]["balanced"] == pytest.approx([1.0, 0.5])
        assert rows[testing]["plain"] == pytest.approx([1.0, 1 / 5])
    # Who only knows the newest task forgot the first.
    rows = rows_of(Oracle(lambda label: max(label, 2)), stream_of(), 1)
    for testing in ("local", "global"):
        assert rows[testing] == {"balanced": [0.0, 1.0], "plain": [0.0, 1.0]}


@pytest.mark.parametrize("setting", ["class-il", "task-il"])
def test_local_and_global_ask_in_their_own_graphs_and_say_the_task(setting):
    stream, learner = stream_of(setting=setting), Oracle()
    rows_of(learner, stream, 1)
    graphs = [graph for graph, _, _ in learner.asked]
    assert graphs[0] is stream.local_graph(0)
    assert graphs[1] is stream.local_graph(1)
    assert graphs[2].structure is stream.union_graph(1)
    assert len(graphs) == 3
    for graph, nodes, tasks in learner.asked:
        numbers = graph.features[nodes, 0].long()
        owners = [ORDER.index(label) // 2 for label in LABELS[numbers].tolist()]
        assert tasks.tolist() == owners
        assert set(graph.labels[nodes].tolist()) == {-1}  # the answers stay with the evaluator


def test_the_right_nodes_are_asked_about():
    stream = stream_of()
    for part in ("test", "validation"):
        wanted = torch.cat([getattr(split, part) for split in stream.splits]).sort().values
        for testing in ("local", "global"):
            learner = Oracle()
            rows_of(learner, stream, 1, testings=[testing], part=part)
            asked = torch.cat([g.features[nodes, 0].long() for g, nodes, _ in learner.asked])
            assert asked.sort().values.equal(wanted)


def test_a_predictor_that_errs_in_the_union_only_is_told_apart():
    class Confused(Oracle):
        def answer(self, graph, nodes, tasks=None):
            right = super().answer(graph, nodes, tasks)
            wrong = replace(right, classes=torch.zeros_like(right.classes))
            return right if graph.num_nodes < 50 else wrong

    rows = rows_of(Confused(), stream_of(), 1)
    assert rows["local"] == {"balanced": ONES, "plain": ONES}
    assert rows["global"]["balanced"] == pytest.approx([0.5, 0.0])
    assert rows["global"]["plain"] == pytest.approx([2 / 5, 0.0])


def test_only_the_testings_asked_for_are_run():
    learner = Oracle()
    assert rows_of(learner, stream_of(), 1, testings=["global"]).keys() == {"global"}
    assert len(learner.asked) == 1
    with pytest.raises(UnknownNameError, match="unknown testing 'remote'"):
        rows_of(learner, stream_of(), 1, testings=["remote"])


def test_calibration_over_all_nodes_so_far_and_rejection_by_hand():
    # after task 1 all ten nodes are answered at 0.75, the three of class 1 wrongly: |0.7 - 0.75|
    learner = Oracle(lambda label: 0 if label == 1 else label, sure=0.75)
    for testing in ("local", "global"):
        found = measures_of(learner, 1)[testing]
        assert found == {"calibration_error": pytest.approx(0.05)}
    # known: twice 0 and three times 2; unknown: four times 1, above two of five, and 3, above all
    for testing, found in measures_of(Oracle(), preview=True).items():
        assert found["rejection_auroc"] == pytest.approx((4 * 2 + 5) / 25), testing


def test_a_graph_that_has_merely_grown_is_not_a_new_class():
    class Crowded(Oracle):
        def novelty(self, arrival, graph):
            return torch.full((len(arrival),), float(graph.num_nodes))

    # Every node looks newer in a larger graph. The union is one graph; a task has its own of 25.
    found = measures_of(Crowded(), preview=True)
    assert found["global"]["rejection_auroc"] == 0.5
    assert found["local"]["rejection_auroc"] == 0.5


def test_a_preview_asks_once_more_in_the_graphs_to_come():
    stream, learner = stream_of(), Oracle()
    evaluate(learner, stream, 0, preview=True)
    graphs = [graph for graph, _, _ in learner.asked]
    assert graphs[:2] == [stream.local_graph(0), stream.local_graph(1)]
    assert [graph.num_nodes for graph in graphs[2:]] == [25, 50]
    assert graphs[3].structure is stream.union_graph(1)  # kept for the task that follows
    assert [len(nodes) for _, nodes, _ in learner.asked] == [5, 5, 5, 10]
    # Nothing comes after the last task, and no class comes again.
    for testing in ("local", "global"):
        last = measures_of(Oracle(), 1, preview=True)[testing]
        assert (last["rejection_auroc"], last["forward_transfer"]) == (None, None)
        assert measures_of(Oracle(), 0, preview=True)[testing]["forward_transfer"] is None


def test_what_diverged_has_no_measures():
    class Lost(Oracle):
        def novelty(self, arrival, graph):
            return torch.full((len(arrival),), torch.nan)

    found = measures_of(Lost(sure=torch.nan), preview=True)["global"]
    assert set(found.values()) == {None}


def test_one_answer_for_everything_is_reported_once(caplog):
    def told(change, index, **options):
        caplog.clear()
        evaluate(Oracle(change), stream_of(**options), index)
        return [record.getMessage() for record in caplog.records]

    (line,) = told(lambda _: 2, 1)
    assert line.startswith("learner: at the end every test node is given class 3")  # ORDER[2]
    assert told(lambda _: 0, 0) == []  # not the end yet
    assert told(lambda label: 0 if label else 2, 1) == []  # two answers
    assert told(lambda _: 0, 0, classes_per_task=4) != []
