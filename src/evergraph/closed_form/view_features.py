"""Random features of several views of a node, and one linear head on all of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar
from weakref import WeakKeyDictionary

import scipy
import torch
from torch import Tensor

from evergraph.closed_form.codes import ClassCodes, RelationCodes, RelationHops
from evergraph.closed_form.codes import related as relations_of
from evergraph.closed_form.kernel_map import KernelMap
from evergraph.closed_form.memory_heads import MemoryHeads, memory_views
from evergraph.closed_form.own_features import SHAPE_WIDTH, Words, shape_of
from evergraph.closed_form.view_map import RandomMap
from evergraph.closed_form.views import (
    CODE_HOPS,
    CODES,
    ENDLESS,
    FAR,
    RELATION_CODES,
    RELATIONS,
    SHAPE,
    View,
    ViewRows,
    hops_of,
    parse_views,
)
from evergraph.core.component import integer, number
from evergraph.core.errors import ConfigurationError
from evergraph.core.resources import Resources
from evergraph.core.sizes import shown
from evergraph.graphs import Graph
from evergraph.graphs.csr import as_scipy
from evergraph.graphs.kernels.scaled_rows import RowType
from evergraph.nn.backbone import Backbone, Recipe, backbones
from evergraph.nn.linear import Linear, dropout_mask
from evergraph.topology import EmbeddingCache
from evergraph.topology.cached import Storage
from evergraph.topology.mixhop import WIDEST as WIDEST_HOP
from evergraph.topology.mixhop import EndOfHops, ViewHops

VIEWS = ("0|1|2|4|r+y", "0|1|2|4|r", "0|s", "32", "c")
"""Near and far, the most useful views first; relations are used if the graph has them."""
# Maximum width of a far hop: neighbourhoods of many hops differ in few directions, and 32 hops of
# this width take less time than eight of wide features.
FAR_WIDTH = 128
# Narrower than this, another view is worth less than the width that the others lose.
LEAST_WIDTH, LEAST_LANDMARKS = 256, 512
NARROWEST, WIDEST, STEP = 64, 8192, 64
# Values of all hops of a graph from which on rows that are not needed again are not kept.
LARGE = 1 << 22


@backbones.register
@dataclass(kw_only=True, eq=False, repr=False)
class ViewFeatures(Backbone):
    """Fixed ReLU features of several views of a node, with one linear head per view.

    s(x) = Σ_v W_v φ_v(x); see ``RandomMap`` for φ. Hops of Â and class codes are computed once for
    all views. If a graph shows no labels there are no class codes: views that need them are left
    out, and the others have weights of their own, if set. Hops beyond ``FAR`` are computed on
    features projected to ``FAR_WIDTH`` columns. The first graph decides whether relations are used:
    ``r`` in a view, and relations in class codes, have an effect only if it has them.

    Args:
        views: names of the views, such as ``2``, ``0|2``, ``0|2+y`` and ``0|2|r``, see ``View``.
        width: number of random features per view.
        code_width: width of a class code, see ``ClassCodes``.
        dropout: share of features dropped while the head is trained by gradients.
        storage: of hops and codes, see ``EmbeddingCache``.
        dtype: type of the features while a hop sums them, see ``TopologyEncoder``. Codes and
            relations are summed in float32, since a node's own class could not be removed from
            rounded codes.

    >>> graph = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.eye(2),
    ...                          labels=torch.tensor([0, -1]), undirected=True)
    >>> model = ViewFeatures(views=("0|1", "y"), width=8)
    >>> model.begin(2, generator=torch.Generator())
    >>> model.grow(3, generator=torch.Generator())
    >>> model.eval()(model.prepare(graph)).shape
    torch.Size([2, 3])
    """

    name = "view-features"
    recipe = Recipe(epochs=30, lr=0.005, weight_decay=1e-5, batch_size=512)
    widest: ClassVar[int | None] = WIDEST_HOP  # wider features are projected
    on_landmarks: ClassVar[bool] = False  # whether features are kernel values to landmark nodes
    statistics_share: ClassVar[float] = 0.6  # of ``memory``, see ``within``
    views: Sequence[str] = VIEWS
    width: int = integer(1984, least=1)
    code_width: int = integer(64, least=1)
    dropout: float = number(0.5, least=0.0, most=0.99)
    storage: Storage = "float32"
    dtype: RowType = "float32"
    seed: Tensor = field(init=False)
    mixture: Tensor = field(init=False)
    related: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        parsed = self.parsed = parse_views(self.views)
        kept = hops_of(parsed)
        self.coded = any(view.codes for view in parsed)  # whether any view uses labels nearby
        self.shaped = any(view.shaped for view in parsed)  # and degree and feature length
        super().__init__(hops=max(2 if self.coded else 0, *kept, 0))
        self.views = tuple(map(str, parsed))
        self.near = tuple(hop for hop in kept if hop <= FAR) or (0,)
        self.far = tuple(hop for hop in kept if hop > FAR)
        self._topologies = (
            ViewHops(kept_hops=self.near, widest=self.widest, dtype=self.dtype),
            ClassCodes(width=self.code_width),
            RelationHops(),
            RelationCodes(width=self.code_width),
            ViewHops(
                kept_hops=tuple(hop for hop in self.far if hop < ENDLESS) or (0,),
                widest=FAR_WIDTH,
                dtype=self.dtype,
            ),
            EndOfHops(widest=FAR_WIDTH),
        )
        self._has_relations: bool | None = None
        self._worded: bool | None = None  # whether nodes that are kept have words; None if unknown
        self.head: Linear | None = None
        self.memory_heads: MemoryHeads | None = None  # on nodes that are kept, beside ``head``
        self.place(self.device)

    def within(self, memory: int) -> ViewFeatures:
        """Return similar features whose statistics take at most a share of ``memory`` bytes.

        A view of width m takes 2 m² bytes. The first views, as many as can be ``LEAST_WIDTH`` wide,
        are kept: at least one, including one without class codes. They are made as wide as
        possible. Random features are for graphs that may show no labels: views with class codes
        come last there.

        >>> fitted = ViewFeatures().within(50_000_000)
        >>> len(fitted.views), fitted.width
        (5, 1728)
        >>> ViewFeatures().within(1_000_000).views
        ('0|1|2|4|r', '0|s', '32', 'c')
        """
        views, room = self.parsed, int(memory * self.statistics_share)
        least = LEAST_LANDMARKS if self.on_landmarks else LEAST_WIDTH
        ranked = sorted(views, key=lambda view: view.codes and not self.on_landmarks)
        widths = [int((room / (2 * n)) ** 0.5) // STEP * STEP for n in range(1, len(views) + 1)]
        count = max((n for n, width in enumerate(widths, 1) if width >= least), default=1)
        width = widths[count - 1]
        if width < NARROWEST:
            least = int(2 * NARROWEST**2 / self.statistics_share)
            raise ConfigurationError(
                f"memory must leave room for a view of width {NARROWEST}, {least:,} bytes, not "
                f"{shown(memory)}"
            )
        chosen = tuple(view for view in views if view in ranked[:count])
        uncoded = [view for view in views if not view.codes]
        if uncoded and all(view.codes for view in chosen):
            chosen = (*chosen[:-1], uncoded[0])
        changed = {"views": [str(view) for view in chosen], "width": min(width, WIDEST)}
        return type(self)(**self.get_params(deep=False) | changed)

    def place(self, device: torch.device, resources: Resources | None = None) -> None:
        super().place(device, resources)
        self._caches = tuple(
            EmbeddingCache(topology, device=device, storage=self.storage, resources=resources)
            for topology in self._topologies
        )
        self._drawn: tuple[int, RandomMap] | None = None
        self._prepared: WeakKeyDictionary[Graph, ViewRows] = WeakKeyDictionary()
        # The nodes of large graphs that were asked for, and their rows.
        self._asked: WeakKeyDictionary[Graph, tuple[Tensor, ViewRows]] = WeakKeyDictionary()

    def begin(self, dims: int, *, generator: torch.Generator) -> None:
        """Draw the seed of the random features and create the heads.  dims: width of a hop"""
        self._dims = dims
        self.register_buffer("seed", torch.randint(2**62, (1,), generator=generator))
        self.register_buffer("related", torch.tensor([bool(self._has_relations)]))
        # a of every view, for graphs without class codes and with.  [2, views]
        self.register_buffer("mixture", torch.ones(2, len(self.parsed), device=self.device))
        total = self.width * len(self.parsed)
        self.head = Linear(total, 0, bias=False, generator=generator).to(self.device)

    @property
    def begun(self) -> bool:
        return self.head is not None

    def grow(self, classes: int, *, generator: torch.Generator) -> None:
        assert self.head is not None
        self.head.grow(classes, generator=generator)

    def kernels(self, rows: ViewRows) -> KernelMap:
        """Return the kernels of nodes that are kept, see ``memory_views``."""
        self._worded = rows.words is not None
        return self.kernel_map(memory_views(self.parsed), rows)

    def kernel_map(
        self, views: Sequence[View], rows: ViewRows, columns: Tensor | None = None
    ) -> KernelMap:
        """Return the kernels of some nodes.  columns: see ``KernelMap``"""
        parts = rows.taken(self.device).parts()
        return KernelMap.of(views, parts, columns=columns)

    def set_heads(self, heads: Sequence[Tensor], mixture: Tensor) -> None:
        """Set W_v = a_v V_vᵀ of every view.

        heads: V, [m, classes] each; mixture: a, for graphs without class codes and with. [2, views]
        """
        assert self.head is not None
        parts = [torch.nn.functional.pad(h.t(), (0, self.width - len(h))) for h in heads]
        self.head.weight.data = torch.cat(parts, dim=1)
        self.mixture = mixture.to(self.mixture)

    @property
    def sharpness(self) -> Tensor:
        """Σ_v a_v of all heads, for graphs without class codes and with.  [2]"""
        in_memory = 0.0 if self.memory_heads is None else self.memory_heads.weights.sum(1)
        return self.mixture.sum(1).cpu() + in_memory

    @property
    def sees_relations(self) -> bool:
        """Whether the training graph has relations."""
        return bool(self.related) if self.begun else bool(self._has_relations)

    def with_codes(self, rows: ViewRows) -> ViewRows:
        """Return rows that every view can use: without labels nearby, class codes are zeros."""
        if rows.codes is not None or not self.coded:
            return rows
        none = rows.hops.new_zeros(1, CODE_HOPS * self.code_width).expand(len(rows.hops), -1)
        arrays = {**rows.arrays, (CODES,): none}
        if self.sees_relations:
            arrays[(RELATION_CODES,)] = none[:, : self.code_width]
        return replace(rows, arrays=arrays)

    @property
    def code_dims(self) -> int:
        """Width of class codes: two hops, and one along relations."""
        return self.code_width * (3 if self.sees_relations else 2)

    def prepare(self, graph: Graph) -> ViewRows:
        """Return hops and codes of all nodes; no codes if the graph shows no label."""
        rows = self._prepared.get(graph)
        if rows is None or (self.far and self.far not in rows.arrays):
            rows = self._prepared[graph] = self._rows(graph)
        return rows

    def asked(self, graph: Graph, nodes: Tensor) -> tuple[ViewRows, Tensor | None]:
        """Return rows that suffice for the scores of some nodes, and their positions in them.

        Far hops are not computed if no head in use reads them. Of a large graph that was not
        learned from, such as a test graph, only the rows asked for are kept; all of them are once
        other nodes are asked for.
        """
        coded = self.shows_codes(graph)
        in_memory = self.memory_heads.used(coded=coded) if self.memory_heads else []
        far = any(view.is_far for view in (*self._weights(coded=coded), *in_memory))
        rows = self._prepared.get(graph)
        if rows is not None and (self.far in rows.arrays or not far):
            return rows, nodes.to(self.device)
        dims = min(graph.num_features, self.widest or graph.num_features) * len(self.near)
        asked = self._asked.pop(graph, None)
        if asked is None and graph.num_nodes * dims >= LARGE:
            asked = nodes, self._rows(graph, far=far, nodes=nodes)
        if asked and torch.equal(asked[0], nodes) and (self.far in asked[1].arrays or not far):
            self._asked[graph] = asked
            return asked[1], None
        rows = self._prepared[graph] = self._rows(graph, far=far)
        return rows, nodes.to(self.device)

    def _rows(self, graph: Graph, *, far: bool = True, nodes: Tensor | None = None) -> ViewRows:
        if self._has_relations is None:  # the first graph decides
            self._has_relations = graph.relations is not None or graph.types is not None
            alone = any(v.related and not v.hops and not v.codes for v in self.parsed)
            if alone and not self.sees_relations:
                relations_of(graph)  # raises
        near, code_cache, along, along_codes, *_ = self._caches

        def asked(rows: Tensor) -> Tensor:
            return rows if nodes is None else rows.index_select(0, nodes.to(rows.device))

        arrays = {self.near: near(graph, nodes)}
        if self.shows_codes(graph):
            arrays[(CODES,)] = asked(code_cache(graph))
            if self.sees_relations:
                arrays[(RELATION_CODES,)] = asked(along_codes(graph))
        if self._sees_along:
            arrays[(RELATIONS,)] = asked(along(graph))
        if self.shaped:
            arrays[(SHAPE,)] = shape_of(graph, nodes).to(self.device)
        if self.far and far:
            arrays[self.far] = asked(self._far(graph))
        return ViewRows(arrays, self._words(graph, nodes))

    def _far(self, graph: Graph) -> Tensor:
        *_, far_hops, end_of_hops = self._caches
        rows = []
        if self.far != (ENDLESS,):
            rows.append(far_hops(graph))
        if ENDLESS in self.far:
            rows.append(end_of_hops(graph))
        return torch.cat(rows, dim=1)

    def _words(self, graph: Graph, nodes: Tensor | None) -> Words | None:
        """Return own features of wide and sparse ones, which near hops are projections of."""
        features = graph.features.cpu()
        dense = features.layout == torch.strided
        worded = not dense if self._worded is None else self._worded
        if not worded or features.shape[1] <= (self.widest or sys.maxsize):
            return None
        words = scipy.sparse.csr_matrix(features.numpy()) if dense else as_scipy(features)
        return words if nodes is None else words[nodes.cpu().numpy()]

    def shows_codes(self, graph: Graph) -> bool:
        """Return whether a view reads class codes and the graph shows labels to make them of."""
        return self.coded and graph.bare is not None and bool((graph.labels >= 0).any())

    @property
    def _sees_along(self) -> bool:
        return self.sees_relations and any(view.related for view in self.parsed)

    def width_of(self, inputs: ViewRows) -> int:
        return inputs.hops.shape[1] // len(self.near)

    def expansion(self) -> RandomMap | KernelMap:
        """Return φ of all views, the same numbers on every device."""
        seed = int(self.seed)
        if self._drawn is not None and self._drawn[0] == seed:
            return self._drawn[1]
        sizes = dict.fromkeys(self.near, self._dims) | {CODES: 2 * self.code_width}
        if self.sees_relations:
            sizes |= {RELATION_CODES: self.code_width, RELATIONS: 3 * self._topologies[2].width}
        if self.shaped:
            sizes |= {SHAPE: SHAPE_WIDTH}
        sizes |= dict.fromkeys(self.far, min(self._dims, FAR_WIDTH))
        drawn = RandomMap.drawn(self.parsed, sizes, width=self.width, seed=seed, device=self.device)
        self._drawn = seed, drawn
        return drawn

    def forward(
        self,
        inputs: ViewRows,
        rows: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        assert self.head is not None
        asked = inputs if rows is None else inputs.of(rows)
        weights = self._weights(coded=inputs.codes is not None)
        blocks = self.expansion().blocks(asked)
        parts = [self._scores(block, weights, generator) for block in blocks]
        return torch.cat(parts) if parts else self.head.weight.new_empty(0, len(self.head.weight))

    def _weights(self, *, coded: bool) -> dict[View, Tensor]:
        """Return the nonzero W_v of the usable views.  -> [classes, width] each"""
        assert self.head is not None
        parts = self.head.weight.split(self.width, dim=1)
        views = zip(self.parsed, parts, self.mixture[int(coded)], strict=True)
        weights = {view: part * a for view, part, a in views if coded or not view.codes}
        if self.training:
            return weights
        return {view: part for view, part in weights.items() if bool(part.any())}

    def _scores(
        self, rows: ViewRows, weights: dict[View, Tensor], generator: torch.Generator | None
    ) -> Tensor:
        assert self.head is not None
        scores = torch.zeros(len(rows), len(self.head.weight), device=self.device)
        if self.training and self.dropout:
            expansion = replace(self.expansion(), views=tuple(weights))
            for features, part in zip(expansion(rows), weights.values(), strict=True):
                mask = dropout_mask(features.shape, self.dropout, generator=generator)
                scores = scores + (features * mask) @ part.t()
            return scores
        scores = self.expansion().add_scores(scores, rows, weights)
        return scores if self.memory_heads is None else self.memory_heads.add_scores(scores, rows)

    def hidden_states(self, inputs: ViewRows, rows: Tensor | None = None) -> Tensor:
        """Return the concatenated features of all views.  -> [rows, views x width]"""
        asked = inputs if rows is None else inputs.of(rows)
        asked, expand = self.with_codes(asked), self.expansion()
        return torch.cat([torch.cat([*expand(part)], dim=1) for part in expand.blocks(asked)])

    def expands_like(self, other: ViewFeatures) -> bool:
        """Return whether another backbone computes the same features of the same graph."""
        return self._feature_parameters == other._feature_parameters

    @property
    def _feature_parameters(self) -> tuple[object, ...]:
        return int(self.seed), self.views, self.width, self.code_dims, self._dims

    @property
    def embed_seconds(self) -> float:
        return sum(cache.seconds for cache in self._caches)
