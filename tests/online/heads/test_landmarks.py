"""The live form of auto on landmarks: by its definition, and that what is forgotten is gone."""

import math

import pytest
import torch
from torch import Tensor

from evergraph.closed_form.kernel_map import LEAST
from evergraph.online.delta import Delta
from evergraph.online.folder.checkup import differing
from evergraph.online.heads import FusedHead, staleness
from evergraph.online.learner import OnlineLearner
from growth import restored
from live_auto import (
    CODES,
    DIMS,
    VIEWS,
    begun,
    chances,
    explained,
    in_parts,
    live,
    ring,
    strangers,
    vectors,
)

LANDMARKS = {
    "width": 8,
    "basis": "landmarks",
    "views": ["2", "0|2", "0|2+y"],
    "regularisation": 1e-4,
}

LABELS = torch.tensor([0] * 12 + [1] * 5 + [2] * 3)


def solved(x: Tensor) -> FusedHead:
    head = begun(**LANDMARKS)
    head.grow(3)
    head.use_landmarks(torch.arange(8), x[:8], counts=torch.bincount(LABELS))
    head.learn(x, LABELS)
    head.leave_out(torch.arange(20), x, LABELS)
    head.solve()
    return head


def kernel(view: tuple[int, ...], x: Tensor, z: Tensor) -> Tensor:
    """The mean of max(0, r·x) max(0, r·z) over directions r, twice: Cho and Saul's closed form."""
    parts = [t.double().split([DIMS, DIMS, 2 * CODES], dim=1) for t in (x, z)]
    count = sum(2 if part == 2 else 1 for part in view)
    a, b = (torch.cat([t[p] for p in view], 1) / math.sqrt(count) for t in parts)
    lengths = a.norm(dim=1)[:, None] * b.norm(dim=1)[None]
    angle = (a @ b.t() / lengths).clamp(-1, 1).acos()
    return lengths * (angle.sin() + (math.pi - angle) * angle.cos()) / math.pi


def test_scores_are_ridges_on_whitened_kernel_values():
    x = vectors(20)
    head = solved(x)
    expected = torch.zeros(20, 3).double()
    weights = torch.tensor([1 / 16, 1 / 4, 1 / 4])[LABELS]  # of classes of 12, 5 and 3 nodes
    for share, view in zip(head.engine.fused_.weights, VIEWS, strict=True):
        own = kernel(view, x[:8], x[:8])
        own += LEAST * own.diagonal().mean() * torch.eye(8)
        values, turn = torch.linalg.eigh(own)
        rows = kernel(view, x, x[:8]) @ (turn * values.rsqrt())  # whitened in another basis
        means = torch.stack([rows[c == LABELS].mean(0) for c in range(3)])
        within = rows - means[LABELS]
        matrix = 3 / weights.sum() * (weights[:, None] * within).t() @ within + means.t() @ means
        matrix += 0.0001 * 3 * own.diagonal().mean() / 8 * torch.eye(8)
        expected += share * rows @ torch.linalg.solve(matrix, means.t())
    found = head.scores(x)
    expected += head.engine.fused_.offsets
    torch.testing.assert_close(found, expected.float(), atol=2e-3, rtol=1e-3)
    random = begun(width=8, basis="random")
    random.learn(x, LABELS)
    random.leave_out(torch.arange(20), x, LABELS)
    random.solve()
    assert not torch.allclose(random.scores(x), found, atol=0.1)


def test_slopes_are_those_of_scores_and_add_up():
    x = vectors(20)
    head = solved(x)
    slopes = head.scorer().slopes(x[0])
    whole = slopes @ x[0] + head.scorer().offsets
    torch.testing.assert_close(whole, head.scores(x[:1])[0], atol=1e-4, rtol=1e-4)
    for place in (0, 4, 9):
        step = torch.zeros_like(x[0])
        step[place] = 1e-2
        ahead, behind = (head.scores((x[0] + way * step)[None])[0] for way in (1, -1))
        torch.testing.assert_close(slopes[:, place], (ahead - behind) / 2e-2, atol=2e-2, rtol=2e-2)


def test_every_node_counts_alike_if_all_nodes_are_to_be_right_and_every_class_otherwise():
    x = vectors(20)
    for objective, masses in (("plain", [12.0, 5.0, 3.0]), ("balanced", [0.75, 1.25, 0.75])):
        head = begun(**LANDMARKS, objective=objective)
        head.grow(3)
        head.use_landmarks(torch.arange(8), x[:8], counts=torch.bincount(LABELS))
        head.learn(x, LABELS)
        assert head.engine.sums_[0].mass_.tolist() == masses


def test_many_labelled_nodes_have_fewer_landmarks_and_no_view_of_the_furthest_hop_alone():
    head = begun(basis="landmarks")
    head.grow(1)
    x = torch.rand(4, sum(head.engine.map.sizes.values()))
    for labelled, width, views in ((8192, 1152, "0 2 0|2|s+y"), (8193, 768, "0 0|2|s+y")):
        assert head.width_for(labelled) == width
        head.use_landmarks(torch.arange(4), x, counts=torch.tensor([labelled]))
        assert " ".join(map(str, head.engine.map.views)) == views
    assert begun().width_for(8192) == 768  # on random directions


def lines(width: int = 768) -> OnlineLearner:
    """A table of three columns whose classes lie on one line: only the magnitude tells them."""
    sizes = torch.tensor([0.2 + 0.1 * row for row in range(45)])
    features = sizes[:, None] * torch.tensor([1.0, 2.0, 2.0])
    labels = [min(row // 15, 2) if row % 3 else None for row in range(45)]
    one = OnlineLearner(head=FusedHead(width=width))
    one.apply(Delta(nodes=list(range(45)), features=features, labels=labels))
    return one


def test_classes_on_one_line_are_told_apart_by_their_magnitude():
    hidden = list(range(0, 45, 3))
    assert lines().predict(hidden) == [row // 15 for row in hidden]


def test_magnitude_survives_saving_and_is_part_of_an_explanation():
    one = lines(width=16)
    explained(one, 0, 1e-3)
    again = restored(one)
    assert again.predict_proba(range(45))[1].equal(one.predict_proba(range(45))[1])
    again.apply(Delta(forgotten=[1, 2, 44]))
    one.apply(Delta(forgotten=[1, 2, 44]))
    assert again.predict_proba(range(3, 44))[1].equal(one.predict_proba(range(3, 44))[1])


def test_a_landmark_that_is_let_go_is_in_no_number():
    """Sums, scores and all that is saved are those of a head which never stood on it."""
    x = vectors(20)
    other = x.clone()
    other[2] = 50.0  # what the landmark is does not matter once it is gone
    heads = []
    for rows in (x, other):
        head = begun(**LANDMARKS)
        head.grow(3)
        head.use_landmarks(torch.arange(8), rows[:8], counts=torch.bincount(LABELS))
        head.learn(x, LABELS)
        assert head.erase_landmarks(torch.tensor([2, 15]))
        assert not head.erase_landmarks(torch.tensor([2, 15]))
        head.leave_out(torch.arange(20), x, LABELS)
        head.solve()
        heads.append(head.state())
    assert heads[0].keys() == heads[1].keys()
    for name, value in heads[0].items():
        torch.testing.assert_close(heads[1][name], value, atol=1e-9, rtol=1e-6)
    assert not heads[0]["landmarks"][2].any()


def test_labels_that_double_late_classes_and_landmarks_that_go_ask_for_others():
    head, x = begun(**LANDMARKS), vectors(8)

    def wanted(*counts: int, changed: bool = True) -> int:
        return head.landmarks_wanted(torch.tensor(counts), changed=changed)

    assert wanted(0) == 0
    assert wanted(300, 100) == 8
    head.use_landmarks(torch.arange(8), x, counts=torch.tensor([300, 100]))
    assert [wanted(300, 499), wanted(300, 500)] == [0, 8]  # twice as many
    assert [wanted(300, 100, 21), wanted(300, 100, 22)] == [0, 8]  # a twentieth is of another class
    assert [wanted(156, 101), wanted(156, 100), wanted(156, 100, changed=False)] == [0, 8, 0]
    head.erase_landmarks(torch.tensor([1, 2]))
    assert wanted(300, 100) == 0
    head.erase_landmarks(torch.tensor([3]))
    assert wanted(300, 100) == 8
    random = begun(width=8, basis="random")
    assert random.landmarks_wanted(torch.tensor([300, 100]), changed=True) == 0


# In a learner, with landmarks for a part of the nodes only.


RING = ring(60, told=1.0)  # features and neighbours both tell something


def learner() -> OnlineLearner:
    return live(width=16, basis="landmarks")


def head_of(one: OnlineLearner) -> FusedHead:
    return one.head


def counted_anew(one: OnlineLearner) -> OnlineLearner:
    """As when labels have doubled."""
    head_of(one).landmarks.counts.zero_()
    one.apply(Delta())
    return one


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staleness, "FEW", 4)


@pytest.mark.parametrize("seed", range(2))
def test_any_order_counted_anew_is_one_delta_and_the_forgotten_were_never_met(seed, few):
    plain, other = learner(), learner()
    plain.apply(RING)
    for part in in_parts(RING, seed):
        other.apply(part)
        assert not [*differing(other)]
    extra = strangers(RING, 5.0)
    other.apply(extra)
    counted_anew(other)
    other.apply(Delta(forgotten=extra.nodes))
    assert not [*differing(other)]
    found = chances(counted_anew(other), RING)
    torch.testing.assert_close(found, chances(plain, RING), atol=1e-4, rtol=0)


def test_landmarks_around_what_is_forgotten_or_cut_are_wiped(few):
    one = learner()
    one.apply(RING)
    before = head_of(one).landmarks.nodes.clone()
    gone = int(before[3])
    near = torch.tensor([n % 60 for n in range(gone - 3, gone + 4)])
    one.apply(Delta(forgotten=[f"n{gone}"]))
    after = head_of(one).landmarks.nodes
    assert len(after) == 16
    assert bool((after[torch.isin(before, near)] == -1).all())
    assert not head_of(one).state()["landmarks"][after == -1].any()
    left = after[after >= 0]
    assert bool((after == before)[after >= 0].all())
    assert len(left) >= 12
    cut = int(left[0])
    one.apply(Delta(removed_edges=[(f"n{cut}", f"n{(cut + 1) % 60}")]))
    assert cut not in head_of(one).landmarks.nodes.tolist()
    assert not [*differing(one)]


def test_a_cut_landmark_stays_until_something_is_forgotten(few):
    """With a tolerance: whom it has lost then leaves no trace, though no edge leads there."""
    kept = []
    for size in (5.0, -7.0):
        one = OnlineLearner(head=FusedHead(width=16, codes=CODES), tolerance=0.05)
        one.apply(RING)
        mark = f"n{int(head_of(one).landmarks.nodes[3])}"
        stranger = Delta(nodes=["x"], features=torch.full((1, DIMS), size), edges=[("x", mark)])
        one.apply(stranger)
        counted_anew(one)  # landmarks are copied with the stranger near
        before = head_of(one).landmarks.nodes.clone()
        one.apply(Delta(removed_edges=stranger.edges))
        assert head_of(one).landmarks.nodes.equal(before)
        one = restored(one)
        one.apply(Delta(forgotten=["x"]))
        assert int(mark[1:]) not in head_of(one).landmarks.nodes.tolist()
        assert not [*differing(one)]
        kept.append(head_of(one).state()["landmarks"])
    assert kept[0].equal(kept[1])


def test_a_cut_landmark_with_another_label_goes_at_once(few):
    one = OnlineLearner(head=FusedHead(width=16, codes=CODES), tolerance=0.05)
    one.apply(RING)
    mark = int(head_of(one).landmarks.nodes[3])
    one.apply(Delta(removed_edges=[(f"n{mark}", f"n{(mark + 1) % 60}")]))
    assert mark in head_of(one).landmarks.nodes.tolist()
    one.apply(Delta(late=[(f"n{mark}", (mark * 3 // 60 + 1) % 3)]))
    assert mark not in head_of(one).landmarks.nodes.tolist()
    assert not [*differing(one)]
