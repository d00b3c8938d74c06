"""The state machine: what a delta does, what it may not be, and that nothing else matters."""

from __future__ import annotations

import dataclasses
import json
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    DuplicateNodeError,
    LooseEdgeError,
    NothingLearnedError,
    UnknownNodeError,
)
from evergraph.core.seeding import seeded
from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead, ReplayHead
from evergraph.online.learner import OnlineLearner
from evergraph.topology import SGC, Reservoir

X = torch.eye(4)


def learner(**parameters) -> OnlineLearner:
    return OnlineLearner(head=AnalyticHead(width=48), **parameters)


def first() -> Delta:
    """Two pairs: a - b of class x, c - d, of which c is y and d has no label."""
    return Delta(
        nodes=("a", "b", "c", "d"),
        features=X,
        labels=("x", "x", "y", None),
        edges=(("a", "b"), ("c", "d")),
    )


def started() -> OnlineLearner:
    one = learner()
    one.apply(first())
    return one


def test_what_a_delta_does():
    one = learner()
    done = one.apply(first())
    assert dataclasses.asdict(done) == {
        "seq": 1, "new_nodes": 4, "classes": 2, "recomputed": 4, "predicted": 0, "right": 0,
    }  # fmt: skip
    status = one.status()
    assert (status.seq, status.nodes, status.edges, status.labelled) == (1, 4, 4, 3)
    assert (status.classes, status.features, status.exact_forgetting) == (2, 4, True)
    assert one.predict(["a", "b", "c", "d"]) == ["x", "x", "y", "y"]
    classes, matrix = one.predict_proba(["d"])
    assert classes == ("x", "y")
    assert float(matrix.sum()) == pytest.approx(1.0)


def test_embeddings_are_those_of_the_graph():
    half = 0.5**0.5
    embeddings = started().embed(["a", "d"])
    torch.testing.assert_close(embeddings, torch.tensor([[half, half, 0, 0], [0, 0, half, half]]))


def test_predict_then_learn():
    one = started()
    done = one.apply(
        Delta(
            nodes=("e", "f", "g"),
            features=torch.stack([X[0], X[2], X[3]]),
            labels=("x", "y", "z"),
            edges=(("e", "a"), ("f", "c")),
        )
    )
    assert (done.predicted, done.right, done.classes) == (3, 2, 3)  # z was not to be known
    assert one.status().accuracy == pytest.approx(2 / 3)
    history = one.history()
    assert history["curve"] == [{"seq": 2, "nodes": 7, "classes": 3, "asked": 3, "right": 2}]
    assert history["newest"] == ["x", "y", "z"]
    assert [sum(row) for row in history["confusion"]] == [1, 1, 1]
    assert history["confusion"][2][2] == 0


def test_a_late_label_is_predicted_first_and_a_changed_one_is_not():
    one = started()
    done = one.apply(Delta(late=(("d", "y"),)))
    assert (done.predicted, done.right) == (1, 1)
    done = one.apply(Delta(late=(("d", "x"), ("a", "x"))))
    assert done.predicted == 0
    assert one.status().labelled == 4


def test_a_changed_label_is_learned_as_if_it_had_been_the_first():
    one, other = started(), learner()
    one.apply(Delta(late=(("b", "y"),)))
    other.apply(dataclasses.replace(first(), labels=("x", "y", "y", None)))
    same(one, other)


def test_a_label_told_again_changes_nothing():
    one = started()
    before = one.predict_proba(["d"])[1]
    one.apply(Delta(late=(("b", "x"),)))
    assert one.predict_proba(["d"])[1].equal(before)


def same(one: OnlineLearner, other: OnlineLearner, ids=("a", "b", "c", "d")) -> None:
    torch.testing.assert_close(one.predict_proba(ids)[1], other.predict_proba(ids)[1])


def test_forgotten_nodes_were_never_there():
    one, other = started(), started()
    one.apply(
        Delta(
            nodes=("hub", 7),
            features=torch.ones(2, 4),
            labels=("y", None),
            edges=(("hub", "a"), ("hub", "c"), (7, "b")),
        )
    )
    assert one.embed(["a"]).ne(other.embed(["a"])).any()
    one.apply(Delta(forgotten=("hub", 7)))
    same(one, other)
    assert one.embed(["a", "b", "c", "d"]).equal(other.embed(["a", "b", "c", "d"]))
    with pytest.raises(UnknownNodeError, match="node 'hub' is not in the graph"):
        one.predict(["hub"])
    one.apply(Delta(nodes=("hub",), features=X[:1]))  # its id is free
    assert one.status().nodes == 5


def test_a_class_whose_nodes_are_all_forgotten_is_predicted_no_more():
    one = started()
    one.apply(Delta(forgotten=("c",)))
    assert one.classes == ("x", "y")
    assert one.predict_proba(["d"])[1].tolist() == [[1.0, 0.0]]
    one.apply(Delta(forgotten=("a", "b")))
    with pytest.raises(NothingLearnedError, match="no class is known yet"):
        one.predict(["d"])
    one.apply(Delta(late=(("d", "z"),)))
    assert one.predict(["d"]) == ["z"]


@st.composite
def histories(draw: st.DrawFn) -> list[Delta]:
    """Deltas that can be applied one after the other."""
    alive: list[str] = []
    deltas = []
    for step in range(draw(st.integers(1, 5))):
        old = list(alive)
        new = [f"{step}.{i}" for i in range(draw(st.integers(0 if old else 1, 3)))]
        alive += new
        pairs = st.tuples(st.sampled_from(alive), st.sampled_from(alive))
        labels = st.sampled_from(["x", "y", 3, None])
        features = torch.randn(len(new), 3, generator=seeded(step, "features"))
        some = st.lists(st.sampled_from(old), unique=True, max_size=2) if old else st.just([])
        gone = draw(some)
        deltas.append(
            Delta(
                nodes=new,
                features=features,
                labels=[draw(labels) for _ in new],
                edges=draw(st.lists(pairs, max_size=4)),
                late=[(node, draw(st.sampled_from(["x", "z"]))) for node in draw(some)],
                forgotten=gone,
            )
        )
        alive = [node for node in alive if node not in gone]
    return deltas


@settings(max_examples=30, deadline=None)
@given(histories(), st.data())
def test_the_same_deltas_give_the_same_bits(deltas, data):
    """Whatever was asked, saved, restored and shared in between."""
    one, twin = learner(), learner()
    for delta in deltas:
        assert dataclasses.asdict(one.apply(delta)) == dataclasses.asdict(twin.apply(delta))
        if data.draw(st.booleans()):
            state, about = twin.state(), json.loads(json.dumps(twin.about()))
            twin = OnlineLearner.from_parameters(json.loads(json.dumps(twin.parameters)))
            twin.restore({key: value.clone() for key, value in state.items()}, about)
        if data.draw(st.booleans()):
            twin.frozen().status  # noqa: B018
    mine, theirs = one.state(), twin.state()
    assert mine.keys() == theirs.keys()
    assert all(mine[key].equal(theirs[key]) for key in mine)
    assert one.history() == twin.history()
    assert one.status() == twin.status()
    assert one.about() == twin.about()


@settings(max_examples=30, deadline=None)
@given(histories())
def test_what_is_left_decides(deltas):
    """After any history, predictions are those of a learner given the end of it at once."""
    one = learner()
    labels: dict[str, object] = {}
    edges: list[tuple[str, str]] = []
    rows: dict[str, torch.Tensor] = {}
    for delta in deltas:
        one.apply(delta)
        rows |= dict(zip(delta.nodes, delta.features, strict=True))
        labels |= dict(zip(delta.nodes, delta.labels, strict=True)) | dict(delta.late)
        edges += delta.edges
        for node in delta.forgotten:
            del rows[node], labels[node]
        edges = [edge for edge in edges if all(end in rows for end in edge)]
    if not any(label is not None for label in labels.values()):
        return
    plain = learner()
    plain.apply(
        Delta(
            nodes=list(rows),
            features=torch.stack(list(rows.values())),
            labels=[labels[node] for node in rows],
            edges=edges,
        )
    )
    (names, scores), (plain_names, plain_scores) = (
        each.predict_proba(list(rows)) for each in (one, plain)
    )
    order = [names.index(name) for name in plain_names]
    torch.testing.assert_close(scores[:, order], plain_scores, atol=1e-4, rtol=0)


E_ = torch.ones(1, 4)
WRONG = [
    (Delta(nodes=("a",), features=E_), DuplicateNodeError, "'a' is in the graph already"),
    (Delta(nodes=("e", "e"), features=E_.expand(2, 4)), DuplicateNodeError, "'e' comes twice"),
    (Delta(nodes=("e",), features=torch.ones(1, 5)), DataError, "5 columns, but those .* have 4"),
    (Delta(nodes=("e",), features=torch.ones(2, 4)), DataError, r"shape \(2, 4\): expected \[1, "),
    (Delta(features=E_), DataError, "1 rows, but there are 0 new nodes"),
    (Delta(nodes=("e",), features=E_ * torch.nan), DataError, "row 0, column 0 holds nan"),
    (Delta(nodes=("e",), features=E_ * 1e30), DataError, "at most 1e.12"),
    (Delta(nodes=("e",), features=E_.double()), DataError, "hold torch.float64"),
    (Delta(nodes=(1.5,), features=E_), DataError, "text or an integer, not 1.5"),
    (Delta(nodes=("e",), features=E_, labels=("x", "y")), DataError, "not 2 for 1 nodes"),
    (Delta(nodes=("e",), features=E_, labels=(1.5,)), DataError, "label must be .* not 1.5"),
    (
        Delta(nodes=("e",), features=E_, edges=(("e", "nobody"),)),
        LooseEdgeError,
        "edge 0 joins 'e' and 'nobody', but node 'nobody' is not in the graph",
    ),
    (Delta(edges=(("a", "b", "c"),)), DataError, "edge 0 must join two nodes"),
    (Delta(edges=(("a", True),)), DataError, "not True"),
    (Delta(late=(("nobody", "x"),)), UnknownNodeError, "late labels names node 'nobody'"),
    (Delta(late=(("a", "x"), ("a", "y"))), DuplicateNodeError, "'a' comes twice"),
    (Delta(late=(("a", None),)), DataError, "label must be text or an integer, not None"),
    (Delta(forgotten=("nobody",)), UnknownNodeError, "forgotten names node 'nobody'"),
    (Delta(forgotten=("a", "a")), DuplicateNodeError, "'a' comes twice"),
    (Delta(forgotten=("a",), key=3), DataError, "key must be text, not 3"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("delta", "kind", "message"), WRONG)
def test_what_is_refused_changes_nothing(delta, kind, message):
    one = started()
    before = {key: value.clone() for key, value in one.state().items()}
    status = one.status()
    for call in (one.check, one.apply):
        with pytest.raises(kind, match=message):
            call(delta)
    after = one.state()
    assert all(after[key].equal(before[key]) for key in before)
    assert one.status() == status


def test_asking_before_there_is_an_answer():
    one = learner()
    with pytest.raises(UnknownNodeError):
        one.predict(["a"])
    one.apply(Delta())
    assert one.status().seq == 1
    one.apply(Delta(nodes=("a",), features=X[:1]))
    with pytest.raises(NothingLearnedError):
        one.predict(["a"])
    assert one.embed(["a"]).equal(X[:1])


def test_an_explanation_adds_up():
    one = started()
    one.apply(Delta(nodes=("e",), features=X[:1], labels=("z",), edges=(("e", "a"), ("e", "c"))))
    told = one.explain("a", top=3)
    assert told.label == "x"
    assert told.classes[0] == one.predict(["a"])[0]
    assert told.voices is not None
    assert {voice.node for voice in told.voices} == {"a", "b", "c", "e"}  # d is three hops away
    for place, score in enumerate(told.scores):
        total = sum(voice.says[place] for voice in told.voices)
        assert total == pytest.approx(score, abs=1e-4)
        assert told.others[place] == 0
        assert told.rest[place] == pytest.approx(0, abs=1e-4)
    short = one.explain("a", top=1, limit=1)
    assert short.voices is not None
    assert len(short.voices) == 1
    assert short.voices[0].says[0] + short.others[0] == pytest.approx(short.scores[0], abs=1e-4)


def test_an_f_topo_that_is_not_linear_has_no_voices():
    one = learner(topology=Reservoir())
    one.apply(first())
    told = one.explain("a")
    assert told.voices is None
    assert sum(told.probabilities) == pytest.approx(1.0)


def test_a_neighbourhood_has_the_users_names():
    near = started().neighbourhood("d")
    assert near.nodes == ("d", "c")
    assert near.labels == (None, "y")
    assert near.edges in (((0, 1),), ((1, 0),))
    assert near.whole


def test_a_shared_view_sees_whole_deltas_only():
    """Readers ask while nodes come and go in pairs: they see both or none, never a torn answer."""
    one = learner()
    view = one.frozen()
    one.apply(first())
    torn: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            try:
                pair = view.predict_proba(["left", "right"])[1]
            except UnknownNodeError:
                continue
            if not pair[0].equal(pair[1]):  # twins: same features, same neighbours
                torn.append(pair)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(15):
        one.apply(
            Delta(
                nodes=("left", "right"),
                features=torch.ones(2, 4),
                labels=("x", "x"),
                edges=(("left", "a"), ("right", "a")),
            )
        )
        one.apply(Delta(nodes=(), edges=(("left", "c"), ("right", "c"))))
        one.apply(Delta(forgotten=("left", "right")))
    done.set()
    for thread in threads:
        thread.join()
    assert not torn
    assert view.embed(["a", "d"]).equal(one.embed(["a", "d"]))


def test_a_view_shared_before_or_after_shows_the_same():
    early, late = learner(), learner()
    view = early.frozen()
    deltas = [first(), Delta(edges=(("a", "c"),)), Delta(forgotten=("b",))]
    for delta in deltas:
        early.apply(delta)
        late.apply(delta)
    assert view.predict_proba(["a", "d"])[1].equal(late.frozen().predict_proba(["a", "d"])[1])


def test_directed_edges_flow_one_way():
    one = learner(undirected=False)
    one.apply(dataclasses.replace(first(), edges=(("a", "b"),)))
    assert one.embed(["a"]).equal(X[:1])
    assert one.embed(["b"]).ne(X[1:2]).any()


def test_parameters_make_the_same_learner():
    one = OnlineLearner(topology=SGC(hops=3), head=ReplayHead(budget=7), scaling="none", seed=5)
    twin = OnlineLearner.from_parameters(json.loads(json.dumps(one.parameters)))
    assert twin.parameters == one.parameters
    assert (twin.topology.hops, twin.head.budget, twin.seed) == (3, 7, 5)  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match="scaling"):
        OnlineLearner(scaling="length")  # type: ignore[arg-type]


def test_memory_counts_graph_embeddings_and_head() -> None:
    learner = OnlineLearner(head=AnalyticHead(width=16))
    learner.apply(Delta(nodes=(1, 2), features=torch.ones(2, 8), labels=("a", "b")))
    before = learner.status().memory
    learner.apply(Delta(nodes=(3,), features=torch.ones(1, 8), labels=(None,), edges=((1, 3),)))
    # features, one hop, the embedding; alive; three numbers for its list; an entry each way
    assert learner.status().memory - before == 3 * 8 * 4 + 1 + 3 * 8 + 2 * 4
