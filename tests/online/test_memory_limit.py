"""A learner within a limit: the same bits, files instead of memory, one sentence where it fails."""

import json
import os
import sys
import tempfile
import threading
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph import ContinualNodeClassifier
from evergraph.core.errors import ConfigurationError, ResourceError
from evergraph.core.mapped import give_memory_back
from evergraph.online import array_storage
from evergraph.online.array_storage import ArrayStorage, PagedTensor, held
from evergraph.online.delta import Delta
from evergraph.online.graph import growing_array, neighbour_lists
from evergraph.online.graph.growing_array import GrowingArray
from evergraph.online.heads import FusedHead
from evergraph.online.knowledge import WIDE
from evergraph.online.learner import OnlineLearner
from growth import bits, growth

ROOMY = 1 << 40
FEATURES = 20  # 80 bytes a row: wide


def storage(**options) -> ArrayStorage:
    return ArrayStorage(limit=ROOMY, **options)


def test_rows_in_a_file_without_a_name_grow_and_keep_what_they_were(tmp_path):
    array = GrowingArray(3)
    array.extend(2)
    array.array[1] = 7
    array.map_to(storage(folder=tmp_path))
    before = array.array
    array.extend(100_000)
    assert array.array[:3].tolist() == [[0, 0, 0], [7, 7, 7], [0, 0, 0]]
    before[0] = 5  # an old view is of the same file
    assert array.tensor[0].tolist() == [5, 5, 5]
    assert (len(array), array.nbytes) == (100_002, 1_200_024)
    assert list(tmp_path.iterdir()) == []
    array.restore(torch.ones(2, 3))  # whoever reads the old one is left alone
    assert (before[1].tolist(), array.array.sum()) == ([7, 7, 7], 6)


def test_what_is_computed_in_a_file_is_let_go_as_well(monkeypatch):
    monkeypatch.setattr(array_storage, "ARRAY_SHARE", 0.0)
    place, former = storage(), GrowingArray(1024)
    former.map_to(place)
    former.extend(5000)
    former.array[:] = 2
    earlier, computed = former.replace(), place.empty(5000, 1024)
    computed[:] = 1.0
    full = held()
    place.let_go()
    assert held() < full - 35_000_000  # of 40 MB
    assert (float(computed[4999, 0]), float(earlier[4999, 0])) == (1, 2)


def test_freed_memory_is_given_back_where_files_do_not_suffice(monkeypatch):
    """Of 160: up to 120 nothing, then once, until more than 10 above what is in use are held."""
    given_back = []
    there = [100]
    monkeypatch.setattr(array_storage, "held", lambda: there[-1])
    monkeypatch.setattr(array_storage, "give_memory_back", lambda: given_back.append(there[-1]))
    place = ArrayStorage(limit=160)
    for size in (120, 121, 131, 132):
        there.append(size)
        place.tidy()
    assert given_back == [121, 132]


@given(
    rows=st.lists(st.integers(0, 2999), max_size=60),
    mask=st.booleans(),
)
def test_rows_are_taken_and_put_as_in_memory(rows, mask):
    """Order, doubles and masks: the last of a row that is put twice counts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_storage, "SPAN", 4096)
        patch.setattr(array_storage, "ARRAY_SHARE", 0.0)
        values = torch.arange(3000 * 4).float().reshape(3000, 4)
        array = GrowingArray(4)
        array.map_to(storage())
        array.restore(values)
        index = torch.tensor(rows, dtype=torch.int64)
        if mask:
            index = torch.zeros(3000, dtype=torch.bool).index_fill(0, index, True)
        assert isinstance(array.tensor, PagedTensor)
        assert array.tensor[index].equal(values[index])
        put = torch.rand(len(values[index]), 4)
        array.tensor[index] = put
        values.numpy()[index.numpy()] = put.numpy()
        assert array.tensor.equal(values)


def test_a_full_disk_is_said_before_anything_changes(monkeypatch):
    learner = OnlineLearner(head=FusedHead(width=8), memory_limit=ROOMY)
    learner.apply(delta(0, 3))
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(os, "posix_fallocate", full)
    seq = learner.status().seq
    with pytest.raises(ResourceError, match="the disk is full"):
        learner.apply(delta(3, 30_000))
    assert learner.status().seq == seq
    monkeypatch.undo()
    assert learner.apply(delta(3, 2)).new_nodes == 2


def delta(first: int, count: int) -> Delta:
    """Return new nodes, each joined to the one before."""
    ids = range(first, first + count)
    return Delta(
        nodes=tuple(ids),
        features=torch.rand(count, FEATURES, generator=torch.Generator().manual_seed(first)),
        edges=tuple((node - 1, node) for node in ids if node),
        labels=tuple("xy"[node % 2] if node % 3 else None for node in ids),
    )


@given(seed=st.integers(0, 99), related=st.booleans(), shared=st.booleans())
@settings(max_examples=3)
def test_a_limit_changes_no_bit(seed, related, shared):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_storage, "WORK_SHARE", 1.0)
        patch.setattr(array_storage, "ARRAY_SHARE", 0.0)
        patch.setattr(array_storage, "SPAN", 256)
        patch.setattr(array_storage, "_AROUND", 4096)
        patch.setattr(growing_array, "PAGED", 2)
        free = OnlineLearner(head=FusedHead(width=16))
        within = OnlineLearner(head=FusedHead(width=16), memory_limit=ROOMY)
        assert within.parameters == free.parameters
        for change in growth(seed, 2, dims=FEATURES, related=related):
            assert free.apply(change) == within.apply(change)
            if shared:
                within.frozen()
        assert bits(free) == bits(within)
        ids = free.every_id()
        assert within.answer(ids, every_class=True) == free.answer(ids, every_class=True)
        twin = OnlineLearner(head=FusedHead(width=16), memory_limit=ROOMY)
        twin.restore(within.state(), json.loads(json.dumps(within.about())))
        assert bits(twin) == bits(free)
        assert twin.apply(Delta()) == free.apply(Delta())


def _kept_by_the_process_alone() -> int:
    """Return the bytes in memory that are in no file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
@pytest.mark.parametrize(("compiled", "pinned"), [(False, False), (True, True)])
def test_a_delta_felt_by_everybody_is_worked_through_in_files(monkeypatch, compiled, pinned):
    """Rows of what is computed for all nodes do not pile up in memory."""
    monkeypatch.setattr(array_storage, "ARRAY_SHARE", 0.0)
    monkeypatch.setattr(array_storage, "SPAN", 1 << 20)
    monkeypatch.setattr(neighbour_lists, "is_compiled", lambda _: compiled)
    nodes, width = 4_000, 1024
    learner = OnlineLearner(head=FusedHead(width=16), memory_limit=ROOMY)
    edges = tuple((node, (node + step) % nodes) for node in range(nodes) for step in (1, 50))
    named = tuple("xy"[node % 2] if node % 50 == 0 else None for node in range(nodes))
    ids = tuple(range(nodes))
    learner.apply(Delta(nodes=ids, features=torch.rand(nodes, width), labels=named, edges=edges))
    view = learner.frozen()
    everybody = tuple((nodes, node) for node in range(nodes))
    first = Delta(nodes=(nodes,), features=torch.ones(1, width), edges=everybody[:40])
    for wide in (first, Delta(edges=everybody)):  # whatever is made once is made with the first
        give_memory_back()
        before, most, done = _kept_by_the_process_alone(), 0, threading.Event()

        def watch(done=done):
            nonlocal most
            while not done.wait(0.001):
                most = max(most, _kept_by_the_process_alone())

        watcher = threading.Thread(target=watch)
        watcher.start()
        with view.pinned(ids[:1]) if pinned else nullcontext():
            result = learner.apply(wide)
        done.set()
        watcher.join()
    assert result.recomputed == nodes + 1
    assert most - before < nodes * 4 * width  # one hop of all nodes


def test_all_that_is_wide_is_mapped_and_nothing_else():
    learner = OnlineLearner(head=FusedHead(width=16), memory_limit=ROOMY)
    learner.apply(delta(0, 4))
    learner.frozen()
    arrays = [*learner._knowledge.arrays(), *learner.arrays()]
    mapped = [isinstance(array.tensor, PagedTensor) for array in arrays]
    assert mapped == [array.row_bytes >= WIDE for array in arrays]
    # features, two hops, shape, codes and two hops of these, what is counted, the readers' copy
    assert sum(mapped) == 9


def test_a_limit_too_small_is_one_sentence(monkeypatch):
    with pytest.raises(
        ResourceError, match=r"memory_limit must be above the [\d.]+ [MG]B .* not 1 MB$"
    ):
        OnlineLearner(memory_limit="1MB")
    with pytest.raises(ConfigurationError, match="must be a size"):
        OnlineLearner(memory_limit="much")
    with pytest.raises(ResourceError, match="scratch must be an existing folder, not /nowhere"):
        OnlineLearner(memory_limit="1TB", scratch="/nowhere")
    learner = OnlineLearner(memory_limit="1TB")
    learner.apply(delta(0, 4))
    monkeypatch.setattr(array_storage, "held", lambda: 2 * 10**12)
    with pytest.raises(ResourceError, match=r"a learner of 4 nodes takes .* not 1000.0 GB"):
        learner.apply(delta(4, 1))
    monkeypatch.undo()
    assert learner.apply(delta(4, 1)).seq == 2


def test_the_classifier_has_the_same_limit():
    free, within = (
        ContinualNodeClassifier(width=8),
        ContinualNodeClassifier(width=8, memory_limit="1TB", scratch=tempfile.gettempdir()),
    )
    for model in (free, within):
        model.partial_fit(["a", "b", "c"], torch.eye(3, 20), ["x", "y", None], [("a", "c")])
    assert within.predict_proba(["c"]).tolist() == free.predict_proba(["c"]).tolist()
    assert isinstance(within.learner_._knowledge.graph.features, PagedTensor)
