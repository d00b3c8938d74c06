"""Generated graphs of the size and shape of published ones."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.core.checks import check_integer, check_number
from evergraph.core.mapped import page_out
from evergraph.datasets.base import Dataset, datasets
from evergraph.datasets.generated.block_model import StreamedBlockModel
from evergraph.datasets.generated.twin_sketch import (
    TwinFacts,
    TwinSketch,
    numpy_generator,
    shown_labels,
    sketch_twin,
    twin_facts,
)
from evergraph.datasets.importing.edge_table import EdgeTable
from evergraph.datasets.importing.pace import Pace
from evergraph.datasets.kept_folder import kept_graph
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import GraphFolderWriter

log = logging.getLogger(__name__)

SORT_MEMORY = 10**9
_BLOCK = 1 << 24  # features


def write_labels(labels: NDArray[np.int16], writer: GraphFolderWriter) -> None:
    """Write the class of every node."""
    written = writer.create("labels", (len(labels),), torch.int64)
    written.numpy()[:] = labels
    page_out(written)


def write_features(
    labels: NDArray[np.int16], writer: GraphFolderWriter, *, width: int, noise: float, seed: int
) -> None:
    """Draw x_i = μ_(y_i) + noise · ε_i around unit vectors μ.  float32 [nodes, width]"""
    generator = numpy_generator(seed, "features")
    centres = generator.standard_normal((int(labels.max()) + 1, width), np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    features = writer.create("features", (len(labels), width), torch.float32)
    rows, pace = max(1, _BLOCK // width), Pace("drawing features")
    for start in range(0, len(labels), rows):
        block = features[start : start + rows].numpy()
        generator.standard_normal(dtype=np.float32, out=block)
        block *= noise
        block += centres[labels[start : start + rows]]
        page_out(features[start : start + rows])
        pace.tell(start + len(block), len(labels))


def write_edges(sketch: TwinSketch, writer: GraphFolderWriter, *, seed: int) -> None:
    """Draw the edges, and sort them on disk."""
    aside, nodes = writer.folder / "edges", len(sketch.labels)
    table = EdgeTable(aside, nodes=nodes, undirected=True, memory=SORT_MEMORY)
    _draw_edges(sketch, table, seed=seed)
    entries = table.write(writer, on_part=Pace("sorting edges").tell)
    table.discard()
    log.info("%d entries are written, %d were asked for", entries, 2 * sketch.edges)


def _draw_edges(sketch: TwinSketch, table: EdgeTable, *, seed: int) -> None:
    generator = numpy_generator(seed, "edges")
    model = StreamedBlockModel(sketch.homes, sketch.within, sketch.among, generator=generator)
    counts = model.plan(sketch.edges, sketch.homophily, labels=sketch.labels)
    pace, drawn = Pace("drawing edges"), 0
    for left, right in model.draw(*counts):
        table.add(left, right)
        drawn += len(left)
        pace.tell(drawn, sum(counts))


# Counts up when the same parameters draw another graph, so that no old one is taken for it.
EDITION = 1


class Twin(Dataset):
    """A graph drawn to resemble a published one, kept on disk under ``cache/<name>``.

    A degree-corrected block model (``StreamedBlockModel``) with the published number of nodes,
    edges, features and classes, homophily and largest degree. What no publisher states is a law of
    ours: class sizes fall geometrically, degrees are log-normal, x_i = μ_(y_i) + noise · ε_i with
    unit vectors μ. twins.toml has the figures and says which are ours. Accuracies on a twin say
    nothing about the original; times and memory do.

    Edges are drawn in batches and sorted on disk: it takes about 1 GB of memory and 60 bytes a
    node, and beside the graph 8 bytes an entry on disk while it is drawn.

    Args:
        scale: nodes and edges as a multiple of the original's. Where classes become too small for
            so many neighbours (Reddit below about 0.2), there are fewer edges.
        seed: the same seed gives the same graph.
        features: width of the features; the original's unless given.
    """

    def __init__(self, *, scale: float = 1.0, seed: int = 0, features: int | None = None) -> None:
        check_number("scale", scale, least=0.0)
        check_integer("seed", seed, least=0)
        if features is not None:
            check_integer("features", features, least=1)
        self.scale = scale
        self.seed = seed
        self.features = features

    @property
    def facts(self) -> TwinFacts:
        """What is copied."""
        return twin_facts()[self.name]

    @property
    def width(self) -> int:
        """How wide the features are."""
        return self.facts.original.features if self.features is None else self.features

    def load(self, cache: Path) -> Graph:
        """Return the graph; it is drawn and kept under ``cache`` if it is not there yet."""
        return kept_graph(self.folder(cache), self._draw)

    def folder(self, cache: Path) -> Path:
        """Return where the graph is kept."""
        known = f"{EDITION} {self.facts.identity} {self.scale!r}"
        digest = hashlib.sha256(known.encode()).hexdigest()[:8]
        return cache / self.name / f"{self.scale:g}-{self.width}-{self.seed}-{digest}"

    def _draw(self, writer: GraphFolderWriter) -> None:
        sketch = sketch_twin(self.facts, scale=self.scale, seed=self.seed)
        log.info("drawing %s: %d nodes, %d edges", self.name, len(sketch.labels), sketch.edges)
        share, classes = self.facts.share_labelled, self.facts.original.classes
        write_labels(shown_labels(sketch.labels, share, classes), writer)
        noise, seed = self.facts.noise, self.seed
        write_features(sketch.labels, writer, width=self.width, noise=noise, seed=seed)
        write_edges(sketch, writer, seed=seed)
        about = {"dataset": self.name, "scale": self.scale, "seed": seed, "edition": EDITION}
        writer.finish(undirected=True, about=about)


@datasets.register
class RedditTwin(Twin):
    """As large as Reddit and alike (233k nodes, 114.6M entries, 602 wide), drawn on the spot.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as cache:
    ...     graph = RedditTwin(scale=0.002, features=8).load(Path(cache))
    ...     graph.num_nodes, graph.num_features, graph.num_classes
    (466, 8, 41)
    """

    name = "reddit-twin"


@datasets.register
class ProductsTwin(Twin):
    """As large as OGB-Products and alike (2.4M nodes, 123.7M entries, 100 wide), drawn on the spot.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as cache:
    ...     graph = ProductsTwin(scale=0.001).load(Path(cache))
    ...     graph.num_nodes, graph.num_features, graph.num_classes
    (2449, 100, 47)
    """

    name = "products-twin"


@datasets.register
class PapersTwin(Twin):
    """As large as OGB-Papers100M and alike (111M nodes, 3.2G entries, 128 wide), drawn on the spot.

    As there, one node in 72 has a class; unlike there, nodes have no time. The whole of it takes
    72 GB on disk, 85 GB while it is drawn; with ``features=16``, 22 and 35 GB.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as cache:
    ...     graph = PapersTwin(scale=0.0001, features=8).load(Path(cache))
    ...     graph.num_nodes, graph.num_classes, int((graph.labels >= 0).sum())
    (11106, 172, 516)
    """

    name = "papers-twin"
