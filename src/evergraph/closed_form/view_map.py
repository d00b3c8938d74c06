"""Random features of several views of a node, from projections that they share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from evergraph.closed_form.views import View, hops_of
from evergraph.graphs.kernels.row_ranges import tiled_product

# Values projected at a time: see ``evergraph.nn.random_features``.
BLOCK_VALUES = 1 << 21
GPU_BLOCK_VALUES = 1 << 26


@dataclass(frozen=True, eq=False)
class ViewRows:
    """Some nodes as views see them; looked up a few at a time.

    Attributes:
        hops: of all nodes, the hops of Â that any view needs, side by side.  [nodes, hops x d]
        codes: of all nodes, class codes; None where no label is shown.  [nodes, code dims] | None
        nodes: which of them; None for all, in order.  int64 [n] | None
        relations: of all nodes, what comes along relations; None where the graph has none.
            [nodes, relation dims] | None
    """

    hops: Tensor
    codes: Tensor | None
    nodes: Tensor | None = None
    relations: Tensor | None = None

    def __len__(self) -> int:
        return len(self.hops) if self.nodes is None else len(self.nodes)

    def __getitem__(self, part: slice) -> ViewRows:
        if self.nodes is not None:
            return replace(self, nodes=self.nodes[part])
        codes, relations = (None if t is None else t[part] for t in (self.codes, self.relations))
        return ViewRows(self.hops[part], codes, relations=relations)

    def of(self, nodes: Tensor) -> ViewRows:
        """Return some nodes of all."""
        return replace(self, nodes=nodes)

    @property
    def dims(self) -> int:
        """How many values hops and relations have of a node; codes aside."""
        return self.hops.shape[1] + (0 if self.relations is None else self.relations.shape[1])

    def taken(self, device: torch.device) -> ViewRows:
        """Return these rows alone, in memory, on a device."""

        def rows(tensor: Tensor) -> Tensor:
            if self.nodes is not None:
                tensor = tensor.index_select(0, self.nodes.to(tensor.device))
            return tensor.to(device, torch.float32)

        codes, relations = (None if t is None else rows(t) for t in (self.codes, self.relations))
        return ViewRows(rows(self.hops), codes, relations=relations)

    def split(self, rows: int) -> Iterator[ViewRows]:
        """Yield them so many at a time."""
        return (self[start : start + rows] for start in range(0, len(self), rows))


@dataclass(frozen=True, eq=False)
class ViewExpansion:
    """φ_v(x) = √(2/m) max(0, Σ_{b ∈ v} x_b R_b / √|v|): the ReLU features of each view v.

    x_b are the parts that a view is made of, hops and class codes, each of unit length; |v| is how
    many. A part has one random matrix R_b whatever the views it is in: every part of a node is
    projected once for all views. R_b ~ N(0, 1).

    Attributes:
        views: what is expanded, in the order of the features.
        kept: the hops in ``ViewRows.hops``, in order.
        matrices: R of every hop kept.  float32 [d, m] each
        code_matrix: R of the class codes, one hop's above the other's.  float32 [code dims, m]
        code_parts: of how many parts class codes are, each of unit length.
        relation_matrix: R of what comes along relations; None where the graph has none.
            float32 [relation dims, m] | None
        relation_parts: of how many parts that is, each of unit length.
        total: m, where these are the first of more features; else their own number.

    >>> one = ViewExpansion((View((0,)), View((0,), True)), (0,), (torch.tensor([[1., -1.]]),),
    ...                     torch.tensor([[1., 3.]]), code_parts=1)
    >>> [f.tolist() for f in one(ViewRows(torch.tensor([[1.]]), torch.tensor([[1.]])))]
    [[[1.0, 0.0]], [[1.4142..., 1.4142...]]]
    """

    views: Sequence[View]
    kept: Sequence[int]
    matrices: Sequence[Tensor]
    code_matrix: Tensor
    code_parts: int
    total: int | None = None
    relation_matrix: Tensor | None = None
    relation_parts: int = 3

    @property
    def width(self) -> int:
        """How many features of a view."""
        return self.code_matrix.shape[1]

    def only(self, views: Iterable[View]) -> ViewExpansion:
        """Return the expansion of some of the views, which projects what they need alone."""
        return replace(self, views=tuple(views))

    def narrowed(self, width: int) -> ViewExpansion:
        """Return the first features of every view, as they are among all."""
        first = tuple(matrix[:, :width] for matrix in self.matrices)
        codes, related = self.code_matrix[:, :width], self.relation_matrix
        return replace(
            self,
            matrices=first,
            code_matrix=codes,
            total=self.total or self.width,
            relation_matrix=None if related is None else related[:, :width],
        )

    def blocks(self, rows: ViewRows) -> Iterator[ViewRows]:
        """Yield rows in parts whose expansion is of a size that pays."""
        on_cpu = self.code_matrix.device.type == "cpu"
        values = BLOCK_VALUES if on_cpu else GPU_BLOCK_VALUES
        return rows.split(max(values // self.width, 1))

    def __call__(self, rows: ViewRows) -> Iterator[Tensor]:
        """Yield the features of one view after the other; without codes of those that need none.

        -> [n, m] each
        """
        rows = rows.taken(self.code_matrix.device)
        seen = [view for view in self.views if rows.codes is not None or not view.codes]
        needed = hops_of(seen)
        hops = rows.hops.tensor_split(len(self.kept), dim=1)
        parts = {
            hop: tiled_product(part, matrix)
            for hop, part, matrix in zip(self.kept, hops, self.matrices, strict=True)
            if hop in needed
        }
        codes = None
        if rows.codes is not None and any(view.codes for view in seen):
            codes = tiled_product(rows.codes, self.code_matrix)
        related = None
        if self.relation_matrix is not None and any(view.related for view in seen):
            assert rows.relations is not None, "the graph that was learned from has relations"
            related = tiled_product(rows.relations, self.relation_matrix)
        for view in seen:
            yield self._features(view, parts, codes, related)

    def _features(
        self, view: View, parts: dict[int, Tensor], codes: Tensor | None, related: Tensor | None
    ) -> Tensor:
        seen = [parts[hop] for hop in view.hops]
        count = len(seen)
        if view.related and related is not None:
            seen.append(related)
            count += self.relation_parts
        if view.codes:
            assert codes is not None
            seen.append(codes)
            count += self.code_parts
        first, *others = seen
        total = first.clone()
        for other in others:
            total += other
        return total.relu_().mul_(math.sqrt(2 / ((self.total or self.width) * count)))
