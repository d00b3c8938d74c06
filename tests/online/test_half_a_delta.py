"""What a reader sees while a delta is at work."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner

PAIR = Delta(nodes=("a", "b"), features=torch.eye(2), labels=("x", "y"), edges=(("a", "b"),))
THIRD = Delta(nodes=("c",), features=torch.tensor([[5.0, 0.0]]), edges=(("c", "a"),))


@pytest.mark.parametrize("shared_first", [True, False])
def test_embeddings_and_numbers_are_those_of_the_last_whole_delta(
    shared_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = OnlineLearner(head=AnalyticHead(width=16))
    if shared_first:
        one.frozen()
    one.apply(PAIR)
    view = one.frozen()
    before, probabilities = view.embed(["a"]), view.predict_proba(["a"])[1]
    meanwhile: list[tuple[Tensor, Tensor, int]] = []
    settle = one.head.settle

    def look_and_settle() -> None:  # the graph and its embeddings have changed by now
        meanwhile.append((view.embed(["a"]), view.predict_proba(["a"])[1], view.status().nodes))
        settle()

    monkeypatch.setattr(one.head, "settle", look_and_settle)
    one.apply(THIRD)
    seen, predicted, nodes = meanwhile[0]
    assert seen.equal(before)
    assert predicted.equal(probabilities)
    assert nodes == 2
    assert not view.embed(["a"]).equal(before)
    assert view.embed(["a"]).equal(one.embed(["a"]))
    assert view.status().nodes == 3
