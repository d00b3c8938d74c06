"""Several graphs joined into one that grows by one graph, a domain, at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from evergraph.core.component import Part, choice, integer
from evergraph.core.errors import ConfigurationError, DataError, check_choice, check_integer
from evergraph.core.seeding import seeded
from evergraph.datasets.base import Dataset, datasets
from evergraph.datasets.loading import load
from evergraph.datasets.wordnet import truncated_svd
from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.csr import as_csr, as_scipy
from evergraph.graphs.disjoint import disjoint_union

Align = Literal["svd", "projection"]
ALIGNS: tuple[str, ...] = get_args(Align)
Classes = Literal["own", "shared"]
CLASSES: tuple[str, ...] = get_args(Classes)


def aligned(features: Tensor, *, width: int, align: Align = "svd", seed: int = 0) -> Tensor:
    """Return features reduced to another width.  [nodes, dims] -> float32 [nodes, width]

    Args:
        features: dense or ``torch.sparse_csr``.
        width: new width; if there are fewer directions, the last columns are 0.
        align: ``svd``, the strongest directions, or ``projection``, a random one.
        seed: seed of what is drawn at random.

    >>> square = torch.tensor([[3.0, 4.0, 0.0], [6.0, 8.0, 0.0]])  # one direction
    >>> aligned(square, width=2).abs().round(decimals=4)
    tensor([[ 5.,  0.],
            [10.,  0.]])
    """
    check_integer("width", width, least=1)
    check_choice("align", align, ALIGNS)
    dims = features.shape[1]
    if align == "projection":
        return features @ projection(dims, width, seed=seed)
    directions = min(width, *features.shape)
    reduced = torch.zeros(features.shape[0], width)
    if directions:
        generator = seeded(seed, "directions")
        matrix = as_scipy(as_csr(features))
        reduced[:, :directions] = truncated_svd(matrix, dims=directions, generator=generator)
    return reduced


def projection(dims: int, width: int, *, seed: int) -> Tensor:
    """Return the matrix that projects ``dims`` columns.  -> float32 [dims, width]"""
    drawn = torch.randint(2, (dims, width), generator=seeded(seed, "projection", dims, width))
    signs: Tensor = (2 * drawn - 1).float()
    return signs / math.sqrt(width)


def join(graphs: Sequence[Graph]) -> Graph:
    """Return the graphs side by side in one; the time of a node is the index of its graph.

    They share one feature space and one set of classes: class k means the same in all of them. A
    stream by time then visits one graph, a domain, after the other.

    >>> from evergraph.datasets.synthetic import Synthetic
    >>> spring, autumn = (Synthetic(nodes=60, classes=3, features=8, seed=s).load(Path())
    ...                   for s in (0, 1))
    >>> year = join([spring, autumn])
    >>> year, year.time[[0, 59, 60]]
    (Graph(nodes=120, edges=1200, features=8, classes=3), tensor([0, 0, 1]))
    """
    if not graphs:
        raise DataError("graphs must not be empty: at least one graph is needed to join")
    for number, graph in enumerate(graphs):
        if graph.num_features != graphs[0].num_features:
            raise DataError(
                f"graph {number} has {graph.num_features} features and graph 0 has "
                f"{graphs[0].num_features}: they must be equal; join_domains aligns them"
            )
    nodes = torch.tensor([graph.num_nodes for graph in graphs])
    time = torch.repeat_interleave(torch.arange(len(graphs)), nodes)
    return replace(disjoint_union(graphs), time=time)


def join_domains(
    graphs: Sequence[Graph],
    *,
    width: int = 128,
    align: Align = "svd",
    classes: Classes = "own",
    seed: int = 0,
) -> Graph:
    """Return graphs of different feature spaces side by side, their features aligned to one width.

    A stream ``by="time"`` then visits one domain after the other.

    Args:
        graphs: the domains, in order of arrival.
        width: width of the aligned features.
        align: ``svd``, the strongest directions of each graph's features, or ``projection``, a
            random projection; see ``aligned``.
        classes: ``own``: every domain has its own classes, numbered after the earlier ones;
            ``shared``: class k means the same in all of them.
        seed: seed of the projection.

    >>> from evergraph.datasets.synthetic import Synthetic
    >>> papers, shops = (Synthetic(nodes=60, classes=4, features=f).load(Path()) for f in (8, 20))
    >>> both = join_domains([papers, shops], width=10)
    >>> both, both.time.unique().tolist()
    (Graph(nodes=120, edges=1200, features=10, classes=8), [0, 1])
    """
    check_choice("classes", classes, CLASSES)
    domains = []
    classes_before = 0
    for graph in graphs:
        features = aligned(graph.features, width=width, align=align, seed=seed)
        shift = classes_before if classes == "own" else 0
        labels = graph.labels.where(graph.labels == UNLABELLED, graph.labels + shift)
        domains.append(graph.with_features(features).with_labels(labels))
        classes_before += graph.num_classes
    return join(domains)


@datasets.register
@dataclass(kw_only=True, eq=False, repr=False)
class Joined(Part, Dataset):
    """Several graphs side by side; the time of a node is the index of its graph; see ``join``.

    With a ``width`` they may have different features; see ``join_domains``.

    Args:
        parts: names of datasets or paths of graphs, in order of arrival.
        width: width of the aligned features; 0 leaves them unchanged.
        align: ``svd`` or ``projection``.
        classes: ``own`` classes in every part, or ``shared`` ones.
        seed: seed of the projection.
    """

    name = "joined"

    parts: Sequence[str] = ()
    width: int = integer(0, least=0)
    align: Align = choice("svd", ALIGNS)
    classes: Classes = choice("shared", CLASSES)
    seed: int = 0

    def __post_init__(self) -> None:
        parts = self.parts
        if isinstance(parts, str) or not parts or not all(isinstance(p, str) for p in parts):
            message = (
                f"parts must be a non-empty list of dataset names or graph paths, not {parts!r}"
            )
            raise ConfigurationError(message)
        super().__post_init__()
        if not self.width and self.classes != "shared":
            raise ConfigurationError("classes need a width: set width, for example to 128")

    def load(self, cache: Path) -> Graph:
        graphs = [load(part, undirected=False, cache=cache) for part in self.parts]
        if not self.width:
            return join(graphs)
        options = {name: value for name, value in self.get_params().items() if name != "parts"}
        return join_domains(graphs, **options)
