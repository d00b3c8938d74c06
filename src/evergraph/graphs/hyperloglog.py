"""Ego-subnetwork sizes estimated by counters propagated along edges: HyperANF on HyperLogLog."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError, check_integer
from evergraph.core.resources import Resources
from evergraph.core.seeding import splitmix64
from evergraph.graphs.csr import RowSweep
from evergraph.graphs.graph import Graph
from evergraph.graphs.kernels.row_ranges import compiled, in_parts, unsigned

# The largest value of a register. A larger rank has a chance of 2^-40 per node, and sums of
# 2^(TOP - rank) over all registers are integers that fit an int64.
TOP = 40
MOST_REGISTERS = 1 << 15
LEAST_REGISTERS = 8
SEED = 0x9E3779B97F4A7C15
_NODES_PER_BLOCK = 1 << 20
REGISTERS = 512
# Registers processed together. A row of them is read at random: the wider, the fewer reads.
MOST_WIDE = 256
Array = npt.NDArray[Any]
_SUMMED_ROWS = 1 << 16


def hashed(nodes: int, registers: int, *, seed: int = SEED) -> tuple[Tensor, Tensor]:
    """Return each node's register and its value.  int16 [nodes], uint8 [nodes]

    Register: the low bits of a hash, which is the same everywhere. Rank: 1 + the leading zeros of
    its high 48, so that rank r has a chance of 2^-r.
    """
    column, rank = torch.empty(nodes, dtype=torch.int16), torch.empty(nodes, dtype=torch.uint8)
    for start in range(0, nodes, _NODES_PER_BLOCK):
        stop = min(start + _NODES_PER_BLOCK, nodes)
        hashes = splitmix64(np.arange(start, stop, dtype=np.uint64), seed)
        low = hashes & np.uint64(registers - 1)
        _, bits = np.frexp((hashes >> np.uint64(16)).astype(np.float64))
        column[start:stop] = torch.from_numpy(low.astype(np.int16))
        rank[start:stop] = torch.from_numpy(np.minimum(49 - bits, TOP).astype(np.uint8))
    return column, rank


def distinct_count(sums: Tensor, registers: int) -> Tensor:
    """Return estimates of how many nodes filled some registers M_1 .. M_m, m = ``registers``.

        m² / (2 ln 2) / (m σ(Z/m) + Σ_{M_j > 0} 2^-M_j),   σ(x) = x + Σ_{k≥1} x^{2^k} 2^{k-1}

    with Z the number of empty registers (Ertl 2017, "New cardinality estimation algorithms for
    HyperLogLog sketches", Algorithm 6; ranks beyond the last do not occur here). It is the
    estimate of Flajolet et al. 2007, relative error 1.04 / √m, without its bias for few nodes.

    sums: Σ 2^(TOP - M_j) over the filled ones, and Z.  int64 [2, n] -> float64 [n]

    >>> distinct_count(torch.tensor([[0, 1 << 39], [8, 7]]), 8).tolist()  # no node; one node
    [0.0, 1.0639...]
    """
    power = torch.arange(registers + 1, dtype=torch.float64) / registers
    sigma, factor = power.clone(), 1.0  # σ(Z/m) for Z = 0 .. m
    for _ in range(64):
        power = power.square()
        sigma += power * factor
        factor *= 2
    sigma[-1] = torch.inf
    weights = sigma[sums[1]] * registers + sums[0].double() / 2.0**TOP
    return registers**2 / (2 * math.log(2)) / weights


def estimate_reach_sizes(
    graph: Graph,
    nodes: Tensor,
    *,
    hops: int,
    registers: int = REGISTERS,
    resources: Resources | None = None,
) -> Tensor:
    """Return the approximate number of nodes within ``hops`` of each of ``nodes``.  float64 [nodes]

    Every node has a HyperLogLog counter; a hop takes, register by register, the largest of a node's
    own and its neighbours' (HyperANF, Boldi, Rosa and Vigna 2011), so that after L hops a counter
    has counted the nodes within L:

        M⁰_vj = rank(v) if j = register(v) else 0,    Mˡ_vj = max(Mˡ⁻¹_vj, max_{u into v} Mˡ⁻¹_uj)

    The cost is entries x registers x hops, whatever the sizes. Registers are independent: they are
    processed in blocks, and only Σ 2^-M and the number of zeros of each block are kept, as
    integers. So the estimates are the same to the last bit for any division of the work and engine.
    They are computed on the CPU, wherever the graph is. An estimate is never below the 1-hop size,
    which is known, nor above the number of nodes; with up to one hop it is exact.

    nodes: int64 [nodes]. registers: a power of two; the relative error is about 1.04 / √registers.

    >>> star = Graph.from_edges(torch.tensor([[0] * 99, range(1, 100)]), features=torch.eye(100),
    ...                         labels=torch.zeros(100, dtype=torch.long), undirected=True)
    >>> estimate_reach_sizes(star, torch.tensor([0, 1]), hops=2).round()  # 100 and 100
    tensor([100.,  98.], dtype=torch.float64)
    """
    check_integer("hops", hops, least=0)
    power = isinstance(registers, int) and registers > 0 and registers & (registers - 1) == 0
    if not power or not LEAST_REGISTERS <= registers <= MOST_REGISTERS:
        raise ConfigurationError(
            f"registers must be a power of two from {LEAST_REGISTERS} to {MOST_REGISTERS}, "
            f"not {registers!r}"
        )
    nodes = nodes.to(graph.device)
    one_hop = graph.degrees[nodes].double().cpu() + 1
    if hops < 2 or not len(nodes):
        return one_hop if hops else torch.ones_like(one_hop)
    rows, row_of_node = nodes.cpu().unique(return_inverse=True)
    column, rank = hashed(graph.num_nodes, registers)
    sweep = graph.sweep.on_cpu()
    shared = {"sweep": sweep, "rows": rows, "hops": hops, "column": column, "rank": rank}
    resources = resources or Resources()
    blocks = _blocks(graph, registers, resources)
    sums = torch.zeros(2, len(rows), dtype=torch.int64)
    for part in resources.engine.map(sum_registers, blocks, shared=shared):
        sums += part
    sizes = distinct_count(sums, registers)[row_of_node]
    return sizes.clamp_min(one_hop).clamp_max(graph.num_nodes)


def _blocks(graph: Graph, registers: int, resources: Resources) -> list[tuple[int, int]]:
    """Cut the registers into blocks as wide as memory allows, at least one per worker."""

    def size(width: int) -> int:  # all nodes' registers before and after a hop
        return 2 * graph.num_nodes * width

    width = min(MOST_WIDE, registers)
    while width > LEAST_REGISTERS and (
        registers < width * resources.engine.workers or not resources.fits(size(width))
    ):
        width //= 2
    resources.check(size(width), "estimating reach")
    return [(low, width) for low in range(0, registers, width)]


def sum_registers(
    block: tuple[int, int],
    *,
    sweep: RowSweep,
    rows: Tensor,
    hops: int,
    column: Tensor,
    rank: Tensor,
) -> Tensor:
    """Return what the first and number of some registers add to the sums.  -> int64 [2, rows]

    A single node fills only one register, so the first hop reads three bytes per entry: the
    register and the rank of a neighbour, not a row of registers.
    """
    low, width = block
    indptr, indices = map(unsigned, sweep.plain)

    def fill(loop: Callable[..., None], block_rows: Tensor, out: Tensor, *arrays: Any) -> Tensor:
        compiled_loop = compiled(loop)
        arguments = (indptr, indices, block_rows.numpy(), *arrays, out.numpy())
        costs = sweep.lengths(block_rows).numpy() + 1
        in_parts(lambda part: compiled_loop(*arguments, part.start, part.stop), costs, each=width)
        return out

    def first(block_rows: Tensor) -> Tensor:
        out = torch.zeros(len(block_rows), width, dtype=torch.uint8)
        return fill(fill_first, block_rows, out, column.numpy(), rank.numpy(), low)

    def following(block_rows: Tensor) -> Tensor:
        out = registers_before[block_rows]
        return fill(fill_maxima, block_rows, out, registers_before.numpy())

    for hop in range(1, hops):
        registers_after = torch.empty(len(rank), width, dtype=torch.uint8)
        for part, registers in sweep.blocks(None, first if hop == 1 else following):
            registers_after[part] = registers
        registers_before = registers_after
    sums = torch.empty(2, len(rows), dtype=torch.int64)
    for part, registers in sweep.blocks(rows, following):
        sums[:, part] = register_sums(registers)
    return sums


def register_sums(registers: Tensor) -> Tensor:
    """Return Σ 2^(TOP - M) over the nonzero registers M of each row, and the number of zeros.

    registers: uint8 [m, width] -> int64 [2, m]
    """
    weights = 1 << (TOP - torch.arange(TOP + 1))
    weights[0] = 0
    parts = registers.split(_SUMMED_ROWS)
    sums = [torch.stack([weights[part.int()].sum(1), (part == 0).sum(1)]) for part in parts]
    return torch.cat(sums, dim=1)


def fill_first(
    indptr: Array,
    indices: Array,
    rows: Array,
    column: Array,
    rank: Array,
    low: int,
    out: Array,
    start: int,
    stop: int,
) -> None:
    """Fill ``out[start:stop]`` from the one register that each neighbour fills."""
    for i in range(start, stop):
        v = rows[i]
        position = column[v] - low
        if position >= 0 and position < out.shape[1]:
            out[i, position] = rank[v]
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            position = column[u] - low
            if position >= 0 and position < out.shape[1]:
                out[i, position] = max(out[i, position], rank[u])


def fill_maxima(
    indptr: Array, indices: Array, rows: Array, registers: Array, out: Array, start: int, stop: int
) -> None:
    """Raise ``out[start:stop]`` to the largest of each register over a row's neighbours."""
    for i in range(start, stop):
        row = out[i]
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            neighbour = registers[indices[e]]
            for k in range(len(row)):
                row[k] = max(row[k], neighbour[k])
