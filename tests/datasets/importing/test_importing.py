"""An import makes what reading the tables in memory makes; tables that are no graph are refused."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import DataError, ResourceError
from evergraph.core.resources import Resources
from evergraph.datasets.importing.importing import import_graph
from evergraph.datasets.table_folder import read_table_folder
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import open_graph_folder, read_facts
from evergraph.tables import Columns
from tables_to_import import EDGES, NODES, tables


def check_same(folder: Path, expected: Graph, assert_same: Any) -> None:
    assert_same(open_graph_folder(folder, verify=True), expected)


def test_hand_made(tmp_path):
    report = import_graph(*tables(tmp_path), tmp_path / "g", columns=Columns({"*": "raw"}))
    assert (report.nodes, report.classes, report.features, report.new) == (3, 2, 1, True)
    # ann-bob is listed both ways, cid-cid is a loop: two edges are left, each there and back.
    assert (report.edges, report.doubles, report.loops, report.entries) == (4, 1, 1, 4)
    graph = open_graph_folder(tmp_path / "g", verify=True)
    assert graph.mapped  # features stay on disk
    assert graph.features.dtype == torch.float32
    assert graph.undirected
    assert [graph.neighbours(node).tolist() for node in range(3)] == [[1], [0, 2], [1]]
    assert graph.labels.tolist() == [0, 1, -1]
    assert graph.time.tolist() == [1, 2, 3]
    assert graph.features.tolist() == [[1.5], [2], [3]]
    assert read_facts(tmp_path / "g")["sha256"] == report.checksum
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.csv", "g", "nodes.csv"]


LABELS = [  # columns, what they hold, and what the last row holds
    (["label"], ["art", "music", "", "NA", 'a "b", c'], "zoo"),
    (["label"], ["0", "1", "7", "", "NA"], "2"),
    (["label"], ["0.0", "2.0", ""], ""),
    (["label"], ["true", "false"], "true"),
    (["label"], ["0", "1", "2", "3", "4"], "late"),
    (["labels"], ["art", "law; art", "", ";", "NA", "b;b"], "zoo"),
    (["target"], ["1", "-2.5", "", "NA"], "7"),
    (["target", "target_height"], ["", "3e2"], "7"),
]

IDS: dict[str, Callable[[int], str]] = {
    "dense": lambda node: str(node + 5),
    "sparse": lambda node: str(1000 ** (node % 5) + node),
    "text": lambda node: f"n{node}",
    "zeros before": lambda node: "0" * (node % 3) + str(node),
}


@pytest.mark.usefixtures("in_small_pieces")
@given(data=st.data())
def test_same_as_in_memory(tmp_path_factory, assert_same, data):
    folder = tmp_path_factory.mktemp("import")
    count = data.draw(st.integers(1, 9))
    name = IDS[data.draw(st.sampled_from(sorted(IDS)))]
    ids = [name(node) for node in range(count)]
    columns = {"id": ids}

    def fill(name, values):
        columns[name] = data.draw(
            st.lists(st.sampled_from(values), min_size=count, max_size=count), label=name
        )

    named, values, last = data.draw(st.sampled_from(LABELS))
    for each in named:
        fill(each, values)
        columns[each][-1] = last
    if data.draw(st.booleans()):
        fill("time", ["3", "4.0", str(2**60)])
    if data.draw(st.booleans()):
        fill("f", ["1", "-2.5", "3e2"])
        fill("g", ["true", "false"])
    if data.draw(st.booleans()):
        fill("type", ["b", "a", "7"])
        columns["type"][0] = "c"
    node = st.sampled_from(ids)
    edge = st.tuples(
        node, node, st.sampled_from(["0", "1", "2.5", "3e-2"]), st.sampled_from(["z", "y", "1"])
    )
    edges = data.draw(st.lists(edge, max_size=30))
    known = ["source", "target", "weight", "relation"][: data.draw(st.integers(2, 4))]
    ends = {name: [edge[place] for edge in edges] for place, name in enumerate(known)}
    for file, table in (("nodes", columns), ("edges", ends | {"w": ["x"] * len(edges)})):
        texts = pa.table({key: pa.array(values, pa.string()) for key, values in table.items()})
        pyarrow.csv.write_csv(texts, folder / f"{file}.csv")
    undirected = data.draw(st.booleans())
    import_graph(folder / "edges.csv", folder / "nodes.csv", folder / "g", undirected=undirected)
    expected = read_table_folder(folder)
    check_same(folder / "g", expected.to_undirected() if undirected else expected, assert_same)


@pytest.mark.usefixtures("in_small_pieces")
@pytest.mark.parametrize(
    ("node_kind", "edge_kind", "numbers"),
    [("csv", "parquet", True), ("parquet", "csv.gz", True), ("csv.gz", "parquet", False)],
)
def test_every_kind_of_file(tmp_path, assert_same, node_kind, edge_kind, numbers):
    ids = [10, 20, 30, 7] if numbers else ["a", "b", "007", "7"]
    nodes = {"id": ids, "label": [3, None, 0, 1], "time": [2, 1, 0, 9], "f": [1.0, 2.0, 3.0, 4.0]}
    ends = np.random.default_rng(0).integers(4, size=(2, 50))
    edges = {
        name: [ids[e] for e in row] for name, row in zip(("source", "target"), ends, strict=True)
    }
    for name, table, kind in (("nodes", nodes, node_kind), ("edges", edges, edge_kind)):
        plain = tmp_path / f"{name}.{'parquet' if kind == 'parquet' else 'csv'}"
        if kind == "parquet":
            pyarrow.parquet.write_table(pa.table(table), plain, row_group_size=17)
        else:
            pyarrow.csv.write_csv(pa.table(table), plain)
            (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    import_graph(tmp_path / f"edges.{edge_kind}", tmp_path / f"nodes.{node_kind}", tmp_path / "g")
    check_same(tmp_path / "g", read_table_folder(tmp_path).to_undirected(), assert_same)


def test_a_graph_that_is_there(tmp_path):
    edges, nodes = tables(tmp_path)
    first = import_graph(edges, nodes, tmp_path / "g")
    again = import_graph(edges, nodes, tmp_path / "g")
    assert (again.new, again.checksum, again.seconds) == (False, first.checksum, first.seconds)
    with pytest.raises(DataError, match="g: exists and is not a graph of these tables"):
        import_graph(edges, nodes, tmp_path / "g", undirected=False)
    replaced = import_graph(edges, nodes, tmp_path / "g", undirected=False, overwrite=True)
    assert (replaced.new, replaced.doubles, replaced.loops, replaced.entries) == (True, 0, 1, 3)
    found = open_graph_folder(tmp_path / "g")
    assert (found.num_edges, found.undirected) == (3, False)
    assert not (tmp_path / "g.partial").exists()
    os.truncate(tmp_path / "g" / "indices.npy", 130)
    with pytest.raises(DataError, match=r"indices\.npy: has 130 bytes instead of"):
        import_graph(edges, nodes, tmp_path / "g", undirected=False)


def test_what_is_no_graph_is_never_replaced(tmp_path):
    paths = tables(tmp_path)
    (tmp_path / "dear").mkdir()
    (tmp_path / "dear" / "letter.txt").write_text("keep")
    for overwrite in (False, True):
        with pytest.raises(DataError, match=r"dear: (exists and is not|is not) a graph"):
            import_graph(*paths, tmp_path / "dear", overwrite=overwrite)
    assert (tmp_path / "dear" / "letter.txt").read_text() == "keep"


MANY = "source,target\n" + "ann,bob\n" * 50


@pytest.mark.usefixtures("in_small_pieces")
@pytest.mark.parametrize(
    ("nodes", "edges", "said"),
    [
        (NODES, MANY + "cid\n", r"edges\.csv: cannot be read .*row 51: Expected 2 columns, got 1"),
        (NODES, MANY + "cid,dan\n", r"edges\.csv: row 51 has target 'dan': expected the id of a"),
        (NODES + "ann,,1,2\n", EDGES, r"nodes\.csv: row 4 repeats id 'ann' of row 1"),
        (
            NODES + "d,,1,2\n" * 9 + "e,,1,x\n",
            EDGES,
            r"nodes\.csv: row 13 has 'x' in column 'f': expected a number",
        ),
        (
            "id,label\na,0\n",
            "source,target,relation\n" + "a,a,r\n" * 30 + "a,a,\n",
            r"edges\.csv: row 31 has no value in column 'relation'",
        ),
        (
            "id,label,type\n" + "".join(f"{n},0,t\n" for n in range(30)) + "30,0,\n",
            EDGES,
            r"nodes\.csv: row 31 has no value in column 'type'",
        ),
        (
            "id,target\n" + "".join(f"{n},\n" for n in range(30)) + "30,inf\n",
            EDGES,
            r"nodes\.csv: row 31 has inf in column 'target': expected a finite number, or no value",
        ),
        ("id,labels\na,\nb,;\n", EDGES, r"nodes\.csv: column 'labels' holds no label"),
        ("id,labels,target_x\na,b,1\n", EDGES, r"nodes\.csv: has columns 'labels' and 'target_x'"),
    ],
)
def test_bad_tables_are_one_sentence(tmp_path, nodes, edges, said):
    """What one row shows is tried in memory, in test_table_folder.py: there is one reader."""
    with pytest.raises(DataError, match=said) as caught:
        import_graph(*tables(tmp_path, nodes, edges), tmp_path / "g")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "g").exists()


def test_files_that_are_no_tables(tmp_path):
    edges, nodes = tables(tmp_path)
    with pytest.raises(DataError, match=r"gone\.csv: no such file"):
        import_graph(tmp_path / "gone.csv", nodes, tmp_path / "g")
    (tmp_path / "edges.txt").write_text(EDGES)
    with pytest.raises(DataError, match=r"is not a supported table: .+\.csv or \.csv\.gz or"):
        import_graph(tmp_path / "edges.txt", nodes, tmp_path / "g")
    packed = gzip.compress(edges.read_bytes())
    for contents in (packed[:-9], b"no gzip"):
        (tmp_path / "e.csv.gz").write_bytes(contents)
        with pytest.raises(DataError, match=r"e\.csv\.gz: cannot be read as a table"):
            import_graph(tmp_path / "e.csv.gz", nodes, tmp_path / "g")
    (tmp_path / "e.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(DataError, match=r"e\.parquet: cannot be read as a table"):
        import_graph(tmp_path / "e.parquet", nodes, tmp_path / "g")


def test_too_little_memory_is_said(tmp_path):
    with pytest.raises(ResourceError, match="an import takes at least 32 MB, but only 0 MB"):
        import_graph(*tables(tmp_path), tmp_path / "g", resources=Resources(memory_limit=10**6))
    assert not (tmp_path / "g").exists()
