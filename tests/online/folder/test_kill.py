"""Writers that are killed lose nothing they acknowledged, and nothing is applied twice."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

from evergraph.online.folder.journal import JOURNAL_FILE, Journal

ROOT = Path(__file__).resolve().parents[3]
FATAL = [
    ("evergraph.online.folder.snapshot:_write", 3),
    *(("evergraph.online.folder.snapshot:sync", call) for call in range(1, 6)),
    ("evergraph.online.folder.snapshot:remove_snapshot", 1),
    ("evergraph.online.folder.journal:Journal.drop", 2),
    ("evergraph.online.folder.journal:Journal.tidy", 2),
    ("evergraph.online.learner:OnlineLearner.apply_batch", 4),  # in the journal, not in the learner
    ("evergraph.online.folder.journal:Journal.write", 3),
    ("evergraph.online.folder.markers:Acknowledged.note", 3),
    ("evergraph.online.folder.recovery:read_snapshot", 1),
]


@pytest.fixture
def kills(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    threads = torch.get_num_threads()
    yield importlib.import_module("benchmarks.kills")
    torch.set_num_threads(threads)


@pytest.mark.parametrize("times", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_kills_at_random_moments(kills, tmp_path, times):
    found = kills.kill_often(tmp_path / "folder", times)
    assert [f for f in found if f.lost or f.twice or f.other_bits] == []
    assert sum(f.acknowledged for f in found) > times


def test_kills_at_every_step(kills, tmp_path):
    killer = kills.Killer(tmp_path / "folder", every=2)
    killer.kill_at(
        "evergraph.online.folder.journal:Journal.tidy", 3
    )  # some snapshots to begin with
    for function, call in FATAL:
        found = killer.kill_at(function, call)
        assert (found.lost, found.twice, found.other_bits) == (0, 0, False), (function, call)
    assert killer.acknowledged > len(FATAL)


# What of the third batch is done: journaled; half of it applied; nothing; all but the note of it.
FATAL_IN_A_BATCH = [
    ("evergraph.online.learner:OnlineLearner.apply_batch", 3, 4),
    ("evergraph.online.knowledge:Knowledge.settle", 3, 4),
    ("evergraph.online.folder.journal_rows:JournalKeys.insert", 3, 0),
    ("evergraph.online.folder.markers:Acknowledged.note", 3, 4),
    ("evergraph.online.folder.snapshot:sync", 2, 0),
]


def test_kills_within_batches(kills, tmp_path):
    killer = kills.Killer(tmp_path / "folder", every=6, together=4)
    for function, call, unsaid in FATAL_IN_A_BATCH:
        found = killer.kill_at(function, call)
        assert (found.lost, found.twice, found.other_bits) == (0, 0, False), (function, call)
        if unsaid:
            assert found.unsaid == unsaid, function
    assert killer.acknowledged > 4 * len(FATAL_IN_A_BATCH)


APPLY = "evergraph.online.learner:OnlineLearner.apply_batch"
MOVE = "evergraph.online.folder.journal:SetAsideDeltas.move"


def set_aside(killer) -> list[int]:
    journal = Journal(killer.path / JOURNAL_FILE, readonly=True)
    found = [each.seq for each in journal.aside.listed()]
    journal.close()
    return found


def test_what_kills_the_process_twice_is_set_aside(kills, tmp_path):
    killer = kills.Killer(tmp_path / "folder", every=1000)
    # While it is applied; again, when it is the last that a recovery applies; while it is set
    # aside; and then, once it is and has been sent again, with a later one.
    for function, call, seen in ((APPLY, 3, []), (APPLY, 3, []), (MOVE, 1, []), (APPLY, 7, [3])):
        found = killer.kill_at(function, call)
        assert (found.lost, found.twice, found.other_bits) == (0, 0, False), (function, call)
        assert set_aside(killer) == seen
    assert killer.acknowledged == 4


# The third delta cannot be applied, and the process is killed: before that is set aside; after it;
# while the learner is recovered; and before it is swapped in.
FATAL_WHILE_RECOVERING = [
    (MOVE, 1, 0),
    ("evergraph.online.folder.writable:recover", 2, 1),
    (APPLY, 5, 1),
    ("evergraph.online.folder.writable:WritableFolder._adopt", 2, 1),
    ("evergraph.online.folder.markers:Acknowledged.note", 5, 1),
]


def test_kills_while_a_learner_is_recovered_in_its_process(kills, tmp_path):
    for place, (function, call, aside) in enumerate(FATAL_WHILE_RECOVERING):
        killer = kills.Killer(tmp_path / f"folder-{place}", every=1000)
        failing = ("evergraph.online.knowledge:Knowledge.settle", 3)
        for found in (
            killer.kill_at(function, call, failing=failing),
            killer.kill_at(APPLY, 6),
        ):
            assert (found.lost, found.twice, found.other_bits) == (0, 0, False), (function, call)
        assert len(set_aside(killer)) == aside
        assert killer.acknowledged >= 3


def test_a_kill_while_the_folder_is_made(kills, tmp_path):
    for place, function in enumerate(
        (
            "evergraph.online.folder.recovery:Journal",
            "evergraph.online.folder.recovery:store_parameters",
            "evergraph.online.folder.markers:sync",
        )
    ):
        killer = kills.Killer(tmp_path / f"folder-{place}")
        killer.kill_at(function, 1)
        found = killer.kill_at("evergraph.online.learner:OnlineLearner.apply_batch", 2)
        assert (found.acknowledged, found.unsaid, found.other_bits) == (1, 1, False)


def test_a_lost_delta_would_be_found(kills, tmp_path):
    killer = kills.Killer(tmp_path / "folder")
    killer.kill_at("evergraph.online.learner:OnlineLearner.apply_batch", 3)
    assert killer._look(9).lost == 6
    assert killer._look(1).twice == 1
    killer._twin.apply(kills.given(4, 1)[0])  # as if the folder had lost it
    assert killer._look(3).other_bits
