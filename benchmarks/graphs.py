"""The graphs that are measured on, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

import evergraph
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.graphs.csr import csr_tensor

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@dataclass(frozen=True)
class Case:
    """One graph.

    Attributes:
        name: how tables call it.
        features: how wide its features are and where they come from.
        load: returns it.
        file: what must be there for that.
    """

    name: str
    features: str
    load: Callable[[], Graph]
    file: Path | None = None

    @property
    def missing(self) -> str | None:
        """Why it cannot be loaded, or None."""
        absent = self.file is not None and not self.file.exists()
        return f"{self.name}: skipped, {self.file} is absent" if absent else None


def from_file(path: Path, *, undirected: bool = True) -> Graph:
    """Read one of the shared files."""
    return evergraph.load(path, undirected=undirected)


def with_dense_features(path: Path, *, width: int) -> Graph:
    """Read a structure and give it Gaussian features."""
    graph = from_file(path)
    generator = seeded(0, "features")
    return replace(graph, features=torch.randn(graph.num_nodes, width, generator=generator))


def with_sparse_features(path: Path, *, width: int, per_node: int) -> Graph:
    """Read a structure and give every node ``per_node`` random words."""
    graph = from_file(path)
    return replace(graph, features=random_words(graph.num_nodes, width, per_node))


def random_words(nodes: int, width: int, per_node: int) -> Tensor:
    """Draw binary CSR features, one word out of each of ``per_node`` equal strata of the columns.

    -> sparse float32 [nodes, width]
    """
    starts = torch.arange(per_node) * width // per_node
    draws = torch.rand(nodes, per_node, generator=seeded(0, "words"))
    columns = starts + (draws * (width // per_node)).long()
    indptr = torch.arange(nodes + 1, dtype=torch.int32) * per_node
    return csr_tensor(indptr, columns.flatten().int(), torch.ones(columns.numel()), (nodes, width))


def synthetic(nodes: int, *, mean_degree: float = 10.0, features: int = 64) -> Graph:
    """Draw a synthetic graph of 10 classes."""
    return evergraph.load("synthetic", nodes=nodes, mean_degree=mean_degree, features=features)


def _shared(
    name: str, file: str, features: str, read: Callable[..., Graph], **options: object
) -> Case:
    path = DATA / file
    return Case(name, features, partial(read, path, **options), path)


def _cases() -> Iterable[Case]:
    arxiv, cora = "ogbn_arxiv_structure.npz", "cora_full_structure.npz"
    yield _shared("arxiv", arxiv, "128 random", with_dense_features, width=128)
    yield _shared("arxiv structure", arxiv, "none", from_file)
    yield _shared("arxiv structure, directed", arxiv, "none", from_file, undirected=False)
    yield _shared("computers", "amazon_computers.npz", "767 real", from_file)
    yield _shared("coauthor-cs", "coauthor_cs.npz", "6,805 real", from_file)
    yield _shared("actor", "actor.npz", "932 real", from_file)
    yield _shared("blogcatalog", "blogcatalog.npz", "8,189 real", from_file)
    yield _shared("uai2010", "uai2010.npz", "4,973 real", from_file)
    yield _shared("minesweeper", "minesweeper.npz", "7 of 0 and 1", from_file)
    words = "8,710 random"
    yield _shared("corafull", cora, words, with_sparse_features, width=8710, per_node=61)
    yield Case("wordnet", "256 real", partial(evergraph.load, "wordnet"))
    for nodes in (500, 5_000, 300_000):
        yield Case(f"synthetic-{nodes}", "64 synthetic", partial(synthetic, nodes))


CASES = {case.name: case for case in _cases()}


def layout(features: Tensor) -> str:
    """Return how features lie in memory, and how many are not zero where that is sparse."""
    if features.layout == torch.strided:
        return "dense"
    return f"CSR {100 * features.values().numel() / features.numel():.1f} %"


def present(names: Iterable[str]) -> tuple[list[Case], list[str]]:
    """Return the cases that can be loaded, and why the others cannot."""
    asked = [CASES[name] for name in names]
    reasons = [case.missing for case in asked if case.missing is not None]
    return [case for case in asked if case.missing is None], reasons
