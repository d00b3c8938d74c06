"""Tables of nodes and edges, as text and at random."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

NODES = "id,label,time,f\nann,art,1,1.5\nbob,music,2,2\ncid,,3,3\n"

EDGES = "source,target\nann,bob\ncid,bob\nbob,ann\ncid,cid\n"


def tables(folder: Path, nodes: str = NODES, edges: str = EDGES) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder / "edges.csv", folder / "nodes.csv"


def random_tables(folder: Path, nodes: int = 20, edges: int = 60) -> tuple[Path, Path]:
    generator = np.random.default_rng(0)
    rows = [f"n{node},c{node % 3},{node / 4}" for node in range(nodes)]
    pairs = [f"n{a},n{b}" for a, b in generator.integers(nodes, size=(edges, 2))]
    listed = ["id,label,f", *rows, ""], ["source,target", *pairs, ""]
    return tables(folder, *map("\n".join, listed))


def long_tables(folder: Path) -> tuple[Path, Path]:
    """Several labels a node, types, relations and weights."""
    nodes = [f"n{node},{'tuv'[node % 3]},{'a;' * (node % 2)}c{node % 4}" for node in range(12)]
    edges = [f"n{e % 12},n{e * 5 % 11},r{e // 7},{e % 4}" for e in range(40)]
    listed = ["id,type,labels", *nodes, ""], ["source,target,relation,weight", *edges, ""]
    return tables(folder, *map("\n".join, listed))


class StopError(Exception):
    """What a test interrupts an import with."""


def stopped_after(calls: int) -> Callable[[str, int, int], None]:
    """Return what stops an import when it tells how far it is once more than so many times."""
    left = iter(range(calls))

    def on_progress(stage: str, done: int, total: int) -> None:
        if next(left, None) is None:
            raise StopError

    return on_progress
