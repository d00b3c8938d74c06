"""One graph embedded by several machines: by columns, by nodes, or split by rows."""

from __future__ import annotations

from evergraph.experiments.planning.encoding import (
    DoesNotFit,
    Place,
    embed_here,
    file_rate,
    hop_seconds,
    room_beside,
)
from evergraph.experiments.planning.learning import Size, Smoothing
from evergraph.experiments.planning.steps import Step
from evergraph.experiments.planning.streaming import Embed
from evergraph.topology.column_blocks import SHARED_FROM, block_count, reserve_of
from evergraph.topology.node_blocks import BLOCKS_A_WORKER


def embed_by_columns(name: str, size: Size, smoothing: Smoothing, place: Place) -> list[Step]:
    """Return the steps where every worker takes some columns through all hops.

    The adjacency goes to every other machine, columns to who smooths them, and nothing between
    hops. A machine holds the adjacency and its columns once, in Ray's store, and each of its
    workers the arrays of its columns.
    """
    if not _worth_sharing(size, smoothing):
        return embed_here(name, size, smoothing, place)
    machines, constants = place.machines, place.constants
    workers, others = machines.count * machines.workers, machines.count - 1
    blocks = _blocks(size, smoothing, place, at_once=machines.workers, least=workers)
    width, rounds = smoothing.columns / blocks, -(-blocks // workers)
    features, result = size.columns(smoothing.columns), smoothing.result(size)
    share = features / machines.count
    of_columns = smoothing.bytes(size, width) + 2 * result / blocks
    graph = size.adjacency + share
    _hold(name, graph + machines.workers * (constants.process_bytes + of_columns), result, place)
    seconds = rounds * hop_seconds(size, smoothing, width, constants, machines.threads)
    return [
        Step(
            "embed: graph into the store",
            "here",
            (size.adjacency + features) / (constants.ray_put_gbs * 1e9),
        ),
        _sent("embed: graph to every machine", graph * others, place),
        Step("embed: hops", "everywhere", seconds + blocks * constants.ray_piece_s),
        _sent("embed: results back", result * others / machines.count, place),
        *_kept(name, result, place),
    ]


def embed_by_nodes(name: str, size: Size, smoothing: Smoothing, place: Place) -> list[Step]:
    """Return the steps where every worker computes some rows of every hop.

    Rows of the adjacency go out once; before every hop all columns go to every machine, and after
    it their rows come back.
    """
    if not _worth_sharing(size, smoothing):
        return embed_here(name, size, smoothing, place)
    machines, constants, hops = place.machines, place.constants, smoothing.topology.hops
    workers, others = machines.count * machines.workers, machines.count - 1
    copies = 1 + 2 / smoothing.topology.arrays  # in the store, and results, beside what is held
    blocks = _blocks(size, smoothing, place, at_once=copies, least=1)
    width, share = smoothing.columns / blocks, size.adjacency / machines.count
    rows = size.columns(width) / (workers * BLOCKS_A_WORKER)
    held = machines.workers * (constants.process_bytes + rows)
    _check(share + size.columns(width) + held, place)
    _hold(name, smoothing.bytes(size, width) * copies + held, smoothing.result(size), place)
    seconds = blocks * hop_seconds(size, smoothing, width, constants, machines.threads) / workers
    pieces = hops * blocks * BLOCKS_A_WORKER * constants.ray_piece_s
    moved = hops * size.columns(smoothing.columns)
    return [
        _sent("embed: rows to every machine", share * others, place),
        Step("embed: columns into the store", "here", moved / (constants.ray_put_gbs * 1e9)),
        _sent("embed: columns to every machine", moved * others, place),
        Step("embed: hops", "everywhere", seconds + pieces, memory=place.holding.peak),
        _sent("embed: results back", moved * others / machines.count, place),
        *_kept(name, smoothing.result(size), place),
    ]


def embed_by_rows(name: str, size: Size, smoothing: Smoothing, place: Place) -> list[Step]:
    """Return the steps where every machine has its rows on its own disk, and keeps its results.

    Before every hop a machine gets the rows of all others, a block of columns at a time, over all
    links at once. It holds its share of every state, and what is smoothed as a whole: once in
    Ray's store, and once for every worker.
    """
    machines, constants, topology = place.machines, place.constants, smoothing.topology
    count, workers = machines.count, machines.workers
    shared = 1 + workers if count > 1 else 1
    one = size.columns((topology.hops + 1 + topology.parts) / count + shared)
    fixed = workers * (constants.process_bytes + size.columns(1))
    left = place.holding.left - fixed
    if one > left:
        raise DoesNotFit("a single column of the features", one + fixed, place.holding.left)
    blocks = max(-(-smoothing.columns // int(left // one)), 1)
    width = smoothing.columns / blocks
    place.holding.work(fixed + one * width)
    result = smoothing.result(size) / count
    place.holding.on_disk = max(place.holding.on_disk, result)
    exchanged = topology.hops * size.columns(smoothing.columns) * (count - 1) / count
    once = (size.columns(smoothing.columns) + topology.hops * size.adjacency) / count
    rate, _ = file_rate(once + result, place)
    seconds = blocks * hop_seconds(size, smoothing, width, constants, machines.threads)
    return [
        Step("embed: files", "everywhere", (blocks * once + result) / rate),
        Step("embed: rows exchanged", "link", exchanged / machines.link, 2 * exchanged),
        Step("embed: hops", "everywhere", seconds / (count * workers), memory=place.holding.peak),
    ]


def _worth_sharing(size: Size, smoothing: Smoothing) -> bool:
    return (size.entries + size.nodes) * smoothing.columns >= SHARED_FROM


def _blocks(size: Size, smoothing: Smoothing, place: Place, *, at_once: float, least: int) -> int:
    """Return into how many blocks columns are cut; at_once, least: see ``block_count``."""
    one, reserve = smoothing.bytes(size, 1), reserve_of(4 * size.entries, size.nodes)
    left = room_beside(smoothing.result(size), place.holding)
    if (one + reserve) * at_once > left:
        each = f"a column for each of {at_once} workers of a machine"
        needed = each if least > 1 else "a column and its copies"
        raise DoesNotFit(needed, (one + reserve) * at_once, left)
    return block_count(
        smoothing.columns, one=int(one), left=left, reserve=reserve, at_once=at_once, least=least
    )


def _hold(name: str, memory: float, result: float, place: Place) -> None:
    """Count what a machine holds beside its process, and keep the result where it belongs."""
    _check(memory + place.constants.process_bytes, place)
    place.holding.take(name, result)
    place.holding.work(memory)


def _check(memory: float, place: Place) -> None:
    if memory > place.machines.memory:
        raise DoesNotFit(
            "what a machine and its workers hold of the graph", memory, place.machines.memory
        )


def _sent(name: str, size: float, place: Place) -> Step:
    """Return what goes over the link of the machine that asked."""
    return Step(name, "link", size / place.machines.link, size, place.holding.peak)


def _kept(name: str, result: float, place: Place) -> list[Step]:
    """Return the writing of embeddings that do not stay in memory."""
    if place.holding.in_memory(name):
        return []
    rate, _ = file_rate(result, place)
    return [Step("embed: files", "here", result / rate)]


WAYS: dict[str, Embed] = {
    "one machine": embed_here,
    "columns": embed_by_columns,
    "nodes": embed_by_nodes,
    "rows": embed_by_rows,
}
