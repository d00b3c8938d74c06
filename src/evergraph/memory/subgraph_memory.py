"""A memory of nodes with part of the graph around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.component import Made
from evergraph.graphs import Graph, covered_nodes
from evergraph.graphs.csr import csr_tensor, first_of_each_row, row_entries
from evergraph.graphs.disjoint import disjoint_union
from evergraph.memory.budget import Memory, MemoryUsage
from evergraph.memory.samplers import Candidates, Sampler, UniformSampler

Rank = Callable[[Tensor], Tensor]
"""Maps adjacency entries to ranks; smaller ones are kept first.  int64 [n] -> [n]"""


@dataclass(frozen=True, eq=False)
class EgoNetworks:
    """The ego-subnetworks of some nodes, merged into one graph.

    Attributes:
        graph: every kept node and edge, once.
        centres: positions in ``graph`` of the centre nodes.  int64 [centres]
        hops: largest distance of a kept node from its centre.
    """

    graph: Graph
    centres: Tensor
    hops: int


def ego_networks(
    graph: Graph, centres: Tensor, *, hops: int, neighbours: int | None = None, rank: Rank
) -> EgoNetworks:
    """Return the nodes within ``hops`` steps of the centres, at most ``neighbours`` per node.

    Each node reached keeps its neighbours of lowest rank; all of them with ``neighbours=None``. A
    kept edge goes both ways if the graph's does. Nodes that several ego-subnetworks share are kept
    once. All centres expand together, one hop at a time, on the graph's device; ``rank`` is given
    entries on that device.
    """
    device = graph.device
    centres = centres.to(device)
    kept_entries = torch.zeros(graph.num_edges, dtype=torch.bool, device=device)
    reached = torch.zeros(graph.num_nodes, dtype=torch.bool, device=device)
    reached[centres] = True
    layer = reached.nonzero().flatten()
    for _ in range(hops):
        owners, entries = row_entries(graph.indptr, layer)
        if neighbours is not None:
            ranks = rank(entries).to(device)
            entries = entries[first_of_each_row(owners, ranks, neighbours)]
        kept_entries[entries] = True
        neighbouring = torch.zeros_like(reached)
        neighbouring[graph.indices[entries].long()] = True
        layer = (neighbouring & ~reached).nonzero().flatten()
        reached |= neighbouring
    nodes = reached.nonzero().flatten()
    if graph.num_edges:  # the position of (u, v) for every entry (v, u); its own if missing
        rows, columns = graph.edge_rows(), graph.indices.long()
        keys = rows * graph.num_nodes + columns  # ascending, since rows and columns are
        reverse_keys = columns * graph.num_nodes + rows
        positions = torch.searchsorted(keys, reverse_keys).clamp_max(len(keys) - 1)
        own_positions = torch.arange(len(keys), device=keys.device)
        reverse = torch.where(keys[positions] == reverse_keys, positions, own_positions)
        kept_entries = kept_entries | kept_entries[reverse]
    merged = graph.subgraph(nodes, keep=kept_entries)
    return EgoNetworks(merged, torch.searchsorted(nodes, centres), hops)


def isolated(graph: Graph, centres: Tensor) -> EgoNetworks:
    """Return the centres alone, with the edges among them."""
    centres = centres.to(graph.device)
    nodes = centres.sort().values
    return EgoNetworks(graph.subgraph(nodes), torch.searchsorted(nodes, centres), 0)


Keep = Callable[[Graph, Tensor], EgoNetworks]
"""Maps a task's graph and the chosen nodes to the part of the graph that is kept around them."""


class SubgraphMemory(Memory):
    """Nodes of earlier tasks, chosen by a sampler, each with part of its ego-subnetwork.

    The method decides how much of the ego-subnetwork is kept: only the edges among stored nodes
    (``er-gnn``), a few neighbours (``ssm``, ``sem``) or everything (``full-subgraph``).

    Args:
        budget: an integer per class or a fraction of the dataset.
        sampler: chooses the nodes to keep.

    Attributes:
        graph_: the stored parts of all earlier graphs as one disjoint graph; None while empty. It
            stays in main memory, whatever the device of the tasks' graphs: a replaying method
            moves it once per task, and a restored memory is on the same device as the original.
        centres_: positions in ``graph_`` of the chosen nodes.  int64 [chosen]
    """

    sampler: Made[Sampler] = Made(default=UniformSampler)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.graph_: Graph | None = None
        self.centres_ = torch.empty(0, dtype=torch.int64)

    def store(
        self,
        candidates: Candidates,
        sizes: dict[int, int],
        *,
        keep: Keep,
        generator: torch.Generator,
    ) -> None:
        """Choose among a task's nodes and the stored nodes of their classes.

        sizes: number of nodes of each class so far, for fractional budgets; keep: returns the part
        of the graph to keep around the chosen nodes.
        """
        labels, ranks, chosen = self._choose(candidates, sizes, generator=generator)
        is_kept = torch.zeros(len(labels), dtype=torch.bool).index_fill_(0, chosen, True)
        old, new = is_kept[: len(self)], is_kept[len(self) :]
        if not bool(new.any()):  # budgets never shrink, so everything stored stays
            return
        ego = keep(candidates.graph, candidates.nodes.cpu()[new])
        if self.graph_ is not None and not bool(old.all()):
            # All of the graph goes that is not within reach of a remaining node.
            centres = self.centres_[old]
            nodes = covered_nodes(self.graph_, centres, hops=ego.hops).nonzero().flatten()
            self.graph_ = self.graph_.subgraph(nodes)
            self.centres_ = torch.searchsorted(nodes, centres)
        offset = 0 if self.graph_ is None else self.graph_.num_nodes
        # Relations and types are not kept: no backbone that learns from stored graphs reads them.
        new_graph = ego.graph.to("cpu").with_relations(None).with_types(None)
        graphs = [new_graph] if self.graph_ is None else [self.graph_, new_graph]
        self.graph_ = disjoint_union(graphs)
        self.centres_ = torch.cat([self.centres_, ego.centres.cpu() + offset])
        self.labels_, self.ranks_ = labels[is_kept], ranks[is_kept]

    @property
    def usage(self) -> MemoryUsage:
        """Features of every kept node, as counted in the paper, edges, and bytes of everything."""
        if self.graph_ is None:
            return MemoryUsage()
        return MemoryUsage(
            samples=self.graph_.num_nodes * self.graph_.num_features,
            edges=self.graph_.num_edges,
            bytes=sum(tensor.nbytes for tensor in self.state().values()),
        )

    def state(self) -> dict[str, Tensor]:
        """Return everything stored, by name."""
        state = {"centres": self.centres_, "labels": self.labels_, "ranks": self.ranks_}
        if self.graph_ is None:
            return state
        features = self.graph_.features
        state |= {"indptr": self.graph_.indptr, "indices": self.graph_.indices}
        if self.graph_.weights is not None:
            state |= {"weights": self.graph_.weights}
        if features.layout == torch.strided:
            return state | {"features": features}
        return state | {
            "features.indptr": features.crow_indices(),
            "features.indices": features.col_indices(),
            "features.values": features.values(),
            "features.width": torch.tensor(features.shape[1]),
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        for name in ("centres", "labels", "ranks"):
            setattr(self, f"{name}_", state[name])
        self.graph_ = None
        if "indptr" in state:
            unlabelled = torch.full((len(state["indptr"]) - 1,), -1)
            if "features" in state:
                features = state["features"]
            else:
                names = ("indptr", "indices", "values")
                indptr, indices, values = (state[f"features.{name}"] for name in names)
                shape = (len(unlabelled), int(state["features.width"]))
                features = csr_tensor(indptr, indices, values, shape)
            arrays = (state["indptr"], state["indices"], features, unlabelled)
            self.graph_ = Graph(*arrays, weights=state.get("weights"))
