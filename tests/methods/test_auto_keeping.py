"""What auto keeps: probes, sums within a limit of memory, and a state that goes on."""

import pytest
import torch

from auto_learners import VIEWS, auto, final_graph, learned
from evergraph.closed_form import ViewFeatures
from evergraph.closed_form import engine as module
from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.methods import Auto, load_learner
from evergraph.streams import GraphStream
from evergraph.training import Trainer


def limited(memory: str | int) -> Auto:
    """Return a learner with the backbone that fits."""
    return Auto(memory=memory, trainer=Trainer(device="cpu"), generator=seeded(0))


# ------------------------------------------------------------------ probes


def test_probes_are_seen_anew_where_the_graph_is_still_there(small_graph):
    stream = GraphStream(small_graph, edges="all")
    for refresh, is_new in (("embeddings", True), ("none", False)):
        learner = learned(stream, refresh=refresh, backbone=ViewFeatures(width=48))
        probes, seen = learner.probes_, learner.backbone.prepare(final_graph(stream))
        expected = seen.hops[probes.nodes_]
        same = torch.isclose(probes.rows_.hops.float(), expected, atol=1e-3).all(1)
        assert bool(same[probes.labels_ >= 4].all())
        assert bool(same[probes.labels_ < 4].all()) is is_new


def test_probes_are_capped_by_scores(small_graph, monkeypatch):
    asked = []
    whole = module.fused_weights

    def watched(scores, labels, **options):
        asked.append(labels)
        return whole(scores, labels, **options)

    monkeypatch.setattr(module, "fused_weights", watched)
    monkeypatch.setattr(
        "evergraph.closed_form.fusing.MOST_SCORES", 6 * 4 * 18
    )  # classes, views, probes
    learned(GraphStream(small_graph)).solve()
    assert [torch.bincount(labels).tolist() for labels in asked] == [[3] * 6] * 2


# ------------------------------------------------------------------ limits of memory


def test_usage_counts_statistics_probes_and_ledger(small_graph):
    task = GraphStream(small_graph).open(0)
    learner, ledger = auto(probes=4), auto(probes=4, ledger=True)
    learner.fit_task(task)
    values = 48 * 49 // 2 + 2 * 48  # a triangle, and the sums of two classes
    assert learner.usage.statistics == 4 * values
    row = 3 * 16 + 2 * 16  # hops 0, 1 and 2 of 16 features, two hops of codes
    assert learner.usage.samples == 2 * 4 * row
    statistics = 4 * (48 * 49 // 2 * 4 + 2 * 48 * 8 + 2 * 16)
    assert learner.usage.bytes == statistics + 2 * 4 * (2 * row + 16)
    ledger.fit_task(task)
    entries = len(task.train) + len(task.validation)
    assert ledger.usage.bytes == learner.usage.bytes + 20 * entries


@pytest.mark.parametrize(
    ("keep", "classes", "features"), [("5MB", 10, 800), ("10MB", 40, 300), ("1MB", 4, 16)]
)
def test_no_more_is_kept_than_may_be(keep, classes, features):
    graph = load("synthetic", nodes=40 * classes, classes=classes, features=features)
    stream = GraphStream(graph, edges="all", classes_per_task=classes // 2, split=(0.2, 0.7, 0.1))
    learner, limit = limited(keep), int(float(keep.removesuffix("MB")) * 1e6)
    for task in stream:
        learner.fit_task(task)
        assert learner.usage.bytes <= limit
    assert learner.usage.bytes > 0.55 * limit  # and what may be kept is made use of
    assert len(learner.probes_) >= 2 * classes


def test_what_may_be_kept_does_not_depend_on_the_order():
    graph = load("synthetic", nodes=600, classes=6, features=1000)
    kept = []
    for order in ([0, 1, 2, 3, 4, 5], [4, 0, 5, 2, 1, 3]):
        learner, stream = limited("1MB"), GraphStream(graph, order=order, split=(0.2, 0.7, 0.1))
        for task in stream:
            learner.fit_task(task)
        probes = learner.probes_
        labels = torch.tensor(stream.classes)[probes.labels_]
        assert labels.equal(graph.labels[probes.nodes_])
        assert len(torch.bincount(labels).unique()) == 1  # as many of every class
        kept.append(probes.nodes_.sort().values)
    assert len(kept[0]) < 6 * 70
    assert kept[0].equal(kept[1])


def test_more_room_is_for_more_and_wider_views():
    small, middle, wide, large = (
        limited(memory).backbone for memory in ("500kB", 1_000_000, "50MB", "150MB")
    )
    assert len(small.views) < len(middle.views) < len(large.views) == 5
    assert not any(view.codes for view in middle.parsed)  # which local testing often has no use for
    assert small.width == middle.width == 256
    assert large.width > wide.width


# ------------------------------------------------------------------ states


def test_a_learner_with_a_limit_is_saved_and_loaded(small_graph, tmp_path):
    stream = GraphStream(small_graph, edges="all")
    backbone = ViewFeatures(views=VIEWS, code_width=8)
    learner = auto(memory="300kB", backbone=backbone, ledger=True, weights="equal")
    learner.fit_task(stream.open(0))
    learner.save(tmp_path / "learner.eg")
    loaded = load_learner(tmp_path / "learner.eg")
    assert repr(loaded) == repr(learner)
    assert loaded.backbone.views == learner.backbone.views
    assert loaded.backbone.width == learner.backbone.width
    for one in (learner, loaded):
        one.fit_task(stream.open(1))
        one.forget(torch.tensor([3, 5]), stream.open(1).graph, known_as=stream.open(1).ids)
    for key, value in learner.state().items():
        assert value.equal(loaded.state()[key]), key


@pytest.mark.parametrize("options", [{"refresh": "embeddings"}, {"ledger": True}])
def test_restored_learners_end_in_the_same_bits(options, small_graph):
    stream = GraphStream(small_graph, edges="all")
    whole, resumed = auto(**options), auto(seed=99, **options)
    whole.fit_task(stream.open(0))
    state = {name: tensor.clone() for name, tensor in whole.state().items()}
    resumed.restore(state, stream.label_space(0))
    for index in (1, 2):
        for learner in (whole, resumed):
            learner.fit_task(stream.open(index))
    assert whole.state().keys() == resumed.state().keys()
    for name, tensor in whole.state().items():
        assert tensor.equal(resumed.state()[name]), name
    assert whole.usage == resumed.usage
    assert whole.recomputed == resumed.recomputed
