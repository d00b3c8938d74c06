"""Deltas that change what is there: their order, what is new of them, and many taken together."""

import dataclasses
from collections import deque
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.core.errors import ConfigurationError, DataError, LooseEdgeError, UnknownNodeError
from evergraph.online.checking import check_delta
from evergraph.online.delta import Delta, is_empty
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import AnalyticHead
from evergraph.online.intake import MOST_DELTAS, Batch, merged, owners
from evergraph.online.learner import OnlineLearner
from evergraph.online.upsert import News
from evergraph.topology import SGC
from growth import bits
from histories import histories

FIRST = Delta(
    nodes=("a", "b", "c"),
    features=torch.eye(3),
    labels=("x", None, "y"),
    edges=(("a", "b"), ("b", "c")),
)
ROW = torch.tensor([[0.0, 0.0, 5.0]])


def small(*, undirected: bool = True) -> OnlineLearner:
    head = AnalyticHead(width=32)
    return OnlineLearner(head=head, topology=SGC(hops=1), undirected=undirected)


@pytest.fixture
def learner() -> OnlineLearner:
    learner = small()
    learner.apply(FIRST)
    return learner


def test_parts_are_taken_in_their_order(learner):
    """Edges come before they go, a label is learned with the features that are told with it."""
    learner.apply(
        Delta(
            nodes=("d",),
            features=ROW,
            edges=(("d", "b"), ("a", "b"), ("a", "d"), ("b", "d")),
            weights=(1.0, 3.0, 2.0, 4.0),
            removed_edges=(("d", "a"), ("c", "b")),
            updated=("c",),
            updated_features=ROW,
            late=(("b", "z"),),
            forgotten=("c",),
        )
    )
    around = learner.neighbourhood("b", hops=2)
    ends = ["".join(sorted(around.nodes[place] for place in edge)) for edge in around.edges]
    assert dict(zip(ends, around.weights, strict=True)) == {"ab": 3.0, "bd": 4.0}
    plain = small()
    plain.apply(
        Delta(
            nodes=("a", "b", "d"),
            features=torch.cat([torch.eye(3)[:2], ROW]),
            labels=("x", "z", None),
            edges=(("a", "b"), ("b", "d")),
            weights=(3.0, 4.0),
        )
    )
    assert learner.embed(["a", "b", "d"]).equal(plain.embed(["a", "b", "d"]))
    names, shares = learner.predict_proba(["a", "b", "d"])
    order = [names.index(name) for name in plain.classes]
    assert torch.allclose(shares[:, order], plain.predict_proba(["a", "b", "d"])[1], atol=1e-5)


def test_an_explanation_speaks_with_the_weights_of_edges(learner):
    """b gathers with 4 from a and 1 from c; rows sum up to 5, 6 and 2 with the loops."""
    learner.apply(Delta(edges=(("a", "b"),), weights=(4.0,)))
    told = learner.explain("b")
    weights = {voice.node: voice.weight for voice in told.voices}
    assert weights == pytest.approx({"a": 4 / 30**0.5, "b": 1 / 6, "c": 1 / 12**0.5})
    assert told.rest == pytest.approx([0.0] * len(told.rest), abs=1e-5)


def test_all_is_new_the_first_time_and_nothing_the_second(learner):
    delta, news = small().only_new(FIRST)
    assert (delta.nodes, delta.edges) == (["a", "b", "c"], [("a", "b"), ("b", "c")])
    assert news == News(new_nodes=3, new_edges=2, new_labels=2)
    delta, news = learner.only_new(FIRST)
    assert (repr(delta), news) == ("Delta()", News(known_nodes=3, known_edges=2))
    # A label that is missing takes none away.
    delta, news = learner.only_new(Delta(nodes=("a",), features=torch.eye(3)[:1], labels=(None,)))
    assert (delta.late, news) == ([], News(known_nodes=1))


def test_only_what_is_new_is_left(learner):
    given = Delta(
        nodes=("a", "b", "c", "d"),
        features=torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 9], [1, 1, 1]]),  # c has another one
        labels=("x", "y", "x", None),  # b gets a label, c gets another
        edges=(("b", "a"), ("d", "a"), ("a", "d"), ("d", "d"), ("c", "a")),
        forgotten=("nobody", "a"),
        late=(("a", "x"),),
    )
    delta, news = learner.only_new(given)
    assert (delta.nodes, delta.features.tolist(), delta.labels) == (["d"], [[1, 1, 1]], [None])
    assert (delta.edges, delta.late) == ([("d", "a"), ("c", "a")], [("b", "y"), ("c", "x")])
    assert delta.forgotten == ["a"]
    assert news == News(
        new_nodes=1,
        known_nodes=3,
        other_features=1,
        new_edges=2,
        known_edges=3,
        new_labels=1,
        changed_labels=1,
        forgotten=1,
    )
    learner.apply(delta)
    assert learner.status().nodes == 3


def test_what_is_new_of_changes_by_hand(learner):
    given = Delta(
        edges=(("b", "a"), ("b", "c"), ("a", "c"), ("c", "a"), ("a", "a"), ("b", "b")),
        weights=(1, 2, 5, 0, 1, 0),  # as known; another; none after all; loops
        removed_edges=(("a", "b"), ("b", "a"), ("a", "nobody")),
        updated=("a", "b", "nobody"),
        updated_features=torch.cat([ROW, torch.eye(3)[1:2], ROW]),  # b's as known
        late=(("nobody", "x"), ("b", "x")),
    )
    delta, news = learner.only_new(given)
    assert (delta.edges, delta.weights) == ([("b", "c")], [2])
    assert (delta.removed_edges, delta.updated) == ([("b", "a")], ["a"])
    assert (delta.late, delta.updated_features.tolist()) == ([("b", "x")], ROW.tolist())
    assert news == News(
        known_edges=4,  # the first, which goes; the doubled one once; two loops
        changed_weights=1,
        removed_edges=1,
        missing_edges=3,
        new_labels=1,
        updated_nodes=1,
        missing_nodes=1,
    )
    learner.apply(delta)
    assert is_empty(learner.only_new(given)[0])


KNOWN = ("a", "b", 1, 2)


def weighed(undirected: bool) -> tuple[OnlineLearner, dict[Any, float]]:
    """Four nodes and three edges, one of them heavier, and what they weigh."""
    weights = {("a", "b"): 1.0, ("b", 1): 2.5, (1, 2): 1.0}
    made = small(undirected=undirected)
    made.apply(
        Delta(nodes=KNOWN, features=torch.eye(4), edges=[*weights], weights=[*weights.values()])
    )
    return made, weights


@pytest.mark.parametrize("undirected", [True, False])
def test_an_edge_the_other_way_is_known_where_edges_have_no_direction(undirected):
    made, weights = weighed(undirected)
    turned = Delta(edges=[(b, a) for a, b in weights], weights=[*weights.values()])
    news = made.only_new(turned)[1]
    assert news == (News(known_edges=3) if undirected else News(new_edges=3))


@pytest.mark.parametrize(
    ("delta", "error"),
    [
        (Delta(edges=(("a", "nobody"),)), LooseEdgeError),
        (Delta(edges=(("nobody", "nobody"),)), LooseEdgeError),
        (Delta(late=(("nobody", "x"),)), UnknownNodeError),
        (Delta(nodes=("a",), features=torch.eye(2)[:1], labels=("x",)), DataError),
        (Delta(nodes=("a",), features=torch.tensor([[0, 0, torch.nan]])), DataError),
        (Delta(nodes=("a", "b"), features=torch.eye(3)[:2], labels=("x",)), DataError),
        (Delta(edges=(("a", 1.0),)), DataError),
        (Delta(edges=(("a",),)), DataError),
        (Delta(late=(("c", 1.0),)), DataError),
        (Delta(late=(("a", ["x"]),)), DataError),
    ],
)
def test_upserts_refuse_wrong_deltas(tmp_path, delta, error):
    with LearnerFolder.open(tmp_path / "l", make=small) as folder:
        folder.upsert(FIRST)
        with pytest.raises(error):
            folder.upsert(delta)
        assert folder.seq == 1


def test_nothing_new_is_no_delta(tmp_path):
    with LearnerFolder.open(tmp_path / "l", make=small) as folder:
        assert folder.upsert(FIRST).applied.new_nodes == 3
        again = folder.upsert(FIRST)
        assert (again.applied.seq, again.applied.classes, folder.seq) == (1, 2, 1)
        with pytest.raises(ConfigurationError, match="takes no key"):
            folder.upsert(Delta(edges=(("a", "c"),), key="k"))
        folder.submit(Delta(forgotten=("a",)))
        back = folder.upsert(FIRST)  # what was forgotten is new again
        assert (back.news.new_nodes, back.news.new_edges) == (1, 1)


def test_a_folder_looks_at_a_delta_once(tmp_path, monkeypatch):
    looked = []

    def check(delta, *arguments, **options):
        looked.append(len(delta.nodes))
        return check_delta(delta, *arguments, **options)

    monkeypatch.setattr("evergraph.online.learner.check_delta", check)
    with LearnerFolder.open(tmp_path / "f", make=small) as folder:
        folder.submit(FIRST)
    assert looked == [3]


PARTS = [field.name for field in dataclasses.fields(Delta)]


def fresh(**given) -> OnlineLearner:
    return OnlineLearner(head=AnalyticHead(width=16), **given)


def node(name: str, *values: float, label: str | None = None, **parts: object) -> Delta:
    return Delta(nodes=(name,), features=torch.tensor([values]), labels=(label,), **parts)


def together(learner: OnlineLearner, deltas: list[Delta]) -> list[list[Delta]]:
    """Return the batches in which a learner takes deltas in, and have it take them."""
    left, found = deque(deltas), []
    while left:
        batch = Batch()
        while left and not batch.full and not (batch.deltas and Batch.is_alone(left[0])):
            checked = learner.check(left[0], batch.ahead)
            if not batch.takes(checked):
                break
            batch.add(checked)
            left.popleft()
        learner.apply_batch(batch.deltas)
        found.append(batch.deltas)
    return found


def test_a_batch_by_hand():
    """a - b - c on a path: b and its edge, then c, then a late label of b, as one change."""
    one = fresh()
    one.apply(node("a", 1.0, 0.0, label="x"))
    results = one.apply_batch(
        [
            node("b", 0.0, 1.0, edges=(("a", "b"),)),
            node("c", 1.0, 1.0, label="y", edges=(("c", "b"),)),
            Delta(late=(("b", "x"),)),
        ]
    )
    assert [(r.seq, r.new_nodes, r.classes) for r in results] == [(2, 1, 2), (3, 1, 2), (4, 0, 2)]
    # Before the batch x was the only class: c was called x, and so was b.
    assert [(r.predicted, r.right) for r in results] == [(0, 0), (1, 0), (1, 1)]
    assert {r.recomputed for r in results} == {3}
    points = [(p["seq"], p["nodes"], p["asked"], p["right"]) for p in one.history()["curve"]]
    assert points == [(3, 3, 1, 0), (4, 3, 1, 1)]
    status = one.status()
    assert (status.seq, status.nodes, status.edges, status.labelled) == (4, 3, 2, 3)


def test_what_is_merged_and_whose_labels_are_whose():
    one = fresh()
    one.apply(node("a", 1.0, label="x"))
    batch = Batch()
    for delta in (
        node("b", 2.0, label="y", edges=(("a", "b"),), weights=(0.5,)),
        Delta(nodes=("c",), features=torch.tensor([[3.0]])),
        node("d", 4.0, label="z", edges=(("c", "d"), ("d", "a")), weights=(2, 3), late=[("c", 7)]),
    ):
        checked = one.check(delta, batch.ahead)
        assert batch.takes(checked)
        batch.add(checked)
    whole = merged(batch.deltas)
    assert (whole.first, whole.nodes, whole.labels) == (1, ["b", "c", "d"], ["y", None, "z"])
    assert whole.ends.tolist() == [[0, 2, 3], [1, 3, 0]]
    assert whole.weighed.tolist() == [0.5, 2, 3]
    assert whole.features.flatten().tolist() == [2, 3, 4]
    assert whole.labelled.tolist() == [2]
    assert owners(batch.deltas).tolist() == [0, 2, 2]  # y, z, then the late 7


APART = {
    "edges go": Delta(removed_edges=(("a", "b"),)),
    "other features": Delta(updated=("a",), updated_features=torch.ones(1, 1)),
    "nodes go": Delta(forgotten=("a",)),
    "a second label": Delta(late=(("b", "z"),)),
    "weights beside none": Delta(edges=(("a", "b"),), weights=(2.0,)),
}


@pytest.mark.parametrize("delta", APART.values(), ids=APART)
def test_what_begins_a_batch_of_its_own(delta):
    one, twin = fresh(), fresh()
    first = node("b", 2.0, label="y", edges=(("a", "b"),))
    for learner in (one, twin):
        learner.apply(node("a", 1.0, label="x"))
    assert [len(batch) for batch in together(one, [first, delta])] == [1, 1]
    twin.apply(first)
    twin.apply(delta)
    assert bits(one) == bits(twin)


def test_what_is_not_of_one_batch_is_not_applied_as_one():
    one, batch = fresh(), Batch()
    one.apply(node("a", 1.0, label="x"))
    before = one.status()
    with pytest.raises(DataError, match="cannot be applied together with those before it"):
        one.apply_batch([Delta(late=(("a", "y"),)), Delta(late=(("a", "z"),))])
    assert one.status() == before
    batch.add(fresh().check(node("a", 1.0)))  # first nodes of two widths are not joined
    assert not batch.takes(fresh().check(node("b", 1.0, 2.0), batch.ahead))
    assert batch.takes(fresh().check(node("b", 1.0), batch.ahead))


def test_a_batch_is_full():
    one, batch = fresh(), Batch()
    for number in range(MOST_DELTAS):
        assert not batch.full
        batch.add(one.check(node(f"{number}", 1.0), batch.ahead))
    assert batch.full
    large = Delta(nodes=tuple(range(4000)), features=torch.ones(4000, 1))
    batch = Batch()
    batch.add(one.check(large))
    edges = tuple((place, place + 1) for place in range(100))
    assert not batch.takes(one.check(Delta(edges=edges), batch.ahead))
    assert batch.takes(one.check(Delta(edges=edges[:96]), batch.ahead))


@pytest.mark.usefixtures("patient")
@settings(max_examples=6)
@given(history=histories(), cuts=st.lists(st.integers(1, 3), min_size=6, max_size=6))
def test_any_split_gives_the_same_graph_embeddings_and_counts(history, cuts):
    """One by one, or in pieces of any size, each taken in as few batches as it can be."""
    one, other, again = (fresh(undirected=history.undirected, patience=9) for _ in range(3))
    for delta in history.deltas:
        one.apply(delta)
    left = list(history.deltas)
    for size in cuts:
        piece, left = left[:size], left[size:]
        for batch in together(other, piece):
            # The same batches, not checked: what a recovery does.
            again.apply_batch([Delta(**{n: getattr(d, n) for n in PARTS}) for d in batch])
    assert not left
    (mine, edges), (theirs, others) = _graph(one), _graph(other)
    assert mine == theirs
    assert edges.equal(others)
    assert bits(other) == bits(again)
    assert other.history() == again.history()
    assert _counts(one) == _counts(other)
    names = one.every_id()
    assert names == other.every_id()
    assert torch.allclose(one.embed(names), other.embed(names), atol=1e-5, rtol=0)


def _graph(learner: OnlineLearner) -> tuple[list[list[int]], torch.Tensor]:
    """Return whom every node gathers from, and with what weights: 1 where none were given."""
    graph = learner._knowledge.graph
    nodes = torch.arange(graph.num_nodes)
    indptr, near = graph.rows(nodes)
    weights = graph.weights(nodes) if graph.weighted else torch.ones(len(near)).numpy()
    return [indptr.tolist(), near.tolist()], torch.from_numpy(weights)


def _counts(learner: OnlineLearner) -> dict[object, int]:
    """Return how many nodes each class has."""
    return dict(zip(learner.classes, learner.knowledge.labels.counts_.tolist(), strict=False))
