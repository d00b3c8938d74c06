"""Several graphs as one that grows by a graph, a domain, at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from evergraph.core.checks import check_choice, check_integer
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.datasets.alignment import ALIGNS, Align, aligned
from evergraph.datasets.base import Dataset, datasets
from evergraph.datasets.loading import load
from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.disjoint import disjoint_union

Classes = Literal["own", "shared"]
CLASSES: tuple[str, ...] = get_args(Classes)


def join(graphs: Sequence[Graph]) -> Graph:
    """Return the graphs side by side in one, the time of a node being the number of its graph.

    They share one feature space and one set of classes: class k means the same in all of them. A
    stream cut by time then meets one graph, a domain, after the other.

    >>> from evergraph.datasets.generated.synthetic import Synthetic
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

    >>> from evergraph.datasets.generated.synthetic import Synthetic
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
