"""What is new of a delta, by hand, and dumps that are given again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import torch

from evergraph.core.errors import ConfigurationError, DataError, LooseEdgeError, UnknownNodeError
from evergraph.online.checking import CheckedDelta, check_delta
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.upsert import News

FIRST = Delta(
    nodes=("a", "b", "c"),
    features=torch.eye(3),
    labels=("x", None, "y"),
    edges=(("a", "b"), ("b", "c")),
)


def small(*, undirected: bool = True) -> OnlineLearner:
    return OnlineLearner(head=AnalyticHead(width=32), undirected=undirected)


@pytest.fixture
def learner() -> OnlineLearner:
    learner = small()
    learner.apply(FIRST)
    return learner


def test_all_is_new_the_first_time_and_nothing_the_second(learner: OnlineLearner) -> None:
    delta, news = small().only_new(FIRST)
    assert (delta.nodes, delta.edges) == (["a", "b", "c"], [("a", "b"), ("b", "c")])
    assert news == News(new_nodes=3, new_edges=2, new_labels=2)
    delta, news = learner.only_new(FIRST)
    assert (repr(delta), news) == ("Delta()", News(known_nodes=3, known_edges=2))
    # A label that is missing takes none away.
    delta, news = learner.only_new(Delta(nodes=("a",), features=torch.eye(3)[:1], labels=(None,)))
    assert (delta.late, news) == ([], News(known_nodes=1))


def test_only_what_is_new_is_left(learner: OnlineLearner) -> None:
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


def test_the_other_way_is_another_edge_where_edges_run_one_way() -> None:
    learner = small(undirected=False)
    learner.apply(FIRST)
    delta, news = learner.only_new(Delta(edges=(("b", "a"), ("a", "b"))))
    assert (delta.edges, news.known_edges) == ([("b", "a")], 1)


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
        (Delta(edges=(("a",),)), DataError),  # type: ignore[arg-type]
        (Delta(late=(("c", 1.0),)), DataError),  # type: ignore[list-item]
        (Delta(late=(("a", ["x"]),)), DataError),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_is_refused_all_the_same(
    tmp_path: Path, delta: Delta, error: type[Exception]
) -> None:
    with LearnerFolder.open(tmp_path / "l", make=small) as folder:
        folder.upsert(FIRST)
        with pytest.raises(error):
            folder.upsert(delta)
        assert folder.seq == 1


def test_nothing_new_is_no_delta(tmp_path: Path) -> None:
    with LearnerFolder.open(tmp_path / "l", make=small) as folder:
        assert folder.upsert(FIRST).applied.new_nodes == 3
        again = folder.upsert(FIRST)
        assert (again.applied.seq, again.applied.classes, folder.seq) == (1, 2, 1)
        with pytest.raises(ConfigurationError, match="takes no key"):
            folder.upsert(Delta(edges=(("a", "c"),), key="k"))
        folder.submit(Delta(forgotten=("a",)))
        back = folder.upsert(FIRST)  # what was forgotten is new again
        assert (back.news.new_nodes, back.news.new_edges) == (1, 1)


def test_known_edges_are_found_all_at_once(learner: OnlineLearner) -> None:
    learner.apply(Delta(nodes=(7,), features=torch.ones(1, 3), edges=(("a", 7),)))
    learner.apply(Delta(forgotten=("b",)))
    learner.apply(Delta(edges=(("c", "a"),)))
    source, target = pa.array(["a", "a", "c", "x", "b"]), pa.array(["c", "b", "c", "y", "c"])
    assert learner.knows_edges(source, target).tolist() == [True, False, False, False, False]
    numbers = pa.array([7, 8])
    assert learner.knows_edges(numbers, numbers).tolist() == [False, False]
    assert small().knows_edges(source, target).tolist() == [False] * 5


def test_a_folder_looks_at_a_delta_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []

    def check(delta: Delta, *arguments: object, **options: object) -> CheckedDelta:
        looked.append(len(delta.nodes))
        return check_delta(delta, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("evergraph.online.learner.check_delta", check)
    with LearnerFolder.open(tmp_path / "f", make=small) as folder:
        folder.submit(FIRST)
    assert looked == [3]
