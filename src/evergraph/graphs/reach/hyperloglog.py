"""Ego-subnetwork sizes estimated from counters that go along the edges: HyperANF on HyperLogLog."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.core.errors import ConfigurationError
from evergraph.core.resources import Resources
from evergraph.graphs.graph import Graph
from evergraph.graphs.kernels.choice import choose_kernel
from evergraph.graphs.kernels.numba_max import NumbaMax
from evergraph.graphs.kernels.torch_max import TorchMax
from evergraph.graphs.rows import RowSweep

# A register holds at most this. A rank above it has a chance of 2^-40 a node, and sums of
# 2^(TOP - rank) over all registers are whole numbers that an int64 holds.
TOP = 40
MOST_REGISTERS = 1 << 15
LEAST_REGISTERS = 8
SEED = 0x9E3779B97F4A7C15
_BLOCK = 1 << 20


def check_registers(registers: int) -> None:
    """Raise unless so many registers can be had."""
    sound = isinstance(registers, int) and registers > 0 and registers & (registers - 1) == 0
    if not sound or not LEAST_REGISTERS <= registers <= MOST_REGISTERS:
        raise ConfigurationError(
            f"registers must be a power of two from {LEAST_REGISTERS} to {MOST_REGISTERS}, "
            f"not {registers!r}"
        )


def hashed(nodes: int, registers: int, *, seed: int = SEED) -> tuple[Tensor, Tensor]:
    """Return which register each node fills and with what.  int16 [nodes], uint8 [nodes]

    Register: the low bits of a hash. Rank: 1 + the leading zeros of its high 48, so that rank r
    has a chance of 2^-r. Nothing is drawn: a node number has the same hash everywhere.
    """
    column, rank = torch.empty(nodes, dtype=torch.int16), torch.empty(nodes, dtype=torch.uint8)
    for start in range(0, nodes, _BLOCK):
        stop = min(start + _BLOCK, nodes)
        hashes = splitmix64(np.arange(start, stop, dtype=np.uint64), seed)
        low = hashes & np.uint64(registers - 1)
        _, bits = np.frexp((hashes >> np.uint64(16)).astype(np.float64))
        column[start:stop] = torch.from_numpy(low.astype(np.int16))
        rank[start:stop] = torch.from_numpy(np.minimum(49 - bits, TOP).astype(np.uint8))
    return column, rank


def splitmix64(numbers: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """Return numbers without pattern for numbers with one (Steele, Lea and Flood 2014).

    >>> int(splitmix64(np.array([0], dtype=np.uint64), 0x9E3779B97F4A7C15)[0])
    16294208416658607535
    """
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def distinct_count(sums: Tensor, registers: int) -> Tensor:
    """Return estimates of how many nodes filled some registers M_1 .. M_m, m = ``registers``.

        m² / (2 ln 2) / (m σ(Z/m) + Σ_{M_j > 0} 2^-M_j),   σ(x) = x + Σ_{k≥1} x^{2^k} 2^{k-1}

    with Z the registers not filled (Ertl 2017, "New cardinality estimation algorithms for
    HyperLogLog sketches", Algorithm 6; ranks beyond the last do not occur here). It is the
    estimate of Flajolet et al. 2007, relative error 1.04 / √m, without its bias where few nodes
    were seen.

    sums: Σ 2^(TOP - M_j) over the filled ones, and Z.  int64 [2, n] -> float64 [n]

    >>> distinct_count(torch.tensor([[0, 1 << 39], [8, 7]]), 8).tolist()  # nobody; one node
    [0.0, 1.0639...]
    """
    weights = _sigma(registers)[sums[1]] * registers + sums[0].double() / 2.0**TOP
    return registers**2 / (2 * math.log(2)) / weights


def _sigma(registers: int) -> Tensor:
    """Return σ(Z / m) for Z = 0 .. m.  float64 [m + 1]"""
    power = torch.arange(registers + 1, dtype=torch.float64) / registers
    total, factor = power.clone(), 1.0
    for _ in range(64):
        power = power.square()
        total += power * factor
        factor *= 2
    total[-1] = torch.inf
    return total


REGISTERS = 512
# Registers worked on together. A row of them is read from a random place: the wider, the fewer.
MOST_WIDE = 256
# The most that the registers of a block may take on a GPU, in bytes.
ON_DEVICE = 4 << 30


def estimate_reach_sizes(
    graph: Graph,
    nodes: Tensor,
    *,
    hops: int,
    registers: int = REGISTERS,
    resources: Resources | None = None,
) -> Tensor:
    """Return about how many nodes lie within ``hops`` of each of ``nodes``.  float64 [nodes]

    Every node has a HyperLogLog counter; a hop takes, register by register, the largest of a node's
    own and its neighbours' (HyperANF, Boldi, Rosa and Vigna 2011), so that after L hops a counter
    has seen the nodes within L:

        M⁰_vj = rank(v) if j = register(v) else 0,    Mˡ_vj = max(Mˡ⁻¹_vj, max_{u into v} Mˡ⁻¹_uj)

    The cost is entries x registers x hops, whatever the sizes. Registers do not know each other:
    they are worked on in blocks, and of each block only Σ 2^-M and the number of zeros are kept, as
    whole numbers. So the estimates are the same to the last bit however the work is cut, on any
    device and any engine. An estimate is never below the 1-hop size, which is known, nor above
    the number of nodes; with up to one hop it is exact.

    nodes: int64 [nodes]. registers: a power of two; the relative error is about 1.04 / √registers.

    >>> star = Graph.from_edges(torch.tensor([[0] * 99, range(1, 100)]), features=torch.eye(100),
    ...                         labels=torch.zeros(100, dtype=torch.long), undirected=True)
    >>> estimate_reach_sizes(star, torch.tensor([0, 1]), hops=2).round()  # 100 and 100
    tensor([100.,  98.], dtype=torch.float64)
    """
    check_integer("hops", hops, least=0)
    check_registers(registers)
    nodes = nodes.to(graph.device)
    near = graph.degrees[nodes].double().cpu() + 1
    if hops < 2 or not len(nodes):
        return near if hops else torch.ones_like(near)
    rows, back = nodes.unique(return_inverse=True)
    sums = _summed(graph, rows, hops, registers, resources or Resources())
    sizes = distinct_count(sums.cpu(), registers)[back.cpu()]
    return sizes.clamp_min(near).clamp_max(graph.num_nodes)


def _summed(graph: Graph, rows: Tensor, hops: int, registers: int, resources: Resources) -> Tensor:
    """Return Σ 2^(TOP - M) over the filled registers, and the empty ones.  int64 [2, rows]"""
    column, rank = (part.to(graph.device) for part in hashed(graph.num_nodes, registers))
    shared = {
        "sweep": RowSweep.of(graph),
        "rows": rows,
        "hops": hops,
        "column": column,
        "rank": rank,
    }
    sums = torch.zeros(2, len(rows), dtype=torch.int64, device=graph.device)
    for part in resources.engine.map(
        sum_registers, _blocks(graph, registers, resources), shared=shared
    ):
        sums += part.to(sums.device)
    return sums


def _blocks(graph: Graph, registers: int, resources: Resources) -> list[tuple[int, int]]:
    """Cut the registers into blocks as wide as memory allows, one a worker at the least."""
    width = min(MOST_WIDE, registers)
    while width > LEAST_REGISTERS and (
        registers < width * resources.engine.workers or not _fits(graph, width, resources)
    ):
        width //= 2
    if graph.device.type == "cpu":
        resources.check(_size(graph, width), "estimating reach")
    return [(low, width) for low in range(0, registers, width)]


def _size(graph: Graph, width: int) -> int:
    """Return the bytes that a block takes: all nodes' registers before and after a hop."""
    return 2 * graph.num_nodes * width


def _fits(graph: Graph, width: int, resources: Resources) -> bool:
    size = _size(graph, width)
    return size <= ON_DEVICE if graph.device.type != "cpu" else resources.fits(size)


def sum_registers(
    block: tuple[int, int], *, sweep: RowSweep, rows: Tensor, hops: int,
    column: Tensor, rank: Tensor,
) -> Tensor:  # fmt: skip
    """Return what some registers add to the sums of ``rows``; a pure function.  int64 [2, rows]

    block: the first of the registers, and how many they are.
    """
    indptr, indices = sweep.plain
    kind = choose_kernel(entries=len(indices), device=indices.device)
    kernel = (NumbaMax if kind == "numba" else TorchMax)(indptr, indices, column, rank, *block)
    everyone = torch.arange(len(rank), device=rank.device)
    seen = sweep.collect(everyone, kernel.first, width=block[1])
    for _ in range(hops - 2):
        seen = sweep.collect(everyone, partial(kernel.following, registers=seen), width=block[1])
    sums = torch.empty(2, len(rows), dtype=torch.int64, device=rows.device)
    for part, found in sweep.blocks(rows, partial(kernel.following, registers=seen)):
        sums[:, part] = kernel.sums(found, TOP)
    return sums
