"""Scores of a handful of nodes by numpy are those of the scorer."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.closed_form.view_map import RandomMap
from evergraph.closed_form.views import CODES, View
from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead, FusedHead
from evergraph.online.heads.fused_scorer import FusedScorer
from evergraph.online.learner import OnlineLearner


def test_by_hand():
    """m = 1: views 0 and 0+y of x = [2 | 1], R = 1 and -1: φ = √2·2 and √(2/3)·max(0, 2 - 1)."""
    views = View((0,)), View((0,), codes=True)
    features = RandomMap(views, {0: torch.tensor([[1.0]]), CODES: torch.tensor([[-1.0]])})
    weights = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 3.0]])
    scorer = FusedScorer(features, weights)
    told = scorer.few(np.zeros(1), np.array([[2.0, 1.0]], np.float32))
    assert told == pytest.approx(np.array([[2 * 2**0.5, 3 * (2 / 3) ** 0.5]]), rel=1e-6)
    without = scorer.few(np.zeros(1), np.array([[2.0]], np.float32))  # no label is nearby
    assert without == pytest.approx(np.array([[2 * 2**0.5, 6 * (2 / 3) ** 0.5]]), rel=1e-6)


HEADS = {"auto": FusedHead, "random": partial(FusedHead, basis="random"), "analytic": AnalyticHead}


@pytest.mark.parametrize("name", HEADS)
@given(seed=st.integers(0, 1000))
@settings(max_examples=3)
def test_few_are_told_as_many_are(name, seed):
    learner = OnlineLearner(head=HEADS[name](width=16))
    generator = torch.Generator().manual_seed(seed)
    nodes = tuple(range(100))
    learner.apply(
        Delta(
            nodes=nodes,
            features=torch.randn(100, 3, generator=generator),
            labels=tuple("xyz"[n % 3] if n % 2 else None for n in nodes),
            edges=tuple((n, n // 2) for n in nodes[1:]),
        )
    )
    learner.apply(
        Delta(forgotten=tuple(n for n in nodes if n % 3 == 2 and n % 2))
    )  # no "z" is left
    ids = [n for n in nodes if not (n % 3 == 2 and n % 2)]
    classes, many = learner.predict_proba(ids)
    assert classes == ("y", "x", "z")
    for start in range(0, len(ids), 20):
        few = learner.predict_proba(ids[start : start + 20])[1]
        assert torch.allclose(few, many[start : start + 20], atol=1e-5)
    assert float(many[:, 2].max()) == 0.0
