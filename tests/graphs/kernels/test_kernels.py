"""Which kernel is taken, and how its work is shared."""

import logging
import subprocess
import sys
import threading
from importlib import import_module

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.graphs import smoother
from evergraph.graphs.kernels import scaled_rows
from evergraph.graphs.kernels.row_ranges import range_count, row_ranges, spread
from evergraph.graphs.kernels.scaled_rows import NUMBA_PAYS_FROM, choose_kernel, empty_rows
from graphs_to_draw import graph_of, random_graph


def test_large_graphs_are_numbas_and_small_ones_torchs():
    assert choose_kernel(entries=NUMBA_PAYS_FROM - 1) == "torch"
    assert choose_kernel(entries=NUMBA_PAYS_FROM) == "numba"
    assert choose_kernel(entries=NUMBA_PAYS_FROM, device="cuda") != "numba"


def test_the_choice_is_logged(caplog):
    with caplog.at_level(logging.DEBUG, logger="evergraph"):
        choose_kernel(entries=1000)
    assert "kernel torch for 1000 entries on cpu" in caplog.text


def test_triton_multiplies_large_graphs_on_a_gpu(monkeypatch):
    monkeypatch.setattr(scaled_rows, "triton_works", lambda: True)
    assert choose_kernel(entries=scaled_rows.TRITON_PAYS_FROM, device="cuda") == "triton"
    assert choose_kernel(entries=scaled_rows.TRITON_PAYS_FROM - 1, device="cuda") == "torch"
    monkeypatch.setattr(scaled_rows, "triton_works", lambda: False)
    assert choose_kernel(entries=scaled_rows.TRITON_PAYS_FROM, device="cuda") == "torch"


def test_self_loops_count_among_the_entries(monkeypatch):
    asked = []

    def note(*, entries, device):
        asked.append(entries)
        return "torch"

    monkeypatch.setattr(import_module("evergraph.graphs.propagation"), "choose_kernel", note)
    pair = graph_of([(0, 1)], 3)
    smoother(pair)
    smoother(pair, self_loops=False)
    assert asked == [5, 2]


def test_empty_rows_are_like_others():
    new = empty_rows(5, like=torch.ones(2, 3))
    assert (new.shape, new.dtype, new.is_contiguous()) == ((5, 3), torch.float32, True)
    assert new.data_ptr() % 64 == 0
    assert empty_rows(5, like=torch.ones(2, 3).double()).dtype == torch.float64
    assert empty_rows(0, like=torch.ones(2, 3)).shape == (0, 3)


def test_a_hub_gets_a_range_of_its_own():
    # 1 + 1, 9 + 1, 1 + 1, 1 + 1 entries and rows: a half is 8, reached within the second row
    assert row_ranges(torch.tensor([0, 1, 10, 11, 12]), count=2) == [slice(0, 2), slice(2, 4)]
    assert row_ranges(torch.tensor([5, 6, 15, 16, 17]), count=2) == [slice(0, 2), slice(2, 4)]
    assert row_ranges(torch.tensor([0]), count=3) == []


@given(degrees=st.lists(st.integers(0, 30), min_size=1, max_size=60), count=st.integers(1, 20))
def test_ranges_cover_all_rows_and_none_is_much_larger(degrees, count):
    indptr = torch.tensor([0, *degrees]).cumsum(0)
    ranges = row_ranges(indptr, count=count)
    assert [row for part in ranges for row in range(part.start, part.stop)] == [
        *range(len(degrees))
    ]
    assert len(ranges) <= count
    share = (sum(degrees) + len(degrees)) / count
    for part in ranges:
        work = sum(degrees[part]) + part.stop - part.start
        assert work <= share + max(degrees) + 2  # a row is never cut


def test_a_mapped_adjacency_is_cut_finer(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    indptr = torch.tensor([0, 10 * 2**22 + 1, 100 * 2**22 + 1])
    assert range_count(indptr, mapped=False) == 32
    assert range_count(indptr, mapped=True) == 101
    assert range_count(indptr[:2], mapped=True) == 32


def test_work_is_spread_over_torchs_threads(monkeypatch):
    ranges = [slice(k, k + 1) for k in range(6)]
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        done = []
        names = set()
        meet = threading.Barrier(threads, timeout=20)

        def work(part, done=done, names=names):
            meet.wait()  # passes only while so many are at work at once  # noqa: B023
            done.append(part.start)
            names.add(threading.current_thread().name)

        spread(work, ranges)
        assert sorted(done) == [0, 1, 2, 3, 4, 5]
        assert len(names) == threads


def test_what_fails_in_a_thread_is_raised(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)

    def work(part):
        raise ValueError(f"at {part.start}")

    with pytest.raises(ValueError, match="at 0"):
        spread(work, [slice(0, 1)])


def test_work_is_spread_from_a_thread_that_outlives_the_main_one():
    script = """
import threading
import torch
from evergraph.graphs.kernels.row_ranges import spread

torch.set_num_threads(2)


def work():
    main.join()
    starts = []
    spread(lambda part: starts.append(part.start), [slice(0, 1), slice(1, 2)])
    print(sorted(starts))


main = threading.main_thread()
threading.Thread(target=work).start()
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert process.stdout == "[0, 1]\n", process.stderr


def test_several_threads_may_multiply_at_once():
    graph = random_graph(0, nodes=400, edges=4000, dims=48, undirected=False)
    operator = smoother(graph, kernel="numba")
    expected = operator.product(graph.features)
    same = []

    def multiply():
        same.extend(operator.product(graph.features).equal(expected) for _ in range(20))

    workers = [threading.Thread(target=multiply) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert same == [True] * 80
