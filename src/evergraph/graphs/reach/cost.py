"""What exact ego-subnetwork sizes cost, what estimated ones do, and which to take."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.checks import check_choice
from evergraph.graphs.graph import Graph
from evergraph.graphs.reach.covered import covered_nodes
from evergraph.graphs.rows import neighbour_sums

METHODS = ("auto", "exact", "estimated")
# Seconds on two cores (benchmarks/reach_at_scale.py): a walk of the exact search, and a register of
# an adjacency entry in a hop of the estimate. They are constants, and neither the machine nor what
# is installed on it has a say: the same command chooses the same everywhere.
WALK_SECONDS = 2.5e-9
REGISTER_SECONDS = 0.2e-9
# What exact sizes may take. On a GPU, where the estimate takes milliseconds and a search would have
# to leave it, less.
AFFORDABLE_SECONDS = {"cpu": 60.0, "cuda": 1.0}
# The share of rows below which picking them out costs less than reading all as they lie.
PICKED_BELOW = 0.3

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReachCost:
    """What is predicted for two cores, and what is affordable, in seconds."""

    exact: float
    estimated: float
    affordable: float = AFFORDABLE_SECONDS["cpu"]

    @property
    def cheaper(self) -> str:
        """Exact wherever that is affordable; the estimate only where it is not, and pays."""
        pays = self.exact > self.affordable and self.estimated < self.exact
        return "estimated" if pays else "exact"


def walk_counts(graph: Graph, nodes: Tensor | None = None, *, hops: int) -> Tensor:
    """Return how many walks of ``hops`` steps, or rests, leave each node.  float64 [nodes]

    nodes: whom to count for, everybody unless given; only rows within reach of them are read.

    >>> star = Graph.from_edges(torch.tensor([[0, 0], [1, 2]]), features=torch.eye(3),
    ...                         labels=torch.zeros(3, dtype=torch.long), undirected=True)
    >>> walk_counts(star, hops=2).tolist()  # the middle: 3 in one step, then 3 + 2 + 2
    [7.0, 5.0, 5.0]
    """
    counts = torch.ones(graph.num_nodes, dtype=torch.float64, device=graph.device)
    if hops:
        counts += graph.degrees
    for before in reversed(range(hops - 1)):  # steps that lead to where this one is taken
        rows = None if nodes is None else _some_rows(graph, nodes, before)
        counts[... if rows is None else rows] += neighbour_sums(graph, counts, rows)
    return counts if nodes is None else counts[nodes.to(graph.device)]


def _some_rows(graph: Graph, nodes: Tensor, hops: int) -> Tensor | None:
    """Return the nodes within reach; None if they are so many that all may be read.  int64 [m]"""
    rows = covered_nodes(graph, nodes, hops=hops).nonzero().flatten()
    return None if len(rows) > PICKED_BELOW * graph.num_nodes else rows.to(graph.device)


def search_costs(graph: Graph, nodes: Tensor, *, hops: int) -> npt.NDArray[np.float64]:
    """Return how many entries a search from each of ``nodes`` reads at the most.  [nodes]

    No more than there are walks, and no entry twice.
    """
    walks = walk_counts(graph, nodes, hops=hops)
    return walks.clamp_max(graph.num_edges + graph.num_nodes).cpu().numpy()


def reach_cost(
    graph: Graph, costs: npt.NDArray[np.float64], *, hops: int, registers: int
) -> ReachCost:
    """Return the cost of exact and of estimated sizes; ``costs`` are those of the searches."""
    work = float(graph.num_edges + graph.num_nodes) * registers * hops
    affordable = AFFORDABLE_SECONDS[graph.device.type]
    return ReachCost(float(costs.sum()) * WALK_SECONDS, work * REGISTER_SECONDS, affordable)


def choose(method: str, cost: ReachCost, *, nodes: int, hops: int) -> str:
    """Return "exact" or "estimated", and say in the log which and why."""
    check_choice("reach method", method, METHODS)
    chosen = cost.cheaper if method == "auto" else method
    if method != "auto":
        reason = "as asked for"
    elif chosen == "estimated":
        reason = f"exact ones would take more than {cost.affordable:.0f} s"
    else:
        reason = "exact ones are affordable"
    logger.log(
        logging.INFO if chosen == "estimated" else logging.DEBUG,
        "reach of %d nodes within %d hops: %s sizes, since %s (predicted for two cores: exact "
        "%.3g s, estimated %.3g s)",
        nodes, hops, chosen, reason, cost.exact, cost.estimated,
    )  # fmt: skip
    return chosen
