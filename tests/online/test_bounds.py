"""What a delta asks for is known before it is written down; as many classes as nodes are."""

import ctypes
import gc
import json
import resource
import sys
from collections import deque
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from evergraph import ContinualNodeClassifier
from evergraph.core import sizes
from evergraph.core.errors import TooMuchError
from evergraph.core.sizes import free_memory
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import AnalyticHead, FusedHead, TargetHead, heads, scorer
from evergraph.online.intake import Bounds, estimate, new_classes
from evergraph.online.learner import OnlineLearner
from forked import in_a_child

MEGABYTE = 10**6


def nodes(name, labels, width=4):
    features = torch.randn(len(labels), width, generator=torch.Generator().manual_seed(len(name)))
    return Delta(nodes=[f"{name}{k}" for k in range(len(labels))], features=features, labels=labels)


def bring_classes(learner, count, step):
    labels = list(range(count * step, count * (step + 1)))
    learner.apply(learner.check(nodes(f"s{step}-", labels)))


def small():
    return OnlineLearner(head=FusedHead(width=16, codes=4))


def test_a_column_of_ids_sent_as_labels_is_refused_before_it_is_written_down(tmp_path):
    ids = [str(number) for number in range(5_000)]
    with LearnerFolder.open(tmp_path, make=OnlineLearner, bounds=Bounds()) as folder:
        with pytest.raises(TooMuchError, match=r"at most 1,000 new classes.*not 5,000.*ids"):
            folder.submit(nodes("n", ids))
        assert folder.submit(nodes("then", ["x"])).seq == 1
    bounds = Bounds(classes=None, memory=500 * MEGABYTE)
    with LearnerFolder.open(tmp_path, make=OnlineLearner, bounds=bounds) as folder:
        assert (folder.seq, folder.learner.status().classes) == (1, 1)
        ids = [str(number) for number in range(20_000)]
        with pytest.raises(TooMuchError, match=r"at most 500 MB.*not about .* GB.*20,000 new"):
            folder.submit(nodes("n", ids))


def test_classes_that_come_by_and_by_are_refused_before_memory_runs_out():
    learner = small()
    learner.bounds = Bounds(memory=21 * MEGABYTE)
    bring = partial(bring_classes, learner, 300)
    with pytest.raises(TooMuchError, match="at most 21 MB of memory"):
        deque(map(bring, range(100)))
    assert 600 <= learner.status().classes < 30_000
    assert learner.predict(["s0-0"])


def test_what_a_journal_holds_is_taken_in_whatever_bounds_say(tmp_path):
    with LearnerFolder.open(tmp_path, make=small) as folder:
        folder.submit(nodes("n", list("abc")))
    with LearnerFolder.open(tmp_path, make=small, bounds=Bounds(classes=1, memory=1)) as folder:
        assert folder.learner.status().classes == 3
        with pytest.raises(TooMuchError):
            folder.submit(nodes("m", list("abc")))


def test_a_model_in_a_process_is_bounded_by_memory_alone(monkeypatch):
    model = ContinualNodeClassifier(width=16)
    model.partial_fit([f"n{k}" for k in range(1_100)], torch.ones(1_100, 8), list(range(1_100)))
    assert len(model.classes_) == 1_100
    monkeypatch.setattr("evergraph.online.intake.free_memory", lambda: 10 * MEGABYTE)
    with pytest.raises(TooMuchError, match="at most 5 MB of memory"):
        model.partial_fit([f"m{k}" for k in range(20_000)], torch.ones(20_000, 8), ["x"] * 20_000)


def test_new_classes_are_those_that_nobody_has_told_of():
    learner = small()
    learner.apply(nodes("n", ["a", "b"]))
    assert len(new_classes(learner.check(nodes("m", ["a", "c", "c", None])), learner.held)) == 1
    assert len(new_classes(learner.check(Delta(late=[("n0", "d")])), learner.held)) == 1
    several = OnlineLearner(head=TargetHead(width=16))
    several.apply(nodes("n", [["a"], []]))
    assert len(new_classes(several.check(nodes("m", [["a", "b"], ["c", "b"]])), several.held)) == 2
    numbers = OnlineLearner(head=TargetHead(width=16, kind="numbers"))
    assert len(new_classes(numbers.check(nodes("m", [1.5, 2.5])), numbers.held)) == 0


def test_a_small_change_of_a_large_graph_is_not_taken_for_a_change_of_all():
    learner = small()
    learner.apply(nodes("n", ["a", "b"] * 5_000, width=32))
    change = Delta(edges=[("n0", "n1")])
    checked = learner.check(change)
    all_of_it, closely = (estimate(checked, learner.held, closely=c) for c in (False, True))
    assert closely < all_of_it / 2
    learner.bounds = Bounds(memory=(closely + all_of_it) // 2)
    learner.check(change)


BY_HAND = {"views": ["0"], "width": 8}
# Of at least three views: sums of one new and of three classes and G, and vectors of four nodes.
SUMS = 8 * (72 * 1 + 104 * 3 + 24 * 8) + 40 * 4 * 8
HEADS = {  # two nodes are left out, as they are not alone in their class; and codes of the new one
    "directions": (
        partial(FusedHead, codes=4, basis="random", **BY_HAND),
        "abc",
        SUMS + 24 * (2 * 3 * 3) + 8 * 4,
    ),
    "landmarks": (
        partial(FusedHead, codes=4, **BY_HAND),
        "abc",
        SUMS + 24 * (2 * 3 * 3) + 8 * 4 + 8 * (24 * 8 + 12 * 12),
    ),
    "labels": (  # all four are left out; and their values
        partial(TargetHead, kind="labels", basis="random", **BY_HAND),
        [["a"], ["b"], ["c"]],
        SUMS + 24 * (4 * 3 * 3) + 8 * 64 + 48 * (4 * 3) + 32 * (8 * 3),
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_an_estimate_by_hand(name):
    """Of a new node of a new class, one of none, a late label, an edge that comes and one that goes."""
    make, (a, b, c), of_head = HEADS[name]
    learner = OnlineLearner(head=make())
    first = nodes("n", [a, b, None])
    learner.apply(replace(first, edges=[("n0", "n1")]))
    known, copied = learner.knowledge, learner.held.copied
    given = replace(
        nodes("m", [c, None]), edges=[("m0", "n2")], removed_edges=[("n0", "n1")], late=[("n2", a)]
    )
    expected = (1 << 24) + 3 * 400 + 2 * 250 + known.bytes_for(2) + 2 * copied
    expected += 5 * 4 * 12 * (2 + 3) + of_head  # vectors of new nodes and of all that there are
    assert estimate(learner.check(given), learner.held) == expected
    # Before the first node, with codes and views that a head may have: 12 + 128 values a vector.
    fresh = OnlineLearner(head=FusedHead(basis="random", **BY_HAND))
    expected = (1 << 24) + 3 * 400 + 3 * 4 * (4 * 4 + 3 * 140) + 5 * 4 * 140 * 3 + 8 * (24 * 8)
    assert estimate(fresh.check(nodes("n", [None] * 3)), fresh.held) == expected


def linked(name, count, classes, width, edges=0):
    ids = [f"{name}{k}" for k in range(count)]
    near = [(ids[k % count], ids[(7 * k + 1) % count]) for k in range(edges)]
    labels = [f"c{k % classes}" if classes else None for k in range(count)]
    return Delta(nodes=ids, features=torch.randn(count, width), labels=labels, edges=near)


def taken(what):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def measured(head, first, then):
    """Return the bytes that a delta is expected to take, and those that it took at most."""
    learner = OnlineLearner(head=heads.make(head))
    learner.frozen()
    learner.apply(first)
    checked = learner.check(then)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
    before, expected = taken("VmRSS"), estimate(checked, learner.held)
    learner.apply(checked)
    return expected, taken("VmHWM") - before


def measure():
    # What is freed goes back to the system at once, so that it is not held when something else
    # begins: every array of 64 KiB and more has pages of its own (M_MMAP_THRESHOLD).
    ctypes.CDLL(None).mallopt(-3, 1 << 16)
    torch.set_num_threads(1)
    few = linked("w", 40, 2, 16)
    shapes = [
        ("auto", few, linked("n", 800, 800, 16)),
        ("auto", linked("w", 500, 0, 64), linked("n", 1000, 5, 64, 1000)),
    ]
    sys.stdout.write(json.dumps([measured(*shape) for shape in shapes]))


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_estimates_are_above_what_is_measured_and_not_far_above():
    ended = in_a_child(measure)
    assert ended.code == 0, ended.err
    for expected, peak in json.loads(ended.out):
        assert peak <= expected <= 4 * peak + 120 * MEGABYTE


def test_free_memory_is_what_the_narrowest_limit_leaves(tmp_path, monkeypatch):
    whole = free_memory()
    monkeypatch.setattr(sizes, "_CGROUPS", tmp_path)
    monkeypatch.setattr(sizes, "_OWN_CGROUP", tmp_path / "own")
    (tmp_path / "own").write_text("0::/slice/unit\n")
    unit = tmp_path / "slice" / "unit"
    unit.mkdir(parents=True)
    for folder, limit in ((unit, "max"), (unit.parent, "3000000")):
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text("2000000\n")
        (folder / "memory.stat").write_text("anon 5\ninactive_file 500000\n")
    assert free_memory() == 1_500_000 < whole


@pytest.mark.skipif(sys.platform != "linux", reason="what is counted is read from /proc")
@pytest.mark.parametrize(("kind", "held"), [("RLIMIT_AS", "vms"), ("RLIMIT_DATA", "data")])
def test_free_memory_is_no_more_than_the_process_may_take(kind, held):
    def limited():
        limit = getattr(psutil.Process().memory_info(), held) + 50 * MEGABYTE
        resource.setrlimit(getattr(resource, kind), (limit, limit))
        assert 30 * MEGABYTE < free_memory() <= 50 * MEGABYTE

    ended = in_a_child(limited)
    assert ended.code == 0, ended.err


def by_and_by(path):
    """A thousand new classes a hundred times, with a gigabyte of addresses left."""
    torch.set_num_threads(1)
    with LearnerFolder.open(path, make=OnlineLearner, bounds=Bounds()) as folder:
        folder.submit(nodes("a", ["x"], width=4))
        limit = psutil.Process().memory_info().vms + 10**9
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            for step in range(100):
                folder.submit(nodes(f"{step}-", [f"{step}-{k}" for k in range(1000)], width=4))
        except TooMuchError as error:
            sys.stdout.write(f"{error}\n")
        folder.submit(nodes("z", ["x"], width=4))
        sys.stdout.write(folder.learner.predict(["z0"])[0])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="addresses are limited by Linux")
def test_a_thousand_classes_a_hundred_times_do_not_end_the_process(tmp_path):
    ended = in_a_child(lambda: by_and_by(tmp_path / "folder"))
    assert ended.code == 0, ended.err
    refused, answered = ended.out.splitlines()
    assert "of memory now (serve --delta-memory)" in refused
    assert answered


MANY = 260
WIDTH = 8


class Largest(TorchDispatchMode):
    """Notes how many values the largest tensor has that any operation returns."""

    values = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)]
        self.values = max([self.values, *sizes])
        return found


@pytest.mark.parametrize(
    "head", [FusedHead(width=WIDTH, codes=4), AnalyticHead(width=WIDTH), TargetHead(width=WIDTH)]
)
def test_applying_holds_no_value_for_each_node_and_class(head, monkeypatch):
    monkeypatch.setattr(scorer, "BLOCK_VALUES", 1 << 14, raising=False)
    monkeypatch.setattr("evergraph.online.heads.fused.LEFT_OUT_SCORES", 1 << 14)
    monkeypatch.setattr("evergraph.closed_form.leave_one_out.BLOCK_VALUES", 1 << 14)
    several = head.kind == "labels"
    learner = OnlineLearner(head=head)
    learner.apply(nodes("first", [["a"], ["b"]] if several else ["a", "b"]))
    many = [[k] if several else k for k in range(MANY)]
    with Largest() as largest:
        learner.apply(nodes("new", many))  # to be guessed among classes just met
        learner.apply(nodes("again", many))  # to be guessed among classes known
    assert largest.values < MANY * 200
    assert learner.status().predicted >= 2 * MANY


TOLD: dict[Any, tuple[list[Any], list[Any]]] = {
    "class": (list("abcd") * 4, list("abcd") * 4),
    "labels": ([["a"], ["a", "b"], [], ["a", "c"]] * 4, [["b"], ["d", "a"], ["a"], []] * 4),
    "numbers": ([1.5, 2.0, -1.0, 0.0] * 4, [2.5, 1.0, 0.5, 3.0] * 4),
}


@pytest.mark.parametrize("kind", TOLD)
def test_guesses_in_pieces_are_those_of_all_at_once(kind, monkeypatch):
    found = []
    for block in (1 << 20, 5):
        monkeypatch.setattr(scorer, "BLOCK_VALUES", block)
        learner = OnlineLearner(
            head=FusedHead(width=64) if kind == "class" else TargetHead(kind=kind, width=64)
        )
        for name, told in zip(("first", "then"), TOLD[kind], strict=True):
            learner.apply(nodes(name, told))
        found.append(learner.history()["curve"][0])
    assert found[0]["asked"] == found[1]["asked"] > 0
    assert found[0]["right"] == pytest.approx(found[1]["right"])
    assert found[0]["right"] > 0


def test_what_is_weighed_shrinks_as_classes_come(monkeypatch):
    monkeypatch.setattr("evergraph.online.heads.fused.LEFT_OUT_SCORES", 300)
    learner = OnlineLearner(head=FusedHead(width=WIDTH, codes=4))
    learner.apply(nodes("first", [k % 20 for k in range(640)]))
    assert len(learner.head._answers.labels) == 300 // (20 * 3)
