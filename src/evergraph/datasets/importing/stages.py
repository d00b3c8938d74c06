"""The stages of an import: nodes, edges, sort, checksum."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from evergraph.core.resources import Resources
from evergraph.datasets.columns.choices import Columns
from evergraph.datasets.files.table_columns import WEIGHT, edge_weights, ids
from evergraph.datasets.files.table_folder import ENDS
from evergraph.datasets.files.table_relations import RELATION
from evergraph.datasets.importing.chunks import Chunk, columns_of, read_chunks
from evergraph.datasets.importing.edge_relations import ListedRelations, write_relations
from evergraph.datasets.importing.node_index import NodeIndex, read_ids
from evergraph.datasets.importing.nodes import import_nodes
from evergraph.datasets.importing.progress import ImportReport, Inputs, NodesRead, Progress
from evergraph.datasets.importing.queries import Source
from evergraph.datasets.importing.sorter import EdgeSorter, Sorted
from evergraph.graphs.graph_folder import GraphFolderWriter

logger = logging.getLogger(__name__)

OnProgress = Callable[[str, int, int], None]

LEAST = 32_000_000  # bytes without which there is no use in beginning
PROGRESS = "progress.json"
_LARGEST_PIECE = 64_000_000
_LARGEST_SORT = 1_000_000_000  # more is no faster, and more is lost by a crash
_BYTES_A_BYTE = 12  # in memory, for a byte of a table: text, columns, positions, keys
_BYTES_AN_ID = 64  # its text, its hash, its place


def columns_told(kept: dict[str, Any] | None) -> list[dict[str, str]]:
    """Return how columns were read, from what ``graph.json`` keeps of it."""
    listed = [] if kept is None else kept["columns"]
    return [dict(each["told"]) for each in listed]


class ImportStages:
    """The stages of one import, each of which begins where an earlier process ended."""

    def __init__(
        self,
        *,
        folder: Path,
        inputs: Inputs,
        resources: Resources,
        on_progress: OnProgress,
        columns: Columns | None = None,
    ) -> None:
        self.folder = folder
        self.columns = columns
        self.resources = resources
        self.on_progress = on_progress
        self.progress = Progress.load(folder / PROGRESS, inputs)
        self._began = time.monotonic() - self.progress.seconds
        self._ids = folder / "ids.arrow"
        resources.check(LEAST, "an import")
        if self.progress.nodes is not None:
            logger.info("%s: goes on with an import that was begun", folder)
        self.writer = GraphFolderWriter(folder / "graph")

    def read_nodes(self, path: Source) -> NodesRead:
        """Write what the node table holds."""
        if self.progress.nodes is None:
            found = import_nodes(
                path,
                self.writer.folder,
                self._ids,
                size=self._piece(self.resources.left),
                on_piece=lambda piece: self.on_progress("nodes", piece.done, piece.total),
                columns=self.columns,
            )
            self._save(replace(self.progress, nodes=found))
        assert self.progress.nodes is not None
        return self.progress.nodes

    def index(self, found: NodesRead) -> NodeIndex | None:
        """Return what finds nodes by their ids, unless all edges are read."""
        if self.progress.edges.whole:
            return None
        self.resources.check(_BYTES_AN_ID * found.nodes, f"finding {found.nodes:,} nodes by id")
        return NodeIndex(read_ids(self._ids))

    def read_edges(self, path: Source, found: NodesRead, index: NodeIndex | None) -> None:
        """Sort the edge table into runs."""
        if index is None:
            return
        named = columns_of(path)
        weighted = WEIGHT in named
        sorter = self._sorter(found, weighted=weighted)
        with ExitStack() as stack:
            listed = self._listed(weighted=weighted) if RELATION in named else None
            if listed is not None:
                stack.enter_context(closing(listed))
            self._read_edges(path, sorter, index, listed)

    def _read_edges(
        self,
        path: Source,
        sorter: EdgeSorter,
        index: NodeIndex,
        listed: ListedRelations | None,
    ) -> None:
        done, weighted = self.progress.edges, sorter.weighted
        ways = 2 if sorter.undirected else 1
        weight, relation = (WEIGHT,) * weighted, (RELATION,) * (listed is not None)
        pieces = read_chunks(
            path,
            (*ENDS, *weight, *relation),
            size=self._piece(self.resources.left // 2),
            only_needed=True,
            position=done.position,
            before=done.rows,
            text=relation,
        )
        for piece in pieces:
            done = replace(done, position=piece.position, rows=piece.after, weighted=weighted)
            skip = self.progress.inputs.unknown_edges == "skip"
            loops, unknown = _add(sorter, index, piece, listed, skip=skip)
            done = replace(done, loops=done.loops + loops, unknown=done.unknown + unknown)
            likely = 1.25 * ways * piece.table.num_rows  # pairs of the next piece
            if sorter.held + likely > sorter.room:
                sorter.spill()
                if listed is not None:
                    listed.sync()
                    done = replace(done, relations=listed.names)
                done = replace(done, runs=sorter.runs.count)
                self._save(replace(self.progress, edges=done))
            self.on_progress("edges", piece.done, piece.total)
        sorter.spill()
        if listed is not None:
            listed.finish()
            done = replace(done, relations=listed.names)
        done = replace(done, runs=sorter.runs.count, whole=True)
        self._save(replace(self.progress, edges=done))

    def sort(self, found: NodesRead) -> None:
        """Merge the runs into the adjacency."""
        sorter = self._sorter(found, weighted=self.progress.edges.weighted)

        def on_range(done: Sorted) -> None:
            self._save(replace(self.progress, sorted=done))
            self.on_progress("sort", done.seen, sorter.pairs)

        sorter.finish(self.writer, begin=self.progress.sorted, on_range=on_range)

    def relate(self, found: NodesRead) -> None:
        """Sort what edges stand for, where the table says it."""
        edges = self.progress.edges
        write_relations(
            self.folder,
            self.writer,
            edges.relations,
            nodes=found.nodes,
            weighted=edges.weighted,
            resources=self.resources,
        )

    def finish(self, found: NodesRead, out: Path) -> ImportReport:
        """Declare the graph whole and put it in its place."""
        self.on_progress("checksum", 0, 1)
        inputs, edges = self.progress.inputs, self.progress.edges
        entries = self.progress.sorted.entries
        distinct = entries // 2 if inputs.undirected else entries
        report = {
            "nodes": found.nodes,
            "edges": edges.rows,
            "doubles": edges.rows - edges.unknown - edges.loops - distinct,
            "loops": edges.loops,
            "entries": entries,
            "classes": found.classes,
            "features": found.features,
            "seconds": round(time.monotonic() - self._began, 3),
            "unknown_edges": edges.unknown,
        }
        about: dict[str, Any] = {"inputs": asdict(inputs), "report": report, "loud": found.loud}
        if found.columns is not None:
            about["columns"] = found.columns
        if found.class_names:
            about["class_names"] = found.class_names
        named = {"targets": found.targets, "types": found.types, "relations": edges.relations}
        checksum = self.writer.finish(undirected=inputs.undirected, about=about, named=named)
        (self.folder / PROGRESS).unlink()  # nobody is to go on with a folder that is gone
        if out.exists():
            shutil.rmtree(self.folder / "replaced", ignore_errors=True)
            out.rename(self.folder / "replaced")
        self.writer.folder.rename(out)
        shutil.rmtree(self.folder)
        self.on_progress("checksum", 1, 1)
        told = columns_told(found.columns)
        return ImportReport(**report, checksum=checksum, columns=told)  # type: ignore[arg-type]

    def _listed(self, *, weighted: bool) -> ListedRelations:
        done = self.progress.edges
        names = done.relations or ()
        kept = done.rows - done.unknown
        return ListedRelations(self.folder, weighted=weighted, names=names, rows=kept)

    def _sorter(self, found: NodesRead, *, weighted: bool) -> EdgeSorter:
        return EdgeSorter(
            self.folder / "runs",
            nodes=found.nodes,
            undirected=self.progress.inputs.undirected,
            memory=min(max(self.resources.left // 2, LEAST // 2), _LARGEST_SORT),
            runs=self.progress.edges.runs,
            weighted=weighted,
        )

    def _piece(self, memory: int) -> int:
        return min(max(memory, LEAST) // _BYTES_A_BYTE, _LARGEST_PIECE)

    def _save(self, progress: Progress) -> None:
        self.progress = replace(progress, seconds=time.monotonic() - self._began)
        self.progress.save(self.folder / PROGRESS)


def _add(
    sorter: EdgeSorter,
    index: NodeIndex,
    piece: Chunk,
    listed: ListedRelations | None,
    *,
    skip: bool,
) -> tuple[int, int]:
    """Take the edges of a piece; return how many are self-loops, and how many were skipped.

    skip: whether edges to nodes that are not there are.
    """
    before, rows = piece.before, piece.table.num_rows
    ends = {name: ids(piece.table, name, before=before) for name in ENDS}
    weights = edge_weights(piece.table, before=before) if sorter.weighted else None
    if skip:
        sources, targets = map(index.where, ends.values())
        there = (sources >= 0) & (targets >= 0)
        sources, targets = sources[there], targets[there]
        piece = replace(piece, table=piece.table.filter(there))
        weights = None if weights is None else weights[torch.from_numpy(there)]
    else:
        sources, targets = (index.positions(ends[n], n, before=before) for n in ENDS)
    sorter.add(sources, targets, None if weights is None else weights.numpy())
    if listed is not None:
        listed.add(piece, sources, targets, weights)
    return int((sources == targets).sum()), rows - len(sources)
