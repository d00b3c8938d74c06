"""A learner that was refitted equals one that is given the same at once."""

from functools import partial
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead, FusedHead, TargetHead
from evergraph.online.learner import OnlineLearner
from histories import History, Ledger, histories

pytestmark = pytest.mark.usefixtures("patient")
KINDS: list[dict[str, bool]] = [{}, {"related": True}, {"worded": True}]


def learner_of(history: History, head: FusedHead) -> OnlineLearner:
    return OnlineLearner(head=head, undirected=history.undirected, patience=9)


def answers(learner: OnlineLearner, rows: list[str]) -> dict[object, torch.Tensor]:
    names, chances = learner.predict_proba(rows)
    return dict(zip(names, chances.t(), strict=True))


@given(history=st.sampled_from(KINDS).flatmap(lambda kind: histories(**kind)))
def test_a_refitted_learner_equals_one_given_the_same_at_once(history):
    """After any history: nodes, edges, weights and features that came, changed and went."""
    if not any(label is not None for label in history.end.labels.values()):
        return
    one, other = (learner_of(history, FusedHead(width=16)) for _ in range(2))
    for delta in history.deltas:
        one.apply(delta)
    one.apply(Delta(refit=True))
    other.apply(history.end.delta())
    rows = list(history.end.rows)
    found, expected = answers(one, rows), answers(other, rows)
    nothing = torch.zeros(len(rows))  # a class that no node has any more
    for name in found.keys() | expected.keys():
        one_has, other_has = (each.get(name, nothing) for each in (found, expected))
        torch.testing.assert_close(one_has, other_has, atol=1e-5, rtol=0)


def crowd(seed: int, *, kind: str, noise: float) -> tuple[list[Delta], Delta]:
    """Deltas that bring 78 nodes and take 12 of them again, and what is left, in another order."""
    ledger, drawn, deltas = Ledger(undirected=True, related=False, worded=False), Random(seed), []
    generator = torch.Generator().manual_seed(seed)

    def told(place: int) -> object:
        return {"class": place % 3, "numbers": place / 7, "labels": [place % 3, place % 2]}[kind]

    for start in range(0, 78, 26):
        new, old = [f"n{place}" for place in range(start, start + 26)], list(ledger.rows)
        met, some = old + new, drawn.sample(old, min(len(old), 6))
        edges = {ledger.name((node, drawn.choice(met))) for node in new * 3}
        known = [edge for edge in ledger.edges if edge not in edges]
        centres = torch.eye(3, 20)[torch.arange(26) % 3]  # so that classes can be told apart
        deltas.append(
            Delta(
                nodes=new,
                features=centres + noise * torch.randn(26, 20, generator=generator),
                labels=[told(place) if drawn.random() < 0.8 else None for place in range(26)],
                edges=list(edges),
                weights=[drawn.choice([0.3, 1.0, 2.0]) for _ in edges],
                removed_edges=drawn.sample(known, min(len(known), 8)),
                updated=some,
                updated_features=torch.randn(len(some), 20, generator=generator),
                late=[(node, told(drawn.randrange(9))) for node in some],
                forgotten=drawn.sample([node for node in old if node not in some], len(some)),
            )
        )
        ledger.apply(deltas[-1])
    drawn.shuffle(names := list(ledger.rows))
    ledger.rows = {name: ledger.rows[name] for name in names}
    return deltas, ledger.delta()


@pytest.mark.parametrize(
    ("head", "noise"),
    [
        (FusedHead, 0.02),
        (FusedHead, 0.3),
        (partial(FusedHead, objective="plain"), 0.3),
        (partial(FusedHead, width=64), 0.02),
        (partial(AnalyticHead, width=64), 0.02),
        (partial(TargetHead, kind="numbers"), 0.3),
        (partial(TargetHead, kind="labels"), 0.02),
    ],
    ids=["auto", "noisy", "plain", "few landmarks", "analytic", "numbers", "labels"],
)
def test_where_every_node_is_a_landmark_a_refitted_learner_equals_a_fresh_one(head, noise):
    """Little noise shows the last bit of a sum over neighbours, more that of weights of 3,000."""
    deltas, end = crowd(0, kind=head().kind, noise=noise)
    one, other = (OnlineLearner(head=head(), patience=9) for _ in range(2))
    for delta in deltas:
        one.apply(delta)
    one.apply(Delta(refit=True))
    other.apply(end)
    if head().kind == "numbers":
        found, expected = (torch.tensor(each.predict(end.nodes)) for each in (one, other))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        return
    found, expected = answers(one, end.nodes), answers(other, end.nodes)
    for name, chances in expected.items():
        torch.testing.assert_close(found[name], chances, atol=1e-5, rtol=0)
