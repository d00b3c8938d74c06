"""Penalties of the views of a mixture, and which of them have a part in it."""

from __future__ import annotations

import pytest
import torch

from evergraph.closed_form import ClassStatistics, mixture
from evergraph.closed_form.fusing import Probes
from evergraph.closed_form.mixture import LADDER, Mixing
from evergraph.closed_form.ridge import balanced_ridge, choose_regularisation
from evergraph.closed_form.view_map import RandomMap
from evergraph.closed_form.views import CODES, View, ViewRows
from evergraph.core.label_space import LabelSpace
from evergraph.core.resources import Resources


def test_a_penalty_chosen_on_some_features_shrinks_all_of_them_as_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four equal blocks of features have four times the kernel of one: so must be λ."""
    draw = torch.Generator().manual_seed(0)
    block = torch.randn(3, 8, generator=draw)
    whole = RandomMap((View((0,)),), {0: block.repeat(1, 4)})
    rows, labels = torch.randn(60, 3, generator=draw), torch.arange(60) % 2
    rows[:, 0] += labels  # with noise enough that the weakest penalty is not the best
    first = whole.narrowed(8)
    sums = {each.width: ClassStatistics(each.width) for each in (whole, first)}
    for each in (whole, first):
        sums[each.width].add(next(each(ViewRows(rows[:40], None))), labels[:40], torch.ones(40))
    probes = Probes(10)
    probes.keep(ViewRows(rows[40:], None), labels=labels[40:], nodes=torch.arange(20))
    monkeypatch.setattr(mixture, "CHOICE_WIDTH", 8)
    mixing = Mixing(whole, LabelSpace("class-il", (2,)), True, "fitted", Resources())
    (strength,) = mixing.strengths([sums[32]], probes, probes.rows())

    asked = ClassStatistics(8)
    kept = ViewRows(probes.rows().hops.float(), None)
    asked.add(next(first(kept)), probes.labels_, torch.full((20,), 0.1))
    chosen = choose_regularisation(sums[8], asked, LADDER)
    assert LADDER[-1] < chosen < LADDER[0]
    (wide,), (narrow,) = whole(kept), first(kept)
    torch.testing.assert_close(
        wide.double() @ balanced_ridge(sums[32], strength),
        narrow.double() @ balanced_ridge(sums[8], chosen),
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.mark.parametrize("names", [("0+y", "32", "0"), ("32",)])
def test_a_far_view_has_a_part_in_the_mixture_where_no_labels_are_shown(
    names: tuple[str, ...],
) -> None:
    """It alone says the class, yet is left out where labels are shown, unless it stands alone."""
    views = tuple(map(View.parse, names))
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 2
    own, codes = torch.randn(60, 2, generator=draw), torch.randn(60, 2, generator=draw)
    rows = ViewRows(own, codes, far=torch.nn.functional.one_hot(labels).float())
    expand = RandomMap.drawn(views, {0: 2, CODES: 2, 32: 2}, width=8, seed=0)
    sums = [ClassStatistics(8) for _ in views]
    for each, features in zip(sums, expand(rows[:40]), strict=True):
        each.add(features, labels[:40], torch.ones(40))
    probes = Probes(10)
    probes.keep(rows[40:], labels=labels[40:], nodes=torch.arange(20))
    mixing = Mixing(expand, LabelSpace("class-il", (2,)), True, "fitted", Resources())
    found = mixing(sums, probes, probes.rows())
    shares = dict(zip(names, found.weights.tolist(), strict=True))
    bare = dict(zip([n for n in names if n != "0+y"], found.bare.tolist(), strict=True))
    assert bare["32"] == max(bare.values())
    assert (shares["32"] > 0) == (names == ("32",))
