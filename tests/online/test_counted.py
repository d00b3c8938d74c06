"""What nodes are counted as: by hand, kept in slots, and exact where something is forgotten."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from evergraph.online.delta import Delta
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.heads import AnalyticHead
from evergraph.online.learned_nodes import Counted
from evergraph.online.learner import OnlineLearner
from evergraph.topology import SGC


def rows(*values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values)


def test_a_part_is_counted_again_where_it_has_moved_too_far() -> None:
    """Lengths are 5 and 1: the first part may move by 0.5, the second by 0.1."""
    counted = Counted([2, 1], tolerance=0.1)
    counted.put(torch.tensor([7, 2]), rows((3.0, 4.0, 1.0), (3.0, 4.0, 1.0)))
    moved = counted.moved(torch.tensor([2, 7]), rows((3.4, 4.0, 1.05), (3.0, 4.6, 1.05)))
    assert moved.places.tolist() == [1]
    assert moved.before.equal(rows((3.0, 4.0, 1.0)))
    assert moved.after.equal(rows((3.0, 4.6, 1.0)))  # its second part has hardly moved


def test_steps_that_are_small_add_up() -> None:
    counted = Counted([1], tolerance=0.1)
    node = torch.tensor([0])
    counted.put(node, rows((1.0,)))
    assert [len(counted.moved(node, rows((1.0 + step,))).places) for step in (0.06, 0.12)] == [0, 1]


@pytest.mark.parametrize("tolerance", [0.0, 0.1])
def test_nothing_and_what_is_too_small_to_be_squared_move_as_well(tolerance: float) -> None:
    counted = Counted([1], tolerance=tolerance)
    nodes = torch.arange(3)
    counted.put(nodes, rows((0.0,), (0.0,), (1e-25,)))
    moved = counted.moved(nodes, rows((0.0,), (1e-25,), (2e-25,)))
    assert moved.places.tolist() == [1, 2]


def test_exactly_is_all_that_is_not_the_same() -> None:
    counted = Counted([1, 1], tolerance=0.5)
    counted.put(torch.arange(2), rows((1.0, 1.0), (1.0, 1.0)))
    now = rows((1.0, 1.0), (1.0, 1.1))
    assert counted.moved(torch.arange(2), now, exactly=True).places.tolist() == [1]


def test_slots_are_given_back_and_emptied() -> None:
    counted = Counted([1], tolerance=0.1)
    counted.put(torch.tensor([5, 6, 7]), rows((5.0,), (6.0,), (7.0,)))
    counted.drop(torch.tensor([5, 6]))
    assert counted.state()["rows"].flatten().tolist() == [0.0, 0.0, 7.0]
    counted.put(torch.tensor([9]), rows((9.0,)))
    twin = Counted([1], tolerance=0.1)
    twin.restore({name: value.clone() for name, value in counted.state().items()})
    for each in (counted, twin):
        each.put(torch.tensor([1, 7, 3]), rows((1.0,), (7.5,), (3.0,)))
        assert each.of(torch.tensor([1, 3, 7, 9])).flatten().tolist() == [1.0, 3.0, 7.5, 9.0]
    assert all(value.equal(twin.state()[name]) for name, value in counted.state().items())
    assert len(counted.state()["rows"]) == 4


# In a learner: one hop, a star around h; leaves pull h's embedding by little.


def star(tolerance: float) -> OnlineLearner:
    learner = OnlineLearner(topology=SGC(hops=1), head=AnalyticHead(width=8), tolerance=tolerance)
    learner.apply(
        Delta(
            nodes=("h", "u", "w"),
            features=torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]),
            labels=("x", "y", "y"),
            edges=(("h", "u"),),
        )
    )
    return learner


def counted_as(learner: OnlineLearner, node: int) -> Tensor:
    assert learner._knowledge is not None
    return learner._knowledge.counted.of(torch.tensor([node]))


def pull(name: str) -> Delta:
    return Delta(nodes=(name,), features=torch.tensor([[1.0, 0.2]]), edges=((name, "h"),))


def test_a_node_that_hardly_moves_stays_as_it_was_counted() -> None:
    learner = star(0.2)
    before, sums = counted_as(learner, 0), learner.head.statistics_.gram_.clone()  # type: ignore[attr-defined]
    assert learner.apply(pull("a")).counted == 0
    assert learner.embed(["h"]).ne(before).any()  # predictions look at it as it is
    assert counted_as(learner, 0).equal(before)
    assert learner.head.statistics_.gram_.equal(sums)  # type: ignore[attr-defined]
    exact = star(0.0)
    assert exact.apply(pull("a")).counted == 2  # h, and u, which sees h's degree
    assert counted_as(exact, 0).equal(exact.embed(["h"]))


def test_what_was_counted_leaves_whatever_has_become_of_the_node() -> None:
    learner = star(0.2)
    learner.apply(pull("a"))
    learner.apply(Delta(forgotten=("h", "u")))
    head = learner.head
    assert isinstance(head, AnalyticHead)
    features = head._exact(learner.embed(["w"]).double())  # all that is left
    gram = features.t() @ features
    torch.testing.assert_close(head.statistics_.gram_.tril(), gram.tril(), atol=1e-14, rtol=0)


@pytest.mark.parametrize("cut_first", [False, True])
def test_nothing_of_a_forgotten_node_is_left_in_what_others_are_counted_as(cut_first: bool) -> None:
    """Not even where its edges went before it did."""
    learner = star(0.2)
    learner.apply(Delta(removed_edges=(("h", "u"),)) if cut_first else Delta())
    assert counted_as(learner, 0).ne(learner.embed(["h"])).any() == cut_first
    learner.apply(Delta(forgotten=("u",)))
    assert counted_as(learner, 0).equal(learner.embed(["h"]))
    assert learner.embed(["h"]).equal(torch.tensor([[1.0, 0.0]]))


def test_what_a_forgotten_node_was_before_is_not_left_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """h keeps a hair of what u was, and does not move when u goes: u has become nothing."""
    learner = star(0.2)
    learner.apply(Delta(updated=("u",), updated_features=torch.zeros(1, 2)))
    knowledge = learner._knowledge
    assert knowledge is not None
    assert counted_as(learner, 0).ne(learner.embed(["h"])).any()
    update = knowledge.embeddings.update

    def only_those_that_moved(graph: GrowingGraph, change: GraphChange) -> Tensor:
        before = knowledge.embeddings.of(torch.arange(graph.num_nodes))
        found = update(graph, change)
        return found[(before[found] != knowledge.embeddings.of(found)).any(1)]

    monkeypatch.setattr(knowledge.embeddings, "update", only_those_that_moved)
    learner.apply(Delta(forgotten=("u",)))
    assert counted_as(learner, 0).equal(torch.tensor([[1.0, 0.0]]))
