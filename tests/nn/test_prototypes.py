"""Prototypes: when they are established, and what they stand for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.errors import ConfigurationError
from evergraph.nn import PrototypeNetwork
from evergraph.nn.prototype_network import (
    NOTHING,
    PrototypeHead,
    nearest,
    replaced_by_prototypes,
    unit,
    unmatched,
)
from graphs_to_draw import generator

close = torch.testing.assert_close
NONE = torch.empty(0, 2)


def fan(*degrees: float) -> Tensor:
    """Vectors of length 1 at some angles."""
    angles = torch.tensor(degrees).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def test_what_matches_nothing_is_established_and_then_matched():
    # cos 60° = 0.5: 40° is matched by 0°, 100° by nothing, 130° by 100°, which is new.
    assert unmatched(fan(0, 40, 100, 130), NONE, 0.5, most=9).tolist() == [0, 2]
    assert unmatched(fan(40, 100, 130), fan(0), 0.5, most=9).tolist() == [1]
    assert unmatched(fan(0, 40, 100), fan(20, 110), 0.5, most=9).tolist() == []


def test_there_are_no_more_than_there_may_be_and_zeros_are_none():
    vectors = torch.cat([torch.zeros(2, 2), fan(0, 90, 180)])
    assert unmatched(vectors, NONE, 0.5, most=2).tolist() == [2, 3]
    assert unmatched(vectors[:2], NONE, 0.5, most=2).tolist() == []


@given(st.integers(0, 9999), st.floats(-0.5, 0.95), st.integers(0, 5))
def test_prototypes_lie_apart_and_match_everything(seed, threshold, known):
    vectors = unit(torch.randn(40, 3, generator=generator(seed)))
    first = vectors[unmatched(vectors[:known], torch.empty(0, 3), threshold, most=99)]
    new = vectors[unmatched(vectors, first, threshold, most=99)]
    together = torch.cat([first, new])
    cosines = together @ together.t()
    assert bool((cosines.fill_diagonal_(-2.0) < threshold + 1e-5).all())
    assert bool(((vectors @ together.t()).amax(1) >= threshold - 1e-5).all())
    assert len(unmatched(vectors, together, threshold - 1e-5, most=99)) == 0  # all are reused


def test_the_nearest_stands_in_and_hands_its_gradient_on():
    vectors = fan(10, 80).requires_grad_()
    stand = replaced_by_prototypes(vectors, fan(0, 90))
    close(stand.detach(), fan(0, 90))
    (stand * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert vectors.grad.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert nearest(fan(44, 46), fan(0, 90)).tolist() == [0, 1]


def head_by_hand() -> PrototypeHead:
    """One extractor of each kind and maps that leave everything as it is, all in the plane."""
    head = PrototypeHead(
        2, hops=1, extractors=1, widths=(2, 2, 2), dropout=0.0, generator=generator()
    )
    with torch.no_grad():
        head.own.weight.copy_(torch.eye(2))
        head.structure.weight.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))  # swaps
        head.to_node.weight.copy_(torch.eye(2).repeat(1, 2))  # own + neighbours'
        head.to_node.bias.zero_()
        head.to_class.weight.copy_(torch.eye(2))
        head.to_class.bias.zero_()
    return head


def test_three_levels_by_hand():
    head = head_by_hand()
    rows = torch.tensor([[3.0, 0.0, 5.0, 0.0], [0.0, 2.0, 0.0, 0.0]])
    # atomic: [1 0] and, swapped, [0 1]; [0 1] and nothing, the second has no neighbours.
    found = head.extracted(rows)
    close(found.detach(), torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 0.0]]]))
    chosen = head.establish(rows, (0.9, 0.9, 0.5), capacity=9)
    close(head.atoms, torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    assert head.nodes.tolist() == [[0, 1], [1, NOTHING]]
    # node level: [1 1]/√2 and [0 1], cosine 0.71: two at 0.9. Class level: one is enough at 0.5.
    half = 0.5**0.5
    close(head.prototypes()[0], torch.tensor([[half, half], [0.0, 1.0]]))
    assert head.classes.tolist() == [0]
    assert chosen.tolist() == [0, 1]
    states = head.hidden_states(rows).detach()
    close(states[1], torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 1.0, half, half]))


def test_prototypes_are_reused_and_move_with_the_maps_above_the_atoms():
    head = head_by_hand()
    rows = torch.tensor([[3.0, 0.0, 5.0, 0.0], [0.0, 2.0, 0.0, 0.0]])
    thresholds = (0.9, 0.9, 0.5)
    head.establish(rows, thresholds, capacity=9)
    before = [head.atoms.clone(), head.nodes.clone(), head.classes.clone()]
    assert head.establish(rows.flip(0), thresholds, capacity=9).tolist() == [1, 0]
    assert all(map(torch.equal, before, [head.atoms, head.nodes, head.classes]))
    with torch.no_grad():
        head.to_node.weight.neg_()
    close(head.prototypes()[0][1], torch.tensor([0.0, -1.0]))


def test_no_level_outgrows_its_capacity():
    head = head_by_hand()
    rows = torch.randn(50, 4, generator=generator())
    head.establish(rows, (1.0, 1.0, 1.0), capacity=3)
    assert (len(head.atoms), len(head.nodes), len(head.classes)) == (3, 3, 3)


def test_the_widths_of_all_levels_must_be_given():
    with pytest.raises(
        ConfigurationError, match=r"widths must be 3 integers, one per level, not \[16\]"
    ):
        PrototypeNetwork(widths=(16,))
