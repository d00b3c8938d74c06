"""Ego-subnetwork sizes estimated from counters that go along the edges: HyperANF."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.core.resources import Resources
from evergraph.graphs.distinct_count import (
    LEAST_REGISTERS,
    TOP,
    check_registers,
    distinct_count,
    hashed,
)
from evergraph.graphs.graph import Graph
from evergraph.graphs.kernels.choice import choose_kernel
from evergraph.graphs.kernels.numba_max import NumbaMax
from evergraph.graphs.kernels.torch_max import TorchMax
from evergraph.graphs.row_sweep import RowSweep

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
