"""Estimate of a run's cost: run it on small copies of its graph, and extrapolate.

A copy keeps a share of the nodes of every class, with all their edges: an edge that leaves the copy
is redirected to a node of the same class and type inside it. So nodes and edges shrink alike,
degrees, homophily and classes are preserved, and a method's cost is linear in the share, up to a
constant (imports, compiled kernels, closed-form solutions)::

    cost(share) = a + b * share

The last two copies give a and b, and the run itself has a share of 1. Costs that stop growing at
some size, such as a memory of 400 nodes per class, are overestimated; a product that no longer fits
into a cache is underestimated. Larger copies give better estimates.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from multiprocessing import active_children, get_context

import torch

from evergraph.core.checks import check_number
from evergraph.core.device import choose_device, peak_rss_bytes
from evergraph.core.errors import ResourceError
from evergraph.experiments.build import check, load_graph, resolved
from evergraph.experiments.config import RunConfig
from evergraph.experiments.runner import complete, open_run
from evergraph.graphs import Graph
from evergraph.graphs.csr import row_entries, take_rows
from evergraph.graphs.relations import Relations

logger = logging.getLogger(__name__)

FIRST_NODES = 2_000  # nodes of the first copy
LARGEST_SHARE = 0.5
CLASS_NODES = 12  # fewest nodes of each class, so that it can be split


@dataclass(frozen=True)
class Cost:
    """Cost of learning one seed on a share of the graph's nodes."""

    share: float
    # processor, clock: CPU seconds of all threads, and elapsed seconds
    processor: float
    clock: float
    # memory, device_memory: peak bytes on the CPU and on a GPU
    memory: float
    device_memory: float

    @classmethod
    def extrapolated(cls, one: Cost, other: Cost, share: float = 1.0) -> Cost:
        """Return the cost of a share, on the line through two others; it never decreases.

        >>> Cost.extrapolated(Cost(0.1, 3, 2, 500, 0), Cost(0.2, 4, 2, 600, 0))
        Cost(share=1.0, processor=12.0, clock=2.0, memory=1400.0, device_memory=0.0)
        """
        step = (share - other.share) / (other.share - one.share)
        a, b = asdict(one), asdict(other)
        costs = {name: b[name] + step * max(b[name] - a[name], 0.0) for name in a}
        return cls(**costs | {"share": share})


@dataclass(frozen=True)
class Plan:
    """Estimated cost of one seed of a run, and the costs of small copies, smallest first.

    nodes, edges: of the whole graph. seeds: their number; they run one after another.
    """

    nodes: int
    edges: int
    copies: tuple[Cost, ...]
    seed: Cost
    seeds: int


def plan_run(
    config: RunConfig,
    *,
    seconds: float = 60.0,
    load: Callable[[RunConfig], Graph] = load_graph,
    on_copy: Callable[[int], None] = lambda _: None,
) -> Plan:
    """Learn larger and larger copies of the configured graph, each in a separate process.

    seconds: copies are doubled until this time is spent or half the graph is learned; there are at
    least two. load: loads the graph. on_copy: called with the number of nodes of each copy.
    """
    check_number("seconds", seconds, least=0)
    check(resolved(config))
    graph = load(config)
    share = min(max(FIRST_NODES / max(graph.num_nodes, 1), 1e-6), LARGEST_SHARE / 2)
    copies: list[Cost] = []
    began = time.monotonic()
    while len(copies) < 2 or (share <= LARGEST_SHARE and time.monotonic() - began < seconds / 2):
        small = shrunk(graph, share, generator=torch.Generator().manual_seed(0))
        on_copy(small.num_nodes)
        copies.append(cost_of(config, small, share=small.num_nodes / graph.num_nodes))
        share *= 2
    whole = Cost.extrapolated(copies[-2], copies[-1])
    return Plan(graph.num_nodes, graph.num_edges, tuple(copies), whole, len(config.seeds))


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
    order = torch.randperm(len(group), generator=generator)
    order = order[group[order].argsort(stable=True)]
    rank = torch.arange(len(group)) - (sizes.cumsum(0) - sizes)[group[order]]
    nodes = order[rank < count[group[order]]]
    # Node v is replaced by its own copy, or by one of its group, chosen by its number.
    copy = first[group] + torch.arange(graph.num_nodes) % count[group]
    copy[nodes] = torch.arange(len(nodes))
    rows, entries = row_entries(graph.indptr, nodes)
    if graph.undirected:  # each edge is stored twice, and is doubled again below
        rows, entries = rows[::2], entries[::2]
    small = Graph.from_edges(
        torch.stack([copy[graph.indices[entries].long()], rows]),
        features=take_rows(graph.features, nodes),
        labels=graph.labels[nodes] if graph.targets is None else None,
        time=None if graph.time is None else graph.time[nodes],
        undirected=graph.undirected,
        weights=None if graph.weights is None else graph.weights[entries],
        targets=None if graph.targets is None else graph.targets.take(nodes),
    )
    types = None if graph.types is None else graph.types.each(lambda numbers: numbers[nodes])
    related = None
    if graph.relations is not None:
        kept = torch.zeros(len(copy), dtype=torch.bool)
        kept[nodes] = True
        ends, kinds = graph.relations.edges()
        mine, weights = kept[ends[1]], graph.relations.edge_weights()
        related = Relations.of(
            copy[ends[:, mine]],
            kinds[mine],
            graph.relations.names,
            nodes=len(nodes),
            weights=None if weights is None else weights[mine],
        )
    return small.with_relations(related).with_types(types)


def cost_of(config: RunConfig, graph: Graph, *, share: float = 1.0) -> Cost:
    """Learn one seed on a graph in a new process, so that its memory can be measured."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            # The process ignores Ctrl-C, which this one handles.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                learned = pool.submit(_cost, config, graph, share)
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


def _cost(config: RunConfig, graph: Graph, share: float) -> Cost:
    logging.disable(logging.WARNING)  # the run itself will log warnings about the graph
    processor, clock = time.process_time(), time.perf_counter()
    one = config.model_copy(update={"seeds": config.seeds[:1]})
    complete(open_run(one, load=lambda _: graph))
    cuda = choose_device(config.device).type == "cuda"
    return Cost(
        share,
        time.process_time() - processor,
        time.perf_counter() - clock,
        peak_rss_bytes(),
        torch.cuda.max_memory_reserved() if cuda else 0,
    )
