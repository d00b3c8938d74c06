"""Heads learn, follow and forget; the analytic one as if it had been given the rest at once."""

import pytest
import torch

from evergraph.core.errors import ConfigurationError, UnknownNameError
from evergraph.core.seeding import seeded
from evergraph.methods.analytic import SHARPNESS
from evergraph.online.heads import AnalyticHead, OnlineHead, ReplayHead, heads
from evergraph.online.learner import OnlineLearner
from evergraph.topology import SGC
from small_ridge import ridge

DIMS = 4
CORNERS = torch.eye(DIMS)


def begun(head: OnlineHead) -> OnlineHead:
    head.begin(DIMS, topology=SGC(), generator=seeded(0, "head"))
    return head


def vectors(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, DIMS, generator=seeded(seed, "vectors"))


def analytic(width: int = 32) -> AnalyticHead:
    head = begun(AnalyticHead(width=width))
    return head


def test_analytic_is_the_ridge_of_all_nodes():
    head, x = analytic(), vectors(9)
    labels = torch.tensor([0, 1, 1, 2, 0, 1, 2, 1, 1])
    for rows in (slice(0, 4), slice(4, 9)):
        head.learn(torch.arange(9)[rows], x[rows], labels[rows])
    head.settle()
    expand = head.scorer().expansion
    expected = SHARPNESS * expand(x) @ ridge(expand(x), labels, 0.01)
    torch.testing.assert_close(head.scores(torch.arange(9), x), expected, atol=1e-3, rtol=1e-3)


def test_forgetting_nearly_all_leaves_no_trace_of_them():
    """With sums in float32 the difference would be a thousand times as large: see ``precise``."""
    many, few = analytic(), analytic()
    x, labels = vectors(5_000), torch.arange(5_000) % 2
    ids = torch.arange(5_000)
    many.learn(ids, x, labels)
    many.forget(ids[4:], x[4:], labels[4:])
    few.learn(ids[:4], x[:4], labels[:4])
    many.settle()
    few.settle()
    asked = vectors(50, seed=1)
    difference = many.scores(ids[:50], asked) - few.scores(ids[:50], asked)
    assert float(difference.abs().max()) < 1e-5 * SHARPNESS


def test_a_scorer_never_changes_and_nothing_is_known_once_all_is_forgotten():
    head, x = analytic(), vectors(4)
    ids, labels = torch.arange(4), torch.tensor([0, 1, 0, 1])
    head.learn(ids, x, labels)
    head.settle()
    scorer = head.scorer()
    asked = ids.numpy(), x.numpy()
    before = torch.from_numpy(scorer(*asked))
    head.forget(ids[:2], x[:2], labels[:2])
    head.settle()
    assert torch.from_numpy(scorer(*asked)).equal(before)
    assert not head.scores(ids, x).equal(before)
    head.forget(ids[2:], x[2:], labels[2:])
    head.settle()
    assert not bool(head.statistics_.gram_.any() or head.statistics_.sums_.any())
    assert head.scores(ids, x).abs().max() == 0


def test_slopes_are_exact_with_relu():
    head, x = analytic(), vectors(6)
    head.learn(torch.arange(6), x, torch.tensor([0, 1, 2, 0, 1, 2]))
    head.settle()
    slopes = head.scorer().slopes(x[0])
    torch.testing.assert_close(slopes @ x[0], head.scores(torch.tensor([0]), x[:1])[0])
    fourier = begun(AnalyticHead(width=8, activation="fourier"))
    assert fourier.scorer().slopes(x[0]) is None


def test_replay_stores_follows_and_drops():
    head = begun(ReplayHead(width=8, budget=2, epochs=1))
    x, labels = vectors(6), torch.tensor([0, 0, 0, 1, 1, 1])
    head.grow(2)
    head.learn(torch.arange(6), x, labels)
    head.settle()
    memory = head.tem.memory
    kept = memory.nodes_.tolist()
    assert [n < 3 for n in kept] == [True, True, False, False]  # two of each class
    head.move(torch.tensor([5, kept[0]]), x[:2], x[:2] + 1, torch.tensor([1, 0]))
    assert memory.embeddings_[0].equal(x[1] + 1)
    head.forget(torch.tensor(kept[:1]), x[:1], labels[:1])
    assert memory.nodes_.tolist() == kept[1:]
    fresh = begun(ReplayHead(width=8, epochs=1))
    fresh.grow(2)
    fresh.learn(torch.tensor([3, 4]), x[:2], torch.tensor([0, 1]))
    fresh.forget(torch.tensor([3]), x[:1], torch.tensor([0]))  # before it was learned
    fresh.settle()
    assert fresh.tem.memory.nodes_.tolist() == [4]


def test_replay_learns_a_class_that_comes_later():
    head = begun(ReplayHead(width=32, epochs=40))
    for label in range(3):
        head.grow(label + 1)
        ids = torch.arange(8) + 8 * label
        near = CORNERS[label] + 0.1 * vectors(8, seed=label)
        head.learn(ids, near, torch.full((8,), label))
        head.settle()
    assert head.scores(torch.arange(3), CORNERS[:3]).argmax(1).tolist() == [0, 1, 2]


# What the answers of ``targets`` mean has to be met first: see test_target_head.
@pytest.mark.parametrize("name", sorted({*heads.names()} - {"targets"}))
def test_restored_heads_go_on_with_the_same_bits(name):
    options = {"analytic": {"width": 16}, "replay": {"width": 8}}
    one, twin = (begun(heads.make(name, **options.get(name, {}))) for _ in range(2))
    ids, x, labels = torch.arange(24), vectors(24), torch.arange(24) * 2 // 24
    one.grow(2)
    one.learn(ids[::2], x[::2], labels[::2])
    one.settle()
    twin.restore({key: value.clone() for key, value in one.state().items()})
    assert twin.num_classes == 2
    assert twin.scores(ids, x).equal(one.scores(ids, x))
    for head in (one, twin):
        head.grow(3)
        head.move(ids[:2], x[:2], x[:2] + 1, labels[:2])
        head.learn(ids[1::2], x[1::2], torch.full((12,), 2))
        head.settle()
    assert twin.scores(ids, x).equal(one.scores(ids, x))
    assert one.scores(ids, x).shape == (24, 3)
    assert one.nbytes > 0


def test_an_unknown_head_lists_the_known_and_one_that_is_gone_says_what_to_use():
    with pytest.raises(UnknownNameError, match="choose one of analytic, auto, replay"):
        heads.make("analitic")
    with pytest.raises(ConfigurationError, match=r"'method' was removed.* 'auto', 'analytic' or"):
        heads.make("method", epochs=3)
    known = OnlineLearner().parameters | {"head": {"name": "method", "epochs": 3}}
    with pytest.raises(ConfigurationError, match=r"'method' was removed.* cannot be opened"):
        OnlineLearner.from_parameters(known)
