"""Heads learn, follow and forget; the analytic one as if it had been given the rest at once."""

import pytest
import torch

from evergraph.closed_form.fusing import SHARPNESS
from evergraph.core.seeding import seeded
from evergraph.online.heads import AnalyticHead, FusedHead, heads
from evergraph.topology import SGC
from small_ridge import ridge

DIMS = 4


def begun(head: FusedHead) -> FusedHead:
    head.begin(DIMS, topology=SGC(), generator=seeded(0, "head"))
    return head


def vectors(count: int, dims: int = DIMS) -> torch.Tensor:
    return torch.randn(count, dims, generator=seeded(0, "vectors"))


def analytic(width: int = 32) -> AnalyticHead:
    head = begun(AnalyticHead(width=width, regularisation=0.01))
    return head


def test_analytic_is_the_ridge_of_all_nodes():
    head, x = analytic(), vectors(9)
    labels = torch.tensor([0, 1, 1, 2, 0, 1, 2, 1, 1])
    for rows in (slice(0, 4), slice(4, 9)):
        head.learn(x[rows], labels[rows])
    head.solve()
    (features,) = head.engine.map(x)
    expected = SHARPNESS * features @ ridge(features, labels, 0.01)
    torch.testing.assert_close(head.scores(x), expected, atol=1e-3, rtol=1e-3)


def test_a_scorer_never_changes_and_nothing_is_known_once_all_is_forgotten():
    head, x = analytic(), vectors(4)
    labels = torch.tensor([0, 1, 0, 1])
    head.learn(x, labels)
    head.solve()
    scorer, asked = head.scorer(), x.numpy()
    before = torch.from_numpy(scorer(asked))
    head.forget(x[:2], labels[:2])
    head.solve()
    assert torch.from_numpy(scorer(asked)).equal(before)
    assert not head.scores(x).equal(before)
    head.forget(x[2:], labels[2:])
    head.solve()
    (sums,) = head.engine.sums_
    assert not bool(sums.gram_.any() or sums.sums_.any())
    assert head.scores(x).abs().max() == 0


# What the answers of ``targets`` mean has to be met first: see test_target_head.
@pytest.mark.parametrize("name", sorted({*heads.names()} - {"targets"}))
def test_restored_heads_go_on_with_the_same_bits(name):
    options = {"analytic": {"width": 16}}
    one, twin = (begun(heads.make(name, **options.get(name, {}))) for _ in range(2))
    x = vectors(24, sum(one.engine.map.sizes.values()))
    labels = torch.arange(24) * 2 // 24
    one.grow(2)
    one.learn(x[::2], labels[::2])
    one.solve()
    twin.restore({key: value.clone() for key, value in one.state().items()})
    assert twin.num_classes == 2
    assert twin.scores(x).equal(one.scores(x))
    for head in (one, twin):
        head.grow(3)
        head.move(x[:2], x[:2] + 1, labels[:2])
        head.learn(x[1::2], torch.full((12,), 2))
        head.solve()
    assert twin.scores(x).equal(one.scores(x))
    assert one.scores(x).shape == (24, 3)
    assert one.nbytes > 0
