"""The normalised adjacency, never written out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from evergraph.core.checks import check_choice
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.graphs.graph import Graph
from evergraph.graphs.kernels import KERNELS, Kernel, choose_kernel, numba_works, room, triton_works
from evergraph.graphs.kernels.held_rows import ROW_TYPES, RowType, held_rows
from evergraph.graphs.kernels.products import Product, numba_product, torch_product
from evergraph.graphs.kernels.scaled_rows import ScaledRows
from evergraph.graphs.kernels.streamed import streamed_product
from evergraph.graphs.normalisation import Normalisation, graph_scalings

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, eq=False)
class Smoother(ScaledRows):
    """Â = L (A + sI) R, which features are multiplied by; attributes are those of ``ScaledRows``.

    >>> path = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), features=torch.eye(3),
    ...                         labels=torch.tensor([0, 0, 0]), undirected=True)
    >>> smoother(path, scheme="none").rows(slice(1, 3)).product(torch.eye(3))
    tensor([[1., 1., 1.],
            [0., 1., 1.]])
    """

    def product(
        self,
        features: Tensor,
        *,
        add: Tensor | None = None,
        scale: float = 1.0,
        add_scale: float = 1.0,
        out: Tensor | None = None,
    ) -> Tensor:
        """Return scale · Â features + add_scale · add.  [columns, dims] -> [rows, dims]

        out: where to, neither features nor add; new memory unless given. Rows of float32 are
        rounded to ``held`` once R has scaled them, and summed and returned in float32; half
        numbers that are given come back as such.
        """
        shape = (len(self.left), features.shape[1])
        _check_shape("features", features, (len(self.right), shape[1]))
        for name, given in (("add", add), ("out", out)):
            if given is not None:
                _check_shape(name, given, shape)
        operator, features = self.holding(features)
        if out is None:
            out = room(shape[0], like=features, dtype=torch.float32 if operator.scaled else None)
        features, add = _with_whole_rows(features), None if add is None else _with_whole_rows(add)
        if out.numel():
            product = operator._by(features, add, out)
            product(operator, features, out, add=add, scale=scale, add_scale=add_scale)
        return out

    def holding(self, features: Tensor) -> tuple[Self, Tensor]:
        """Return R features as they are held, and what multiplies them; what is given if as held.

        [columns, dims] -> [columns, dims]
        """
        kind = ROW_TYPES[self.held]
        if self.scaled or kind == torch.float32 or features.dtype != torch.float32:
            return self, features
        return self._without_right, held_rows(features, self.right.to(features.device), kind)

    @cached_property
    def _without_right(self) -> Self:
        return replace(self, scaled=True)

    def _by(self, *matrices: Tensor | None) -> Product:
        """Return who multiplies these: the smoother's own kernel wherever it can."""
        given = [matrix for matrix in matrices if matrix is not None]
        if given[0].device != self.device:
            return streamed_product
        if self.kernel == "numba" and _for_numba(*given):
            return numba_product
        if self.kernel == "triton" and all(map(_for_triton, given)):
            from evergraph.graphs.kernels.triton_sum import triton_product

            return triton_product
        return torch_product


def smoother(
    graph: Graph,
    *,
    self_loops: bool = True,
    scheme: Normalisation = "symmetric",
    kernel: Kernel | None = None,
    held: RowType = "float32",
) -> Smoother:
    """Return the graph's normalised adjacency; only degrees, or weights, are looked at.

    scheme: as of ``normalised``. kernel: chosen by the graph's size unless given. held: what rows
    are held in while they are summed, see ``ScaledRows``.

    >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.eye(2),
    ...                         labels=torch.tensor([0, 0]), undirected=True)
    >>> smoother(pair).product(torch.tensor([[1.], [3.]]))
    tensor([[2.0000],
            [2.0000]])
    """
    left, right = graph_scalings(graph, self_loops=self_loops, scheme=scheme)
    if kernel is None:
        entries = graph.num_edges + (graph.num_nodes if self_loops else 0)
        kernel = choose_kernel(entries=entries, device=graph.device)
    check_choice("kernel", kernel, KERNELS)
    check_choice("rows", held, ROW_TYPES)
    if kernel == "numba" and not numba_works():
        raise ConfigurationError("kernel 'numba' needs numba, which is not installed")
    if kernel == "triton" and not triton_works():
        raise ConfigurationError("kernel 'triton' needs Triton and a GPU, which are not both here")
    return Smoother(
        graph.indptr,
        graph.indices,
        left,
        right,
        self_loops=self_loops,
        mapped=graph.mapped,
        kernel=kernel,
        weights=graph.weights,
        held=held,
    )


def _check_shape(name: str, matrix: Tensor, shape: tuple[int, int]) -> None:
    if tuple(matrix.shape) != shape:
        raise DataError(f"{name} must have shape {shape} here, not {tuple(matrix.shape)}")


def _with_whole_rows(matrix: Tensor) -> Tensor:
    """Return a matrix whose columns lie side by side (itself if they do)."""
    return matrix if matrix.stride(1) == 1 or matrix.shape[1] == 1 else matrix.contiguous()


def _for_numba(features: Tensor, *others: Tensor) -> bool:
    """Whether the numba kernel can read features and write the others where they lie."""
    from evergraph.graphs.kernels.numba_sum import READS_FLOAT16

    read = (torch.float32, torch.bfloat16, *((torch.float16,) if READS_FLOAT16 else ()))
    plain = features.dtype in read and all(other.dtype == torch.float32 for other in others)
    return plain and all(
        matrix.device.type == "cpu" and _with_whole_rows(matrix) is matrix
        for matrix in (features, *others)
    )


def _for_triton(matrix: Tensor) -> bool:
    """Whether the Triton kernel can read and write a matrix where it lies."""
    summed = matrix.dtype in (torch.float32, torch.float16, torch.bfloat16)
    return summed and matrix.device.type == "cuda" and _with_whole_rows(matrix) is matrix
