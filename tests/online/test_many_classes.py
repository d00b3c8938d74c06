"""As many classes as nodes: nothing that is computed may have a value for each of both at once."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from evergraph.closed_form import fusing
from evergraph.closed_form.fusing import fused_weights
from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead, FusedHead, OnlineHead, TargetHead
from evergraph.online.heads import base as heads_base
from evergraph.online.learner import OnlineLearner

MANY = 500
WIDTH = 8


class Largest(TorchDispatchMode):
    """Notes how many values the largest tensor has that any operation returns."""

    values = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)]
        self.values = max([self.values, *sizes])
        return found


def nodes(name: str, labels: list[Any]) -> Delta:
    generator = torch.Generator().manual_seed(len(name))
    features = torch.randn(len(labels), 4, generator=generator)
    return Delta(nodes=[f"{name}{k}" for k in range(len(labels))], features=features, labels=labels)


@pytest.mark.parametrize(
    "head", [FusedHead(width=WIDTH, codes=4), AnalyticHead(width=WIDTH), TargetHead(width=WIDTH)]
)
def test_applying_holds_no_value_for_each_node_and_class(head: OnlineHead, monkeypatch):
    monkeypatch.setattr(heads_base, "BLOCK_VALUES", 1 << 14, raising=False)
    several = head.kind == "labels"
    learner = OnlineLearner(head=head)
    learner.apply(nodes("first", [["a"], ["b"]] if several else ["a", "b"]))
    many = [[k] if several else k for k in range(MANY)]
    with Largest() as largest:
        learner.apply(nodes("new", many))  # to be guessed among classes just met
        learner.apply(nodes("again", many))  # to be guessed among classes known
    assert largest.values < MANY * 200
    assert learner.status().predicted >= 2 * MANY


TOLD: dict[Any, tuple[list[Any], list[Any]]] = {
    "class": (list("abcd") * 4, list("abcd") * 4),
    "labels": ([["a"], ["a", "b"], [], ["c"]] * 4, [["b"], ["d", "a"], ["a"], []] * 4),
    "numbers": ([1.5, 2.0, -1.0, 0.0] * 4, [2.5, 1.0, 0.5, 3.0] * 4),
}


@pytest.mark.parametrize("kind", TOLD)
def test_guesses_in_pieces_are_those_of_all_at_once(kind, monkeypatch):
    found = []
    for block in (1 << 20, 5):
        monkeypatch.setattr(heads_base, "BLOCK_VALUES", block)
        learner = OnlineLearner(
            head=FusedHead(width=64) if kind == "class" else TargetHead(kind=kind, width=64)
        )
        for name, told in zip(("first", "then"), TOLD[kind], strict=True):
            learner.apply(nodes(name, told))
        found.append(learner.history()["curve"][0])
    assert found[0]["asked"] == found[1]["asked"] > 0
    assert found[0]["right"] == pytest.approx(found[1]["right"])
    assert found[0]["right"] > 0


def test_weights_of_views_fitted_in_pieces_are_those_of_all_at_once(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(40, 5, 3, generator=generator)
    labels = torch.randint(5, (40,), generator=generator)
    allowed = torch.tensor([[True, True, True, True, True]])
    whole = fused_weights(scores, labels, allowed=allowed)
    monkeypatch.setattr(fusing, "BLOCK_VALUES", 50)
    assert torch.allclose(fused_weights(scores, labels, allowed=allowed.expand(40, -1)), whole)


def test_what_is_weighed_shrinks_as_classes_come(monkeypatch):
    monkeypatch.setattr("evergraph.online.heads.fused.WEIGHED", 300)
    learner = OnlineLearner(head=FusedHead(width=WIDTH, codes=4))
    learner.apply(nodes("first", [k % 20 for k in range(640)]))
    assert len(learner.head._held[1]) == 300 // (20 * 3)  # type: ignore[attr-defined]
