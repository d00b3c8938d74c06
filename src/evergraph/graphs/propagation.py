"""Products with sparse matrices: Â, which is never materialised, and others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy
import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError, DataError, check_choice
from evergraph.graphs.csr import RowSweep, as_scipy, csr_tensor, densify, pointer_type, pointers_of
from evergraph.graphs.graph import Graph
from evergraph.graphs.kernels.products import (
    Product,
    into,
    numba_product,
    streamed_product,
    torch_product,
)
from evergraph.graphs.kernels.scaled_rows import (
    KERNELS,
    ROW_TYPES,
    Affine,
    Kernel,
    Normalisation,
    RowType,
    ScaledRows,
    choose_kernel,
    empty_rows,
    graph_scalings,
    held_rows,
    triton_works,
)

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, eq=False)
class Smoother(ScaledRows):
    """The normalised adjacency Â = L (A + sI) R; see ``ScaledRows`` for its attributes.

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

        out: the destination, neither features nor add; new memory by default. Rows of float32 are
        rounded to ``held`` after scaling by R, and summed and returned in float32; features in
        half precision give results in half precision.
        """
        shape = (len(self.left), features.shape[1])
        features_shape = (len(self.right), features.shape[1])
        for name, matrix, expected in (
            ("features", features, features_shape),
            ("add", add, shape),
            ("out", out, shape),
        ):
            if matrix is not None and tuple(matrix.shape) != expected:
                raise DataError(
                    f"{name} must have shape {expected} here, not {tuple(matrix.shape)}"
                )
        operator, features = self.holding(features)
        if out is None:
            out = empty_rows(
                shape[0], like=features, dtype=torch.float32 if operator.scaled else None
            )
        features = _with_contiguous_rows(features)
        add = None if add is None else _with_contiguous_rows(add)
        if out.numel():
            product = operator._product_for(features, add, out)
            product(operator, features, out, Affine(add, scale, add_scale))
        return out

    def holding(self, features: Tensor) -> tuple[Self, Tensor]:
        """Return R features in the type ``held`` with the smoother for them; as given if alike."""
        dtype = ROW_TYPES[self.held]
        if self.scaled or dtype == torch.float32 or features.dtype != torch.float32:
            return self, features
        return self._scaled, held_rows(features, self.right.to(features.device), dtype)

    @cached_property  # so that its matrix is made once
    def _scaled(self) -> Self:
        return replace(self, scaled=True)

    def _product_for(self, *matrices: Tensor | None) -> Product:
        """Return the product function for these matrices: the smoother's own kernel if possible.

        A compiled kernel uses them in place: it must know their types, and rows be contiguous.
        """
        present = [matrix for matrix in matrices if matrix is not None]
        if present[0].device != self.device:
            return streamed_product
        contiguous = all(_with_contiguous_rows(matrix) is matrix for matrix in present)
        devices = {m.device.type for m in present}
        in_place = contiguous and {m.dtype for m in present} <= {*ROW_TYPES.values()}
        in_float32 = all(m.dtype == torch.float32 for m in present[1:])
        if self.kernel == "numba" and in_place and in_float32 and devices == {"cpu"}:
            return numba_product
        if self.kernel == "triton" and in_place and devices == {"cuda"}:
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
    """Return the graph's normalised adjacency, computed from degrees or weights alone.

    scheme: see ``normalised``. kernel: chosen by the graph's size by default. held: type of the
    rows while they are summed, see ``ScaledRows``.

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
    check_choice("dtype", held, ROW_TYPES)
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


def normalised(
    graph: Graph, *, self_loops: bool = True, scheme: Normalisation = "symmetric"
) -> Tensor:
    """Return the graph's adjacency as a weighted ``torch.sparse_csr`` matrix  [nodes, nodes].

    symmetric: Â = D^-1/2 (A + I) D^-1/2, the paper's; D holds the sums of weights in the rows of
    A + I, which are 1 without weights, also on a directed graph. row: D^-1 (A + I), a mean.
    none: A + I. ``self_loops=False`` omits I. Nodes without neighbours get weight 0.

    >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.eye(2),
    ...                         labels=torch.tensor([0, 0]), undirected=True)
    >>> normalised(pair).to_dense()
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    return smoother(graph, self_loops=self_loops, scheme=scheme, kernel="torch").matrix


def _with_contiguous_rows(matrix: Tensor) -> Tensor:
    """Return a matrix with contiguous rows (itself if they are)."""
    return matrix if matrix.stride(1) == 1 or matrix.shape[1] == 1 else matrix.contiguous()


# A sparse-sparse product costs about 50 times as much per stored value as a sparse-dense one per
# cell (torch CSR, 2 cores, Coauthor-CS), so above one value in fifty the dense product is faster.
SPARSE_PAYS_BELOW = 0.02


def propagate(
    matrix: Tensor | Smoother,
    features: Tensor,
    *,
    add: Tensor | None = None,
    scale: float = 1.0,
    add_scale: float = 1.0,
    out: Tensor | None = None,
) -> Tensor:
    """Return ``scale · matrix @ features + add_scale · add``  [nodes, dims].

    ``matrix`` is CSR or a ``Smoother``; ``features`` are dense or CSR. The result is CSR while the
    features are so sparse that the sparse product is faster. ``out`` is the destination of a dense
    result, neither features nor add; new memory by default.

    >>> swap = torch.tensor([[0., 1.], [1., 0.]]).to_sparse_csr()
    >>> propagate(swap, torch.tensor([[1.], [2.]]), add=torch.tensor([[10.], [10.]]))
    tensor([[12.],
            [11.]])
    """
    if add is None and out is None and scale == 1.0 and stays_sparse(features):
        return sparse_product(matrix.matrix if isinstance(matrix, Smoother) else matrix, features)
    features = densify(features)
    add = None if add is None else densify(add)
    if isinstance(matrix, Smoother):
        return matrix.product(features, add=add, scale=scale, add_scale=add_scale, out=out)
    if out is None:
        # Into our own buffer: ``matrix @ features`` fills and then copies a second one, which
        # costs as much as the product.
        out = empty_rows(matrix.shape[0], like=features)
    into(matrix, features, out, Affine(add, scale, add_scale))
    return out


def sparse_product(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of two CSR matrices, as CSR.

    On a CPU torch implements this with MKL only, which ARM builds lack: SciPy multiplies there.
    """
    if left.device.type != "cpu" or torch.backends.mkl.is_available():
        product: Tensor = torch.sparse.mm(left, right)
        return product
    csr = as_scipy(left) @ as_scipy(right)
    csr.sort_indices()
    indptr, indices, values = map(torch.from_numpy, (csr.indptr, csr.indices, csr.data))
    return csr_tensor(indptr, indices, values, csr.shape)


def ordered_product(indptr: Tensor, indices: Tensor, weights: Tensor, features: Tensor) -> Tensor:
    """Return a CSR matrix times features, every row summed in float64 and rounded once; CPU only.

    The bits of a row of the result thus depend neither on other rows of the matrix nor, but for one
    value in millions, on the order of its entries. indptr: [rows + 1]; indices: int32 [entries];
    weights: float32 [entries]; features: float32 [columns, dims] -> float32 [rows, dims]

    >>> ordered_product(torch.tensor([0, 2]).int(), torch.tensor([0, 1]).int(),
    ...                 torch.tensor([1., 10.]), torch.tensor([[2.], [3.]]))
    tensor([[32.]])
    """
    columns, positions = np.unique(indices.numpy(), return_inverse=True)
    parts = (weights.double().numpy(), positions.reshape(-1), indptr.numpy())
    matrix = scipy.sparse.csr_matrix(parts, shape=(len(indptr) - 1, len(columns)))
    product = matrix @ features.numpy().take(columns, axis=0).astype(np.float64)
    return torch.from_numpy(product.astype(np.float32))


def walk(matrix: Tensor | Smoother, features: Tensor, *, hops: int) -> Iterator[Tensor]:
    """Yield ``matrix^l @ features`` for l = 1 .. hops, each computed from the one before."""
    for _ in range(hops):
        features = propagate(matrix, features)
        yield features


def sample_product(pattern: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return ⟨left_i, right_j⟩ at the entries (i, j) of a CSR matrix.  2 x [.., d] -> [entries]"""
    if not pattern.values().numel():
        return pattern.values().clone()
    products: Tensor = torch.sparse.sampled_addmm(pattern, left, right.t(), beta=0.0).values()
    return products


def stays_sparse(features: Tensor) -> bool:
    """Return whether another product is faster with these features left sparse."""
    if features.layout == torch.strided or features.numel() == 0:
        return False
    return bool(features.values().numel() <= SPARSE_PAYS_BELOW * features.numel())


def pattern(adjacency: RowSweep, rows: Tensor) -> scipy.sparse.csr_matrix:
    """Return some rows of an adjacency, with self-loops, as a boolean matrix  [nodes, nodes].

    Other rows are empty: columns and rows are numbered as in the graph. rows: int64 [m], ascending,
    without duplicates.

    >>> path = RowSweep(torch.tensor([0, 1, 3, 4]), torch.tensor([1, 0, 2, 1]).int())
    >>> pattern(path, torch.tensor([0, 1])).toarray().astype(int)
    array([[1, 1, 0],
           [1, 1, 1],
           [0, 0, 0]])
    """
    rows = rows.to(adjacency.indices.device)
    nodes = len(adjacency.indptr) - 1
    lengths, loops = torch.zeros(2, nodes, dtype=torch.int64, device=rows.device)
    lengths[rows] = adjacency.lengths(rows)
    loops[rows] = 1
    columns = adjacency.indices if len(rows) == nodes else adjacency.neighbours(rows)
    return _boolean(lengths, columns) + _boolean(loops, rows)


def _boolean(lengths: Tensor, columns: Tensor) -> scipy.sparse.csr_matrix:
    """Return a square matrix of ones, given the number in each row."""
    index_type = pointer_type(max(len(columns), len(lengths)))
    indptr, indices = pointers_of(lengths).to(index_type), columns.to(index_type)
    parts = (np.ones(len(columns), dtype=bool), indices.cpu().numpy(), indptr.cpu().numpy())
    return scipy.sparse.csr_matrix(parts, shape=(len(lengths), len(lengths)))
