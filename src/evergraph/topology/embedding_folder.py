"""Embeddings of a graph of any size, written part by part by those who compute them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise, repeat
from pathlib import Path
from typing import Any

from evergraph.core.checks import check_choice
from evergraph.core.engine import Engine
from evergraph.core.errors import DataError
from evergraph.core.file_lock import one_at_a_time
from evergraph.core.mapped import disk_is_enough
from evergraph.core.resources import Resources
from evergraph.core.written_aside import written_aside
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import FACTS, is_graph_folder
from evergraph.graphs.split_folder import SPLIT, SplitFolder, is_split_folder
from evergraph.topology.base import TopologyEncoder
from evergraph.topology.embedding_layout import (
    EMBEDDING,
    NODES,
    Nodes,
    Target,
    embedding_in,
    finish,
    finish_part,
    is_laid_out,
    lay_out,
    lay_out_part,
    names_kept,
    part_is_laid_out,
    rows_kept,
    save_split,
    write_rows,
)
from evergraph.topology.part_hops import PartHops
from evergraph.topology.parted_graph import PartedGraph, parted

OnProgress = Callable[[str, int, int], None]

PROGRESS = "embedding.json"


def embed(
    source: Graph | SplitFolder,
    out: Path,
    *,
    topology: TopologyEncoder,
    nodes: Nodes = "all",
    name: str = "",
    resources: Resources | None = None,
    on_progress: OnProgress | None = None,
    overwrite: bool = False,
) -> bool:
    """Write the embeddings of a graph as a graph folder, whose features they are.

    The numbers are those that ``topology.encode`` gives for dense features. Nobody holds more than
    some rows of the adjacency and a block of columns of the features, as wide as memory allows:
    each part of the rows is smoothed and written by a worker, where it lies if the graph is split,
    and hops are handed from worker to worker. A split graph gives a split graph. What an earlier
    call has written, of the same graph and f_topo, is not computed again; return whether anything
    was.

    Args:
        topology: an f_topo that is made of plain hops, see ``count_products``.
        nodes: ``labelled`` keeps nodes that have labels, and no edges.
        name: of the graph, by which one that is in no folder is known again.
        overwrite: whether another graph in ``out`` may be replaced.

    >>> import tempfile, torch
    >>> from evergraph.graphs.graph_folder import open_graph_folder
    >>> from evergraph.topology import SGC
    >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.tensor([[1.], [3.]]),
    ...                         labels=torch.tensor([0, -1]), undirected=True)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     _ = embed(pair, Path(place, "out"), topology=SGC(hops=1), nodes="labelled")
    ...     found = open_graph_folder(Path(place, "out"))
    ...     found.features.round(decimals=4).tolist(), found.labels.tolist(), found.num_edges
    ([[2.0]], [0], 0)
    """
    check_choice("nodes", nodes, NODES)
    resources = Resources() if resources is None else resources
    graph = parted(source, workers=resources.engine.workers, name=name)
    hops = PartHops(graph, topology, resources)
    embedding = _Embedding(graph, hops, out.absolute(), nodes, on_progress or _nothing)
    if embedding_in(out) == embedding.made:
        return False
    _check_free(out, overwrite=overwrite)
    with one_at_a_time(out):
        embedding.run()
    return True


def _check_free(out: Path, *, overwrite: bool) -> None:
    """Raise unless a folder is empty, holds embeddings half done, or may be replaced."""
    if not out.exists() or not any(out.iterdir()) or (out / PROGRESS).is_file():
        return
    if not (is_graph_folder(out) or is_split_folder(out)):
        raise DataError(f"{out}: is no graph folder, so it is not replaced")
    if not overwrite:
        raise DataError(
            f"{out}: is there already and holds another graph: choose another folder, or replace "
            "it with --overwrite"
        )
    shutil.rmtree(out)


@dataclass(frozen=True, eq=False)
class _Embedding:
    """One call of ``embed``."""

    graph: PartedGraph
    hops: PartHops
    out: Path
    nodes: Nodes
    on_progress: OnProgress

    def run(self) -> None:
        """Lay out, compute what is missing, finish."""
        for facts in (SPLIT, FACTS):
            (self.out / facts).unlink(missing_ok=True)  # from now on it is no graph
        progress = Progress.load(self.out, self.made, len(self.graph.parts))
        if progress is None or not self._is_laid_out():
            self._lay_out()
            progress = Progress(self.made, len(self.graph.parts)).save(self.out)
        self._fill(progress)
        self._finish()
        (self.out / PROGRESS).unlink()

    @cached_property
    def made(self) -> dict[str, Any]:
        """Of what and how the embeddings are made, as JSON gives it back."""
        topology = self.hops.topology
        told = {"name": topology.name, **topology.get_params()}
        made = {"of": self.graph.known_by, "topology": told, "nodes": self.nodes}
        found: dict[str, Any] = json.loads(json.dumps(made))
        return found

    @property
    def engine(self) -> Engine:
        """Who does the work."""
        return self.hops.resources.engine

    @property
    def width(self) -> int:
        """How many columns the embeddings have."""
        return self.hops.topology.parts * self.graph.features

    @cached_property
    def rows(self) -> list[int]:
        """How many rows each part keeps."""
        shared = {"graph": self.graph.graph, "nodes": self.nodes}
        near = self.graph.near
        return list(self.engine.map(rows_kept, self.graph.parts, shared=shared, near=near))

    @property
    def spans(self) -> list[slice]:
        """Which rows of all that are kept those of each part are."""
        return [slice(*ends) for ends in pairwise(accumulate(self.rows, initial=0))]

    def _is_laid_out(self) -> bool:
        if self.graph.graph is not None:
            return is_laid_out(self.out, width=self.width)
        shared = {"folder": self.out, "width": self.width}
        near = self.graph.near
        found = self.engine.map(part_is_laid_out, self.graph.parts, shared=shared, near=near)
        return all(list(found))

    def _lay_out(self) -> None:
        if self.graph.graph is not None:
            lay_out(self.graph.graph, self.out, width=self.width, nodes=self.nodes)
            return
        shared = {"folder": self.out, "width": self.width, "nodes": self.nodes}
        near = self.graph.near
        list(self.engine.map(lay_out_part, self.graph.parts, shared=shared, near=near))

    def _fill(self, progress: Progress) -> None:
        """Compute and write the columns that are left."""
        blocks = progress.blocks(self.graph.features, self.hops.widest())
        total = len(blocks) * len(self.graph.parts) * max(self.hops.products, 1)
        self.on_progress("embed", 0, total)
        for done, reached in enumerate(self._advanced(progress, blocks), start=1):
            if reached is not progress:
                progress = reached.save(self.out)
            self.on_progress("embed", done, total)

    def _advanced(
        self, progress: Progress, blocks: Sequence[tuple[int, int]]
    ) -> Iterator[Progress]:
        """Yield how far it is, whenever a part is through a hop."""
        for columns in blocks:
            if progress.stop != columns[1]:
                progress = replace(progress, stop=columns[1], written=())
            for index in self._block(columns, progress.written):
                if index is not None:
                    progress = replace(progress, written=(*progress.written, index))
                if len(progress.written) == progress.parts:
                    progress = replace(progress, columns=columns[1], written=())
                yield progress

    def _block(self, columns: tuple[int, int], written: Sequence[int]) -> Iterator[int | None]:
        """Take some columns through all hops; yield None, or which part has written its rows."""
        block = self.hops.block(columns)
        yield from block.before_last()
        yield from repeat(None, len(written))
        left = [part.index for part in self.graph.parts if part.index not in written]
        items = [(block.steps[index], self._target(index)) for index in left]
        shared = block.shared() | {"columns": columns, "wide": self.graph.features}
        near = [self.graph.near[index] for index in left]
        for index, _ in zip(
            left, self.engine.map(write_rows, items, shared=shared, near=near), strict=True
        ):
            yield index

    def _target(self, index: int) -> Target:
        """Return where a part's embeddings go: into its own folder if the graph is split."""
        if self.graph.graph is not None:
            return Target(self.out, self.spans[index].start, self.nodes)
        return Target(self.out / self.graph.parts[index].path.name, 0, self.nodes)

    def _finish(self) -> None:
        """Declare what is written a graph."""
        about = {EMBEDDING: self.made}
        self.on_progress("checksum", 0, 1)
        if self.graph.graph is not None:
            finish(self.graph.graph, self.out, nodes=self.nodes, about=about)
            return
        of = sum(self.rows)
        shared = {"folder": self.out, "nodes": self.nodes, "about": about, "of": of}
        items = list(zip(self.graph.parts, self.spans, strict=True))
        done = tuple(self.engine.map(finish_part, items, shared=shared, near=self.graph.near))
        split = SplitFolder(
            self.out,
            of,
            sum(part.entries for part in done),
            self.width,
            self.nodes == "labelled" or self.graph.undirected,
            done,
            names_kept(self.graph.named, self.nodes),
            about,
        )
        list(self.engine.map(save_split, done, shared={"split": split}, near=self.graph.near))
        split.save()


def _nothing(stage: str, done: int, total: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Progress:
    """How far embeddings have come, kept beside them; columns are those of the features.

    Attributes:
        made: of what and how they are made; other embeddings begin again.
        parts: in how many parts the rows are cut.
        columns: how many are through, in every part.
        stop: where the block under way ends.
        written: the parts that have written that block.
    """

    made: Mapping[str, Any]
    parts: int
    columns: int = 0
    stop: int = 0
    written: tuple[int, ...] = ()

    def save(self, folder: Path) -> Progress:
        """Keep it, and return it."""
        with disk_is_enough(folder), written_aside(folder / PROGRESS) as file:
            file.write(json.dumps(asdict(self)).encode())
        return self

    @classmethod
    def load(cls, folder: Path, made: Mapping[str, Any], parts: int) -> Progress | None:
        """Return how far these embeddings have come, None if they were not begun."""
        try:
            found = json.loads((folder / PROGRESS).read_text("utf-8"))
            known = cls(**found | {"written": tuple(found["written"])})
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if known.made != made:
            return None
        # Cut in another way, what some parts have of a block is of no use.
        return known if known.parts == parts else cls(made, parts, known.columns)

    def blocks(self, wide: int, widest: int) -> list[tuple[int, int]]:
        """Cut the columns that are left into blocks of nearly one width, the one under way first.

        >>> Progress({}, 1, columns=2, stop=3, written=(0,)).blocks(9, widest=4)
        [(2, 3), (3, 6), (6, 9)]
        """
        under_way = self.written and self.columns < self.stop <= self.columns + widest
        start = self.stop if under_way else self.columns
        left = wide - start
        count = -(-left // widest)
        ends = [start + left * block // count for block in range(count + 1)] if count else []
        return [*([(self.columns, start)] if under_way else []), *pairwise(ends)]
