"""Deltas that wait are written together, and each is answered for itself."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from evergraph.core.errors import DataError, KeyReusedError, ResourceError
from evergraph.online.codecs.delta_bytes import delta_to_bytes
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder import queue as queues
from evergraph.online.folder.journal import Journal
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.queue import ROUND_ITEMS, DeltaQueue
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner
from stand_in import StandIn, bits, delta, holds, opened, twin, twin_of
from waiting import gated, until


@pytest.fixture
def commits(monkeypatch):
    """The numbers of the deltas of every commit."""
    found, write = [], Journal.write

    def counted(self, entries):
        found.append([entry.seq for entry in entries])
        write(self, entries)

    monkeypatch.setattr(Journal, "write", counted)
    return found


def test_many_are_written_with_one_commit(tmp_path, commits):
    with opened(tmp_path) as folder:
        results = folder.submit_many([delta(seq) for seq in (1, 2, 3)])
        assert [result.seq for result in results] == [1, 2, 3]
        assert commits == [[1, 2, 3]]
        assert folder.submit_many([]) == []
        assert (folder.seq, bits(folder.learner)) == (3, twin_of([[1, 2, 3]]))
    for readonly in (True, False):
        with opened(tmp_path, readonly=readonly) as folder:
            assert bits(folder.learner) == twin_of([[1, 2, 3]]) != twin(3)


def test_one_that_is_refused_is_refused_alone(tmp_path, commits):
    refused = Delta(nodes=("refused",), features=torch.zeros(1, 3))
    unwritable = Delta(nodes=(object(),), features=torch.zeros(1, 3))
    with opened(tmp_path) as folder:
        given = [delta(1), refused, delta(2), unwritable, delta(2), delta(3)]
        first, second, third, fourth, fifth, sixth = folder.submit_many(given)
        assert [first.seq, third.seq, sixth.seq] == [1, 2, 3]
        assert all(isinstance(error, DataError) for error in (second, fourth, fifth))
        assert "'n2' is refused" in str(fifth)  # it came with the same batch
        assert commits == [[1, 2, 3]]
        assert bits(folder.learner) == twin_of([[1, 2, 3]])


def test_the_same_key_twice_in_a_batch_counts_once(tmp_path):
    with opened(tmp_path) as folder:
        folder.submit(delta(1, key="a"))
        again, first, same, other = folder.submit_many(
            [delta(1, key="a"), delta(2, key="b"), delta(2, key="b"), delta(3, key="b")]
        )
        assert (again.seq, first.seq, same) == (1, 2, first)
        assert isinstance(other, KeyReusedError)
        assert "'b' belongs to delta 2" in str(other)
        assert folder.status().keys == 2
        assert bits(folder.learner) == twin(2)


def test_a_full_disk_refuses_the_batch_and_tells_each(tmp_path):
    names = [[f"{n}{i:099}" for i in range(99)] for n in (1, 2)]
    large = [Delta(nodes=each, features=torch.ones(99, 3), key=each[0]) for each in names]
    with opened(tmp_path) as folder:
        folder.submit(delta(1))
        connection = folder._files._journal.connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        answers = folder.submit_many([*large, large[0]])
        assert all(isinstance(answer, ResourceError) for answer in answers)
        assert "the disk is full: deltas 2 to 3 were not written" in str(answers[2])
        assert len({id(answer) for answer in answers}) == 3
        assert (folder.status().stopped, folder.status().keys) == (None, 0)
        connection.execute("PRAGMA max_page_count = 100000")
        assert [result.seq for result in folder.submit_many([delta(2), delta(3)])] == [2, 3]
        assert bits(folder.learner) == twin_of([[1], [2, 3]])


def test_of_a_batch_only_what_cannot_be_applied_is_refused(tmp_path):
    broken = Delta(nodes=("breaks",), features=torch.zeros(1, 3), key="broken")
    with opened(tmp_path) as folder:
        first, refused, second, again = folder.submit_many([delta(1), broken, delta(2), broken])
        assert (first.seq, second.seq, folder.seq) == (1, 2, 2)
        for answer in (refused, again):
            assert isinstance(answer, ResourceError)
            assert "could not be applied (MemoryError: no more of it)" in str(answer)
        assert folder.status().stopped is None
        assert bits(folder.learner) == twin(2)
    assert holds(tmp_path, 2)


def test_threads_that_come_meanwhile_are_served_together(tmp_path, commits, monkeypatch):
    """One is at work; four wait; one of the four has all written at once."""
    _, gate = gated(monkeypatch, StandIn, "apply_batch")
    with opened(tmp_path) as folder, ThreadPoolExecutor() as pool:
        first = pool.submit(folder.submit, delta(1))
        until(lambda: commits)
        others = [pool.submit(folder.submit, delta(number)) for number in range(2, 6)]
        until(lambda: len(folder.waiting) == 4)
        gate.set()
        assert first.result().seq == 1
        assert sorted(other.result().seq for other in others) == [2, 3, 4, 5]
    assert commits == [[1], [2, 3, 4, 5]]


def test_who_holds_the_lock_is_served_first(tmp_path, commits):
    """An upsert looks and changes under the lock: nothing may come between."""
    with opened(tmp_path) as folder, ThreadPoolExecutor() as pool:
        with folder.lock:
            other = pool.submit(folder.submit, delta(1))
            until(lambda: len(folder.waiting))
            assert folder.submit(delta(2)).seq == 1
        assert other.result().seq == 2
    assert commits == [[1, 2]]


def interrupting(call, nodes):
    """Return a function that is interrupted where the nodes of what it is given are the first."""

    def interrupted(*given):
        if "n1" in nodes(*given):
            raise KeyboardInterrupt
        return call(*given)

    return interrupted


def test_an_interrupt_of_one_that_waits_leaves_nobody_behind(tmp_path, monkeypatch):
    """The next to lead is interrupted before it has the lock: the one behind it leads instead."""
    with opened(tmp_path) as folder, ThreadPoolExecutor() as pool:
        lead = interrupting(folder.waiting._lead, lambda mine: mine[0].delta.nodes)
        monkeypatch.setattr(folder.waiting, "_lead", lead)
        with folder.lock:  # as if another were at work
            first = pool.submit(folder.submit, delta(1))
            until(lambda: folder.waiting._led)
            behind = pool.submit(folder.submit, delta(2))
            until(lambda: len(folder.waiting) == 2)
        assert isinstance(first.exception(), KeyboardInterrupt)
        assert behind.result().seq == 1


def test_an_interrupt_of_who_leads_leaves_the_others_to_themselves(tmp_path, monkeypatch):
    """It comes before anything is written: nothing has happened, and the others go on."""
    check = interrupting(StandIn.check, lambda learner, given, ahead=(): given.nodes)
    monkeypatch.setattr(StandIn, "check", check)
    with opened(tmp_path) as folder, ThreadPoolExecutor() as pool:
        with folder.lock:
            behind = pool.submit(folder.submit, delta(2))
            until(lambda: len(folder.waiting))
            with pytest.raises(KeyboardInterrupt):
                folder.submit(delta(1))
        assert behind.result().seq == 1
        assert folder.status().stopped is None


def test_what_is_offered_waits_until_the_queue_is_served_and_can_be_taken_back(tmp_path, commits):
    refused = Delta(nodes=("refused",), features=torch.zeros(1, 3))
    unwritable = Delta(nodes=(object(),), features=torch.zeros(1, 3))
    with opened(tmp_path) as folder:
        told = [folder.waiting.offer(each) for each in (delta(1), refused, delta(2), unwritable)]
        gone = folder.waiting.offer(delta(3))
        assert gone.cancel()
        assert (len(folder.waiting), commits) == (5, [])
        folder.watch(on_change=lambda: commits.append([each.done() for each in told]))
        folder.waiting.serve()
        assert [told[place].result().seq for place in (0, 2)] == [1, 2]
        assert isinstance(told[1].exception(), DataError)
        assert isinstance(told[3].exception(), DataError)
        assert not told[0].cancel()
        # Who looks when the learner has changed comes before those who are told.
        assert commits == [[1, 2], [False, True, False, True]]
        assert bits(folder.learner) == twin_of([[1, 2]])


def test_what_is_refused_is_not_written_in_bytes_first(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(
        queues, "delta_to_bytes", lambda each: written.append(each) or delta_to_bytes(each)
    )
    refused = Delta(nodes=("refused",), features=torch.zeros(1, 3))
    with opened(tmp_path) as folder:
        told = [folder.waiting.offer(each) for each in (delta(1), refused)]
        folder.waiting.serve()
        assert told[0].result().seq == 1
        assert isinstance(told[1].exception(), DataError)
    assert len(written) == 1


def test_what_cannot_be_joined_is_taken_in_order(tmp_path, commits):
    path = Delta(nodes=("a", "b"), features=torch.eye(2), labels=("x", "y"), edges=(("a", "b"),))
    third = Delta(nodes=("c",), features=torch.ones(1, 2), labels=("x",), edges=(("c", "a"),))
    given = [path, third, Delta(removed_edges=(("c", "a"),)), Delta(late=(("b", "x"),))]
    with LearnerFolder.open(
        tmp_path, make=lambda: OnlineLearner(head=AnalyticHead(width=8))
    ) as folder:
        assert [result.seq for result in folder.submit_many(given)] == [1, 2, 3, 4]
        assert folder.learner.status().edges == 1
    assert commits == [[1, 2], [3], [4]]


def test_large_deltas_of_one_caller_let_others_have_their_turn():
    rounds = []

    def take(waiting):
        if not rounds:  # arrives while the first round is applied
            queue.offer(Delta(nodes=(9,), features=torch.zeros(1, 1), key="late"), "other")
        rounds.append([each.delta.key for each in waiting])
        for each in waiting:
            each.future.set_result(DeltaResult(seq=1))

    queue = DeltaQueue(threading.RLock(), take)
    large = tuple((0, node) for node in range(ROUND_ITEMS))
    for number in range(3):
        queue.offer(Delta(edges=large, key=f"large {number}"), "greedy")
    for number in range(2):
        queue.offer(Delta(edges=((0, 1),), key=f"small {number}"), "modest")
    queue.serve()
    small = ["small 0", "small 1"]  # answered before a large one begins
    assert rounds == [small, ["large 0"], ["late"], ["large 1"], ["large 2"]]


def test_a_call_has_its_turn_between_batches_and_its_own_delta_comes_alone():
    taken = []

    def take(waiting):
        taken.append([each.delta.key for each in waiting])
        for each in waiting:
            each.future.set_result(DeltaResult(seq=len(taken)))

    def call():
        queue.offer(Delta(key="late"))
        return queue.submit([Delta(key="own")])[0].seq

    queue = DeltaQueue(threading.RLock(), take)
    queue.offer(Delta(key="first"))
    called = queue.offer(Delta(), call=call)
    failed = queue.offer(Delta(), call=lambda: 1 // 0)
    queue.offer(Delta(key="last"))
    queue.serve()
    assert taken == [["first"], ["own"], ["last"], ["late"]]
    assert called.result() == 2
    assert isinstance(failed.exception(), ZeroDivisionError)
