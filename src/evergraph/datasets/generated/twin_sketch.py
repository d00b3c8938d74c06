"""What a twin of a published graph must be like: its nodes, and how they find neighbours."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.datasets.catalogue import Facts, catalogue
from evergraph.datasets.generated.synthetic import geometric_sizes, log_normal_sizes
from evergraph.graphs import UNLABELLED

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
    """What a twin copies; the fields are told in twins.toml."""

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
    text = resources.files("evergraph.datasets").joinpath("twins.toml").read_text("utf-8")
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
