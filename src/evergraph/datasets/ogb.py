"""Graphs of the Open Graph Benchmark, read by ogb's CSV reader.

ogb's dataset class is not used: it keeps a pickle and prompts on standard input. Its reader of
binary files holds all of them in memory, so this module has its own.
"""

from __future__ import annotations

import csv
import logging
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray

from evergraph.core.errors import DataError
from evergraph.core.mapped import put
from evergraph.core.packages import require
from evergraph.core.safe_files import scratch_beside
from evergraph.datasets.base import datasets
from evergraph.datasets.fetching import FAILURES, Fetch, ProgressLog, not_readable, record
from evergraph.datasets.importing.edge_table import EdgeTable
from evergraph.datasets.published import PublishedDataset
from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.graph_folder import GraphFolderWriter, is_graph_folder, open_graph_folder

log = logging.getLogger(__name__)
DATA, LABELS = "data.npz", "node-label.npz"
SORT_MEMORY = 10**9
_VALUES = 1 << 22  # at a time
OF_GRAPHS = ("edge", "num-node-list", "num-edge-list", "node-feat", "node-label")  # raw files
OF_NODES = ("features", "labels", "time")  # independent of the direction of edges
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_BYTES_SKIPPED_AT_ONCE = 1 << 24  # bytes


class OgbDataset(PublishedDataset):
    """A node-classification graph of OGB; ``raw`` is where OGB's archive unpacks it."""

    ogb_name: ClassVar[str]

    def check_reader(self) -> None:
        ogb_master(self.ogb_name)

    def read(self, folder: Path) -> Graph:
        master = ogb_master(self.ogb_name)
        with redirect_stdout(sys.stderr):  # ogb prints its progress
            return read_raw(folder / master["download_name"] / "raw", master)


@datasets.register
class Arxiv(OgbDataset):
    """Citations between computer-science papers on arXiv, citing to cited, with years (Hu 2020)."""

    name = "arxiv"
    ogb_name = "ogbn-arxiv"
    raw_files = tuple(map("arxiv/raw/{}.csv.gz".format, (*OF_GRAPHS, "node_year")))


@datasets.register
class Products(OgbDataset):
    """Amazon products bought together, 47 categories (Hu 2020)."""

    name = "products"
    ogb_name = "ogbn-products"
    raw_files = tuple(map("products/raw/{}.csv.gz".format, OF_GRAPHS))


@datasets.register
class Papers(OgbDataset):
    """Citations between 111M papers of all fields, 1.5M of which have one of 172 (Hu 2020).

    The raw files are read once, with about 1.5 GB of memory, into a graph folder that stays on
    disk: ``both-ways``, or ``as-listed``, citing to cited, for runs with ``--directed``. The two
    share their features. The raw files are not needed once a folder exists.
    """

    name = "papers"
    stays_in_files = True
    ogb_name = "ogbn-papers100M"
    raw_files = ("papers100M-bin/raw/data.npz", "papers100M-bin/raw/node-label.npz")
    folders: ClassVar[tuple[str, str]] = ("as-listed", "both-ways")

    def load(self, cache: Path, how: Fetch | None = None) -> Graph:
        return self._cached(cache / self.name, undirected=False, how=how)

    def load_both_ways(self, cache: Path) -> Graph:
        return self._cached(cache / self.name, undirected=True)

    def load_outline(self, cache: Path) -> Graph:
        """Return the undirected graph, as a run uses it, so that it is sorted only once."""
        return self.load_both_ways(cache)

    def _cached(self, root: Path, *, undirected: bool, how: Fetch | None = None) -> Graph:
        folder, other = root / self.folders[undirected], root / self.folders[not undirected]

        def write(writer: GraphFolderWriter) -> None:
            self._provide(root.parent, how)
            like = other if is_graph_folder(other) else None
            try:
                raw = (root / self.raw_files[0]).parent
                write_binary_raw(raw, writer, undirected=undirected, like=like)
            except FAILURES as error:
                raise not_readable(self.name, root, error) from error
            record(root, self.raw_files)

        return cached_graph_folder(folder, write)

    def _provide(self, cache: Path, how: Fetch | None) -> None:
        """Fetch the raw files if needed, and check that they have not changed."""
        raw = self.raw(cache)
        if raw.check(how):
            return
        with raw.locked():
            if not raw.are_cached:
                raw.fetch(Fetch() if how is None else how, lambda aside: None)


def cached_graph_folder(folder: Path, write: Callable[[GraphFolderWriter], None]) -> Graph:
    """Return the graph of a folder, made first if it is missing or damaged.

    It is made in a folder of this process and renamed when complete. A killed process leaves
    nothing that could be taken for a graph, and the next one removes its remains.
    """
    if is_graph_folder(folder):
        try:
            return open_graph_folder(folder)
        except DataError as error:
            log.warning("%s is rebuilt: %s", folder, error)
            shutil.rmtree(folder)
    with scratch_beside(folder) as aside:
        writer = GraphFolderWriter(aside / folder.name)
        write(writer)
        if not is_graph_folder(folder):  # else another process was faster
            shutil.rmtree(folder, ignore_errors=True)
            writer.folder.replace(folder)
    return open_graph_folder(folder)


def ogb_master(name: str) -> dict[str, str]:
    """Return the entry of ``name`` in ogb's table of datasets."""
    require("ogb", extra="ogb", why=f"reading dataset {name!r}")
    import ogb

    table = Path(ogb.__file__).parent / "nodeproppred" / "master.csv"
    with table.open(newline="") as file:
        header, *rows = csv.reader(file)
    column = header.index(name)
    return {row[0]: row[column] for row in rows}


def read_raw(raw: Path, master: dict[str, str]) -> Graph:
    """Return the graph in a folder of OGB's ``.csv.gz`` files."""
    from ogb.io.read_graph_raw import read_csv_graph_raw

    extra = [name for name in master["additional node files"].split(",") if name != "None"]
    inverse = master["add_inverse_edge"] == "True"
    read = read_csv_graph_raw(str(raw), add_inverse_edge=inverse, additional_node_files=extra)[0]
    labels = np.loadtxt(raw / "node-label.csv.gz", dtype=np.int64, delimiter=",", ndmin=1)
    year = read.get("node_year")  # [nodes, 1]
    return Graph.from_edges(
        torch.from_numpy(read["edge_index"]),
        features=torch.from_numpy(read["node_feat"]),
        labels=torch.from_numpy(labels),
        time=None if year is None else torch.from_numpy(year.reshape(-1)),
    )


def write_binary_raw(
    raw: Path, writer: GraphFolderWriter, *, undirected: bool, like: Path | None = None
) -> None:
    """Write the graph of OGB's raw files with about 1.5 GB of memory at any size.

    undirected: whether to add the reverse of every edge; like: a folder with the same nodes, whose
    arrays are shared.
    """
    counts = [
        next(StreamedArray(raw / DATA, f"num_{n}_list").values(2)) for n in ("nodes", "edges")
    ]
    if any(len(count) != 1 for count in counts):
        raise DataError(f"{raw / DATA}: holds more than one graph: expected one")
    nodes, edges = (int(count[0]) for count in counts)
    if like is None:
        _write_nodes(raw, writer, nodes)
    for path in () if like is None else (like / f"{name}.npy" for name in OF_NODES):
        if path.exists():
            try:
                os.link(path, writer.folder / path.name)
            except OSError:  # a file system without hard links
                shutil.copyfile(path, writer.folder / path.name)
    edge_index = StreamedArray(raw / DATA, "edge_index")
    if edge_index.shape != (2, edges):
        raise DataError(
            f"{edge_index.archive}: array 'edge_index' has shape {list(edge_index.shape)}: expected "
            f"{[2, edges]}"
        )
    table = EdgeTable(
        writer.folder / "edges", nodes=nodes, undirected=undirected, memory=SORT_MEMORY
    )
    reading = ProgressLog("reading edges")
    done = 0
    for sources, targets in edge_index.pairs(_VALUES):
        table.add(sources, targets)
        done += len(sources)
        reading.update(done, edges)
    table.write(writer, on_part=ProgressLog("sorting edges").update)
    table.discard()
    writer.finish(undirected=undirected, about={"listed_edges": edges})


def _write_nodes(raw: Path, writer: GraphFolderWriter, nodes: int) -> None:
    """Write labels, years and features, each as it is read."""

    def copied(
        archive: Path, name: str, into: str, convert: Callable[[NDArray[Any], int], NDArray[Any]]
    ) -> None:
        """Copy an array in blocks of rows; change: gets a block and the rows before it."""
        source = StreamedArray(archive, name)
        if not source.shape or source.shape[0] != nodes:
            raise DataError(
                f"{archive}: array {name!r} has shape {list(source.shape)}: expected a row for each "
                f"of {nodes:,} nodes"
            )
        width = source.size // max(nodes, 1)
        is_matrix = into == "features"
        if is_matrix:
            target = writer.create(into, (nodes, width), torch.float32)
        else:
            target = writer.create(into, (nodes,), torch.int64)
        pace = ProgressLog(f"reading {into}")
        done = 0
        for rows in source.rows(max(1, _VALUES // max(width, 1))):
            values = convert(rows if is_matrix else rows[:, 0], done)
            put(target, done, torch.from_numpy(values))
            done += len(rows)
            pace.update(done, nodes)

    def classes(values: NDArray[Any], before: int) -> NDArray[Any]:
        known = values == values  # NaN is no label
        labels = np.where(known, values, UNLABELLED).astype(np.int64)
        wrong = known & ((labels != values) | (labels < 0))
        if wrong.any():
            row = int(wrong.argmax())
            raise DataError(
                f"{raw / LABELS}: node {before + row} has the label {values[row]}: expected a "
                "whole number of at least 0, or NaN"
            )
        return labels

    def finite(rows: NDArray[Any], before: int) -> NDArray[Any]:
        if not np.isfinite(rows).all():
            node = before + int(np.isfinite(rows).all(axis=1).argmin())
            raise DataError(f"{raw / DATA}: a feature of node {node} is not a finite number")
        return rows.astype(np.float32, copy=False)

    copied(raw / LABELS, "node_label", "labels", classes)
    with _archive(raw / DATA) as archive:
        timed = "node_year.npy" in archive.namelist()
    if timed:
        copied(raw / DATA, "node_year", "time", lambda years, _: years.astype(np.int64))
    copied(raw / DATA, "node_feat", "features", finite)


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise DataError(f"{path}: is not an .npz archive ({error})") from None


class StreamedArray:
    """One array of an archive, stored or deflated, read as a stream.

    archive: an ``.npz`` file; name: name of the array.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez_compressed(Path(folder, "a.npz"), x=np.arange(6).reshape(2, 3))
    ...     array = StreamedArray(Path(folder, "a.npz"), "x")
    ...     array.shape, [values.tolist() for values in array.values(2, start=1)]
    ((2, 3), [[1, 2], [3, 4], [5]])
    """

    def __init__(self, archive: Path, name: str) -> None:
        self.archive = archive
        self.name = name
        with self._opened() as stream:
            self.shape, self.by_column, self.dtype = self._header(stream)
        self.size = int(np.prod(self.shape, dtype=np.int64))

    def values(
        self, count: int, *, start: int = 0, stop: int | None = None
    ) -> Iterator[NDArray[Any]]:
        """Yield values, ``count`` at a time, in file order: by row, or ``by_column``."""
        stop = self.size if stop is None else stop
        with self._opened() as stream:
            self._header(stream)
            skip = start * self.dtype.itemsize
            while skip:
                skipped = len(stream.read(min(skip, _BYTES_SKIPPED_AT_ONCE)))
                self._check_more(skipped)
                skip -= skipped
            for first in range(start, stop, count):
                yield self._read(stream, min(count, stop - first))

    def rows(self, count: int) -> Iterator[NDArray[Any]]:
        """Yield ``count`` rows at a time.  [count, width]"""
        width = self.size // max(self.shape[0], 1)
        if self.by_column and width > 1:
            message = f"{self.archive}: array {self.name!r} is stored by column: expected rows"
            raise DataError(message)
        return (values.reshape(-1, width) for values in self.values(count * width))

    def pairs(self, count: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield ``count`` columns at a time of an array of two rows.  2 x [count]"""
        if self.by_column:
            return ((ends[::2], ends[1::2]) for ends in self.values(2 * count))
        middle = self.size // 2
        return zip(self.values(count, stop=middle), self.values(count, start=middle), strict=True)

    def _opened(self) -> IO[bytes]:
        try:
            return _archive(self.archive).open(f"{self.name}.npy")
        except KeyError:
            raise DataError(f"{self.archive}: has no array {self.name!r}") from None

    def _header(self, stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        version = npy.read_magic(stream)
        shape, by_column, dtype = _HEADERS[version](stream)
        if dtype.hasobject:
            raise DataError(f"{self.archive}: array {self.name!r} holds objects, not numbers")
        return shape, by_column, dtype

    def _read(self, stream: IO[bytes], count: int) -> NDArray[Any]:
        values = np.empty(count, self.dtype)
        unread = memoryview(values.view(np.uint8))  # type: ignore[arg-type]
        while len(unread):
            count = stream.readinto(unread)  # type: ignore[attr-defined]
            self._check_more(count)
            unread = unread[count:]
        return values

    def _check_more(self, count: int) -> None:
        if not count:
            raise DataError(f"{self.archive}: array {self.name!r} is truncated")
