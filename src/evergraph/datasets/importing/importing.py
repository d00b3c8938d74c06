"""Tables of nodes and edges of any size into a graph folder."""

from __future__ import annotations

import logging
import shutil
from functools import partial
from pathlib import Path

from evergraph.core.checks import check_choice
from evergraph.core.errors import DataError
from evergraph.core.extras import require
from evergraph.core.file_lock import one_at_a_time
from evergraph.core.notices import say
from evergraph.core.resources import Resources
from evergraph.datasets.columns.choices import Columns
from evergraph.datasets.files.assembly import naming
from evergraph.datasets.files.table_folder import UNKNOWN_EDGES, say_edges_unread, say_skipped
from evergraph.datasets.files.table_relations import RELATION
from evergraph.datasets.importing.chunks import columns_of
from evergraph.datasets.importing.progress import ImportReport, InputFile, Inputs, inputs_of
from evergraph.datasets.importing.queries import Source
from evergraph.datasets.importing.stages import ImportStages, OnProgress, columns_told
from evergraph.graphs.graph_folder import is_graph_folder, open_graph_folder, read_facts

logger = logging.getLogger(__name__)


def import_graph(
    edges: Source,
    nodes: Source,
    out: Path,
    *,
    undirected: bool = True,
    resources: Resources | None = None,
    on_progress: OnProgress | None = None,
    overwrite: bool = False,
    columns: Columns | None = None,
    unknown_edges: str = "refuse",
) -> ImportReport:
    """Make a graph folder from a table of edges and one of nodes, in bounded memory.

    The tables are those of ``read_table_folder`` and so is the graph; each may be ``.csv``,
    ``.csv.gz`` or ``.parquet``. Work goes on in ``out`` with ``.partial`` behind its name. After a
    crash the same call goes on there with the first stage that was not finished, and what comes out
    is the same to the bit.

    Args:
        edges: the table of edges, or a query to a database that gives it; a CSV that is not written
            in the usual way is a ``CsvTable``.
        nodes: the table of nodes, likewise.
        out: the folder to make.
        undirected: whether every edge is to run both ways.
        resources: how much memory to use.
        on_progress: is told the stage, how much of it is done and how much there is.
        overwrite: whether a graph that is there already is replaced.
        columns: how columns of nodes are read, where it is not to be guessed.
        unknown_edges: what becomes of edges to nodes that are not in the table: ``refuse`` raises,
            ``skip`` leaves them out and counts them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     tables = Path(place)
    ...     _ = (tables / "n.csv").write_text("id,label,x\\na,art,1\\nb,art,2\\nc,music,3\\n")
    ...     _ = (tables / "e.csv").write_text("source,target\\na,b\\nb,a\\nc,b\\nc,c\\n")
    ...     report = import_graph(tables / "e.csv", tables / "n.csv", tables / "graph")
    ...     report.nodes, report.edges, report.doubles, report.loops, report.entries
    ...     open_graph_folder(tables / "graph")
    (3, 4, 1, 1, 4)
    Graph(nodes=3, edges=4, features=1, classes=2)
    """
    for name in ("pyarrow", "duckdb"):
        require(name, extra="tables", why=f"importing {nodes}")
    if columns is not None:
        columns.check_fill("an import", "it reads a table in pieces")
    chosen = {} if columns is None or columns == Columns() else columns.to_json()
    check_choice("unknown_edges", unknown_edges, UNKNOWN_EDGES)
    about = partial(Inputs, undirected=undirected, columns=chosen, unknown_edges=unknown_edges)
    inputs = about(InputFile.of(nodes), InputFile.of(edges))
    if not overwrite and out.exists():
        return _there_already(out, inputs)
    if out.exists() and not is_graph_folder(out):
        raise DataError(f"{out}: is no graph folder, so it is not replaced")
    folder = out.with_name(f"{out.name}.partial")
    with one_at_a_time(folder):
        work = ImportStages(
            folder=folder,
            inputs=inputs,
            resources=Resources() if resources is None else resources,
            on_progress=on_progress or (lambda stage, done, total: None),
            columns=columns,
        )
        with naming(nodes):
            found = work.read_nodes(nodes)
        with naming(edges):
            work.read_edges(edges, found)
        work.sort(found)
        if inputs != about(InputFile.of(nodes), InputFile.of(edges)):
            raise DataError(f"{nodes} or {edges} has changed while it was read: import them again")
        report = work.finish(found, out)
    say_edges_unread(edges, columns_of(edges), known=(RELATION,))
    say_skipped(edges, report.unknown_edges)
    if found.loud is not None:
        say(nodes, found.loud)
    return report


def _there_already(out: Path, inputs: Inputs) -> ImportReport:
    about = read_facts(out).get("about", {}) if is_graph_folder(out) else {}
    if "inputs" not in about or inputs_of(about["inputs"]) != inputs:
        raise DataError(
            f"{out}: is there already and is no graph of these tables: choose another folder, or "
            "replace it with --overwrite"
        )
    open_graph_folder(out)  # whole, as far as sizes tell
    shutil.rmtree(out.with_name(f"{out.name}.partial"), ignore_errors=True)
    logger.info("%s: holds the graph of these tables already", out)
    told = columns_told(about.get("columns"))
    checksum = read_facts(out)["sha256"]
    return ImportReport(**about["report"], checksum=checksum, new=False, columns=told)
