"""Several views and one head on all of them: who answers where no label is shown."""

from typing import Any

import pytest
import torch
from torch import Tensor

from evergraph.closed_form import ClassCodes, LandmarkFeatures, ViewFeatures, view_features
from evergraph.closed_form.view_map import RandomMap
from evergraph.closed_form.views import ENDLESS, View
from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.graphs import UNLABELLED, Graph
from evergraph.topology import EmbeddingCache
from evergraph.topology.mixhop import EndOfHops, ViewHops
from graphs_to_draw import random_graph

NAMES = ("0|1+y", "2", "y", "0")
CLASSES = 3


def model(*names: str, width: int = 16, seed: int = 0, **options: Any) -> ViewFeatures:
    made = ViewFeatures(views=names or NAMES, width=width, code_width=4, **options)
    made.begin(3, generator=seeded(seed, "features"))
    made.grow(CLASSES, generator=seeded(0, "head"))
    return made.eval()


def graph(*, shown: bool = True) -> Graph:
    drawn = random_graph(2, nodes=20, edges=40, classes=CLASSES).without_labels()
    return drawn.showing(torch.arange(20) % (CLASSES + 1) - 1) if shown else drawn


def test_hops_and_codes_are_those_of_the_encoders():
    seen, shown = model().prepare(graph()), graph()
    torch.testing.assert_close(
        seen.hops, EmbeddingCache(ViewHops(kept_hops=(0, 1, 2))).encode(shown)
    )
    assert seen.codes is not None
    torch.testing.assert_close(seen.codes, EmbeddingCache(ClassCodes(width=4)).encode(shown))
    assert model().width_of(seen) == 3
    assert model().hops == 2


def test_far_hops_are_those_of_projected_features(monkeypatch):
    monkeypatch.setattr(view_features, "FAR_WIDTH", 2)
    one, shown = model("0|9", "8"), graph()
    seen = one.prepare(shown)
    far = EmbeddingCache(ViewHops(kept_hops=(9,), widest=2)).encode(shown)
    torch.testing.assert_close(seen.arrays[(9,)], far)
    torch.testing.assert_close(seen.taken(torch.device("cpu")).parts()[9], far)
    ends = EmbeddingCache(EndOfHops(widest=2)).encode(shown)
    both = model("9", "c", "0").prepare(shown).arrays[(9, ENDLESS)]
    alone = model("c", "0").prepare(shown).arrays[(ENDLESS,)]
    torch.testing.assert_close(both, torch.cat([far, ends], dim=1))
    torch.testing.assert_close(alone, ends)
    assert (seen.hops.shape[1], one.hops, one(seen).shape) == (6, 9, (20, CLASSES))


@torch.no_grad()
def test_scores_need_far_hops_only_where_a_head_in_use_reads_them():
    one, nodes = model("0|1+y", "9"), torch.tensor([4, 0])
    one.mixture = torch.tensor([[0.0, 2.0], [1.0, 0.0]])
    shown = graph()
    asked = one.asked(shown, nodes)
    assert (9,) not in asked[0].arrays
    assert asked[1].equal(nodes)  # of so small a graph all rows are kept
    assert (9,) in one.asked(shown.structure, nodes)[0].arrays  # no labels: the other head
    one.mixture[1, 1] = 1.0
    assert (9,) in one.asked(shown, nodes)[0].arrays
    one.mixture[1, 1] = 0.0
    torch.testing.assert_close(one(*asked), one(one.prepare(shown), nodes))


@torch.no_grad()
def test_of_a_large_graph_only_the_rows_asked_for_are_kept_until_others_are(monkeypatch):
    nodes, others = torch.tensor([4, 0, 7]), torch.tensor([1])
    shown, small = graph(), model()
    scores = {each: small(*small.asked(shown, each)) for each in (nodes, others)}
    monkeypatch.setattr(view_features, "LARGE", 20 * 3 * 3)
    large = model()
    rows, places = large.asked(shown, nodes)
    assert (len(rows), places) == (3, None)
    assert large.asked(shown, nodes)[0] is rows
    torch.testing.assert_close(large(rows), scores[nodes])
    rows, places = large.asked(shown, others)
    assert len(rows) == 20
    torch.testing.assert_close(large(rows, places), scores[others])
    assert large.asked(shown, nodes)[0] is rows is large.prepare(shown)


@torch.no_grad()
def test_scores_are_the_sum_of_the_heads_of_all_views():
    one, rows = model(), torch.tensor([4, 0, 7])
    seen = one.prepare(graph())
    features = list(one.expansion()(seen))
    parts = one.head.weight.split(16, dim=1)
    expected = sum((f @ w.t() for f, w in zip(features, parts, strict=True)), torch.zeros(()))
    torch.testing.assert_close(one(seen, rows), expected[rows])
    states = torch.cat(features, dim=1)
    torch.testing.assert_close(one.hidden_states(seen), states)
    torch.testing.assert_close(one.hidden_states(seen, rows), states[rows])


@pytest.mark.parametrize(
    ("memory", "views"),
    [(8_000_000, ["0|1+y", "2+y", "0"]), (3_000_000, ["0|1+y", "0"]), (10**6, ["0"])],
)
def test_a_view_without_codes_is_among_those_that_memory_has_room_for(memory, views):
    """512 landmarks a view, of 2 bytes a pair and 0.4 of the memory; fewer for one alone."""
    fitted = LandmarkFeatures(views=["0|1+y", "2+y", "0"]).within(memory)
    assert [*fitted.views] == views
    assert (
        2 * len(views) * fitted.width**2 <= 0.4 * memory < 2 * len(views) * (fitted.width + 64) ** 2
    )


def test_heads_are_set_by_hand():
    """W = a Vᵀ; one of fewer features has zeros behind, and graphs without labels weights of their own."""
    one = model("y", "0", width=3)
    heads = [torch.ones(3, CLASSES), torch.full((2, CLASSES), 2.0)]
    one.set_heads(heads, torch.tensor([[9.0, 0.25], [0.5, 4.0]]))
    coded, bare = (one.eval()._weights(coded=each) for each in (True, False))
    assert [w.tolist() for w in coded.values()] == [
        [[0.5] * 3] * CLASSES,
        [[8.0, 8.0, 0.0]] * CLASSES,
    ]
    assert [w.tolist() for w in bare.values()] == [[[0.5, 0.5, 0.0]] * CLASSES]
    assert one.sharpness.tolist() == [9.25, 4.5]


@torch.no_grad()
def test_where_no_label_is_shown_other_views_answer_with_weights_of_their_own():
    one = model()
    seen = one.prepare(graph(shown=False))
    assert seen.codes is None
    _, far, _, own = one.expansion()(one.prepare(graph()))
    _, second, _, fourth = one.head.weight.split(16, dim=1)
    torch.testing.assert_close(one(seen), far @ second.t() + own @ fourth.t())
    one.mixture[0] = torch.tensor([0.0, 3.0, 0.0, 0.5])
    torch.testing.assert_close(one(seen), 3 * (far @ second.t()) + 0.5 * (own @ fourth.t()))
    # and with labels nothing has changed
    assert not torch.allclose(one(one.prepare(graph())), one(seen))


@torch.no_grad()
def test_views_without_weight_are_not_computed(monkeypatch):
    one = model()
    one.head.weight.data[:, 16:] = 0.0
    seen, asked = one.prepare(graph()), []
    first = next(iter(one.expansion()(seen)))
    features = RandomMap.features

    def watched(self: RandomMap, view: View, *given: Any) -> Tensor:
        asked.append(str(view))
        return features(self, view, *given)

    monkeypatch.setattr(RandomMap, "features", watched)
    torch.testing.assert_close(one(seen), first @ one.head.weight[:, :16].t())
    assert set(asked) == {"0|1+y"}


def test_labels_that_nobody_chose_to_show_are_not_looked_at():
    """A graph as a user reads it has all labels, of test nodes too."""
    read = graph().with_labels(torch.zeros(20, dtype=torch.int64))
    assert read.bare is None
    assert model().prepare(read).codes is None
    hidden = graph().structure.showing(torch.full((20,), UNLABELLED))
    assert model().prepare(hidden).codes is None
    assert model("2", "0|1").prepare(graph()).codes is None  # no view asks for them


def test_codes_and_hops_are_computed_once(monkeypatch):
    encoded = []
    whole = EmbeddingCache.encode

    def counted(self, graph):
        encoded.append(self.topology.name)
        return whole(self, graph)

    monkeypatch.setattr(EmbeddingCache, "encode", counted)
    one, structure = model(), graph(shown=False)
    shown = [structure.showing(torch.full((20,), label)) for label in (0, 1)]
    for each in (structure, *shown, *shown):
        one.prepare(each)
    assert sorted(encoded) == ["class-codes", "class-codes", "view-hops"]


def test_the_same_seed_makes_the_same_features():
    assert model().expands_like(model())
    for other in (model(seed=1), model("2", "y"), model(width=8)):
        assert not model().expands_like(other)


def test_room_for_more_classes_keeps_what_is_there():
    one = model()
    before = one.head.weight.detach().clone()
    one.grow(CLASSES + 2, generator=seeded(1))
    assert one.head.weight[:CLASSES].equal(before)


def test_dropout_is_for_training_alone_and_nobody_asked_is_no_answer():
    one, seen = model(dropout=0.5), model().prepare(graph())
    calm = one(seen)
    assert one(seen).equal(calm)
    assert one(seen, torch.empty(0, dtype=torch.int64)).shape == (0, CLASSES)
    one.train()
    assert not torch.allclose(one(seen, generator=seeded(0)), calm)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"views": ["2", "2"]}, "views"),
        ({"views": "2"}, "views must be a list of at least one view, not '2'"),
        ({"views": ["two"]}, "a view must be hops joined by"),
        ({"width": 0}, "width must be an integer of at least 1, not 0"),
        ({"code_width": 0}, "width must be an integer of at least 1, not 0"),
        ({"dropout": 1.0}, "dropout must be a number"),
        ({"storage": "int8"}, "storage"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        ViewFeatures(**options)
