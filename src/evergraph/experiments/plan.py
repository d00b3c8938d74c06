"""Estimate of a run's cost: learn the first tasks of small copies of its graph, and extrapolate.

A copy keeps a share s of the nodes of every class, with all their edges: an edge that leaves the
copy is redirected to a node of the same class and type inside it. So nodes and edges shrink alike;
degrees, homophily and classes are preserved. Let n_i be the share of all nodes that a copy has in
task i, N_i in all tasks up to it, and M_i what a memory of so many nodes per class keeps of the
tasks before it; in a copy, a class has the share s of its budget. Task i costs::

    a + b s + c (n_i + M_i) + d N_i, the first one e + f s more

a: closed-form solutions. b: passes over the whole graph. c: learning, and replaying. d: tests on
everything so far, a memory that grows with it. e, f: loading kernels, cutting the stream. No
coefficient is negative; they are fitted by least squares to the tasks of the two largest copies,
and give the costs of all tasks of the whole graph, s = 1. Peaks of memory are a + d N_i + g log i:
the last for what any task may need, such as the first ones, after which the memory freed by others
is reused. Seconds have no term that grows with i alone: four tasks in which others use the
processor would be drawn out to twenty. Costs that stop growing at a size no copy has are
overestimated; a product that no longer fits into a cache is underestimated. Larger copies give
better estimates.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from math import inf
from multiprocessing import active_children, get_context

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls

from evergraph.core.errors import ResourceError, check_number
from evergraph.core.resources import choose_device, peak_rss_bytes
from evergraph.experiments.build import check, load_graph, resolved
from evergraph.experiments.config import RunConfig
from evergraph.experiments.protocol import steps_apart
from evergraph.experiments.runner import learn_seed_by_task, open_run
from evergraph.graphs import Graph
from evergraph.graphs.csr import in_groups, row_entries, take_rows
from evergraph.graphs.relations import Relations
from evergraph.streams.arrival import BY_MASKS, SHARES

FIRST_NODES = 2_000  # nodes of the first copy
LEAST_GROWTH, MOST_GROWTH = 4, 16  # of the next one
LARGEST_SHARE = 0.5
FEWEST_TASKS = 4  # learned of each copy, even if they take longer than they should
CLASS_NODES = 12  # fewest nodes of each class, so that it can be split
SECONDS, BYTES = [0, 1, 2, 3, 4, 5], [0, 3, 6]  # the terms of each, see ``LearnedCopy.terms``


@dataclass(frozen=True)
class Cost:
    """Cost of learning the first tasks of one seed on a share of the graph's nodes."""

    share: float
    tasks: int
    # processor, clock: CPU seconds of all threads, and elapsed seconds
    processor: float
    clock: float
    # memory, device_memory: peak bytes on the CPU and on a GPU
    memory: float
    device_memory: float


@dataclass(frozen=True)
class LearnedCopy:
    """Tasks of a copy, and the costs of those that were learned."""

    share: float
    sizes: tuple[int, ...]  # nodes of every task, or between two tests
    # CPU seconds and seconds of each task learned, and peak bytes on CPU and GPU by its end
    costs: tuple[tuple[float, float, float, float], ...]
    stored: float = 0.0  # nodes of a task whose labelled ones fill its part of a memory

    @property
    def cost(self) -> Cost:
        """The cost of what was learned."""
        return Cost(self.share, len(self.costs), *_total(np.array(self.costs)))

    def terms(self, share: float) -> NDArray[np.float64]:
        """Return what a to g are multiplied by for each task of a copy.  -> [tasks, 7]"""
        nodes = np.array(self.sizes) / sum(self.sizes) * share
        stored = np.minimum(nodes, self.stored / sum(self.sizes) * share)
        learned = nodes + stored.cumsum() - stored
        ones = np.ones(len(nodes))
        number = np.arange(1.0, len(nodes) + 1)
        first = number == 1
        terms = [ones, ones * share, learned, nodes.cumsum(), first, first * share, np.log(number)]
        return np.stack(terms, axis=1)


def _total(costs: NDArray[np.float64]) -> list[float]:
    """Return the costs of all tasks: seconds add up, of bytes the most counts.  [tasks, 4] -> 4"""
    return [*costs[:, :2].sum(axis=0).tolist(), *costs[:, 2:].max(axis=0).tolist()]


def extrapolated(copies: Sequence[LearnedCopy]) -> Cost:
    """Return the cost of all tasks of the whole graph, given two copies or more."""
    last = copies[-2:]
    terms = np.concatenate([copy.terms(copy.share)[: len(copy.costs)] for copy in last])
    costs = np.concatenate([copy.costs for copy in last])
    terms_of_whole = last[-1].terms(1.0)
    columns = []
    for used, cost in zip((SECONDS, SECONDS, BYTES, BYTES), costs.T, strict=True):
        coefficients, _ = nnls(terms[:, used], cost)
        columns.append(terms_of_whole[:, used] @ coefficients)
    estimate = _total(np.stack(columns, axis=1))
    measured = _total(np.array(last[-1].costs))
    return Cost(1.0, len(terms_of_whole), *map(max, estimate, measured))


@dataclass(frozen=True)
class Plan:
    """Estimated cost of one seed of a run, and the costs of small copies, smallest first."""

    nodes: int  # this and the next: of the whole graph
    edges: int
    copies: tuple[Cost, ...]
    seed: Cost
    seeds: int  # their number; they run one after another


def plan_run(
    config: RunConfig,
    *,
    seconds: float = 60.0,
    load: Callable[[RunConfig], Graph] = load_graph,
    on_copy: Callable[[int], None] = lambda _: None,
) -> Plan:
    """Learn larger and larger copies of the configured graph, each in a separate process.

    seconds: an eighth is for the tasks of each copy; copies grow until half is spent or half the
    graph is learned, each so much that its tasks fit into ``seconds`` if all costs grow with it.
    There are at least two. load: loads the graph. on_copy: called with the nodes of each copy.
    """
    check_number("seconds", seconds, least=0)
    check(resolved(config))
    graph = load(config)
    if config.stream.split == BY_MASKS and graph.masks is not None:  # which copies do not have
        shares = graph.masks.shares(0)
        cut = {"split": tuple(share / sum(shares) for share in shares)}
        config = config.model_copy(update={"stream": config.stream.model_copy(update=cut)})
    share = min(max(FIRST_NODES / max(graph.num_nodes, 1), 1e-6), LARGEST_SHARE / LEAST_GROWTH)
    copies: list[LearnedCopy] = []
    began = time.monotonic()
    while len(copies) < 2 or (share and time.monotonic() - began < seconds / 2):
        small = shrunk(graph, share, generator=torch.Generator().manual_seed(0))
        on_copy(small.num_nodes)
        share_of_copy = small.num_nodes / graph.num_nodes
        copies.append(learned_copy(config, small, share=share_of_copy, seconds=seconds / 8))
        growth = min(max(seconds / copies[-1].cost.processor, LEAST_GROWTH), MOST_GROWTH)
        share = min(growth * share, LARGEST_SHARE) if share < LARGEST_SHARE else 0.0
    costs = tuple(copy.cost for copy in copies)
    estimate = extrapolated(copies)
    return Plan(graph.num_nodes, graph.num_edges, costs, estimate, len(config.seeds))


def shrunk(graph: Graph, share: float, *, generator: torch.Generator) -> Graph:
    """Return a smaller graph with a share of the nodes and edges of another."""
    group = graph.labels.long() + 1
    if graph.types is not None:
        group = group * len(graph.types.names) + graph.types.numbers.long()
    group = group.unique(return_inverse=True)[1]
    # The nodes to keep, ordered by group; each group has ``count`` of them, from ``first`` on.
    sizes = group.bincount()
    count = torch.maximum((share * sizes).round().long(), sizes.clamp(max=CLASS_NODES))
    first = count.cumsum(0) - count
    order, rank = in_groups(group, torch.randperm(len(group), generator=generator))
    nodes = order[rank < count[group[order]]]
    # Node v is replaced by its own copy, or by one of its group, chosen by its number.
    copy = first[group] + torch.arange(graph.num_nodes) % count[group]
    copy[nodes] = torch.arange(len(nodes))
    inside = torch.zeros(len(copy), dtype=torch.bool)
    inside[nodes] = True
    rows, entries = row_entries(graph.indptr, nodes)
    ends = graph.indices[entries].long()
    if graph.undirected:  # each edge is doubled below: one inside is stored twice already
        once = torch.where(inside[ends], rows < copy[ends], torch.arange(len(rows)) % 2 == 0)
        rows, entries, ends = rows[once], entries[once], ends[once]
    small = Graph.from_edges(
        torch.stack([copy[ends], rows]),
        features=take_rows(graph.features, nodes),
        labels=graph.labels[nodes] if graph.targets is None else None,
        time=None if graph.time is None else graph.time[nodes],
        undirected=graph.undirected,
        weights=None if graph.weights is None else graph.weights[entries],
        targets=None if graph.targets is None else graph.targets.each(lambda rows: rows[nodes]),
    )
    types = None if graph.types is None else graph.types.each(lambda numbers: numbers[nodes])
    related = graph.relations
    if related is not None:
        ends, kinds = related.edges()
        entering = inside[ends[1]]
        weights = related.edge_weights()
        related = Relations.of(
            copy[ends[:, entering]],
            kinds[entering],
            related.names,
            nodes=len(nodes),
            weights=None if weights is None else weights[entering],
        )
    return small.with_relations(related).with_types(types)


def learned_copy(
    config: RunConfig, graph: Graph, *, share: float = 1.0, seconds: float = inf
) -> LearnedCopy:
    """Learn one seed on a graph in a new process, so that its memory can be measured.

    seconds: after these it ends with the task that it is at, but no earlier than with the fourth.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            # The process ignores Ctrl-C, which this one handles.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                learned = pool.submit(_learned, config, graph, share, seconds)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            return learned.result()
        except KeyboardInterrupt:
            for child in active_children():
                child.kill()
            raise
        except BrokenProcessPool:
            raise ResourceError(
                f"learning {graph.num_nodes:,} nodes was killed by the system, most likely for "
                "lack of memory"
            ) from None


def _learned(config: RunConfig, graph: Graph, share: float, seconds: float) -> LearnedCopy:
    logging.disable(logging.WARNING)  # the run itself will log warnings about the graph
    start = before = time.process_time(), time.perf_counter()
    budget = resolved(config).memory.budget
    per_class = max(round(budget * share), 1) if isinstance(budget, int) else 0
    if per_class:  # else the budget is a share already, or there is none
        memory = config.memory.model_copy(update={"budget": per_class})
        config = config.model_copy(update={"memory": memory})
    opened = open_run(config, load=lambda _: graph)
    cuda = choose_device(config.device).type == "cuda"
    costs = []
    for _ in learn_seed_by_task(opened, config.seeds[0]):
        now = time.process_time(), time.perf_counter()
        device_memory = torch.cuda.max_memory_reserved() if cuda else 0
        elapsed = (now[0] - before[0], now[1] - before[1])
        costs.append((*elapsed, peak_rss_bytes(), device_memory))
        before = now
        if now[1] - start[1] > seconds and len(costs) >= FEWEST_TASKS:
            break
    stream = opened.stream
    apart = steps_apart(len(stream), len(stream.tasks), opened.config.test_every)
    sizes = stream.step_sizes
    between_tests = tuple(sum(sizes[step : step + apart]) for step in range(0, len(sizes), apart))
    split = SHARES if isinstance(config.stream.split, str) else config.stream.split
    labelled = config.stream.labelled or split[0]
    if isinstance(labelled, int):  # nodes per class
        labelled *= len(stream.classes) / graph.num_nodes
    stored = per_class / labelled * len(stream.classes) / len(between_tests)
    return LearnedCopy(share, between_tests, tuple(costs), stored)
