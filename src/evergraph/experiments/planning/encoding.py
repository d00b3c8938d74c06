"""One graph embedded on one machine: how long it takes, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass

from evergraph.core.mapped import RESIDENT
from evergraph.experiments.planning.constants import Constants
from evergraph.experiments.planning.graph_facts import adjacency_bytes
from evergraph.experiments.planning.holding import Holding
from evergraph.experiments.planning.learning import Smoothing
from evergraph.experiments.planning.machine import Machines
from evergraph.experiments.planning.steps import Step
from evergraph.graphs.kernels.row_ranges import MAPPED_ENTRIES
from evergraph.topology.column_blocks import block_count, reserve_of

EMBEDDING = "embed: "  # what the names of its steps begin with


class DoesNotFit(Exception):  # noqa: N818  (no error of anybody's)
    """A graph cannot be embedded within the memory that there is: a result of a plan."""

    def __init__(self, what: str, needed: float, there: float) -> None:
        super().__init__(what)
        self.what, self.needed, self.there = what, needed, there


@dataclass(frozen=True)
class Size:
    """Of a graph that is embedded.

    Attributes:
        nodes, entries: how many; an edge is two entries.
        mapped: whether its features lie in a file.
    """

    nodes: int
    entries: int
    mapped: bool = False

    @property
    def adjacency(self) -> int:
        """Bytes of neighbours and row pointers."""
        return adjacency_bytes(self.nodes, self.entries)

    def columns(self, count: float) -> float:
        """Bytes of so many float32 columns."""
        return 4.0 * self.nodes * count


def hop_seconds(
    size: Size, smoothing: Smoothing, columns: float, constants: Constants, threads: int
) -> float:
    """Return what all hops of some columns take: every entry and self-loop is gathered once a hop.

    hops x (entries + nodes) x (entry_ns + column_ns x columns) / speed-up of the threads.
    """
    gathered = size.columns(columns)
    each = constants.gather_ns(columns, gathered) / constants.speedup(
        constants.gather_speedup, threads
    )
    return smoothing.topology.hops * (size.entries + size.nodes) * each * 1e-9


def embed_here(
    name: str,
    size: Size,
    smoothing: Smoothing,
    holding: Holding,
    machines: Machines,
    constants: Constants,
) -> list[Step]:
    """Return the steps of embedding a graph in one process, and hold the result by a name.

    The same arithmetic as ``encode_within``: all columns at once if they fit, else as few blocks
    as memory allows, and the result in a file if it is too large to stay.
    """
    topology, columns = smoothing.topology, smoothing.columns
    one = size.columns(topology.arrays)
    result = size.columns(columns * topology.parts)
    reserve = reserve_of(4 * size.entries)
    if columns * one + reserve <= holding.left:
        own = 1 if smoothing.of_features and not size.mapped else 0  # features are there already
        holding.work(size.columns(columns) * (topology.arrays - own))
        blocks = 1
        holding.hold(name, result)
    else:
        stays = holding.stays(result)
        left = holding.left - (int(result) if stays else 0)
        if one + reserve > left:
            raise DoesNotFit("a single column of the features", one + reserve, left)
        blocks = block_count(columns, one=int(one), left=left, reserve=reserve, at_once=1, least=1)
        holding.take(name, result)
        work = one * -(-columns // blocks)
        holding.work(work + min(reserve, 4 * MAPPED_ENTRIES * constants.cores + RESIDENT / 4))
    width = columns / blocks
    seconds = blocks * hop_seconds(size, smoothing, width, constants, machines.cores)
    steps = [Step("embed: hops", "here", seconds, memory=holding.peak)]
    values = size.nodes * columns * topology.parts
    steps.append(Step("embed: scale rows", "here", values * constants.value_ns * 1e-9))
    moved = 0.0 if holding.in_memory(name) else result * (2 if blocks > 1 else 1)
    read = blocks * (size.columns(columns) + topology.hops * size.adjacency) if size.mapped else 0.0
    rate = file_rate(size.adjacency + size.columns(columns) + moved, holding, machines, constants)
    if rate == constants.cached_gbs * 1e9:  # what is mapped is then read where it is
        read = (blocks - 1) * size.columns(columns) if size.mapped else 0.0
    if moved + read:
        steps.append(Step("embed: files", "here", (moved + read) / rate, memory=holding.peak))
    return steps


def file_rate(size: float, holding: Holding, machines: Machines, constants: Constants) -> float:
    """Return how many bytes of files are read or written a second.

    Files that fit in what memory is left stay in the system's cache; others come from the disk.
    """
    beside = machines.memory - (holding.held if holding.limit is None else holding.limit)
    if size + holding.on_disk <= beside:
        return constants.cached_gbs * 1e9
    if machines.disk is not None:
        return machines.disk
    return min(constants.written_gbs, constants.read_gbs) * 1e9
