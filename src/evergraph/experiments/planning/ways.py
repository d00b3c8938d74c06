"""One graph embedded by several machines: by columns, by nodes, or split by rows."""

from __future__ import annotations

from evergraph.experiments.planning.constants import Constants
from evergraph.experiments.planning.encoding import (
    DoesNotFit,
    Size,
    embed_here,
    file_rate,
    hop_seconds,
)
from evergraph.experiments.planning.holding import Holding
from evergraph.experiments.planning.learning import Smoothing
from evergraph.experiments.planning.machine import Machines
from evergraph.experiments.planning.steps import Step
from evergraph.experiments.planning.streaming import Embed
from evergraph.topology.column_blocks import SHARED_FROM, block_count, reserve_of
from evergraph.topology.node_blocks import BLOCKS_A_WORKER


def embed_by_columns(
    name: str,
    size: Size,
    smoothing: Smoothing,
    holding: Holding,
    machines: Machines,
    constants: Constants,
) -> list[Step]:
    """Return the steps where every worker takes some columns through all hops.

    The graph goes to every other machine, and nothing between hops. A machine holds it once, in
    Ray's store, and each of its workers the arrays of its columns.
    """
    if not _worth_sharing(size, smoothing):
        return embed_here(name, size, smoothing, holding, machines, constants)
    topology, columns = smoothing.topology, smoothing.columns
    workers, others = machines.count * machines.workers, machines.count - 1
    whole, one = size.adjacency + size.columns(columns), size.columns(topology.arrays)
    result, reserve = (
        size.columns(columns * topology.parts),
        reserve_of(4 * size.entries, size.nodes),
    )
    left = holding.left - (int(result) if holding.stays(result) else 0)
    if (one + reserve) * workers > left:
        raise DoesNotFit(f"a column for each of {workers} workers", (one + reserve) * workers, left)
    blocks = block_count(
        columns, one=int(one), left=left, reserve=reserve, at_once=workers, least=workers
    )
    holding.take(name, result)
    width = columns / blocks
    rounds = -(-blocks // workers)
    worker = machines.workers * (constants.process_bytes + one * width)
    memory = whole + worker + size.columns(2 * width * topology.parts) * machines.workers
    holding.work(memory)
    _check(memory + constants.process_bytes, machines, "the graph and the columns of its workers")
    back = result * others / machines.count
    return [
        Step("embed: graph into the store", "here", whole / (constants.ray_put_gbs * 1e9)),
        Step("embed: graph to every machine", "link", *_sent(whole * others, machines)),
        Step(
            "embed: hops",
            "everywhere",
            rounds * hop_seconds(size, smoothing, width, constants, machines.threads)
            + blocks * constants.ray_piece_s,
            memory=holding.peak,
        ),
        Step("embed: results back", "link", *_sent(back, machines)),
        *_kept(name, result, holding, machines, constants),
    ]


def embed_by_nodes(
    name: str,
    size: Size,
    smoothing: Smoothing,
    holding: Holding,
    machines: Machines,
    constants: Constants,
) -> list[Step]:
    """Return the steps where every worker computes some rows of every hop.

    Rows of the adjacency go out once; before every hop all columns go to every machine, and after
    it their rows come back.
    """
    if not _worth_sharing(size, smoothing):
        return embed_here(name, size, smoothing, holding, machines, constants)
    topology, columns = smoothing.topology, smoothing.columns
    workers, others = machines.count * machines.workers, machines.count - 1
    one, reserve = size.columns(topology.arrays), reserve_of(4 * size.entries, size.nodes)
    result = size.columns(columns * topology.parts)
    copies = 1 + 2 / topology.arrays
    left = holding.left - (int(result) if holding.stays(result) else 0)
    if (one + reserve) * copies > left:
        raise DoesNotFit("a column and its copies", (one + reserve) * copies, left)
    blocks = block_count(columns, one=int(one), left=left, reserve=reserve, at_once=copies, least=1)
    holding.take(name, result)
    width = columns / blocks
    share, part = size.adjacency / machines.count, size.columns(width)
    rows = part / (workers * BLOCKS_A_WORKER)
    worker = machines.workers * (constants.process_bytes + rows + size.columns(1) / 8)
    elsewhere = share + part + worker
    holding.work(one * width * copies + worker)
    _check(elsewhere, machines, "its rows, a block of columns and its workers")
    hops, all_columns = topology.hops, size.columns(columns)
    pieces = hops * blocks * workers * BLOCKS_A_WORKER * constants.ray_piece_s / workers
    worked = blocks * hop_seconds(size, smoothing, width, constants, machines.threads) / workers
    to_all, back = hops * all_columns * others, hops * all_columns * others / machines.count
    return [
        Step("embed: rows to every machine", "link", *_sent(share * others, machines)),
        Step(
            "embed: columns into the store",
            "here",
            hops * all_columns / (constants.ray_put_gbs * 1e9),
        ),
        Step("embed: columns to every machine", "link", *_sent(to_all, machines)),
        Step("embed: hops", "everywhere", worked + pieces, memory=holding.peak),
        Step("embed: results back", "link", *_sent(back, machines)),
        *_kept(name, result, holding, machines, constants),
    ]


def embed_by_rows(
    name: str,
    size: Size,
    smoothing: Smoothing,
    holding: Holding,
    machines: Machines,
    constants: Constants,
) -> list[Step]:
    """Return the steps where every machine has its rows on its own disk, and keeps its results.

    Before every hop a machine gets the rows of all others, a block of columns at a time, over all
    links at once. It holds its share of every state, and what is smoothed as a whole: once in
    Ray's store, and once for every worker.
    """
    topology, columns = smoothing.topology, smoothing.columns
    count, workers = machines.count, machines.workers
    shared = 1 + workers if count > 1 else 1
    arrays = (topology.hops + 1 + topology.parts) / count + shared
    one = size.columns(arrays)
    fixed = workers * (constants.process_bytes + size.columns(1))
    left = holding.left - fixed
    if one > left:
        raise DoesNotFit("a single column of the features", one + fixed, holding.left)
    blocks = max(-(-columns // int(left // one)), 1)
    width = columns / blocks
    holding.work(fixed + one * width)
    others = (count - 1) / count
    exchanged = topology.hops * size.columns(columns) * others
    result = size.columns(columns * topology.parts) / count
    worked = blocks * hop_seconds(size, smoothing, width, constants, machines.threads)
    worked /= count * workers
    read = blocks * topology.hops * size.adjacency / count + blocks * size.columns(columns) / count
    holding.on_disk = max(holding.on_disk, result)
    rate = file_rate(read + result, holding, machines, constants)
    return [
        Step("embed: files", "everywhere", (read + result) / rate),
        Step("embed: rows exchanged", "link", exchanged / machines.link, 2 * exchanged),
        Step("embed: hops", "everywhere", worked, memory=holding.peak),
    ]


def _worth_sharing(size: Size, smoothing: Smoothing) -> bool:
    return (size.entries + size.nodes) * smoothing.columns >= SHARED_FROM


def _sent(size: float, machines: Machines) -> tuple[float, float]:
    """Return seconds and bytes of what goes over the link of the machine that asked."""
    return size / machines.link, size


def _check(memory: float, machines: Machines, what: str) -> None:
    if memory > machines.memory:
        raise DoesNotFit(what, memory, machines.memory)


def _kept(
    name: str, result: float, holding: Holding, machines: Machines, constants: Constants
) -> list[Step]:
    """Return the writing of embeddings that do not stay in memory."""
    if holding.in_memory(name):
        return []
    rate = file_rate(result, holding, machines, constants)
    return [Step("embed: files", "here", result / rate)]


WAYS: dict[str, Embed] = {
    "one machine": embed_here,
    "columns": embed_by_columns,
    "nodes": embed_by_nodes,
    "rows": embed_by_rows,
}
