"""Kernel values by NumPy and by torch against the definition, and without some landmarks."""

import math
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from scipy.sparse import csr_matrix

from evergraph.closed_form import statistics
from evergraph.closed_form.kernel_map import KernelMap, level_of, with_constant
from evergraph.closed_form.own_features import packed_words, unit_words
from evergraph.closed_form.views import LENGTH, WORDS, View
from evergraph.core.resources import exactly_threads

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
        units = len(needed) + view.codes  # those are two
        x = torch.cat([vectors[:, slice(*one.places[part])] for part in needed], dim=1).double()
        z = torch.cat([one.landmarks[part] for part in needed], dim=1).double()
        lengths = x.norm(dim=1)[:, None] * z.norm(dim=1)
        t = (x @ z.t() / lengths.clamp_min(1e-300)).clamp(-1, 1).acos()
        scores += (
            lengths * (t.sin() + (math.pi - t) * t.cos()) / (math.pi * units) @ weight.double()
        )
    return scores


def cut(one: KernelMap, vectors: torch.Tensor) -> dict[int, torch.Tensor]:
    return {part: vectors[:, slice(*ends)] for part, ends in one.places.items()}


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
    one = replace(landmarks(0, count), views=(VIEWS[0],)).without(torch.tensor([1]))
    (view,) = one.views
    kernel = one.features(view, one.projected(one.landmarks)).double()
    kernel[1, 1] = 1.0
    expected = kernel + added * kernel.diagonal().mean() * torch.eye(count)
    found = one.penalties()[view].double()
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)
    assert one.nbytes == 4 * count * (sum(SIZES.values()) + count)  # of landmarks and of K


@pytest.mark.parametrize("view", VIEWS, ids=str)
def test_features_are_the_definition_however_few_rows_a_thread_takes(monkeypatch, view):
    monkeypatch.setattr(statistics, "CACHED", 12)  # two rows of six values
    one = replace(landmarks(3), views=(view,))
    vectors = torch.randn(5, sum(SIZES.values()), generator=torch.Generator().manual_seed(4))
    with exactly_threads(2):
        features = one.features(view, one.projected(cut(one, vectors)))
    expected = by_definition(one, vectors, [torch.eye(6)])
    torch.testing.assert_close(features.double(), expected, rtol=1e-4, atol=1e-4)


def test_slopes_by_hand():
    """x = .1 and z = .2 long, 60 degrees apart: ((π - π/3) z + sin π/3 ‖z‖/‖x‖ x) / π."""
    own = View((0,))
    one = KernelMap.of((own,), {0: torch.tensor([[0.1, 0.1 * math.sqrt(3)]])})
    slopes = one.slopes(torch.tensor([0.1, 0.0]), [torch.ones(1, 1)])
    expected = [0.2 / 3 + 0.1 * math.sqrt(3) / math.pi, 0.2 * math.sqrt(3) / 3]
    assert slopes.flatten().tolist() == pytest.approx(expected, rel=1e-5)


def test_rows_on_one_line_differ_by_their_lengths():
    # x = (3, 0) and z = (12, 0) with c = 4 are (3, 4)/5 and (3, 1)/√10: cos t = 13/(5 √10).
    parts = {0: torch.tensor([[3.0, 0.0]]), LENGTH: torch.tensor([[1.0]])}
    parts = {part: rows / math.sqrt(10) for part, rows in parts.items()}
    one = KernelMap.of((View((0,)),), parts, level=4.0)
    vector = np.array([[1, 0, 3]], np.float32)
    t = math.acos(13 / (5 * math.sqrt(10)))
    expected = (math.sin(t) + (math.pi - t) * math.cos(t)) / math.pi
    assert one.rowwise(vector).item() == pytest.approx(expected, abs=1e-6)


def test_rows_without_columns_are_the_constant_alone():
    level, places = level_of(torch.zeros(2, 1)), {0: (0, 0), LENGTH: (0, 1)}
    landmarks = torch.from_numpy(with_constant(np.zeros((2, 1), np.float32), places, level))
    parts = {0: landmarks[:, :0], LENGTH: landmarks}
    one = KernelMap.of((View((0,)),), parts, level=level)
    assert one.rowwise(np.zeros((3, 1), np.float32)).tolist() == [[[1.0, 1.0]]] * 3


@given(seed=st.integers(0, 2**16), alone=st.booleans())
def test_packed_words_are_compared_like_sparse_rows(seed, alone):
    """In batches, row by row and along slopes, beside other parts and for hop 0."""
    draws = np.random.default_rng(seed)
    drawn = draws.random((9, 12)) * (draws.random((9, 12)) < 0.4)
    drawn[4] = 0.0  # the last landmark has no words
    rows = csr_matrix(drawn, dtype="float32")
    words, others = (
        packed_words(rows),
        torch.randn(9, 3, generator=torch.Generator().manual_seed(seed)),
    )
    views, few = (View((0,)), View((0, 2))), slice(5)
    one = KernelMap.of(
        views, {0: others[few], 2: others[few], WORDS: words[few]}, words_alone=alone
    ).without(torch.tensor([3]))
    parts = {0: others, 2: others, WORDS: words}
    found = one.projected({part: parts[part] for part in one.needed(*views)})
    products = torch.from_numpy((unit_words(rows) @ unit_words(rows)[few].T).toarray())
    products[:, 3] = 0
    torch.testing.assert_close(found[WORDS][:, :-1], products)
    assert (0 in found) != alone
    vectors = torch.cat([others, others, words], dim=1)
    by_row = torch.from_numpy(one.rowwise(vectors.numpy()))
    for place, view in enumerate(views):
        torch.testing.assert_close(
            by_row[:, place], one.features(view, found), rtol=1e-4, atol=1e-4
        )
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(5, 2, generator=generator) for _ in views]
    scores = by_row[0].flatten() @ torch.cat(weights)
    found_scores = one.slopes(vectors[0], weights) @ vectors[0]
    torch.testing.assert_close(found_scores, scores, rtol=1e-3, atol=1e-4)
