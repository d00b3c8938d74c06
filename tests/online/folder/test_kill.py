"""Writers that are killed lose nothing they acknowledged, and nothing is applied twice."""

import importlib
import multiprocessing
from pathlib import Path

import pytest
import torch

from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner

pytestmark = pytest.mark.usefixtures("patient")

ROOT = Path(__file__).resolve().parents[3]
FOLDER = "evergraph.online.folder"
APPLY = "evergraph.online.learner:OnlineLearner.apply_batch"
UPDATE_HEAD = "evergraph.online.knowledge:Knowledge.update_head"
NOTE = f"{FOLDER}.markers:Acknowledged.note"
MOVE = f"{FOLDER}.journal:SetAsideDeltas.move"
SYNC = f"{FOLDER}.snapshot:sync"
FATAL = [
    (f"{FOLDER}.snapshot:write_arrays", 2),
    (SYNC, 1),  # nothing is on the disk for sure
    (SYNC, 4),  # all files are, their folder is not
    (SYNC, 5),  # it has its name, which may not last
    (f"{FOLDER}.snapshot:remove_snapshot", 1),
    (f"{FOLDER}.journal:Journal.drop", 2),
    (f"{FOLDER}.journal:Journal.tidy", 2),
    (APPLY, 4),  # in the journal, not in the learner
    (f"{FOLDER}.journal:Journal.write", 3),
    (NOTE, 3),
    (f"{FOLDER}.recovery:read_snapshot", 1),
]


@pytest.fixture
def kills(monkeypatch):
    """The benchmark, with writers that are forks of this process, which has everything imported."""
    monkeypatch.syspath_prepend(str(ROOT))
    threads, forks = torch.get_num_threads(), multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: forks)
    yield importlib.import_module("benchmarks.service.kills")
    torch.set_num_threads(threads)


@pytest.fixture
def quick(kills, monkeypatch):
    """The same with a head that takes a fifth of the time."""

    def make() -> OnlineLearner:
        return OnlineLearner(head=AnalyticHead(width=16, regularisation=0.1), patience=4)

    monkeypatch.setattr(kills, "make", make)
    return kills


def check(found, *where: object) -> None:
    assert (found.lost, found.twice, found.other_bits) == (0, 0, False), where


@pytest.mark.parametrize(
    ("killing", "times"), [("quick", 2), pytest.param("kills", 20, marks=pytest.mark.slow)]
)
def test_kills_at_random_moments(request, tmp_path, killing, times):
    found = request.getfixturevalue(killing).kill_often(tmp_path / "folder", times)
    for each in found:
        check(each)
    assert sum(f.acknowledged for f in found) > times


def test_kills_at_every_step(quick, tmp_path):
    killer = quick.Killer(tmp_path / "folder", every=2)
    killer.kill_at(f"{FOLDER}.journal:Journal.tidy", 3)  # some snapshots to begin with
    for function, call in FATAL:
        check(killer.kill_at(function, call), function, call)
    assert killer.acknowledged > len(FATAL)


# What of the third batch is done: half of it applied; nothing; all but the note of it.
FATAL_IN_A_BATCH = [
    (UPDATE_HEAD, 3, 4),
    (f"{FOLDER}.journal:JournalKeys.insert", 3, 0),
    (NOTE, 3, 4),
]


def test_kills_within_batches(quick, tmp_path):
    killer = quick.Killer(tmp_path / "folder", every=6, together=4)
    for function, call, unsaid in FATAL_IN_A_BATCH:
        found = killer.kill_at(function, call)
        check(found, function, call)
        if unsaid:
            assert found.unsaid == unsaid, function
    assert killer.acknowledged > 4 * len(FATAL_IN_A_BATCH)


def set_aside(killer) -> list[int]:
    journal = Journal(killer.path / JOURNAL_FILE, readonly=True)
    found = [each.seq for each in journal.aside.listed()]
    journal.close()
    return found


def test_what_kills_the_process_twice_is_set_aside(quick, tmp_path):
    killer = quick.Killer(tmp_path / "folder", every=1000)
    # While it is applied; again, when it is the last that a recovery applies; while it is set
    # aside; and then, once it is and has been sent again, with a later one.
    for function, call, seen in ((APPLY, 3, []), (APPLY, 3, []), (MOVE, 1, []), (APPLY, 7, [3])):
        check(killer.kill_at(function, call), function, call)
        assert set_aside(killer) == seen
    assert killer.acknowledged == 4


# The third delta cannot be applied, and the process is killed: before that is set aside; while the
# learner is recovered; and before it is swapped in.
@pytest.mark.parametrize(
    ("function", "call", "aside"),
    [(MOVE, 1, 0), (APPLY, 5, 1), (f"{FOLDER}.writer:FolderWriter._adopt", 2, 1)],
)
def test_kills_while_a_learner_is_recovered_in_its_process(quick, tmp_path, function, call, aside):
    killer = quick.Killer(tmp_path / "folder", every=1000)
    check(killer.kill_at(function, call, failing=(UPDATE_HEAD, 3)))
    check(killer.kill_at(APPLY, 6))
    assert len(set_aside(killer)) == aside
    assert killer.acknowledged >= 3


@pytest.mark.parametrize("function", ["recovery:Journal", "markers:store_parameters"])
def test_a_kill_while_the_folder_is_made(quick, tmp_path, function):
    killer = quick.Killer(tmp_path / "folder")
    killer.kill_at(f"{FOLDER}.{function}", 1)
    found = killer.kill_at(APPLY, 2)
    assert (found.acknowledged, found.unsaid, found.other_bits) == (1, 1, False)


def test_a_lost_delta_would_be_found(quick, tmp_path):
    killer = quick.Killer(tmp_path / "folder")
    killer.kill_at(APPLY, 3)
    assert killer._look(9).lost == 6
    assert killer._look(1).twice == 1
    killer._twin.apply(quick.given(4, 1)[0])  # as if the folder had lost it
    assert killer._look(3).other_bits
