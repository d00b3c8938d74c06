"""Who is held back follows from names and labels alone."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.graphs import UNLABELLED
from evergraph.online.learned_nodes import LEAST, MOST, HeldBack, lot


def expected(labels: dict[int, int]) -> set[int]:
    """Return the names held back, written down from the rule."""
    held: set[int] = set()
    for label in set(labels.values()):
        names = sorted((name for name in labels if labels[name] == label), key=lot)
        held |= set(names[:MOST] if len(names) >= LEAST else ())
    return held


def test_lots_are_fixed() -> None:
    """Of folders made before: another lot would hold back other nodes than were learned."""
    assert (lot("a"), lot(1)) == (-6952690916608902167, -649571662916077706)


@given(seed=st.integers(0, 10**6), changes=st.integers(1, 6))
def test_any_order_of_labels_holds_the_same_back(seed: int, changes: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    names = torch.randperm(150, generator=generator).tolist()  # the name of every position
    held, labels = HeldBack(), torch.full((150,), UNLABELLED)
    held.extend(names)
    for _ in range(changes):
        nodes = torch.randperm(150, generator=generator)[:70]
        new = torch.randint(-1, 3, (70,), generator=generator)
        before = spoke(labels)
        other = held.change(nodes, labels[nodes], new)
        labels[nodes] = new
        assert other == (before != spoke(labels))
    known = {names[p]: int(labels[p]) for p in range(150) if labels[p] != UNLABELLED}
    assert {names[p] for p in held.nodes.tolist()} == expected(known)
    again = HeldBack()
    again.restore(held.state())
    every = torch.arange(150)
    again.change(every, torch.full_like(every, UNLABELLED), labels)
    assert again.nodes.equal(held.nodes)


def spoke(labels: torch.Tensor) -> list[bool]:
    return (torch.bincount(labels[labels != UNLABELLED], minlength=3) >= LEAST).tolist()


def test_no_more_than_so_many_of_a_class() -> None:
    held = HeldBack()
    held.extend(range(MOST + 5))
    every = torch.arange(MOST + 5)
    held.change(every, torch.full_like(every, UNLABELLED), torch.zeros_like(every))
    assert len(held.nodes) == MOST


def test_unless_classes_count_alike_the_first_of_all_are_looked_at() -> None:
    """Three of four nodes are of one class, and so are those looked at, by names alone."""
    held, every = HeldBack(), torch.arange(400)
    held.extend(range(400))
    labels = (every % 4 == 0).long()
    held.change(every, torch.full_like(every, UNLABELLED), labels)
    alike = labels[held.first(80)].bincount().tolist()
    found = held.first(80, balanced=False)
    assert alike == [40, 40]
    assert set(held.first(3).tolist()) < set(held.first(4).tolist())
    assert sorted(found.tolist()) == sorted(sorted(range(400), key=lot)[:80])
