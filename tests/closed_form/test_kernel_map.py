"""Kernel values by NumPy and by torch against the definition, and without some landmarks."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from evergraph.closed_form import statistics
from evergraph.closed_form.kernel_map import KernelMap
from evergraph.closed_form.views import View
from evergraph.core.device import exactly_threads

# Parts 0, 2 and 4 of a vector, and class codes at its end; the second view leaves a gap.
VIEWS = (View((0,)), View((0, 4)), View((0, 2), codes=True))
SIZES = {0: 3, 2: 2, 4: 3, -1: 2}


def landmarks(seed: int, count: int = 6) -> KernelMap:
    generator = torch.Generator().manual_seed(seed)
    parts = {p: torch.randn(count, dims, generator=generator) for p, dims in SIZES.items()}
    return KernelMap.of(VIEWS, parts)


def by_definition(one: KernelMap, vectors: torch.Tensor, weights: list[torch.Tensor]):
    """Σ_v W_vᵀk_v, k = ‖x‖‖z‖ (sin t + (π - t) cos t) / π with t between x and z, in float64."""
    scores = torch.zeros(len(vectors), weights[0].shape[1], dtype=torch.float64)
    for view, weight in zip(one.views, weights, strict=True):
        needed = one.needed(view)
        units = sum(one.units.get(part, 1) for part in needed)
        x = torch.cat([vectors[:, slice(*one.places[part])] for part in needed], dim=1).double()
        z = torch.cat([one.landmarks[part] for part in needed], dim=1).double()
        lengths = x.norm(dim=1)[:, None] * z.norm(dim=1)
        t = (x @ z.t() / lengths.clamp_min(1e-300)).clamp(-1, 1).acos()
        scores += (
            lengths * (t.sin() + (math.pi - t) * t.cos()) / (math.pi * units) @ weight.double()
        )
    return scores


@given(seed=st.integers(0, 2**16), rows=st.integers(0, 9), removed=st.sets(st.integers(0, 5)))
def test_rows_by_numpy_are_the_definition(seed, rows, removed):
    one = landmarks(seed).without(torch.tensor(sorted(removed), dtype=torch.int64))
    generator = torch.Generator().manual_seed(seed + 1)
    vectors = torch.randn(rows, sum(SIZES.values()), generator=generator)
    # A landmark itself and its opposite: cosines of 1 and -1 up to rounding; and no features.
    own = torch.cat([one.landmarks[part][0] for part in one.places])
    vectors = torch.cat([vectors, own[None], -own[None], torch.zeros(1, len(own))])
    weights = [torch.randn(6, 4, generator=generator) for _ in VIEWS]
    found = torch.from_numpy(one.rowwise(vectors.numpy())).flatten(1) @ torch.cat(weights)
    torch.testing.assert_close(
        found.double(), by_definition(one, vectors, weights), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(("count", "added"), [(6, 1e-4), (1500, 1.5e-4)])
def test_the_penalty_is_the_kernel_and_a_little_on_its_diagonal(count, added):
    """Relative to the mean diagonal, and more of it for many landmarks; a removed one has 1."""
    one = landmarks(0, count).only([VIEWS[0]]).without(torch.tensor([1]))
    (view,) = one.views
    kernel = one.features(view, one.projected(one.landmarks, torch.matmul)).double()
    kernel[1, 1] = 1.0
    expected = kernel + added * kernel.diagonal().mean() * torch.eye(count)
    found = one.penalties()[view].double()
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("view", VIEWS, ids=str)
def test_features_are_the_definition_however_few_rows_a_thread_takes(monkeypatch, view):
    monkeypatch.setattr(statistics, "CACHED", 12)  # two rows of six values
    one = landmarks(3).only([view])
    vectors = torch.randn(5, sum(SIZES.values()), generator=torch.Generator().manual_seed(4))
    with exactly_threads(2):
        features = one.features(view, one.projected(one.cut(vectors), torch.matmul))
    expected = by_definition(one, vectors, [torch.eye(6)])
    torch.testing.assert_close(features.double(), expected, rtol=1e-4, atol=1e-4)
