"""The constants of a plan, measured on this machine by the code that a run calls."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from evergraph.core.device import denormals_flushed
from evergraph.core.mapped import map_array
from evergraph.core.threads import exactly_threads
from evergraph.experiments.planning.constants import Constants, GatherCost
from evergraph.experiments.planning.learning import learning_of
from evergraph.experiments.planning.process_costs import (
    exam_cost,
    file_rates,
    process_cost,
    ray_costs,
    written_array,
)
from evergraph.graphs import Graph, Smoother
from evergraph.graphs.csr import pointers_of, take_rows
from evergraph.graphs.kernels import choose_kernel
from evergraph.memory import ClassStatistics
from evergraph.methods.balanced_ridge import balanced_ridge, choose_regularisation
from evergraph.nn.expansion import Expansion
from evergraph.topology.rowwise import unit_rows

OnStage = Callable[[str], None]
GATHERED = (1 << 21, 1 << 25, 1 << 27, 1 << 29)  # bytes
WIDTHS = (20, 100)  # columns: rows that do not begin where lines of a cache do, as most
ENTRIES = 1_500_000
DEGREE = 25
CUT_DEGREE = 12
SPREAD = 1.3  # deviation of the logarithm of how often a node is a neighbour: hubs are met often
COUNTED = ((256, 16_384), (1024, 4_096), (3072, 1_024))  # width, rows
DIMS, CLASSES = 100, 32
ROUNDS = 3


def least_seconds(
    work: Callable[[], object],
    *,
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """Return the seconds of the fastest of some rounds; the first, which warms up, never counts.

    clock: seconds of this process, which others do not lengthen much, unless given.
    """
    work()
    found = []
    for _ in range(rounds):
        start = clock()
        work()
        found.append(clock() - start)
    return min(found)


def threads_gain(work: Callable[[], object], cores: int) -> float:
    """Return how many times as fast something is on all cores as on one, at least 1."""
    alone = least_seconds(work, clock=time.perf_counter)
    with exactly_threads(cores):
        return max(alone / least_seconds(work, clock=time.perf_counter), 1.0)


@denormals_flushed()
def measure(*, on_stage: OnStage = lambda stage: None, cores: int | None = None) -> Constants:
    """Return this machine's constants; it takes less than a minute where nobody else works.

    cores: of which it may take all; those of this process unless given.
    """
    cores = _cores() if cores is None else cores
    with exactly_threads(1), tempfile.TemporaryDirectory(prefix="evergraph-") as aside:
        folder = Path(aside)
        on_stage("rows gathered over an adjacency")
        gather, gather_gain = gather_costs(cores)
        on_stage("tasks cut out of a graph")
        cut_ns, cut_gain = cut_cost(cores)
        row_byte_ns = row_cost(folder)
        on_stage("statistics and predictions")
        counting, answering, product_gain = product_rates(cores)
        solving = solving_rate()
        on_stage("processes and files")
        cached, written, read = file_rates(folder)
        process, start = process_cost()
        on_stage("Ray")
        ray_start, ray_piece, ray_put = ray_costs()
        return Constants(
            machine=f"{cores} cores, {platform.system()} {platform.machine()}, "
            f"torch {torch.__version__}, {time.strftime('%Y-%m-%d')}",
            cores=cores,
            gather=gather,
            gather_speedup=gather_gain,
            product_speedup=product_gain,
            cut_speedup=cut_gain,
            cut_ns=cut_ns,
            row_byte_ns=row_byte_ns,
            value_ns=scaling_cost(),
            counting=counting,
            answering=answering,
            solving=solving,
            step_s=step_cost(),
            exam_s=exam_cost(),
            process_bytes=process,
            start_s=start,
            cached_gbs=cached,
            written_gbs=written,
            read_gbs=read,
            ray_start_s=ray_start,
            ray_piece_s=ray_piece,
            ray_put_gbs=ray_put,
        )


def _cores() -> int:
    with suppress(AttributeError):  # not everywhere
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gather_costs(cores: int) -> tuple[tuple[GatherCost, ...], float]:
    """Return what an entry costs at some sizes of what is gathered, and the gain of all cores."""
    points, gain = [], 1.0
    for size in GATHERED:
        narrow, wide = (_product(size, width) for width in WIDTHS)
        few, many = (1e9 * least_seconds(work) / ENTRIES for work in (narrow, wide))
        column = max((many - few) / (WIDTHS[1] - WIDTHS[0]), 0.0)
        points.append(GatherCost(size, max(few - WIDTHS[0] * column, 0.0), column))
        if size == GATHERED[-1]:
            gain = threads_gain(wide, cores)
    return tuple(points), gain


def _product(size: int, width: int) -> Callable[[], object]:
    """Return a product of an adjacency with an array of so many bytes."""
    nodes, rows = size // (4 * width), ENTRIES // DEGREE
    smoother = Smoother(
        pointers_of(torch.full((rows,), DEGREE)),
        _popular(nodes, ENTRIES),
        torch.ones(rows),
        torch.ones(nodes),
        self_loops=False,
        kernel=choose_kernel(entries=ENTRIES),
    )
    features = torch.rand(nodes, width, generator=torch.Generator().manual_seed(0))
    return lambda: smoother.product(features)


def _popular(nodes: int, entries: int) -> Tensor:
    """Return neighbours, some of whom are met much more often than others.  int32 [entries]"""
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(nodes, generator=generator).mul_(SPREAD).exp_().cumsum(0)
    drawn = torch.rand(entries, generator=generator) * weights[-1]
    return torch.searchsorted(weights, drawn).clamp_max_(nodes - 1).int()


def cut_cost(cores: int) -> tuple[float, float]:
    """Return nanoseconds an entry that is looked at, and the gain of all cores."""
    nodes, degree = 4 * ENTRIES // CUT_DEGREE, CUT_DEGREE
    graph = Graph(
        pointers_of(torch.full((nodes,), degree)),
        _popular(nodes, degree * nodes),
        torch.zeros(nodes, 1),
        torch.zeros(nodes, dtype=torch.int64),
    )
    some = torch.arange(0, nodes)[torch.arange(nodes) % 4 > 0]

    def work() -> object:
        return graph.subgraph(some)

    return 1e9 * least_seconds(work) / (degree * len(some)), threads_gain(work, cores)


def row_cost(folder: Path) -> float:
    """Return nanoseconds a byte of rows that are taken out of a file in the system's cache."""
    matrix = map_array(written_array(folder, (400_000, DIMS)))
    rows = torch.arange(0, len(matrix), 2)
    return 1e9 * least_seconds(lambda: take_rows(matrix, rows)) / (4 * DIMS * len(rows))


def scaling_cost() -> float:
    """Return nanoseconds a value that is divided by the length of its row."""
    rows = torch.rand(1 << 16, DIMS)
    return 1e9 * least_seconds(lambda: unit_rows(rows, together=True)) / rows.numel()


Rates = tuple[tuple[float, float], ...]


def product_rates(cores: int) -> tuple[Rates, Rates, float]:
    """Return GFlop/s of statistics and of predictions by width, and the gain of all cores."""
    counting, answering, gain = [], [], 1.0
    for width, rows in COUNTED:
        learning = learning_of("analytic", features=DIMS, width=width)
        expand = Expansion(torch.randn(DIMS, width), torch.zeros(width), "relu")
        count = partial(_count, torch.rand(rows, DIMS), expand, ClassStatistics(width))
        answer = partial(_answer, torch.rand(rows, DIMS), expand, torch.randn(width, CLASSES))
        counted = rows * learning.training_flops(CLASSES) / least_seconds(count)
        answered = rows * learning.answer_flops(CLASSES) / least_seconds(answer)
        counting.append((float(width), counted / 1e9))
        answering.append((float(width), answered / 1e9))
        if width == COUNTED[1][0]:
            gain = threads_gain(count, cores)
    return tuple(counting), tuple(answering), gain


def _count(embeddings: Tensor, expand: Expansion, statistics: ClassStatistics) -> None:
    labels = torch.arange(len(embeddings)) % CLASSES
    blocks = (expand(part) for part in expand.blocks(embeddings))
    statistics.add(blocks, labels, torch.ones(len(labels)))


def _answer(embeddings: Tensor, expand: Expansion, head: Tensor) -> None:
    torch.cat([expand(part) @ head for part in expand.blocks(embeddings)])


def solving_rate() -> float:
    """Return the GFlop/s of setting a head, by the count of ``Learning.solve_flops``."""
    width = 1024
    statistics = ClassStatistics(width)
    statistics.add(torch.rand(2048, width), torch.arange(2048) % CLASSES, torch.ones(2048))
    learning = learning_of("analytic", features=DIMS, width=width)

    def solve() -> None:
        balanced_ridge(statistics, choose_regularisation(statistics, statistics, (0.1,) * 6))

    return learning.solve_flops(CLASSES) / least_seconds(solve, rounds=1) / 1e9


def step_cost() -> float:
    """Return the seconds of a step of training that has next to nothing to multiply."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    optimizer = torch.optim.Adam(model.parameters())
    rows, labels = torch.rand(512, 8), torch.arange(512) % 8

    def steps() -> None:
        for _ in range(20):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(rows), labels).backward()
            optimizer.step()

    return least_seconds(steps) / 20
