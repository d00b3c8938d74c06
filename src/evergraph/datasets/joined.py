"""Several graphs as one that grows by a graph, a domain, at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from evergraph.core.checks import check_choice, check_integer
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.seeding import seeded
from evergraph.datasets.base import Dataset, datasets
from evergraph.datasets.loading import load
from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.csr import as_csr, densify, take_rows
from evergraph.graphs.disjoint import disjoint_union

Align = Literal["svd", "projection"]
ALIGNS: tuple[str, ...] = get_args(Align)

# Up to here all directions at once, from the products of columns, are cheaper than the strongest
# few one after the other.
MOST_COLUMNS = 2048
CELLS = 1 << 24  # looked at together


def aligned(features: Tensor, *, width: int, align: Align = "svd", seed: int = 0) -> Tensor:
    """Return features of another width.  [nodes, dims] -> float32 [nodes, width]

    Args:
        features: dense or ``torch.sparse_csr``.
        width: how wide they get; where there are fewer directions, the last columns are 0.
        align: ``svd`` or ``projection``, see above.
        seed: of the projection.

    >>> square = torch.tensor([[3.0, 4.0, 0.0], [6.0, 8.0, 0.0]])  # one direction
    >>> aligned(square, width=2).abs().round(decimals=4)
    tensor([[ 5.,  0.],
            [10.,  0.]])
    """
    check_integer("width", width, least=1)
    check_choice("align", align, ALIGNS)
    dims = features.shape[1]
    if align == "projection":
        return _product(features, projection(dims, width, seed=seed))
    kept = min(width, *features.shape)
    found = torch.zeros(features.shape[0], width)
    if kept:
        found[:, :kept] = _product(features, directions(features, kept))
    return found


def projection(dims: int, width: int, *, seed: int) -> Tensor:
    """Return the matrix that projects ``dims`` columns.  -> float32 [dims, width]"""
    drawn = torch.randint(2, (dims, width), generator=seeded(seed, "projection", dims, width))
    signs: Tensor = (2 * drawn - 1).float()
    return signs / math.sqrt(width)


def directions(features: Tensor, count: int) -> Tensor:
    """Return the strongest directions of features, each with its largest entry above 0.

    Without that rule the sign of a direction is any, and would change with the library.

    [nodes, dims] -> float32 [dims, count]
    """
    if features.shape[1] <= MOST_COLUMNS:
        found = _all_directions(features)[:, :count]
    elif count == min(features.shape):  # so few nodes that all of them fit
        found = torch.linalg.svd(densify(features).double(), full_matrices=False).Vh.t()
    else:
        found = _strongest(features, count)
    largest = found.abs().argmax(0)
    signs = found[largest, torch.arange(count)].sign()
    return (found * torch.where(signs == 0, torch.ones_like(signs), signs)).float()


def _all_directions(features: Tensor) -> Tensor:
    """Return the eigenvectors of XᵀX, of the largest eigenvalue first.  -> float64 [dims, dims]"""
    products = torch.zeros(features.shape[1], features.shape[1], dtype=torch.float64)
    for block in _blocks(features):
        rows = block.double()
        products += rows.t() @ rows
    found: Tensor = torch.linalg.eigh(products).eigenvectors
    return found.flip(1)


def _strongest(features: Tensor, count: int) -> Tensor:
    """Return the right singular vectors of the largest values.  -> float64 [dims, count]"""
    import scipy.sparse
    import scipy.sparse.linalg  # solvers, which few need

    sparse = as_csr(features)
    parts = (sparse.values(), sparse.col_indices(), sparse.crow_indices())
    values, columns, rows = (part.numpy() for part in parts)
    matrix = scipy.sparse.csr_matrix((values.astype(np.float64), columns, rows), features.shape)
    start = np.ones(min(features.shape))  # not drawn: the same directions every time
    _, strength, vectors = scipy.sparse.linalg.svds(matrix, k=count, v0=start)
    return torch.from_numpy(vectors[np.argsort(-strength)].T.copy())


def _product(features: Tensor, matrix: Tensor) -> Tensor:
    """Return features times a matrix, some rows at a time.  -> float32 [nodes, width]"""
    return torch.cat([block @ matrix for block in _blocks(features)] or [matrix[:0]])


def _blocks(features: Tensor) -> Iterator[Tensor]:
    """Yield features as dense blocks of rows."""
    nodes, dims = features.shape
    step = max(1, CELLS // max(dims, 1))
    for start in range(0, nodes, step):
        rows = torch.arange(start, min(start + step, nodes))
        dense = features.layout == torch.strided
        yield features[start : start + step] if dense else densify(take_rows(features, rows))


Classes = Literal["own", "shared"]
CLASSES: tuple[str, ...] = get_args(Classes)


def join(graphs: Sequence[Graph]) -> Graph:
    """Return the graphs side by side in one, the time of a node being the number of its graph.

    They share one feature space and one set of classes: class k means the same in all of them. A
    stream cut by time then meets one graph, a domain, after the other.

    >>> from evergraph.datasets.synthetic import Synthetic
    >>> spring, autumn = (Synthetic(nodes=60, classes=3, features=8, seed=s).load(Path())
    ...                   for s in (0, 1))
    >>> year = join([spring, autumn])
    >>> year, year.time[[0, 59, 60]]
    (Graph(nodes=120, edges=1200, features=8, classes=3), tensor([0, 0, 1]))
    """
    if not graphs:
        raise DataError("no graph was given to join: at least one is needed")
    for number, graph in enumerate(graphs):
        if graph.num_features != graphs[0].num_features:
            raise DataError(
                f"graph {number} has {graph.num_features} features and graph 0 has "
                f"{graphs[0].num_features}: joined graphs need the same, which join_domains makes"
            )
    nodes = torch.tensor([graph.num_nodes for graph in graphs])
    return replace(
        disjoint_union(graphs), time=torch.repeat_interleave(torch.arange(len(graphs)), nodes)
    )


def join_domains(
    graphs: Sequence[Graph],
    *,
    width: int = 128,
    align: Align = "svd",
    classes: Classes = "own",
    tasks_per_domain: int = 1,
    seed: int = 0,
) -> Graph:
    """Return graphs of different feature spaces side by side, their features aligned to one width.

    A stream ``by="time"`` then meets one domain after the other, in one task or several.

    Args:
        graphs: the domains, in the order in which they arrive.
        width: of the features of all of them.
        align: ``svd``, the strongest directions of each graph's own features, or ``projection``, at
            random; see ``datasets.alignment``.
        classes: ``own``: every domain brings classes of its own, numbered after those before it;
            ``shared``: class k means the same in all of them.
        tasks_per_domain: in how many tasks a domain arrives; each of its classes comes whole.
        seed: of the projection.

    >>> from evergraph.datasets.synthetic import Synthetic
    >>> papers, shops = (Synthetic(nodes=60, classes=4, features=f).load(Path()) for f in (8, 20))
    >>> both = join_domains([papers, shops], width=10, tasks_per_domain=2)
    >>> both, both.time.unique().tolist()
    (Graph(nodes=120, edges=1200, features=10, classes=8), [0, 1, 2, 3])
    """
    check_choice("classes", classes, CLASSES)
    check_integer("tasks_per_domain", tasks_per_domain, least=1)
    found, before = [], 0
    for graph in graphs:
        features = aligned(graph.features, width=width, align=align, seed=seed)
        shift = before if classes == "own" else 0
        labels = graph.labels.where(graph.labels == UNLABELLED, graph.labels + shift)
        found.append(graph.with_features(features).with_labels(labels))
        before += graph.num_classes
    joined = join(found)
    assert joined.time is not None
    parts = torch.cat([_parts(graph.labels, tasks_per_domain) for graph in graphs])
    return replace(joined, time=joined.time * tasks_per_domain + parts)


def _parts(labels: Tensor, count: int) -> Tensor:
    """Return in which part of its domain a node arrives: classes split into nearly equal lots.

    Nodes without a class come first, being in no task.

    >>> _parts(torch.tensor([0, 1, 2, 5, -1]), 2)
    tensor([0, 0, 1, 1, 0])
    """
    present = labels[labels != UNLABELLED].unique()
    place = torch.searchsorted(present, labels.clamp_min(int(present[0]) if len(present) else 0))
    return place * count // max(len(present), 1)


@datasets.register
class Joined(Dataset):
    """Several graphs side by side, the time of a node being the number of its graph; see ``join``.

    With a ``width`` they may have different features; see ``join_domains``.

    Args:
        parts: names of datasets or paths of graphs, in the order in which they arrive.
        width: of the features once they are aligned; 0 leaves them as they are.
        align: ``svd`` or ``projection``.
        classes: ``own`` classes in every part, or ``shared`` ones.
        tasks_per_domain: in how many tasks a part arrives; only where features are aligned.
        seed: of the projection.
    """

    name = "joined"

    def __init__(
        self,
        *,
        parts: Sequence[str] = (),
        width: int = 0,
        align: Align = "svd",
        classes: Classes = "shared",
        tasks_per_domain: int = 1,
        seed: int = 0,
    ) -> None:
        if isinstance(parts, str) or not parts or not all(isinstance(p, str) for p in parts):
            raise ConfigurationError(
                f"parts must be one name or path of a graph or more, in a list, not {parts!r}"
            )
        check_integer("width", width, least=0)
        check_choice("align", align, ALIGNS)
        check_choice("classes", classes, CLASSES)
        check_integer("tasks_per_domain", tasks_per_domain, least=1)
        if not width and (classes, tasks_per_domain) != ("shared", 1):
            raise ConfigurationError(
                "classes and tasks_per_domain are for parts with a width: give one, such as 128"
            )
        self.parts = parts
        self.width = width
        self.align: Align = align
        self.classes: Classes = classes
        self.tasks_per_domain = tasks_per_domain
        self.seed = seed

    def load(self, cache: Path) -> Graph:
        """Load every part, edges as listed, and join them."""
        graphs = [load(part, undirected=False, cache=cache) for part in self.parts]
        if not self.width:
            return join(graphs)
        return join_domains(
            graphs,
            width=self.width,
            align=self.align,
            classes=self.classes,
            tasks_per_domain=self.tasks_per_domain,
            seed=self.seed,
        )
