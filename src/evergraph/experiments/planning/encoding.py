"""One graph embedded on one machine: how long it takes, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass

from evergraph.core.mapped import RESIDENT
from evergraph.experiments.planning.constants import Constants
from evergraph.experiments.planning.holding import Holding
from evergraph.experiments.planning.learning import Size, Smoothing
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


@dataclass(frozen=True, eq=False)
class Place:
    """Where work is done: the machines, what work costs there, and what is held on the first."""

    machines: Machines
    constants: Constants
    holding: Holding


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


def embed_here(name: str, size: Size, smoothing: Smoothing, place: Place) -> list[Step]:
    """Return the steps of embedding a graph in one process, and hold the result by a name.

    The same arithmetic as ``encode_within``: all columns at once if they fit, else as few blocks
    as memory allows, and the result in a file if it is too large to stay.
    """
    constants, columns = place.constants, smoothing.columns
    whole = smoothing.bytes(size, columns) + reserve_of(4 * size.entries, size.nodes)
    at_once = whole <= place.holding.left
    take = _take_at_once if at_once else _take_in_blocks
    blocks = take(name, size, smoothing, place)
    cores = place.machines.cores
    seconds = blocks * hop_seconds(size, smoothing, columns / blocks, constants, cores)
    values = size.nodes * columns * smoothing.topology.parts
    return [
        Step("embed: hops", "here", seconds, memory=place.holding.peak),
        Step("embed: scale rows", "here", values * constants.value_ns * 1e-9),
        *_files(name, size, smoothing, place, blocks),
    ]


def _take_at_once(name: str, size: Size, smoothing: Smoothing, place: Place) -> int:
    """Hold all columns, and keep the result in memory; return the number of blocks, 1."""
    own = smoothing.of_features and not size.mapped  # features are there already
    arrays = smoothing.topology.arrays - int(own)
    place.holding.work(size.columns(smoothing.columns * arrays))
    place.holding.hold(name, smoothing.result(size))
    return 1


def _take_in_blocks(name: str, size: Size, smoothing: Smoothing, place: Place) -> int:
    """Hold a block of columns, and keep the result where it belongs; return how many blocks."""
    holding, one = place.holding, smoothing.bytes(size, 1)
    reserve = reserve_of(4 * size.entries, size.nodes)
    left = room_beside(smoothing.result(size), holding)
    if one + reserve > left:
        raise DoesNotFit("a single column of the features", one + reserve, left)
    blocks = block_count(
        smoothing.columns, one=int(one), left=left, reserve=reserve, at_once=1, least=1
    )
    holding.take(name, smoothing.result(size))
    pages = min(reserve, 4 * MAPPED_ENTRIES * place.constants.cores + RESIDENT / 4)
    holding.work(one * -(-smoothing.columns // blocks) + pages)
    return blocks


def _files(name: str, size: Size, smoothing: Smoothing, place: Place, blocks: int) -> list[Step]:
    """Return the reading of what lies in files again and again, and the writing of the result."""
    result, features = smoothing.result(size), size.columns(smoothing.columns)
    moved = 0.0 if place.holding.in_memory(name) else result * min(blocks, 2)
    rate, cached = file_rate(size.adjacency + features + moved, place)
    if size.mapped and cached:  # the first reading costs what it costs to read from memory
        moved += (blocks - 1) * features
    elif size.mapped:
        moved += blocks * (features + smoothing.topology.hops * size.adjacency)
    return [Step("embed: files", "here", moved / rate)] if moved else []


def room_beside(result: float, holding: Holding) -> int:
    """Return what is left for work beside a result, where that stays in memory."""
    return holding.left - (int(result) if holding.stays(result) else 0)


def file_rate(size: float, place: Place) -> tuple[float, bool]:
    """Return how many bytes of files are read or written a second, and whether in memory.

    Files that fit in what memory is left stay in the system's cache; others come from the disk.
    """
    holding, machines, constants = place.holding, place.machines, place.constants
    beside = machines.memory - (holding.held if holding.limit is None else holding.limit)
    if size + holding.on_disk <= beside:
        return constants.cached_gbs * 1e9, True
    if machines.disk is not None:
        return machines.disk, False
    return min(constants.written_gbs, constants.read_gbs) * 1e9, False
