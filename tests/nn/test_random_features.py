"""Random features: the kernels they approach, and the few bytes they are made from."""

import math

import pytest
import torch
from torch import Tensor

from evergraph.nn import GCN, PDGNN, RandomFeatures, random_features
from graphs_to_draw import generator

# Angles of 0, 45, 90 and 180 degrees to the first, and other lengths.
POINTS = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0], [-0.5, 0.0]])
PLENTY = 200_000  # features, so that a mean over them is within 0.02 of what it approaches


def model_of(width: int = 8, *, dims: int = 2, seed: int = 0, **options: object) -> RandomFeatures:
    model = RandomFeatures(width=width, **options)
    model.begin(dims, generator=generator(seed))
    model.grow(3, generator=generator(seed + 1))
    return model.eval()


def inner_products(activation: str) -> Tensor:
    features = model_of(PLENTY, activation=activation).expand(POINTS)
    return features @ features.t()


def test_features_approach_the_arc_cosine_and_the_gaussian_kernel():
    # 2 E[max(0, r·x) max(0, r·y)] = |x||y|/π (sin θ + (π - θ) cos θ)
    products = inner_products("relu")
    diagonal = 2**0.5 / math.pi * (0.5**0.5 + 0.75 * math.pi * 0.5**0.5)  # θ = π/4
    expected = [1.0, diagonal, 2 / math.pi, 0.0]
    assert products[0].tolist() == pytest.approx(expected, abs=0.02)
    assert products.diagonal().tolist() == pytest.approx([1.0, 2.0, 4.0, 0.25], abs=0.05)
    # squared distances to the first: 0, 1, 5, 2.25
    expected = [1.0, math.exp(-0.5), math.exp(-2.5), math.exp(-1.125)]
    assert inner_products("fourier")[0].tolist() == pytest.approx(expected, abs=0.02)


def test_features_by_the_formula_written_out():
    for activation in ("relu", "fourier"):
        model = model_of(4, activation=activation)
        drawn = model.expansion()
        matrix, phases = drawn.matrix, drawn.phases
        assert (matrix.shape, phases.shape) == ((2, 4), (4,))
        assert 0.0 <= float(phases.min()) <= float(phases.max()) < 2 * math.pi
        at_ends = POINTS @ matrix
        curve = at_ends.clamp_min(0) if activation == "relu" else torch.cos(at_ends + phases)
        torch.testing.assert_close(model.expand(POINTS), (2 / 4) ** 0.5 * curve)


def test_no_random_matrix_is_stored_and_a_restored_model_draws_the_same():
    model, restored = model_of(seed=0), model_of(seed=5)
    assert not torch.allclose(restored.expand(POINTS), model.expand(POINTS))
    kept = model.state_dict()
    assert set(kept) == {"seed", "centre", "head.weight"}
    assert (kept["seed"].nbytes, kept["centre"].nbytes) == (8, 0)
    restored.load_state_dict(kept)  # after its own features have been drawn
    assert restored.expand(POINTS).equal(model.expand(POINTS))


def test_centred_features_are_those_of_directions_from_the_mean():
    plain, centred = model_of(), model_of(centred=True)
    centred.settle(torch.tensor([[0.0, 0.0], [2.0, 0.0]]))  # the mean is (1, 0)
    seen = torch.tensor([[4.0, 4.0], [1.0, -2.0], [1.0, 0.0]])
    directions = torch.tensor([[0.6, 0.8], [0.0, -1.0], [0.0, 0.0]])
    torch.testing.assert_close(centred.expand(seen), plain.expand(directions))
    assert seen.tolist() == [[4.0, 4.0], [1.0, -2.0], [1.0, 0.0]]


def test_only_a_centred_model_has_a_centre_and_it_is_restored():
    plain, centred, restored = model_of(), model_of(centred=True), model_of(centred=True, seed=5)
    before = plain.expand(POINTS)
    for model in (plain, centred):
        model.settle(POINTS + 3)
    assert plain.expand(POINTS).equal(before)
    assert not torch.allclose(restored.expand(POINTS), centred.expand(POINTS))
    restored.load_state_dict(centred.state_dict())
    assert restored.centre.tolist() == [3.375, 3.75]
    assert restored.expand(POINTS).equal(centred.expand(POINTS))


def test_predictions_in_blocks_are_those_of_the_whole(monkeypatch):
    embeddings = torch.randn(11, 2, generator=generator())
    model = model_of()
    whole = model(embeddings)
    assert len(model.blocks(embeddings)) == 1
    monkeypatch.setattr(random_features, "BLOCK_VALUES", 4 * 8)  # four rows of eight features
    assert [len(block) for block in model.blocks(embeddings)] == [4, 4, 3]
    torch.testing.assert_close(model(embeddings), whole)
    torch.testing.assert_close(model(embeddings, torch.tensor([9, 2])), whole[[9, 2]])
    assert model(embeddings[:0]).shape == (0, 3)


def test_embeddings_come_back_unchanged_and_only_the_head_is_trained():
    embeddings = POINTS.clone()
    for activation in ("relu", "fourier"):
        model = model_of(activation=activation).train()
        model(embeddings, generator=generator()).sum().backward()
        assert [name for name, _ in model.named_parameters()] == ["head.weight"]
        assert model.head.weight.grad is not None
    assert embeddings.equal(POINTS)


def test_the_work_of_a_step_is_counted_by_hand():
    head = PDGNN(hidden=(5,))
    head.begin(3, generator=generator())
    head.grow(2, generator=generator())
    assert head.step_work(10) == 10 * (3 * 5 + 5 + 5 * 2 + 2)
    assert model_of(7, dims=3).step_work(10) == 10 * (3 * 7 + 7 * 3)
    assert GCN().step_work(10) is None  # it goes over the whole graph, whatever the rows


@pytest.mark.parametrize("activation", ["relu", "fourier"])
@pytest.mark.parametrize("centred", [False, True])
def test_the_first_features_are_the_same_alone(activation, centred):
    model = model_of(12, activation=activation, centred=centred)
    model.settle(POINTS + 3)
    whole = model.expansion()
    for width in (1, 5, 12, 20):
        narrow = whole.narrowed(width)
        assert narrow.width == min(width, 12)
        torch.testing.assert_close(narrow(POINTS), whole(POINTS)[:, :width])
    torch.testing.assert_close(whole.narrowed(7).narrowed(3)(POINTS), whole(POINTS)[:, :3])
