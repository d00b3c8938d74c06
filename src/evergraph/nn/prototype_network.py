"""The network of hierarchical prototypes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from evergraph.core.errors import ConfigurationError, check_integer
from evergraph.nn.backbone import backbones
from evergraph.nn.linear import Linear
from evergraph.nn.pdgnn import PDGNN, GrowingHead, check_head
from evergraph.topology import MixHop


def unit(vectors: Tensor) -> Tensor:
    """Return vectors scaled to length 1, differentiably; zeros stay.  [..., d] -> [..., d]"""
    return normalize(vectors, dim=-1, eps=1e-6)


def nearest(vectors: Tensor, prototypes: Tensor) -> Tensor:
    """Return the index of the prototype with the largest cosine for each vector.  -> int64 [n]

    vectors: of length 1 or 0.  [n, d]; prototypes: of length 1, at least one.  [p, d]
    """
    return (vectors @ prototypes.t()).argmax(1)


def unmatched(vectors: Tensor, prototypes: Tensor, threshold: float, *, most: int) -> Tensor:
    """Return the indices of the vectors that become new prototypes, in order.  -> int64 [new]

    A vector whose cosine with every prototype, old or new, is below ``threshold`` becomes one
    itself. So no two prototypes established together, nor one of them and an old one, are as close
    as ``threshold``: their number is bounded by the size of the sphere (a spherical code), however
    many vectors arrive. Zeros match nothing and are left out.

    vectors: [n, d]; prototypes: [p, d]; most: maximum number of new ones

    >>> line = torch.tensor([[1., 0.], [.8, .6], [0., 1.], [0., 0.]])
    >>> unmatched(line, torch.empty(0, 2), .7, most=9)
    tensor([0, 2])
    >>> unmatched(line, torch.tensor([[1., 0.]]), .9, most=9)
    tensor([1, 2])
    """
    is_unmatched = vectors.any(1)
    if len(prototypes):
        is_unmatched &= (vectors @ prototypes.t()).amax(1) < threshold
    rows = is_unmatched.nonzero().flatten()
    chosen: list[Tensor] = []
    while len(rows) and len(chosen) < most:
        chosen.append(rows[:1])
        rows = rows[1:][vectors[rows[1:]] @ vectors[rows[0]] < threshold]
    return torch.cat(chosen) if chosen else rows[:0]


def replaced_by_prototypes(vectors: Tensor, prototypes: Tensor) -> Tensor:
    """Return every vector's nearest prototype; zeros stay, and all vectors if there is none.

    The gradient with respect to a prototype is passed to the vector that it replaces, so that the
    layers below are trained and prototypes are not.  [n, d], [p, d] -> [n, d]

    >>> replaced_by_prototypes(torch.tensor([[.6, .8], [0., 0.]]), torch.eye(2))
    tensor([[0., 1.],
            [0., 0.]])
    """
    if not len(prototypes):
        return vectors
    with torch.no_grad():
        shift = prototypes[nearest(vectors, prototypes)] - vectors
        shift *= vectors.any(1)[:, None]
    return vectors + shift


@dataclass(frozen=True, eq=False)
class Level:
    """Embeddings and prototypes of nodes on one level."""

    extracted: Tensor  # embeddings of length 1, or 0 if there is nothing.  [n, d]
    standing: Tensor  # the prototypes that replace them.  [n, d]

    @classmethod
    def of(cls, extracted: Tensor, prototypes: Tensor) -> Level:
        """Return nodes on a level with their prototypes.  [n, d], [p, d] -> ..."""
        return cls(extracted, replaced_by_prototypes(extracted, prototypes))

    @property
    def distance(self) -> Tensor:
        """Distance of the embeddings from their prototypes, the mean of 1 - cosine.  []

        >>> found, prototype = torch.tensor([[.6, .8]]), torch.tensor([[1., 0.]])
        >>> Level(found, prototype).distance
        tensor(0.4000)
        """
        return (1 - (self.extracted * self.standing.detach()).sum(1)).mean()


def states_of(levels: Sequence[Level]) -> Tensor:
    """Return nodes' prototypes of all levels, concatenated.  -> [n, atoms d_A + d_N + d_C]"""
    nodes = len(levels[-1].standing)
    return torch.cat([level.standing.reshape(nodes, -1) for level in levels], dim=1)


NOTHING = -1  # index in place of an atomic prototype, if there is no neighbour


class PrototypeHead(GrowingHead):
    """f_out of ``PrototypeNetwork``: from own and neighbours' attributes to class scores.

    Args:
        dims: number of attributes per node.
        hops: number of neighbour rings that follow a node's own attributes in an embedding.
        extractors: number of extractors of each of the two kinds.
        widths: d_A, d_N, d_C, the widths of an embedding on each level.
        dropout: share of the last layer's inputs dropped in training.
    """

    atoms: Tensor  # atomic prototypes.  float32 [a, d_A]
    nodes: Tensor  # node-level prototypes, as indices of their atomic ones.  int64 [p, atoms]
    classes: Tensor  # class-level prototypes, as indices of their node-level ones.  int64 [c]
    # training nodes of each class with each node-level prototype.  float32 [classes, p]
    counts: Tensor

    def __init__(
        self,
        dims: int,
        *,
        hops: int,
        extractors: int,
        widths: tuple[int, int, int],
        dropout: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        atomic, node, cls = widths
        self.dims = dims
        self.atomic = atomic
        self.dropout = dropout
        total = extractors * (1 + hops)
        self.own = Linear(dims, extractors * atomic, bias=False, generator=generator)
        self.structure = Linear(dims, extractors * atomic, bias=False, generator=generator)
        self.to_node = Linear(total * atomic, node, generator=generator)
        self.to_class = Linear(node, cls, generator=generator)
        self.out = Linear(total * atomic + node + cls, 0, generator=generator)
        self.register_buffer("atoms", torch.empty(0, atomic))
        self.register_buffer("nodes", torch.empty(0, total, dtype=torch.int64))
        self.register_buffer("classes", torch.empty(0, dtype=torch.int64))
        self.register_buffer("counts", torch.empty(0, 0))

    def grow(self, classes: int, *, generator: torch.Generator) -> None:
        super().grow(classes, generator=generator)
        new_counts = self.counts.new_zeros(classes - len(self.counts), self.counts.shape[1])
        self.counts = torch.cat([self.counts, new_counts])

    def hidden_states(
        self, embeddings: Tensor, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the prototypes of nodes on all levels.  [n, (hops + 1) dims] -> [n, width]"""
        states = states_of(self.levels(self.extracted(embeddings)))
        return self._dropped(states, generator)

    def scores(self, levels: Sequence[Level], *, generator: torch.Generator | None) -> Tensor:
        """Return class scores of nodes on all levels.  -> [n, classes]"""
        scores: Tensor = self.out(self._dropped(states_of(levels), generator))
        return scores

    def extracted(self, embeddings: Tensor) -> Tensor:
        """Return the outputs of the extractors.  [n, (hops + 1) dims] -> [n, atoms, d_A]"""
        own_attributes, *rings = embeddings.split(self.dims, dim=1)
        outputs = [self.own(own_attributes), *(self.structure(ring) for ring in rings)]
        return unit(torch.cat(outputs, dim=1).unflatten(1, (-1, self.atomic)))

    def levels(self, atomic: Tensor) -> list[Level]:
        """Return nodes on the atomic, the node and the class level.  [n, atoms, d_A] -> ..."""
        nodes, classes = self.prototypes()
        lowest = Level.of(atomic.flatten(0, 1), self.atoms)
        middle = Level.of(unit(self.to_node(lowest.standing.view_as(atomic).flatten(1))), nodes)
        return [lowest, middle, Level.of(unit(self.to_class(middle.standing)), classes)]

    def divergence(self) -> Tensor:
        """Return ``alike`` of the extractors of a kind, summed over both kinds.  []"""
        weights = (linear.weight.unflatten(0, (-1, self.atomic)) for linear in self.extractors)
        own, structure = map(alike, weights)
        return own + structure

    @property
    def extractors(self) -> tuple[Linear, Linear]:
        """The extractors of both kinds, each kind as one map."""
        return self.own, self.structure

    @torch.no_grad()
    def prototypes(self) -> tuple[Tensor, Tensor]:
        """Return the current node-level and class-level prototypes.  [p, d_N], [c, d_C]

        They are stored as indices of their components, so that they move with the maps between the
        levels and never go stale.
        """
        nodes = unit(self.to_node(self.composed(self.nodes).flatten(1)))
        return nodes, unit(self.to_class(nodes[self.classes]))

    def composed(self, parts: Tensor) -> Tensor:
        """Return atomic prototypes by index.  int64 [n, atoms] -> [n, atoms, d_A]"""
        if not len(self.atoms):
            return self.atoms.new_zeros(*parts.shape, self.atomic)
        return self.atoms[parts.clamp_min(0)] * (parts != NOTHING)[..., None]

    @torch.no_grad()
    def establish(
        self, embeddings: Tensor, thresholds: tuple[float, float, float], *, capacity: int
    ) -> Tensor:
        """Add prototypes for nodes that match none; return each node's node-level prototype.

        thresholds: t_A, t_N, t_C of the paper, the least cosine at which a prototype matches on
        each level; capacity: maximum number per level.  [n, (hops + 1) dims] -> int64 [n]
        """
        atom_threshold, node_threshold, class_threshold = thresholds
        atomic = self.extracted(embeddings).flatten(0, 1)
        new_rows = unmatched(atomic, self.atoms, atom_threshold, most=capacity - len(self.atoms))
        self.atoms = torch.cat([self.atoms, atomic[new_rows]])
        if len(self.atoms):
            atom_indices = nearest(atomic, self.atoms).masked_fill(~atomic.any(1), NOTHING)
        else:
            atom_indices = torch.full((len(atomic),), NOTHING, device=atomic.device)
        atom_indices = atom_indices.view(len(embeddings), -1)
        node = unit(self.to_node(self.composed(atom_indices).flatten(1)))
        known_prototypes, _ = self.prototypes()
        new_rows = unmatched(
            node, known_prototypes, node_threshold, most=capacity - len(known_prototypes)
        )
        self.nodes = torch.cat([self.nodes, atom_indices[new_rows]])
        new_counts = self.counts.new_zeros(len(self.counts), len(new_rows))
        self.counts = torch.cat([self.counts, new_counts], dim=1)
        nodes, known_prototypes = self.prototypes()
        chosen = nearest(node, nodes)
        cls = unit(self.to_class(nodes[chosen]))
        new_rows = unmatched(
            cls, known_prototypes, class_threshold, most=capacity - len(known_prototypes)
        )
        self.classes = torch.cat([self.classes, chosen[new_rows]])
        return chosen

    def forget(self, *, nodes: int, classes: int) -> None:
        """Keep only the first prototypes above the atoms, this many of each."""
        self.nodes, self.classes = self.nodes[:nodes], self.classes[:classes]
        self.counts = self.counts[:, :nodes].clone()

    def count(self, labels: Tensor, chosen: Tensor) -> None:
        """Count the node-level prototypes of nodes by class.  2 x int64 [n]"""
        ones = torch.ones(len(chosen), device=chosen.device)
        self.counts.index_put_((labels, chosen), ones, accumulate=True)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Resize the buffers to the stored number of prototypes."""
        for name, buffer in [*self.named_buffers(recurse=False)]:
            stored = state_dict.get(prefix + name, buffer)
            setattr(self, name, torch.empty_like(stored, device=buffer.device))
        super()._load_from_state_dict(state_dict, prefix, *args)


def alike(extractors: Tensor) -> Tensor:
    """Return the mean squared cosine of any two extractors, 0 for a single one.  [e, d, D] -> []

    0 if all are orthogonal, 1 if all are equal.

    >>> alike(torch.tensor([[[1., 0.]], [[1., 1.]]]))  # cos 45°, squared
    tensor(0.5000)
    """
    flat = unit(extractors.flatten(1))
    squares = (flat @ flat.t()).square()
    count = len(flat)
    return (squares.sum() - squares.trace()) / max(count * (count - 1), 1)


LEVELS = 3


@backbones.register
class PrototypeNetwork(PDGNN):
    """Atomic, node-level and class-level embeddings of a node (after Zhang et al., TPAMI 2022).

    Extractors are linear: B_i for a node's own attributes, C_j for its neighbours':

        a = unit(B_i x_v), unit(C_j x̄_h(v)),  h = 1 .. ``hops``,  [extractors (1 + hops), d_A]
        n = unit(W_N [a]),  c = unit(W_C n),  scores = V [a, n, c] + b,

    where a, n and c are replaced by the nearest prototype of their level once there are any: see
    ``hpn``, which establishes them; with other methods the network has no prototypes.

    x̄_h(v) is the weighted sum over walks of h steps (Â without self-loops); the paper instead
    samples some neighbours of each hop, and extracts from each.

    Args:
        hops: radius of the neighbourhood from which attributes are extracted.
        extractors: number of extractors of each of the two kinds.
        widths: d_A, d_N, d_C. Few prototypes cover a sphere of few dimensions closely: with d_A = 4
            about 50 leave no cosine below 0.8, with d_A = 16 thousands do.
        dropout: share of the last layer's inputs dropped in training.

    >>> from evergraph.graphs import Graph
    >>> graph = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.eye(2),
    ...                          labels=torch.tensor([0, 1]), undirected=True)
    >>> model = PrototypeNetwork(extractors=4)
    >>> model.begin(2, generator=torch.Generator())
    >>> model.grow(3, generator=torch.Generator())
    >>> model.eval()(model.prepare(graph)).shape
    torch.Size([2, 3])
    """

    name = "prototypes"
    head: PrototypeHead | None  # type: ignore[assignment]

    def __init__(
        self,
        *,
        hops: int = 2,
        extractors: int = 32,
        widths: Sequence[int] = (4, 64, 64),
        dropout: float = 0.5,
    ) -> None:
        check_integer("hops", hops, least=1)
        check_integer("extractors", extractors, least=1)
        if len(widths) != LEVELS:
            raise ConfigurationError(
                f"widths must be {LEVELS} integers, one per level, not {list(widths)!r}"
            )
        check_head(tuple(widths), dropout)
        topology = MixHop(hops=hops, self_loops=False, unit=True)
        super().__init__(topology=topology, hidden=(), dropout=dropout)
        self.extractors = extractors
        self.widths = tuple(widths)

    def begin(self, dims: int, *, generator: torch.Generator) -> None:
        atomic, node, cls = self.widths
        self.head = PrototypeHead(
            dims,
            hops=self.hops,
            extractors=self.extractors,
            widths=(atomic, node, cls),
            dropout=self.dropout,
            generator=generator,
        ).to(self.device)

    def width_of(self, inputs: Tensor) -> int:
        return inputs.shape[1] // (self.hops + 1)
