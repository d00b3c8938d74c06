"""Nodes learned from: as what they are counted, who is held back, and when scores follow."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.online.arrays import Piece
from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead, FusedHead, TargetHead, staleness
from evergraph.online.heads.staleness import Solving
from evergraph.online.learned_nodes import Counted, HeldBack, draw_number
from evergraph.online.learner import OnlineLearner
from evergraph.topology import SGC
from growth import restored


def rows(*values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values)


def now(nodes: Tensor, vectors: Tensor) -> list[Piece]:
    """Return one piece that holds these vectors of nodes."""
    places = {node: place for place, node in enumerate(nodes.tolist())}

    def rows_of(wanted: np.ndarray) -> np.ndarray:
        return vectors[[places[int(node)] for node in wanted]].numpy()

    return [Piece(vectors.shape[1], rows_of)]


def test_a_part_is_counted_again_where_it_has_moved_too_far():
    """Lengths are 5 and 1: the first part may move by 0.5, the second by 0.1."""
    counted = Counted([2, 1], tolerance=0.1)
    counted.put(torch.tensor([7, 2]), rows((3.0, 4.0, 1.0), (3.0, 4.0, 1.0)))
    nodes, vectors = torch.tensor([2, 7]), rows((3.4, 4.0, 1.05), (3.0, 4.6, 1.05))
    moved = counted.moved(nodes, now(nodes, vectors))
    assert moved.places.tolist() == [1]
    assert moved.before.equal(rows((3.0, 4.0, 1.0)))
    assert moved.after.equal(rows((3.0, 4.6, 1.0)))  # its second part has hardly moved


@pytest.mark.parametrize(
    ("tolerance", "before", "after", "exactly", "again"),
    [
        (0.1, [1.0], [1.06], False, []),
        (0.1, [1.0], [1.12], False, [0]),  # small steps add up
        # Nothing, and what is too small to be squared, move as well.
        (0.0, [0.0, 0.0, 1e-25], [0.0, 1e-25, 2e-25], False, [1, 2]),
        (0.1, [0.0, 0.0, 1e-25], [0.0, 1e-25, 2e-25], False, [1, 2]),
        (0.5, [1.0, 1.0], [1.0, 1.1], True, [1]),  # exactly: all that is not the same
    ],
)
def test_which_are_counted_again(tolerance, before, after, exactly, again):
    counted, nodes = Counted([1], tolerance=tolerance), torch.arange(len(before))
    counted.put(nodes, torch.tensor(before)[:, None])
    moved = counted.moved(nodes, now(nodes, torch.tensor(after)[:, None]), exactly=exactly)
    assert moved.places.tolist() == again


def test_a_piece_is_compared_for_the_nodes_in_which_it_changed():
    """Both pieces of both nodes are elsewhere by now; node 4 is to be compared as a whole."""
    counted, nodes = Counted([1, 1], tolerance=0.1), torch.tensor([3, 4, 5])
    counted.put(nodes, torch.ones(3, 2))
    first, second = (
        Piece(1, lambda wanted: np.full((len(wanted), 1), 2, np.float32)) for _ in "ab"
    )
    second.changed.append(torch.tensor([5, 9]))
    moved = counted.moved(nodes, [first, second], whole=[torch.tensor([4])])
    assert moved.places.tolist() == [1, 2]
    assert moved.after.tolist() == [[2.0, 2.0], [1.0, 2.0]]


def test_slots_are_given_back_and_emptied():
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


def test_a_mark_does_not_outlast_the_node_that_had_it():
    counted = Counted([1], tolerance=0.1)
    counted.put(torch.tensor([5, 6]), rows((5.0,), (6.0,)))
    counted.mark(torch.tensor([5, 6]))
    counted.drop(torch.tensor([5]))
    counted.put(torch.tensor([9]), rows((9.0,)))  # where 5 was
    assert counted.marked(torch.tensor([5, 6, 9])).tolist() == [False, True, False]
    assert counted.unmarked().tolist() == [6]


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
    return learner._knowledge.counted.of(torch.tensor([node]))


def pull(name: str) -> Delta:
    return Delta(nodes=(name,), features=torch.tensor([[1.0, 0.2]]), edges=((name, "h"),))


def test_a_node_that_hardly_moves_stays_as_it_was_counted():
    learner = star(0.2)
    before, sums = counted_as(learner, 0), learner.head.engine.sums_[0].gram_.clone()
    assert learner.apply(pull("a")).counted == 0
    assert learner.embed(["h"]).ne(before).any()  # predictions look at it as it is
    assert counted_as(learner, 0).equal(before)
    assert learner.head.engine.sums_[0].gram_.equal(sums)
    exact = star(0.0)
    assert exact.apply(pull("a")).counted == 2  # h, and u, which sees h's degree
    assert counted_as(exact, 0).equal(exact.embed(["h"]))


def test_what_was_counted_leaves_whatever_has_become_of_the_node():
    learner = star(0.2)
    learner.apply(pull("a"))
    learner.apply(Delta(forgotten=("h", "u")))
    head = learner.head
    (features,) = head.engine.map(learner.embed(["w"]))  # all that is left
    gram = features.double().t() @ features.double()
    torch.testing.assert_close(head.engine.sums_[0].gram_.tril(), gram.tril(), atol=1e-14, rtol=0)


@pytest.mark.parametrize("cut_first", [False, True])
def test_nothing_of_a_forgotten_node_is_left_in_what_others_are_counted_as(cut_first):
    """Not even where its edges went before it did."""
    learner = star(0.2)
    learner.apply(Delta(removed_edges=(("h", "u"),)) if cut_first else Delta())
    assert counted_as(learner, 0).ne(learner.embed(["h"])).any() == cut_first
    learner.apply(Delta(forgotten=("u",)))
    assert counted_as(learner, 0).equal(learner.embed(["h"]))
    assert learner.embed(["h"]).equal(torch.tensor([[1.0, 0.0]]))


def test_nothing_is_left_of_what_a_forgotten_node_was(monkeypatch):
    """h keeps a hair of what u was, and does not move when u goes: u has become nothing."""
    learner = star(0.2)
    learner.apply(Delta(updated=("u",), updated_features=torch.zeros(1, 2)))
    knowledge = learner._knowledge
    assert counted_as(learner, 0).ne(learner.embed(["h"])).any()
    update = knowledge.embeddings.update

    def only_those_that_moved(change):
        before = knowledge.embeddings.of(torch.arange(knowledge.graph.num_nodes))
        found = update(change)
        return found[(before[found] != knowledge.embeddings.of(found)).any(1)]

    monkeypatch.setattr(knowledge.embeddings, "update", only_those_that_moved)
    learner.apply(Delta(forgotten=("u",)))
    assert counted_as(learner, 0).equal(torch.tensor([[1.0, 0.0]]))


def test_a_node_reaches_all_that_see_a_degree_it_is_part_of():
    """Two hops from its neighbour: on a path, three steps from its end."""
    learner, names = OnlineLearner(topology=SGC(hops=2), head=AnalyticHead(width=8)), "abcdef"
    features, edges = torch.arange(12.0).reshape(6, 2) % 5, tuple(pairwise(names))
    learner.apply(Delta(nodes=tuple(names), features=features, labels=("x",) * 6, edges=edges))
    reached = learner._knowledge.reached_by(torch.tensor([0])).tolist()
    before = learner.embed(list(names[1:]))
    learner.apply(Delta(forgotten=("a",)))
    moved = (learner.embed(list(names[1:])) != before).any(1).nonzero().flatten() + 1
    assert reached == [0, 1, 2, 3]
    assert moved.tolist() == [1, 2, 3]


def expected(labels: dict[int, int], most: int, least: int) -> list[int]:
    """Return the names chosen, written down from the rule."""
    turns = []
    for label in set(labels.values()):
        names = sorted((name for name in labels if labels[name] == label), key=draw_number)
        turns += [
            (turn, draw_number(name), name)
            for turn, name in enumerate(names)
            if len(names) >= least
        ]
    return sorted((name for *_, name in sorted(turns)[:most]), key=draw_number)


def test_numbers_are_fixed():
    """Of folders made before: another number would hold back other nodes than were learned."""
    assert (draw_number("a"), draw_number(1)) == (-6952690916608902167, -649571662916077706)


@given(
    labels=st.lists(st.integers(-1, 3), max_size=40),
    most=st.integers(1, 50),
    least=st.integers(1, 3),
)
def test_the_first_of_every_class_by_lot_are_chosen_in_turn(labels, most, least):
    held = HeldBack()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    names = order.tolist()  # of every position
    held.extend(names)
    again = HeldBack()
    again.restore(held.state())
    known = {name: label for name, label in zip(names, labels, strict=True) if label >= 0}
    given = torch.tensor(labels, dtype=torch.int64), most
    found = again.first(*given, least=least)
    assert [names[position] for position in found.tolist()] == expected(known, most, least)


def test_unless_classes_count_alike_the_first_of_all_are_looked_at():
    """Three of four nodes are of one class, and so are those looked at, by names alone."""
    held, every = HeldBack(), torch.arange(400)
    held.extend(range(400))
    labels = (every % 4 == 0).long()
    alike = labels[held.first(labels, 80)].bincount().tolist()
    found = held.first(labels, 80, balanced=False)
    assert alike == [40, 40]
    assert set(held.first(labels, 3).tolist()) < set(held.first(labels, 4).tolist())
    assert sorted(found.tolist()) == sorted(sorted(range(400), key=draw_number)[:80])


HEADS = {"analytic": AnalyticHead, "auto": partial(FusedHead, basis="random")}


def test_when_scores_are_due():
    one = Solving(patience=3)
    assert one.due(1, known=staleness.SMALL - 1)  # few are known
    known = 16_000
    assert [one.due(n, known=known) for n in (1000, 1)] == [False, True]  # 1,000 are a sixteenth
    assert [one.due(1, known=known) for _ in range(3)] == [False, False, True]
    assert [one.due(n, known=known) for n in (1, 0, 0)] == [False, False, True]  # it has waited
    assert one.due(1, known=known, urgent=True)
    assert not one.behind


@pytest.fixture(params=HEADS)
def learner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> OnlineLearner:
    """Twelve nodes in two classes; so few would be solved for at once."""
    monkeypatch.setattr(staleness, "SMALL", 0)
    monkeypatch.setattr(staleness, "SHARE", 1.0)
    one = OnlineLearner(head=HEADS[request.param](width=16), patience=3)
    features = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    features[5:10, 0] += 3.0
    one.apply(
        Delta(
            nodes=list(range(12)),
            features=features,
            labels=["x"] * 5 + ["y"] * 5 + [None] * 2,
            edges=[(i, i + 1) for i in range(11)],
        )
    )
    return one


def solved(one: OnlineLearner, delta: Delta) -> int:
    one.apply(delta)
    return one.status().solved


def test_labels_of_known_classes_wait_for_each_other(learner):
    assert learner.status().solved == 1
    before = learner.head.scorer()
    asked = learner.taken([0, 1, 2, 3])[1]
    assert solved(learner, Delta(late=((10, "x"),))) == 1
    assert (learner.head.scorer()(asked) == before(asked)).all()
    assert solved(learner, Delta()) == 1  # waits on
    assert solved(learner, Delta()) == 4  # the third change since
    assert (learner.head.scorer()(asked) != before(asked)).any()
    assert solved(learner, Delta()) == 5  # nothing is waiting


@pytest.mark.parametrize(
    "delta",
    [
        Delta(late=((11, "z"),)),  # a class that is new
        Delta(late=((0, "y"),)),  # a label that was wrong
        Delta(forgotten=(3,)),
        Delta(forgotten=(11,)),  # it had no label, but neighbours
    ],
)
def test_what_cannot_wait_is_solved_at_once(learner, delta):
    learner.apply(Delta(late=((10, "x"),)))
    assert solved(learner, delta) == 3


def test_predictions_look_at_nodes_as_they_are(learner):
    before = learner.predict_proba([11])[1]
    learner.apply(Delta(edges=((11, 0),), late=((10, "x"),)))
    assert learner.status().solved == 1
    assert learner.predict_proba([11])[1].ne(before).any()


def test_a_number_that_is_new_is_no_new_class(monkeypatch):
    monkeypatch.setattr(staleness, "SMALL", 0)
    monkeypatch.setattr(staleness, "SHARE", 1.0)
    monkeypatch.setattr(staleness, "FEW", 0)  # other landmarks do not wait
    one = OnlineLearner(head=TargetHead(kind="numbers", width=8), patience=2)
    one.apply(Delta(nodes=(1, 2, 3), features=torch.eye(3), labels=(0.5, 1.5, None)))
    assert solved(one, Delta(late=((3, 2.5),))) == 1
    twin = restored(one)
    assert [solved(each, Delta()) for each in (one, twin)] == [3, 3]
    assert one.predict_proba([1, 3])[1].equal(twin.predict_proba([1, 3])[1])
