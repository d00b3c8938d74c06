"""The state machine: what a delta does, what it may not be, and that nothing else matters."""

import dataclasses
import json

import pytest
import torch

from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    DuplicateNodeError,
    LooseEdgeError,
    NothingLearnedError,
    UnknownEdgeError,
    UnknownNodeError,
)
from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner
from evergraph.topology import SGC, Identity
from growth import bits
from small_learner import X, first, learner, started


def test_what_a_delta_does():
    one = learner()
    done = one.apply(first())
    assert dataclasses.asdict(done) == {
        "seq": 1,
        "new_nodes": 4,
        "classes": 2,
        "recomputed": 4,
        "predicted": 0,
        "right": 0,
        "counted": 3,
    }
    status = one.status()
    assert (status.seq, status.nodes, status.edges, status.labelled) == (1, 4, 2, 3)
    assert (status.classes, status.features) == (2, 4)
    assert one.predict(["a", "b", "c", "d"]) == ["x", "x", "y", "y"]
    classes, matrix = one.predict_proba(["d"])
    assert classes == ("x", "y")
    assert float(matrix.sum()) == pytest.approx(1.0)


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


def test_a_label_told_again_changes_nothing():
    one = started()
    before = one.predict_proba(["d"])[1]
    one.apply(Delta(late=(("b", "x"),)))
    assert one.predict_proba(["d"])[1].equal(before)


def test_a_class_whose_nodes_are_all_forgotten_is_predicted_no_more():
    one = started()
    one.apply(Delta(forgotten=("c",)))
    assert one.classes == ("x", "y")
    assert one.predict_proba(["d"])[1].tolist() == [[1.0, 0.0]]
    one.apply(Delta(forgotten=("a", "b")))
    with pytest.raises(NothingLearnedError, match="nothing is labelled yet"):
        one.predict(["d"])
    one.apply(Delta(late=(("d", "z"),)))
    assert one.predict(["d"]) == ["z"]


E_ = torch.ones(1, 4)

# Other mistakes in ids, edges and weights: ``test_delta_columns``, word by word.
WRONG = [
    (Delta(nodes=("a",), features=E_), DuplicateNodeError, "'a' is in the graph already"),
    (Delta(nodes=("e",), features=torch.ones(1, 5)), DataError, "5 columns, but those .* have 4"),
    (Delta(nodes=("e",), features=torch.ones(2, 4)), DataError, r"shape \(2, 4\): expected \[1, "),
    (Delta(features=E_), DataError, "1 rows, but there are 0 new nodes"),
    (Delta(nodes=("e",), features=E_ * torch.nan), DataError, "row 0, column 0 holds nan"),
    (Delta(nodes=("e",), features=E_ * 1e30), DataError, "at most 1e.12"),
    (Delta(nodes=("e",), features=E_.double()), DataError, "hold torch.float64"),
    (Delta(nodes=("e",), features=E_, labels=("x", "y")), DataError, "not 2 for 1 nodes"),
    (Delta(nodes=("e",), features=E_, labels=(1.5,)), DataError, "label must be .* not 1.5"),
    (
        Delta(nodes=("e",), features=E_, edges=(("e", "nobody"),)),
        LooseEdgeError,
        "edge 0 joins 'e' and 'nobody', but node 'nobody' is not in the graph",
    ),
    (Delta(edges=(("a", "b", "c"),)), DataError, "edge 0 must join two nodes"),
    (Delta(late=(("nobody", "x"),)), UnknownNodeError, "late labels names node 'nobody'"),
    (
        Delta(late=(("a", "x", "y"),)),
        DataError,
        r"a late label must be a node and its label, not \(",
    ),
    (Delta(late=(("a", None),)), DataError, "label must be text or an integer, not None"),
    (Delta(forgotten=("a",), key=3), DataError, "key must be text, not 3"),
    (Delta(nodes=("",), features=E_), DataError, "id of a node must be a text of 1 to 1024 .* ''"),
    (Delta(late=(("a", "x" * 1025),)), DataError, "label must be .* 'xxx.*'... of 1,025"),
    (Delta(forgotten=("a",), key="k" * 201), DataError, "key must be a text of 1 to 200"),
    (Delta(removed_edges=[("a",)]), DataError, r"removed edge 0 must join two nodes, not"),
    (
        Delta(edges=[("a", "b")], weights=[0], removed_edges=[("b", "a")]),
        UnknownEdgeError,
        "removed edge 0 joins 'b' and 'a'",
    ),
    (Delta(edges=[("a", "c")], weights=[1, 2]), DataError, "not 2 for 1 edges"),
    (Delta(edges=[("a", "c")], weights=[1e-30]), DataError, "edge 0 has weight 1e-30: expected"),
    (Delta(updated=["e"], updated_features=E_), UnknownNodeError, "updated names node 'e'"),
    (Delta(updated=["a"], updated_features=E_[:, 1:]), DataError, "updated_features have 3"),
    (Delta(updated=["a"], updated_features=E_ / 0), DataError, "updated_features must be fin"),
    (Delta(updated=["a"]), DataError, r"updated_features have shape \(0, 0\): expected \[1, d"),
    (Delta(updated_features=E_), DataError, "have 1 rows, but there are 0 updated nodes"),
    (
        Delta(updated=["a", "a"], updated_features=E_.repeat(2, 1)),
        DuplicateNodeError,
        "updated must name every node once",
    ),
]


@pytest.mark.parametrize(("delta", "kind", "message"), WRONG)
def test_what_is_refused_changes_nothing(delta, kind, message):
    one = started()
    before, status = bits(one), one.status()
    for call in (one.check, one.apply):
        with pytest.raises(kind, match=message):
            call(delta)
    assert (bits(one), one.status()) == (before, status)


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


def test_directed_edges_flow_one_way():
    one = learner(undirected=False)
    one.apply(dataclasses.replace(first(), edges=(("a", "b"),)))
    assert (one.status().edges, one.status().undirected) == (1, False)
    assert one.embed(["a"]).equal(X[:1])
    assert one.embed(["b"]).ne(X[1:2]).any()


def test_parameters_make_the_same_learner():
    one = OnlineLearner(topology=SGC(hops=3), head=AnalyticHead(width=7), scaling="none", seed=5)
    twin = OnlineLearner(**json.loads(json.dumps(one.parameters)))
    assert twin.parameters == one.parameters
    assert (twin.topology.hops, twin.head.width, twin.seed) == (3, 7, 5)
    with pytest.raises(ConfigurationError, match="scaling"):
        OnlineLearner(scaling="length")


def test_memory_counts_graph_embeddings_and_head():
    learner = OnlineLearner(head=AnalyticHead(width=16))
    learner.apply(Delta(nodes=(1, 2), features=torch.ones(2, 8), labels=("a", "b")))
    before = learner.status().memory
    learner.apply(Delta(nodes=(3,), features=torch.ones(1, 8), labels=(None,), edges=((1, 3),)))
    # features and two hops; alive; three numbers for its list, and a label;
    # its factor; an entry each way; its place in the order in which nodes are left out
    assert learner.status().memory - before == 3 * 8 * 4 + 1 + 4 * 8 + 4 + 2 * 4 + 8


def test_half_of_g_the_sums_and_the_solution():
    head = AnalyticHead(width=4)
    head.begin(2, topology=Identity(), generator=torch.Generator())
    head.learn(torch.rand(3, 2), torch.tensor([0, 1, 2]))
    head.solve()
    gram, sums, solution = 10 * 8, 3 * 4 * 8, 4 * 3 * 8  # float64
    masses_and_counts = 2 * 3 * 8
    assert head.nbytes == gram + sums + masses_and_counts + solution


def test_a_learner_that_has_seen_nothing_keeps_nothing():
    told = dataclasses.asdict(OnlineLearner().status())
    said = {"relations", "undirected"}
    other = {"accuracy": None, "metric": "accuracy", "better_than_chance": None}
    assert told == dict.fromkeys(told, 0) | dict.fromkeys(said, True) | other
