"""What a learner says of nodes, from scores written down by hand."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from evergraph.core.errors import ConfigurationError
from evergraph.core.label_space import LabelSpace, Setting
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.streams import Task
from evergraph.training import Batch, Learner, Trainer

# exp of the scores: 1 3 0 4 and 4 1 2 1
SCORES = torch.tensor([[1.0, 3.0, 0.0, 4.0], [4.0, 1.0, 2.0, 1.0]]).log()
GRAPH = Graph.from_edges(
    torch.empty(2, 0, dtype=torch.long), features=SCORES.exp(), labels=torch.tensor([0, 1])
)
NODES = torch.tensor([0, 1])
OWN = torch.tensor([0, 1])


class Reader(Learner):
    """Reads its scores off the features and counts how often it does."""

    name = "reader"

    def __init__(self, setting: Setting | None = "class-il") -> None:
        super().__init__(trainer=Trainer(device="cpu"), generator=seeded(0))
        self.label_space_ = None if setting is None else LabelSpace(setting, (2, 2))
        self.passes = 0

    def begin_task(self, task: Task) -> int:
        raise NotImplementedError

    def loss(self, batch: Batch) -> Tensor:
        raise NotImplementedError

    def logits(self, graph: Graph, nodes: Tensor) -> Tensor:
        self.passes += 1
        return graph.features[nodes].log()

    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        return iter(())


def test_class_il_by_hand():
    learner = Reader()
    expected = torch.tensor([[1, 3, 0, 4], [4, 1, 2, 1]]) / 8
    torch.testing.assert_close(learner.predict_proba(GRAPH, NODES), expected)
    assert learner.predict(GRAPH, NODES).tolist() == [3, 0]
    torch.testing.assert_close(learner.novelty(GRAPH, NODES), torch.full((2,), -math.log(8)))


def test_task_il_by_hand_gives_nothing_to_the_other_tasks():
    learner = Reader("task-il")
    expected = torch.tensor([[1 / 4, 3 / 4, 0, 0], [0, 0, 2 / 3, 1 / 3]])
    torch.testing.assert_close(learner.predict_proba(GRAPH, NODES, OWN), expected)
    assert learner.predict(GRAPH, NODES, OWN).tolist() == [1, 2]
    # Nobody knows the task of an unknown node: all classes count.
    torch.testing.assert_close(learner.novelty(GRAPH, NODES), torch.full((2,), -math.log(8)))


@pytest.mark.parametrize("setting", ["class-il", "task-il"])
def test_one_pass_answers_what_three_would(setting):
    learner = Reader(setting)
    answers = learner.answer(GRAPH, NODES, OWN)
    assert learner.passes == 1
    assert answers.classes.equal(learner.predict(GRAPH, NODES, OWN))
    assert answers.confidence.equal(learner.predict_proba(GRAPH, NODES, OWN).max(dim=1).values)
    assert answers.novelty.equal(learner.novelty(GRAPH, NODES))


def test_weaker_scores_are_more_novel_however_they_are_shared_out():
    faint = GRAPH.with_features(GRAPH.features / 2)  # the same softmax
    assert (Reader().novelty(faint, NODES) > Reader().novelty(GRAPH, NODES)).all()


def test_a_method_may_have_a_novelty_of_its_own():
    class Numbered(Reader):
        def novelty(self, graph, nodes, *, logits=None):
            return nodes.double()

    learner = Numbered()
    assert learner.answer(GRAPH, NODES).novelty.tolist() == [0.0, 1.0]
    assert learner.passes == 1


def test_a_node_of_a_task_to_come_has_its_novelty_alone():
    answers = Reader("task-il").answer(GRAPH, NODES, torch.tensor([0, 2]))
    assert answers.classes[0] == 1
    assert answers.novelty.isfinite().all()


def test_nothing_is_said_before_learning_or_without_tasks_in_task_il():
    fresh, told = Reader(None), Reader("task-il")
    for asked in (fresh.predict, fresh.predict_proba, fresh.novelty, fresh.answer):
        with pytest.raises(ConfigurationError, match="fit_task first"):
            asked(GRAPH, NODES)
    for asked in (told.predict, told.predict_proba, told.answer):
        with pytest.raises(ConfigurationError, match="task of each node"):
            asked(GRAPH, NODES)
    assert fresh.passes == told.passes == 0
