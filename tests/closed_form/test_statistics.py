"""Sufficient statistics: by hand, and that sums do not know how they were made."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form import ClassStatistics
from evergraph.closed_form import statistics as module
from evergraph.closed_form.statistics import packed, unpacked
from evergraph.core.errors import ConfigurationError
from evergraph.memory import MemoryUsage

WIDTH, CLASSES = 5, 3
seeds = st.integers(0, 10_000)
Nodes = tuple[Tensor, Tensor, Tensor]


def nodes_of(seed: int, count: int = 12, *, width: int = WIDTH) -> Nodes:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(count, width, generator=generator),
        torch.randint(CLASSES, (count,), generator=generator),
        torch.rand(count, generator=generator) + 0.1,
    )


def statistics_of(*parts: Nodes, width: int = WIDTH) -> ClassStatistics:
    statistics = ClassStatistics(width)
    statistics.grow(CLASSES)
    for features, labels, weights in parts:
        statistics.add(features, labels, weights)
    return statistics


def take(nodes: Nodes, rows: Tensor) -> Nodes:
    return nodes[0][rows], nodes[1][rows], nodes[2][rows]


def symmetric(statistics: ClassStatistics) -> Tensor:
    return statistics.gram_.tril() + statistics.gram_.tril(-1).t()


def assert_same(one: ClassStatistics, other: ClassStatistics) -> None:
    """The same to rounding, which is measured against the whole."""
    assert one.counts_.equal(other.counts_)
    torch.testing.assert_close(one.mass_, other.mass_)
    for a, b in ((symmetric(one), symmetric(other)), (one.sums_, other.sums_)):
        assert float((a - b).norm()) <= 1e-6 * max(float(b.norm()), 1.0)


@given(seed=seeds, sizes=st.lists(st.integers(0, 5), min_size=1, max_size=5))
def test_blocks_of_rows_count_as_the_whole(seed, sizes):
    features, labels, weights = nodes_of(seed, sum(sizes))
    blocks = statistics_of()
    blocks.add(iter(features.split(sizes)), labels, weights)
    assert_same(blocks, statistics_of((features, labels, weights)))
    blocks.add(iter(features.split(sizes)), labels, weights, -1)
    assert blocks.counts_.tolist() == [0] * CLASSES
    assert float(blocks.gram_.norm()) < 1e-4


def test_statistics_by_hand():
    features = torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, 4.0]])
    statistics = ClassStatistics(2)
    statistics.add(features, torch.tensor([0, 2, 0]), torch.tensor([1.0, 4.0, 0.25]))
    # G = 1 (1, 2)(1, 2)' + 4 (3, 0)(3, 0)' + 0.25 (0, 4)(0, 4)'
    assert statistics.gram_.tril().tolist() == [[37.0, 0.0], [2.0, 8.0]]
    assert statistics.sums_.tolist() == [[1.0, 3.0], [0.0, 0.0], [12.0, 0.0]]
    assert statistics.mass_.tolist() == [1.25, 0.0, 4.0]
    assert statistics.counts_.tolist() == [2, 0, 1]
    assert statistics.num_classes == 3


def test_inputs_come_back_unchanged_and_nothing_adds_nothing():
    nodes = nodes_of(0)
    before = [tensor.clone() for tensor in nodes]
    statistics = statistics_of(nodes)
    assert all(now.equal(then) for now, then in zip(nodes, before, strict=True))
    statistics.add(*nodes_of(1, count=0))
    assert_same(statistics, statistics_of(nodes))


def test_panels_and_rows_are_cut_without_a_trace(monkeypatch):
    nodes = nodes_of(4)
    whole = statistics_of(nodes)
    monkeypatch.setattr(module, "PANEL", 3)
    monkeypatch.setattr(module, "CORNER", 2)
    monkeypatch.setattr(module, "ROWS_PER_BLOCK", 5)
    assert_same(statistics_of(nodes), whole)


@given(seed=seeds, cuts=st.lists(st.integers(0, 12), max_size=4), gone=st.integers(0, 12))
def test_any_split_in_any_order_gives_the_same_and_what_is_removed_is_gone(seed, cuts, gone):
    nodes, goes = nodes_of(seed), nodes_of(seed + 1, count=gone)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed + 1))
    parts = [take(nodes, rows) for rows in order.tensor_split(sorted(cuts))]
    statistics = statistics_of(goes, *parts)
    statistics.add(*goes, -1)
    assert_same(statistics, statistics_of(nodes))


@given(seed=seeds, turn=st.none() | st.permutations(range(CLASSES)))
def test_merged_statistics_are_those_of_both(seed, turn):
    ours, theirs = nodes_of(seed), nodes_of(seed + 1, count=7)
    classes = None if turn is None else torch.tensor(turn)
    labels = theirs[1] if classes is None else classes[theirs[1]]
    both = statistics_of(ours, (theirs[0], labels, theirs[2]))
    first, second = statistics_of(ours), statistics_of(theirs)
    assert_same(first.merged(second, classes), both)
    assert_same(first, statistics_of(ours))  # neither has changed
    assert_same(second, statistics_of(theirs))


def test_merging_makes_room_for_classes_that_only_the_other_has():
    ours, theirs = ClassStatistics(1), ClassStatistics(1)
    ours.add(torch.ones(2, 1), torch.tensor([0, 0]), torch.ones(2))
    theirs.add(torch.ones(1, 1), torch.tensor([0]), torch.ones(1))
    assert ours.merged(theirs, torch.tensor([3])).counts_.tolist() == [2, 0, 0, 1]
    assert ours.merged(ClassStatistics(1)).counts_.tolist() == [2]
    assert ClassStatistics(1).merged(ours).counts_.tolist() == [2]
    with pytest.raises(ConfigurationError, match="equally wide, not 5 and 4"):
        ClassStatistics(5).merged(ClassStatistics(4))


def test_a_class_removed_whole_leaves_no_mass_behind():
    features, labels, _ = nodes_of(3, count=40)
    weights = torch.full((40,), 1 / 3)  # no sum of thirds is exact in float32
    statistics = statistics_of((features, labels, weights))
    for node in (labels == 1).nonzero().flatten().split(1):
        statistics.add(features[node], labels[node], weights[node], -1)
    assert statistics.mass_[1] == statistics.counts_[1] == 0


@given(seed=seeds, width=st.integers(1, WIDTH))
def test_narrowed_statistics_are_those_of_the_first_features(seed, width):
    features, labels, weights = nodes_of(seed)
    narrow = statistics_of((features[:, :width], labels, weights), width=width)
    assert_same(statistics_of((features, labels, weights)).narrowed(width), narrow)


def test_restored_statistics_go_on_and_leave_the_state_alone():
    whole, restored = statistics_of(nodes_of(0)), ClassStatistics(WIDTH)
    state = whole.state()
    before = {name: tensor.clone() for name, tensor in state.items()}
    restored.restore({name: tensor.clone() for name, tensor in state.items()})
    for statistics in (whole, restored):
        statistics.add(*nodes_of(1))
    assert all(state[name].equal(tensor) for name, tensor in before.items())
    for name, tensor in whole.state().items():
        assert tensor.equal(restored.state()[name]), name


# ------------------------------------------------------------------ digits


def precise_of(*parts: Nodes) -> ClassStatistics:
    statistics = ClassStatistics(WIDTH, precise=True)
    statistics.grow(CLASSES)
    for features, labels, weights in parts:
        statistics.add(features.double(), labels, weights)
    return statistics


def test_precise_statistics_stay_precise_whatever_is_made_of_them():
    ours, theirs = nodes_of(0), nodes_of(1)
    both = precise_of(ours, theirs)
    merged = precise_of(ours).merged(precise_of(theirs))
    assert merged.precise
    torch.testing.assert_close(symmetric(merged), symmetric(both), rtol=1e-14, atol=1e-14)
    assert precise_of(ours).narrowed(2).precise
    assert statistics_of(ours).merged(precise_of(theirs)).gram_.dtype == torch.float64
    assert not statistics_of(ours).merged(statistics_of(theirs)).precise
    turn = torch.linalg.qr(nodes_of(2, count=WIDTH)[0].double()).Q
    both.transform(turn)
    both.transform(turn.t())
    torch.testing.assert_close(both.gram_.tril(), merged.gram_.tril(), rtol=1e-12, atol=1e-12)
    restored = ClassStatistics(WIDTH, precise=True)
    restored.restore(merged.state())
    assert restored.gram_.tril().equal(merged.gram_.tril())


@given(seed=seeds, classes=st.sampled_from([1, 3, 200]))
def test_sums_are_right_to_the_digits_of_float64(seed, classes):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(500, 3, generator=generator) + 1000.0
    labels = torch.randint(classes, (500,), generator=generator)
    weights = torch.rand(500, generator=generator)
    statistics = ClassStatistics(3)
    statistics.add(features, labels, weights)
    weighted = weights.double()[:, None] * features.double()
    expected = torch.zeros(classes, 3, dtype=torch.float64).index_add_(0, labels, weighted)
    found = statistics.sums_
    torch.testing.assert_close(found, expected[: len(found)], rtol=1e-13, atol=0.0)


@given(width=st.integers(0, 9), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_a_triangle_is_packed_and_unpacked_bit_for_bit(width, dtype):
    matrix = torch.randn(width, width, dtype=dtype)
    triangle = packed(matrix)
    assert triangle.dtype == dtype
    assert triangle.tolist() == [matrix[i, j].item() for i in range(width) for j in range(i + 1)]
    assert unpacked(triangle, width).equal(matrix.tril())


def test_usage_is_counted_without_packing_anything(monkeypatch):
    # 15 values of G in float32, 3 x 5 of the sums in float64, mass and count of 3 classes
    usage = statistics_of(nodes_of(0)).usage
    assert usage == MemoryUsage(statistics=30, bytes=15 * 4 + 15 * 8 + 3 * 16)
    for precise in (True, False):
        statistics = ClassStatistics(WIDTH, precise=precise)
        for count in (0, 12):
            statistics.add(*nodes_of(0, count))
            size = sum(tensor.nbytes for tensor in statistics.state().values())
            with monkeypatch.context() as patch:
                patch.setattr(module, "packed", None)
                assert statistics.usage.bytes == size


@given(seeds, st.integers(1, 7))
def test_exchanged_is_counted_out_and_in(seed, panel):
    """However wide the panels are that G is multiplied in."""
    (before, labels, _), (after, _, _) = nodes_of(seed), nodes_of(seed + 1)
    apart, at_once = (ClassStatistics(WIDTH, precise=True) for _ in range(2))
    ones = torch.ones(len(labels))
    for statistics in (apart, at_once):
        statistics.add(before, labels, ones)
    apart.add(before, labels, ones, -1)
    apart.add(after, labels, ones)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PANEL", panel)
        at_once.exchange(before, after, labels)
    torch.testing.assert_close(at_once.gram_.tril(), apart.gram_.tril(), atol=1e-12, rtol=0)
    torch.testing.assert_close(at_once.sums_, apart.sums_, atol=1e-12, rtol=0)
    assert at_once.counts_.equal(apart.counts_)
