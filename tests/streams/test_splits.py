"""Training, validation and test nodes of every class."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.streams import Split, split_classes

PARTS = ("train", "validation", "test")


def labels_of(*sizes: int) -> Tensor:
    """Classes of the given sizes, shuffled among each other."""
    labels = torch.cat([torch.full((size,), label) for label, size in enumerate(sizes)])
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]


def counts(split: Split, labels: Tensor, label: int) -> list[int]:
    return [int((labels[getattr(split, part)] == label).sum()) for part in PARTS]


@pytest.mark.parametrize(
    ("options", "size", "expected"),
    [
        ({}, 3, [1, 1, 1]),  # a fifth of 3 is less than one node, and one is taken all the same
        ({}, 4, [2, 1, 1]),
        ({}, 9, [7, 1, 1]),  # 1.8 rounds down; what is left trains
        ({}, 10, [6, 2, 2]),
        ({}, 100, [60, 20, 20]),
        ({"shares": (0.5, 0.25, 0.25)}, 20, [10, 5, 5]),
        ({"shares": (0.25, 0.25, 0.5)}, 20, [5, 5, 10]),
        ({"shares": (0.2, 0.7, 0.1)}, 3, [1, 1, 1]),  # lopsided ones leave a node to every part
        ({"shares": (0.05, 0.9, 0.05)}, 10, [1, 8, 1]),
        ({"shares": (0.42, 0.29, 0.29)}, 100, [42, 29, 29]),
        ({"shares": (8, 2, 4)}, 100, [8, 2, 4]),  # whole numbers are nodes of every class
        ({"shares": (8, 2, 4)}, 14, [8, 2, 4]),
        ({"shares": (8, 2, 4)}, 7, [4, 1, 2]),  # of small ones 4 : 1 : 2
        ({"shares": (8, 2, 4)}, 3, [1, 1, 1]),
        ({"labelled": 0.05}, 100, [5, 5, 90]),  # as many to validate, the rest to test
        ({"labelled": 0.05}, 59, [2, 2, 55]),  # 2.95 rounds down
        ({"labelled": 0.05}, 10, [1, 1, 8]),  # at least one of each
        ({"labelled": 0.05}, 3, [1, 1, 1]),
        ({"labelled": 0.2}, 10, [2, 2, 6]),
        ({"labelled": 0.6}, 10, [6, 2, 2]),  # no more than half of what is left
        ({"labelled": 0.9}, 10, [8, 1, 1]),  # one is left for each of the others
    ],
)
def test_every_class_is_cut_as_asked(options, size, expected):
    labels = labels_of(size, 50)
    split = split_classes(labels, (0, 1), **options)
    assert counts(split, labels, 0) == expected
    whole = isinstance(options.get("shares", (0.1,))[0], int)
    parts = torch.cat([getattr(split, part) for part in PARTS])
    assert len(parts) == len(set(parts.tolist()))
    assert len(parts) == (sum(expected) + 14 if whole else size + 50)


@given(sizes=st.lists(st.integers(3, 30), min_size=1, max_size=4), seed=st.integers(0, 10_000))
def test_parts_are_ascending_disjoint_and_cover_the_classes(sizes, seed):
    labels = labels_of(*sizes, 5)  # the last class is not asked for
    classes = tuple(range(len(sizes)))
    split = split_classes(labels, classes, seed=seed)
    parts = [getattr(split, part).tolist() for part in PARTS]
    assert all(part == sorted(part) for part in parts)
    every = [node for part in parts for node in part]
    assert len(every) == len(set(every))
    assert set(every) == set((labels < len(sizes)).nonzero().flatten().tolist())
    assert all(min(counts(split, labels, label)) >= 1 for label in classes)


@given(seed=st.integers(0, 10_000), order=st.permutations(range(4)))
def test_a_class_is_cut_the_same_way_whenever_it_arrives(seed, order):
    labels = labels_of(8, 9, 10, 11)
    together = split_classes(labels, tuple(order), seed=seed)
    again = split_classes(labels, (0, 1, 2, 3), seed=seed)
    for part in PARTS:
        apart = [getattr(split_classes(labels, (label,), seed=seed), part) for label in order]
        assert getattr(together, part).equal(torch.cat(apart).sort().values)
        assert getattr(together, part).equal(getattr(again, part))


def test_draws_are_independent_and_fair():
    # Two classes of one size, node i of one beside node i of the other: cut alike they would
    # choose the same places.
    labels = torch.arange(60) % 2
    split = split_classes(labels, (0, 1))
    places = [(split.test[labels[split.test] == label] // 2).tolist() for label in (0, 1)]
    assert places[0] != places[1]
    # Every node may land in every part.
    labels, runs = labels_of(10), 100
    tested = torch.zeros(10)
    for seed in range(runs):
        tested[split_classes(labels, (0,), seed=seed).test] += 1
    sigma = (0.2 * 0.8 / runs) ** 0.5
    assert bool(((tested / runs - 0.2).abs() < 4 * sigma).all())


@pytest.mark.parametrize("size", [0, 1, 2])
def test_a_class_too_small_to_cut_is_named(size):
    labels = torch.tensor([0] * 5 + [7] * size)
    with pytest.raises(DataError, match=f"class 7 has {size} nodes, too few to split"):
        split_classes(labels, (0, 7))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(
            ({"shares": shares}, "split must be")
            for shares in (
                (0.6, 0.2, 0.1),
                (0.8, 0.2, 0.0),
                (0.5, 0.5),
                (0.5, 0.2, 0.2, 0.1),
                (1.2, -0.1, -0.1),
                (),
                (8, 0, 4),
                (8, 2, -1),
                (8, 2, 0.5),
            )
        ),
        *(({"labelled": share}, "labelled must be") for share in (0.0, 1.0, -0.1, 5)),
        ({"labelled": 0.1, "shares": (0.5, 0.25, 0.25)}, "leave out one of them"),
    ],
)
def test_shares_that_cut_nothing_are_refused(options, said):
    with pytest.raises(ConfigurationError, match=said):
        split_classes(labels_of(20), (0,), **options)


def test_fewer_labels_are_some_of_more():
    labels = labels_of(200, 90)
    few, more, default = (
        set(split_classes(labels, (0, 1), seed=3, **options).train.tolist())
        for options in ({"labelled": 0.05}, {"labelled": 0.2}, {})
    )
    assert few < more < default
