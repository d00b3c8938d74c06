"""What a method multiplies, keeps and solves for, by the sizes of its parts."""

from __future__ import annotations

from dataclasses import dataclass

from evergraph.core.checks import check_choice
from evergraph.experiments.planning.graph_facts import adjacency_bytes
from evergraph.memory import EmbeddingMemory
from evergraph.methods.analytic import CHOICE_WIDTH, LADDER
from evergraph.methods.auto import CHOICE_WIDTH as AUTO_CHOICE_WIDTH
from evergraph.methods.auto import LADDER as AUTO_LADDER
from evergraph.methods.balanced_ridge import NARROW, NARROW_PER_CLASS
from evergraph.nn import PDGNN, RandomFeatures, ViewFeatures
from evergraph.nn.random_features import KEPT_BYTES
from evergraph.topology import SGC, ClassCodes, TopologyEncoder
from evergraph.topology.view_hops import WIDEST, ViewHops
from evergraph.topology.views import hops_of

METHODS = ("auto", "analytic", "tem")
PROBES = 100  # validation nodes of a class that auto keeps
REFINING = 12  # products with A until a factor in float32 has become as good as one in float64


@dataclass(frozen=True)
class Size:
    """Of a graph that is embedded.

    Attributes:
        nodes, entries: how many; an edge is two entries.
        mapped: whether its features lie in a file.
    """

    nodes: int
    entries: int
    mapped: bool = False

    @property
    def adjacency(self) -> int:
        """Bytes of neighbours and row pointers."""
        return adjacency_bytes(self.nodes, self.entries)

    def columns(self, count: float) -> float:
        """Bytes of so many float32 columns."""
        return 4.0 * self.nodes * count


@dataclass(frozen=True)
class Smoothing:
    """Columns that are smoothed over a graph.

    Attributes:
        topology: how.
        columns: how many.
        of_features: whether they are the graph's own; else they are made beside these.
    """

    topology: TopologyEncoder
    columns: int
    of_features: bool = True

    def bytes(self, size: Size, columns: float) -> float:
        """Return what is held at the most while so many columns of a graph are smoothed."""
        return size.columns(columns * self.topology.arrays)

    def result(self, size: Size) -> float:
        """Return the bytes of the embeddings of a graph."""
        return size.columns(self.columns * self.topology.parts)


@dataclass(frozen=True)
class Learning:
    """What a method does with nodes, in multiplications and additions, and what it keeps.

    Attributes:
        method: its name.
        smoothings: what is computed of every graph, once.
        dims: of what is known of a node.
        width: of its random features, or its hidden layer.
        heads: how many there are.
        epochs, batch, stored: of training by gradients; 0 epochs where there is none.
    """

    method: str
    smoothings: tuple[Smoothing, ...]
    dims: int
    width: int
    heads: int = 1
    epochs: int = 0
    batch: int = 0
    stored: int = 0

    @property
    def choice(self) -> tuple[int, int]:
        """How wide the problem is on which the penalty is chosen, and how often it is solved."""
        if self.method == "auto":
            return min(self.width, AUTO_CHOICE_WIDTH), len(AUTO_LADDER)
        return min(self.width, CHOICE_WIDTH), len(LADDER)

    def training_flops(self, classes: int) -> float:
        """Of a training node: counted into the lower triangle of G, or trained on in all epochs."""
        if self.epochs:
            return 6.0 * self.epochs * self._parameters(classes)
        return 2.0 * self.dims * self.width + self.heads * self.width**2

    def validation_flops(self) -> float:
        """Of a validation node."""
        if self.method != "analytic":
            return 0.0
        narrow, _ = self.choice
        return 2.0 * self.dims * narrow + narrow**2

    def answer_flops(self, classes: int) -> float:
        """Of a node that is classified."""
        if self.epochs:
            return 2.0 * self._parameters(classes)
        return 2.0 * self.width * (self.dims + self.heads * classes)

    def solve_flops(self, classes: int) -> float:
        """Of setting the head after a task, a factor in float64 counted as it is.

        (A + λI) of width m takes m³/3 for its factor and 2 m² for each class; in float32 half.
        """
        if self.epochs:
            return 0.0
        narrow, times = self.choice
        chosen = times * (narrow**3 / 3 + 4 * narrow**2 * classes)
        wide = self.width > NARROW + NARROW_PER_CLASS * classes
        factor = self.width**3 / 3 + 2 * self.width**2 * classes * (REFINING if wide else 2)
        total = self.heads * (chosen + (factor / 2 if wide else factor))
        return total + self._probe_flops(classes)

    def _probe_flops(self, classes: int) -> float:
        if self.method != "auto":
            return 0.0
        narrow, _ = self.choice
        each = 2.0 * self.dims * narrow + self.heads * narrow**2 + self.answer_flops(classes)
        return PROBES * classes * each

    def kept_bytes(self, classes: int) -> float:
        """Of statistics and heads, in memory between tasks."""
        if self.epochs:
            return 4.0 * self.dims * self.stored * classes + 12.0 * self._parameters(classes)
        narrow, _ = self.choice
        own = self.heads * (4.0 * self.width**2 + 12.0 * self.width * classes)
        return own + (4.0 * narrow**2 if self.method == "analytic" else 0.0)

    def solving_bytes(self, classes: int) -> float:
        """Of the matrices that are there while the head is set."""
        if self.epochs:
            return 0.0
        wide = self.width > NARROW + NARROW_PER_CLASS * classes
        return (8.0 if wide else 16.0) * self.width**2

    def exam_bytes(self, nodes: int) -> float:
        """Of the features of test nodes that are kept because they will be asked for again."""
        size = 4.0 * self.width * nodes
        return size if self.method == "analytic" and size <= KEPT_BYTES else 0.0

    def _parameters(self, classes: int) -> float:
        return self.width * (self.dims + classes)


def learning_of(method: str, *, features: int, hops: int = 2, width: int | None = None) -> Learning:
    """Return what a method does on a graph with so many features.

    hops: of ``analytic`` and ``tem``; ``auto`` has its own. width: the method's own unless given.

    >>> learning_of("analytic", features=100, width=512).training_flops(classes=2)
    364544.0
    """
    check_choice("method", method, METHODS)
    if method == "auto":
        return _auto(features, width)
    smoothed = (Smoothing(SGC(hops=hops), features),)
    if method == "analytic":
        wide = RandomFeatures().width if width is None else width
        return Learning(method, smoothed, features, wide)
    recipe, hidden = PDGNN.recipe, PDGNN().hidden[0] if width is None else width
    budget = EmbeddingMemory().budget
    return Learning(
        method,
        smoothed,
        features,
        hidden,
        epochs=recipe.epochs,
        batch=recipe.batch_size or 0,
        stored=int(budget),
    )


def _auto(features: int, width: int | None) -> Learning:
    backbone = ViewFeatures() if width is None else ViewFeatures(width=width)
    hops, columns = ViewHops(keep=hops_of(backbone.parsed)), min(features, WIDEST)
    codes = ClassCodes(width=backbone.code_width)
    smoothed = (
        Smoothing(hops, columns),
        Smoothing(codes, backbone.code_width, of_features=False),
    )
    dims = columns * hops.parts + backbone.code_width * codes.parts
    return Learning("auto", smoothed, dims, backbone.width, heads=len(backbone.parsed))
