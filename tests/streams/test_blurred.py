"""Classes one after the other, with borders that blur."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.streams.ways import arrival_times, blurred

LABELS = torch.tensor([1, 0, 2, 0, 1, 2, 2, 2, -1, 3])
MANY = torch.arange(4).repeat_interleave(2500)


def classes_in(owner: torch.Tensor, labels: torch.Tensor, task: int) -> list[int]:
    return sorted(set(labels[owner == task].tolist()))


def test_without_blur_batches_cut_the_sequence_of_classes_by_hand() -> None:
    # sequence 2 2 2 2 | 0 0 1 1: batches of four; class 3 and the unlabelled node do not arrive
    arrival = blurred(LABELS, classes=[2, 0, 1], tasks=2, blur=0.0)
    assert arrival.owner.tolist() == [1, 1, 0, 1, 1, 0, 0, 0, -1, -1]
    assert arrival.new_classes == [(2,), (0, 1)]
    # batches of three, three and two: 2 2 2 | 2 0 0 | 1 1
    thirds = blurred(LABELS, classes=[2, 0, 1], tasks=3, blur=0.0)
    assert thirds.new_classes == [(2,), (0,), (1,)]
    assert torch.bincount(thirds.owner[:8]).tolist() == [3, 3, 2]
    assert classes_in(thirds.owner, LABELS, 1) == [0, 2]


def test_a_time_is_place_plus_uniform_plus_blur_times_normal() -> None:
    sharp = arrival_times(MANY, classes=[3, 2, 1, 0], blur=0.0, seed=5)
    inside = sharp - (3 - MANY)
    assert 0 < float(inside.min()) < 0.01
    assert 0.99 < float(inside.max()) < 1
    assert abs(float(inside.mean()) - 0.5) < 0.02
    noise = arrival_times(MANY, classes=[3, 2, 1, 0], blur=2.0, seed=5) - sharp
    assert abs(float(noise.mean())) < 0.06
    assert abs(float(noise.std()) - 2.0) < 0.06
    assert abs(float((noise.abs() < 2.0).double().mean()) - 0.683) < 0.02  # a normal's share
    assert abs(float(torch.corrcoef(torch.stack([inside, noise]))[0, 1])) < 0.03


def test_little_blur_mixes_neighbouring_classes_and_much_blur_mixes_all() -> None:
    little = blurred(MANY, classes=[0, 1, 2, 3], tasks=4, blur=0.1).owner
    assert classes_in(little, MANY, 0) == [0, 1]
    assert classes_in(little, MANY, 3) == [2, 3]
    much = blurred(MANY, classes=[0, 1, 2, 3], tasks=4, blur=1000.0).owner
    for task in range(4):
        counts = torch.bincount(MANY[much == task])
        assert counts.sum() == 2500
        assert int((counts - 625).abs().max()) < 100  # four standard deviations


@settings(max_examples=20, deadline=None)
@given(cut=st.integers(3, 40), seed=st.integers(0, 100), blur=st.floats(0, 3))
def test_a_nodes_time_depends_on_seed_and_node_alone(cut: int, seed: int, blur: float) -> None:
    labels = torch.arange(40) % 3
    whole = arrival_times(labels, classes=[0, 1, 2], blur=blur, seed=seed)
    part = arrival_times(labels[:cut], classes=[0, 1, 2], blur=blur, seed=seed)
    assert part.equal(whole[:cut])
    moved = arrival_times(labels, classes=[2, 1, 0], blur=blur, seed=seed)
    torch.testing.assert_close(moved - whole, 2.0 - 2.0 * labels.double())
    other = arrival_times(labels, classes=[0, 1, 2], blur=blur, seed=seed + 1)
    assert not other.equal(whole)


@settings(max_examples=20, deadline=None)
@given(tasks=st.integers(1, 12), blur=st.floats(0, 5), seed=st.integers(0, 100))
def test_batches_are_equal_and_every_node_arrives_once(tasks: int, blur: float, seed: int) -> None:
    labels = torch.arange(36) % 3
    arrival = blurred(labels, classes=[2, 0, 1], tasks=tasks, blur=blur, seed=seed)
    sizes = torch.bincount(arrival.owner, minlength=tasks)
    assert int(sizes.max() - sizes.min()) <= 1
    assert len(arrival) == tasks
    assert int(sizes.sum()) == 36


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    blurred(LABELS, classes=[0, 1, 2], tasks=2)
    assert torch.get_rng_state().equal(before)


def nodes_of(label: int) -> torch.Tensor:
    return MANY.eq(label)


def test_nodes_of_a_class_arrive_in_no_order_of_their_numbers() -> None:
    for seed in (0, 1):
        times = arrival_times(MANY, classes=[0, 1, 2, 3], blur=0.0, seed=seed)
        for label in range(4):
            own = times[nodes_of(label)]
            number = torch.arange(len(own), dtype=torch.float64)
            # Four standard deviations of a correlation of nothing.
            assert abs(float(torch.corrcoef(torch.stack([number, own]))[0, 1])) < 0.08
    first, second = (blurred(MANY, classes=[0], tasks=2, blur=0.0, seed=s).owner for s in (0, 1))
    own = nodes_of(0)
    assert abs(float((first[own] == second[own]).double().mean()) - 0.5) < 0.05  # another draw


def test_a_drift_puts_classes_together_by_hand() -> None:
    # without blur: classes 2 and 0 in one place, then 1 and 3: 2 2 2 2 0 0 | 1 1 3
    arrival = blurred(LABELS, classes=[2, 0, 1, 3], tasks=2, blur=0.0, together=2, comes_back=True)
    assert classes_in(arrival.owner, LABELS, 0) == [0, 2]
    times = arrival_times(LABELS, classes=[2, 0, 1, 3], blur=0.0, together=2, seed=0)
    assert times.floor()[:8].tolist() == [1, 0, 0, 0, 1, 0, 0, 0]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 100), blur=st.floats(0, 3), together=st.integers(1, 4))
def test_on_a_circle_times_are_the_same_but_for_whole_rounds(
    seed: int, blur: float, together: int
) -> None:
    options: Any = {"classes": [3, 0, 1, 2], "blur": blur, "together": together, "seed": seed}
    plain = arrival_times(LABELS, **options)
    round_ = arrival_times(LABELS, comes_back=True, **options)
    length = -(-4 // together)
    here = plain.isfinite()
    assert here.equal(round_.isfinite())
    assert float(round_[here].min()) >= 0
    assert float(round_[here].max()) < length
    rounds = (plain[here] - round_[here]) / length
    torch.testing.assert_close(rounds, rounds.round())


def test_the_first_classes_of_a_drift_come_back_with_the_last() -> None:
    options: Any = {"classes": [0, 1, 2, 3], "tasks": 20, "blur": 0.5}
    stays = blurred(MANY, **options).owner
    returns = blurred(MANY, comes_back=True, **options).owner
    for step, wanted in ((0, [0, 3]), (19, [0, 3])):
        counts = torch.bincount(MANY[returns == step], minlength=4)
        assert sorted(counts.topk(2).indices.tolist()) == wanted
    assert int((MANY[stays == 19] == 0).sum()) == 0
    # the share of a class moves smoothly: no step has more than a fifth more of it than the last
    shares = torch.stack([torch.bincount(MANY[returns == s], minlength=4) / 500 for s in range(20)])
    assert float(shares.diff(dim=0).abs().max()) < 0.2
