"""The live form of auto: by hand, what each part is for, and that nothing but the end counts."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form.fusing import FLAT, PRIOR, SHARPNESS, fused_weights
from evergraph.closed_form.view_map import RandomMap
from evergraph.closed_form.views import CODES as OF_CODES
from evergraph.closed_form.views import View
from evergraph.core.errors import ConfigurationError
from evergraph.core.resources import exactly_threads
from evergraph.core.seeding import seeded
from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead, FusedHead, TargetHead
from evergraph.online.heads.scorer import Scorer
from evergraph.online.learner import OnlineLearner
from evergraph.topology import SGC, MixHop
from live_auto import CODES, DIMS, VIEWS, begun, explained, live, ring, vectors
from small_ridge import ridge

LABELS = torch.tensor([0, 1, 1, 2, 0, 1, 2, 1, 1])


def features(head: FusedHead, view: tuple[int, ...], x: Tensor) -> Tensor:
    """φ of a view, written down: its parts beside each other over the root of their number."""
    parts = x.split([DIMS, DIMS, 2 * CODES], dim=1)
    matrices = [*head.scorer().map.matrices.values()]
    count = sum(2 if part == 2 else 1 for part in view)  # codes are near and far
    total = sum(parts[part] @ matrices[part] for part in view)
    return torch.relu(total) * (2 / (head.width * count)) ** 0.5


RIGHT = torch.tensor([0] * 14 + [1] * 4 + [2] * 2)
MANY = torch.tensor([0, 1, 3])[RIGHT]  # a class between has no nodes


def left_out(head: FusedHead, x: Tensor, labels: Tensor) -> Tensor:
    """What each view says of nodes without them, by as many solutions.  [n, classes, views]"""
    found = torch.zeros(len(x), 3, len(VIEWS), dtype=torch.float64)
    for place, view in enumerate(VIEWS):
        rows = features(head, view, x)
        for node in range(len(x)):
            others = torch.arange(len(x)) != node
            found[node, :, place] = rows[node] @ ridge(rows[others], labels[others], 0.01)
    return found


def test_scores_are_the_ridges_of_all_views_mixed_so_that_every_class_counts_alike():
    """The mixture is where the loss, written down over nodes left out one by one, is smallest."""
    head, x = begun(width=24), vectors(20)
    for rows in (slice(0, 4), slice(4, 20)):
        head.learn(x[rows], MANY[rows])
    head.leave_out(torch.arange(20), x, MANY)
    head.solve()
    found, expected = head.engine.fused_.weights, torch.zeros(20, 3)
    levels = head.engine.fused_.offsets[[0, 1, 3]]
    assert float(head.engine.fused_.offsets[2]) == 0.0
    for share, view in zip(found.float(), VIEWS, strict=True):
        rows_of_view = features(head, view, x)
        expected += share * (rows_of_view @ ridge(rows_of_view, RIGHT, 0.01))
    scores = head.scores(x)[:, [0, 1, 3]]
    torch.testing.assert_close(scores, expected + levels.float(), atol=1e-3, rtol=1e-3)
    said = left_out(head, x, RIGHT)
    weighed = torch.bincount(RIGHT).double().reciprocal()[RIGHT] / 3

    def loss(shares, levels):
        each = torch.nn.functional.cross_entropy(said @ shares + levels, RIGHT, reduction="none")
        pull = PRIOR * (shares - SHARPNESS / 3).square().sum() + 3 * FLAT * levels.square().sum()
        return float((weighed * each).sum() + pull / (2 * len(x)))

    assert float(found.max()) > 0.1
    assert float(levels.abs().max()) > 0.01
    for step in (-0.2, 0.2):
        for moved in step * torch.eye(3).double():
            assert loss((found + moved).clamp_min(0.0), levels) >= loss(found, levels) - 1e-5
            assert loss(found, levels + moved) >= loss(found, levels) - 1e-5


def plain_ridge(rows: Tensor, labels: Tensor, *, share: float, ridge: float) -> Tensor:
    """V with every node counting alike; share: how much each does, ridge: λ."""
    rows = rows.double()
    matrix = share * rows.t() @ rows + ridge * torch.eye(rows.shape[1]).double()
    hits = torch.nn.functional.one_hot(labels, 3).double()
    return torch.linalg.solve(matrix, share * rows.t() @ hits)


def test_with_objective_plain_every_node_counts_alike_in_heads_and_mixture():
    """Both written down, nodes left out one by one; share and λ are taken to stay."""
    head, x = begun(width=24, objective="plain"), vectors(20)
    head.learn(x, RIGHT)
    head.leave_out(torch.arange(20), x, RIGHT)
    head.solve()
    share, said, expected = 3 / 20, [], torch.zeros(20, 3).double()
    for place, view in enumerate(VIEWS):
        rows = features(head, view, x)
        ridge = 0.01 * share * float(rows.double().square().sum()) / head.width
        full = plain_ridge(rows, RIGHT, share=share, ridge=ridge)
        expected += head.engine.fused_.weights[place] * (rows.double() @ full)
        others = [torch.arange(20) != node for node in range(20)]
        alone = [plain_ridge(rows[o], RIGHT[o], share=share, ridge=ridge) for o in others]
        said.append(torch.stack([r.double() @ v for r, v in zip(rows, alone, strict=True)]))
    fused = fused_weights(torch.stack(said, 2), RIGHT, balanced=False, intercept=True)
    for one, other in zip(head.engine.fused_, fused, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
    scores = head.scores(x)
    torch.testing.assert_close(scores, (expected + fused.offsets).float(), atol=1e-4, rtol=0)
    balanced = fused_weights(torch.stack(said, 2), RIGHT, intercept=True)
    assert not torch.allclose(fused.offsets, balanced.offsets, atol=0.1)


def test_with_nobody_held_back_every_view_counts_alike_and_slopes_are_exact():
    head, x = begun(width=24), vectors(9)
    head.learn(x, LABELS)
    head.leave_out(LABELS[:0], x[:0], LABELS[:0])
    head.solve()
    assert head.engine.fused_.weights.tolist() == pytest.approx([SHARPNESS / 3] * 3)
    slopes = head.scorer().slopes(x[0])
    torch.testing.assert_close(slopes @ x[0], head.scores(x[:1])[0])


def test_options_that_make_no_sense_are_refused():
    with pytest.raises(ConfigurationError, match=r"topology keeps, \[0, 2\], not '0\|1'"):
        begun(width=8, views=["0|1"])
    with pytest.raises(ConfigurationError, match="views must be a list of at least one view"):
        FusedHead(views=[])
    with pytest.raises(ConfigurationError, match="objective"):
        FusedHead(objective="mean")
    # In an embedding of one part the nearest hop is the furthest.
    head = FusedHead(width=8)
    head.begin(4, topology=SGC(hops=3), generator=seeded(0, "head"))
    assert [str(view) for view in head.parsed] == ["3", "3|s+y"]
    assert (head.code_width, begun(width=8, views=["2"]).code_width) == (64, 0)


# What the parts are for, in a learner.


@pytest.mark.parametrize("objective", ["balanced", "plain"])
def test_a_rare_class_with_weak_features_is_not_answered_by_a_constant(objective):
    """One node in 20, half a deviation away in every column."""
    generator, rare = seeded(0, "rare"), torch.arange(400) % 20 == 0
    features = torch.randn(400, 8, generator=generator) + 0.5 * rare[:, None]
    learner = OnlineLearner(head=FusedHead(width=128, objective=objective))
    nodes = list(range(400))
    labels = [int(each) if n % 4 else None for n, each in enumerate(rare.roll(1).tolist())]
    learner.apply(Delta(nodes=nodes, features=features.roll(1, 0), labels=labels))
    names, shares = learner.predict_proba(nodes)
    found = shares[:, names.index(1)]
    assert float(found.max() - found.min()) > 0.02
    there = rare.roll(1)
    assert float(found[there].mean()) > float(found[~there].mean())


def test_an_explanation_adds_up_over_hops_and_labels():
    learner = live(width=64)
    learner.apply(ring(40))
    told = explained(learner, "n10", 1e-4)
    by_label = {voice.node: any(voice.by_label) for voice in told.voices or ()}
    assert by_label.keys() == {"n8", "n9", "n10", "n11", "n12"}
    assert by_label["n9"]
    assert not by_label["n10"]  # nobody hears of its own label
    without = OnlineLearner(topology=MixHop(hops=2), head=FusedHead(width=64))
    without.apply(ring(40))
    assert without.explain("n10").voices is None  # hops of one length are no such sum


def test_scores_by_hand():
    """m = 1: views 0 and 0+y of x = [2 | 1], R = 1 and -1: φ = √2·2 and √(2/3)·max(0, 2 - 1)."""
    views = View((0,)), View((0,), codes=True)
    features = RandomMap(views, {0: torch.tensor([[1.0]]), OF_CODES: torch.tensor([[-1.0]])})
    weights = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 3.0]])
    scorer = Scorer(features, weights, torch.tensor([0.0, 5.0]))
    told = scorer(np.array([[2.0, 1.0]], np.float32))
    assert told == pytest.approx(np.array([[2 * 2**0.5, 5 + 3 * (2 / 3) ** 0.5]]), rel=1e-6)
    without = scorer(np.array([[2.0, 0.0]], np.float32))  # no label is nearby
    assert without == pytest.approx(np.array([[2 * 2**0.5, 5 + 6 * (2 / 3) ** 0.5]]), rel=1e-6)


HEADS = {
    "auto": FusedHead,
    "random": partial(FusedHead, basis="random"),
    "analytic": AnalyticHead,
    "targets": TargetHead,
}


@pytest.mark.parametrize("name", HEADS)
@given(
    seed=st.integers(0, 1000),
    width=st.sampled_from([7, 16, 70]),
    asked=st.lists(st.integers(0, 83), min_size=1, max_size=90),
)
@settings(max_examples=4)
def test_what_is_predicted_for_a_node_does_not_depend_on_who_is_asked_with_it(
    name, seed, width, asked
):
    head = HEADS[name](width=width)
    several = head.kind == "labels"
    learner = OnlineLearner(head=head)
    generator = torch.Generator().manual_seed(seed)
    nodes = tuple(range(100))
    labels = [("xyz"[n % 3], "xy"[n % 2])[: 1 + several] if n % 2 else None for n in nodes]
    learner.apply(
        Delta(
            nodes=nodes,
            features=torch.randn(100, 3, generator=generator),
            labels=[each if several or each is None else each[0] for each in labels],
            edges=tuple((n, n // 2) for n in nodes[1:]),
        )
    )
    # no "z" is left, and positions have gaps
    learner.apply(Delta(forgotten=[n for n in nodes if n % 3 == 2 and n % 2]))
    learner.apply(Delta(removed_edges=[(6, 3), (40, 20)]))
    ids = [n for n in nodes if not (n % 3 == 2 and n % 2)]
    classes, every = learner.predict_proba(ids)
    alone = [learner.predict_proba([node])[1][0] for node in ids[::3]]
    assert torch.stack(alone).equal(every[::3])
    assert learner.predict_proba([ids[place] for place in asked])[1].equal(every[asked])
    answers = learner.answer(ids, every_class=True).predictions
    assert [answer.probabilities for answer in answers] == every.tolist()
    assert [learner.answer([node]).predictions[0] for node in ids[::3]] == list(
        learner.answer(ids).predictions[::3]
    )
    with exactly_threads(2):
        assert learner.frozen().predict_proba(ids)[1].equal(every)  # from a copy of the vectors
    if not several:
        assert classes == ("y", "x", "z")
        assert float(every[:, 2].max()) == 0.0
