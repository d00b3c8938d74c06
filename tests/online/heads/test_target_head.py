"""Live learners of several labels or of numbers."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.online.delta import Delta
from evergraph.online.folder.checkup import differing
from evergraph.online.heads import FusedHead, TargetHead
from evergraph.online.learner import OnlineLearner

FEATURES = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
TOLD: dict[str, list[Any]] = {
    "labels": [
        tuple(n for n, v in zip("abc", row, strict=True) if v > 0) for row in FEATURES.tolist()
    ],
    "numbers": [10 + 3 * value for value in FEATURES[:, 0].tolist()],
}
KINDS = ["labels", "numbers"]
EDGES = [(0, 1), (1, 2), (3, 7), (7, 11), (4, 5)]


def learner(kind: str) -> OnlineLearner:
    head = TargetHead(kind=kind, width=8)
    return OnlineLearner(head=head)


def delta(kind: str, nodes: list[int], *, edges: bool = True, told: bool = True) -> Delta:
    return Delta(
        nodes=tuple(nodes),
        features=FEATURES[nodes],
        labels=tuple(TOLD[kind][n] if told else None for n in nodes),
        edges=tuple(e for e in EDGES if edges and {*e} <= {*nodes}),
    )


def values(made: OnlineLearner, nodes: list[int]) -> dict[Any, list[float]]:
    """Return what is predicted of each node, labels by name."""
    names, found = made.predict_proba(nodes)
    order = sorted(range(len(names)), key=lambda place: str(names[place])) or [0]
    return dict(zip(nodes, found[:, order].tolist(), strict=True))


def test_it_is_a_ridge_with_an_intercept_on_every_view():
    """As least squares with rows √λ L for the penalty, LLᵀ = P, by numpy; left out one by one."""
    made = OnlineLearner(head=TargetHead(kind="numbers", width=8, regularisation=0.1))
    made.apply(delta("numbers", list(range(12))))
    engine, told = made.head.engine, np.array(TOLD["numbers"])
    shares, offsets = engine.fused_
    expected = np.full(12, float(offsets[0]))
    vectors = made._knowledge.of(torch.arange(12))
    for view, share, phi in zip(made.head.parsed, shares, engine.map(vectors), strict=True):
        phi, penalty = phi.double().numpy(), engine.penalty(view).double().numpy()
        strength = 0.1 * 12 * penalty.diagonal().mean() / 8
        factor = strength**0.5 * np.linalg.cholesky(penalty).T
        rows = np.vstack([phi - phi.mean(0), factor])
        right = np.append(told - told.mean(), np.zeros(8))
        expected += float(share) * phi @ np.linalg.lstsq(rows, right)[0]
    assert np.allclose(made.predict(range(12)), expected, rtol=1e-4)
    assert np.corrcoef(expected, told)[0, 1] > 0.5
    assert not [*differing(made)]


@pytest.mark.parametrize("kind", KINDS)
def test_relations_are_used_and_what_is_kept_is_recounted(kind):
    made = learner(kind)
    first = delta(kind, list(range(12)))
    relations = ["cites", "wrote", "cites", "wrote", "cites"][: len(first.edges)]
    made.apply(dataclasses.replace(first, relations=relations))
    made.apply(Delta(forgotten=(3,), removed_edges=[(0, 1)]))
    assert made.status().relations
    assert not [*differing(made)]
    made._knowledge.shape._rows.array[5] += 1.0
    assert "shape.rows" in differing(made)


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_that_have_moved_are_counted_where_they_are(kind):
    """The sums are those of a learner that was given all edges at once."""
    heads = [TargetHead(kind=kind, width=8, basis="random") for _ in range(2)]
    made, whole = (OnlineLearner(head=head, tolerance=0.0) for head in heads)
    first = delta(kind, list(range(12)))
    made.apply(first)
    made.apply(Delta(edges=[(0, 6), (2, 9)]))
    whole.apply(dataclasses.replace(first, edges=[*first.edges, (0, 6), (2, 9)]))
    assert not [*differing(made)]
    for sums, others in zip(made.head.engine.sums_, whole.head.engine.sums_, strict=True):
        for target in range(sums.targets):
            found, expected = sums.moments([target]), others.moments([target])
            torch.testing.assert_close(found.gram.tril(), expected.gram.tril())
            torch.testing.assert_close(found.cross, expected.cross)
            assert found.count == expected.count


def test_all_labels_are_there_in_a_learner_that_is_opened_packed_and_opened_again():
    made, told = learner("labels"), (("a", "b", "c"), ("a",)) * 6  # more labels than sets of them
    made.apply(Delta(nodes=range(12), features=FEATURES, labels=told))
    for gone in (3, 4):
        made.apply(Delta(forgotten=(gone,)))
        packed, before = made.packed(), values(made, [0, 1, 2, 5])
        made = learner("labels")
        made.restore(packed.arrays, packed.about)
        assert values(made, [0, 1, 2, 5]) == before
        assert int(made.head.landmarks.counts.sum()) == made.status().labelled


@pytest.mark.parametrize("kind", KINDS)
def test_the_record_is_of_micro_f1_or_of_the_absolute_error(kind):
    made = learner(kind)
    made.apply(delta(kind, [0, 1, 2, 3, 4, 5]))
    made.apply(delta(kind, [6, 7, 8], told=False, edges=False))
    pairs = [*zip(made.predict([6, 7, 8]), TOLD[kind][6:9], strict=True)]
    made.apply(Delta(late=[(n, TOLD[kind][n]) for n in (6, 7, 8)]))
    status = made.status()
    if kind == "numbers":
        assert status.metric == "mean absolute error"
        assert status.accuracy == pytest.approx(sum(abs(g - r) for g, r in pairs) / 3, rel=1e-4)
    else:
        assert status.metric == "micro F1"
        hits = sum(2 * len({*g} & {*r}) for g, r in pairs)
        assert status.accuracy == pytest.approx(hits / sum(len(g) + len(r) for g, r in pairs))


@pytest.mark.parametrize(
    ("kind", "label", "said"),
    [
        ("labels", "a", "labels of a node must be a list, not 'a'"),
        ("labels", (1.5,), "label must be text or an integer, not 1.5"),
        ("numbers", "a", "a target must be a finite number, not 'a'"),
        ("numbers", float("inf"), "must be a finite number, not inf"),
        ("class", ("a",), "label must be text or an integer"),
        ("class", 0.5, "label must be text or an integer, not 0.5"),
    ],
)
def test_what_a_learner_does_not_learn_is_refused(kind, label, said):
    made = OnlineLearner(head=FusedHead(width=8)) if kind == "class" else learner(kind)
    with pytest.raises(DataError, match=said):
        made.apply(Delta(nodes=("u",), features=torch.ones(1, 2), labels=(label,)))
    assert made.status().nodes == 0


def test_what_a_learner_is_for_is_fixed_when_it_is_made():
    assert OnlineLearner(targets="numbers").head.kind == "numbers"
    assert OnlineLearner(targets="class").head.name == "auto"
    with pytest.raises(ConfigurationError, match="targets must be 'class' with head 'auto'"):
        OnlineLearner(targets="labels", head=FusedHead(width=8))
