"""Generated graphs of the size and shape of published ones: a plugin of three datasets.

evergraph run --plugin benchmarks/speed/twin_graphs.py --dataset products-twin --method analytic
"""

from __future__ import annotations

import hashlib
import logging
import sys
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.core.errors import ConfigurationError, check_integer, check_number
from evergraph.core.mapped import page_out
from evergraph.core.seeding import seeded
from evergraph.datasets.base import Dataset, Facts, catalogue, datasets
from evergraph.datasets.fetching import ProgressLog
from evergraph.datasets.importing.edge_table import EdgeTable
from evergraph.datasets.ogb import cached_graph_folder
from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.graph_folder import GraphFolderWriter

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.speed.streamed_blocks import StreamedBlockModel, geometric_sizes, log_normal_sizes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Of the pairs of a class, the most that may be edges on average; of a class, the most that one node
# may look for; of all nodes, the most that a hub may. Beyond, most pairs drawn would be doubles.
FILL = 0.25
HOME_SHARE = 0.5
HUB_SHARE = 0.25
# Nodes of every class that show their label at the least: to train, to validate and to test on.
LEAST_SHOWN = 3


@dataclass(frozen=True)
class TwinFacts:
    """What a twin copies; the fields are told in twin_graphs.toml."""

    of: str
    largest_degree: int
    singles: int
    smallest_class: int
    astray: float
    noise: float
    homophily: float | None = field(default=None, repr=False)

    @property
    def original(self) -> Facts:
        """What is published about the original."""
        return catalogue()[self.of]

    @property
    def wanted_homophily(self) -> float:
        """The share of edges within classes: the original's where it is published."""
        found = self.homophily if self.homophily is not None else self.original.homophily
        assert found is not None, self.of
        return found

    @property
    def share_labelled(self) -> float:
        """The share of nodes that show their label."""
        original = self.original
        return 1.0 if original.labelled is None else original.labelled / original.nodes

    @property
    def identity(self) -> str:
        """All that a twin's drawing depends on.

        Facts that came later count where they are known, and checksums of what is published do not,
        so that twins drawn before are found.
        """
        later = (self.homophily, self.original.labelled)
        original = replace(self.original, sha256={})
        return " ".join(map(str, (self, original, *(x for x in later if x is not None))))


@dataclass(frozen=True, eq=False)
class TwinSketch:
    """A graph before its edges are drawn.

    Attributes:
        labels: the class of each node, shown or not.  int16 [nodes]
        homes: the class that a node lives among, mostly its own.  int16 [nodes]
        within: neighbours each node looks for at home.  float64 [nodes]
        among: neighbours it looks for everywhere.  float64 [nodes]
        edges: how many pairs of nodes shall be joined.
        homophily: the share of them within classes.

    At 10^8 nodes every array counts: classes are of two bytes, and all of it takes 20 a node.
    """

    labels: NDArray[np.int16]
    homes: NDArray[np.int16]
    within: NDArray[np.float64]
    among: NDArray[np.float64]
    edges: int
    homophily: float


@cache
def twin_facts() -> dict[str, TwinFacts]:
    """Return what every twin copies, by the twin's name.

    >>> twin_facts()["products-twin"].original.classes
    47
    """
    text = Path(__file__).with_suffix(".toml").read_text("utf-8")
    return {name: TwinFacts(**facts) for name, facts in tomllib.loads(text).items()}


def sketch_twin(facts: TwinFacts, *, scale: float, seed: int) -> TwinSketch:
    """Draw labels, homes and degrees of a twin.

    Degrees are log-normal. A few nodes live among another class than theirs, which no neighbourhood
    can tell. A node looks for a share of its neighbours where it lives, but for no more than
    ``HOME_SHARE`` of the nodes there, and for the rest everywhere. That share is homophily, were
    nobody astray. Neither class nor degree can be told from a node's number.
    """
    homophily = facts.wanted_homophily
    generator = numpy_generator(seed, "nodes")
    sizes = generator.permutation(twin_class_sizes(facts, scale))
    labels = generator.permutation(np.repeat(np.arange(len(sizes), dtype=np.int16), sizes))
    homes = _homes(labels, facts.astray, generator)
    edges = twin_edges(facts, scale, sizes)
    largest = min(facts.largest_degree, HUB_SHARE * len(labels))
    degrees = log_normal_sizes(len(labels), 2 * edges / len(labels), largest)
    generator.shuffle(degrees)
    share = min(homophily / (1 - facts.astray) ** 2, 1.0)  # both ends must be where they belong
    within = np.minimum(share * degrees, (HOME_SHARE * (sizes - 1))[homes])
    degrees -= within
    return TwinSketch(labels, homes, within, degrees, edges, homophily)


def shown_labels(labels: NDArray[np.int16], share: float, classes: int) -> NDArray[np.int16]:
    """Hide all but an evenly spread share of every class.  [nodes] -> [nodes]

    >>> shown_labels(np.array([0, 1, 0, 0, 0, 0, 0, 0], np.int16), 0.5, 2).tolist()
    [0, 1, -1, 0, -1, 0, -1, 0]
    """
    if share == 1.0:
        return labels
    shown = np.full_like(labels, UNLABELLED)
    for label in range(classes):
        nodes = np.flatnonzero(labels == label)
        count = min(max(LEAST_SHOWN, round(share * len(nodes))), len(nodes))
        shown[nodes[(np.arange(count) * 2 + 1) * len(nodes) // (2 * count)]] = label
    return shown


def _homes(
    labels: NDArray[np.int16], astray: float, generator: np.random.Generator
) -> NDArray[np.int16]:
    """Let a share of all nodes change places among each other, so that sizes stay.  [nodes]"""
    homes = labels.copy()
    moved = generator.permutation(len(labels))[: round(astray * len(labels))]
    homes[moved] = labels[generator.permutation(moved)]
    return homes


def twin_class_sizes(facts: TwinFacts, scale: float) -> NDArray[np.int64]:
    """Return how many nodes each class has, largest first.  int64 [classes]"""
    original = facts.original
    nodes, classes = round(original.nodes * scale), original.classes - facts.singles
    if nodes < 8 * original.classes:
        least = 8 * original.classes / original.nodes
        raise ConfigurationError(f"scale must be at least {least:.2g}, not {scale}")
    smallest = min(facts.smallest_class, nodes // (4 * classes))
    sizes = geometric_sizes(nodes - facts.singles, classes, smallest)
    return np.concatenate([sizes, np.ones(facts.singles, np.int64)])


def twin_edges(facts: TwinFacts, scale: float, sizes: NDArray[np.int64]) -> int:
    """Return how many pairs shall be joined: fewer than asked for where classes are too small."""
    original = facts.original
    entries = original.edges if original.kept_edges is None else original.kept_edges
    pairs = entries if original.directed else entries / 2
    room = FILL * float((sizes * (sizes - 1) // 2).sum()) / facts.wanted_homophily
    return round(min(scale * pairs, room))


def numpy_generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return NumPy's generator for one purpose of one seed."""
    drawn = torch.randint(2**62, (), generator=seeded(seed, *purpose))
    return np.random.default_rng(int(drawn))


log = logging.getLogger("evergraph.twins")

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
    rows, pace = max(1, _BLOCK // width), ProgressLog("drawing features")
    for start in range(0, len(labels), rows):
        block = features[start : start + rows].numpy()
        generator.standard_normal(dtype=np.float32, out=block)
        block *= noise
        block += centres[labels[start : start + rows]]
        page_out(features[start : start + rows])
        pace.update(start + len(block), len(labels))


def write_edges(sketch: TwinSketch, writer: GraphFolderWriter, *, seed: int) -> None:
    """Draw the edges, and sort them on disk."""
    aside, nodes = writer.folder / "edges", len(sketch.labels)
    table = EdgeTable(aside, nodes=nodes, undirected=True, memory=SORT_MEMORY)
    _draw_edges(sketch, table, seed=seed)
    entries = table.write(writer, on_part=ProgressLog("sorting edges").update)
    table.discard()
    log.info("%d entries are written, %d were asked for", entries, 2 * sketch.edges)


def _draw_edges(sketch: TwinSketch, table: EdgeTable, *, seed: int) -> None:
    generator = numpy_generator(seed, "edges")
    model = StreamedBlockModel(sketch.homes, sketch.within, sketch.among, generator=generator)
    counts = model.plan(sketch.edges, sketch.homophily, labels=sketch.labels)
    pace, drawn = ProgressLog("drawing edges"), 0
    for left, right in model.draw(*counts):
        table.add(left, right)
        drawn += len(left)
        pace.update(drawn, sum(counts))


# Counts up when the same parameters draw another graph, so that no old one is taken for it.
EDITION = 1


class Twin(Dataset):
    """A graph drawn to resemble a published one, kept on disk under ``cache/<name>``.

    A degree-corrected block model (``StreamedBlockModel``) with the published number of nodes,
    edges, features and classes, homophily and largest degree. What no publisher states is a law of
    ours: class sizes fall geometrically, degrees are log-normal, x_i = μ_(y_i) + noise · ε_i with
    unit vectors μ. twin_graphs.toml has the figures and says which are ours. Accuracies on a twin
    say nothing about the original; times and memory do.

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
        return cached_graph_folder(self.folder(cache), self._draw)

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
