from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import DataError
from evergraph.datasets.table_folder import read_table_folder
from evergraph.graphs import Graph
from evergraph.tables import Columns

RAW = Columns({"*": "raw"})  # numbers as they are
NODES = "id,label,f\nann,0,1.5\nbob,1,2\ncid,,3\n"
EDGES = "source,target\nann,bob\ncid,bob\n"


def folder_of(path: Path, nodes: str | None = NODES, edges: str | None = EDGES) -> Path:
    for name, text in (("nodes", nodes), ("edges", edges)):
        if text is not None:
            (path / f"{name}.csv").write_text(text)
    return path


def write_tables(folder: Path, graph: Graph, kinds: tuple[str, str], ids: list[Any]) -> None:
    sources, targets = graph.indices.tolist(), graph.edge_rows().tolist()
    nodes = {"id": ids, "label": [None if label < 0 else label for label in graph.labels.tolist()]}
    if graph.time is not None:
        nodes["time"] = graph.time.tolist()
    nodes |= {f"f{i}": graph.features[:, i].tolist() for i in range(graph.num_features)}
    edges = {
        "source": pa.array([ids[node] for node in sources], type=pa.array(ids).type),
        "target": pa.array([ids[node] for node in targets], type=pa.array(ids).type),
        "since": [1.0] * len(sources),
    }
    for name, table, kind in zip(("nodes", "edges"), (nodes, edges), kinds, strict=True):
        write = pyarrow.csv.write_csv if kind == "csv" else pyarrow.parquet.write_table
        write(pa.table(table), str(folder / f"{name}.{kind}"))


def test_hand_made_csv(tmp_path):
    graph = read_table_folder(folder_of(tmp_path), RAW)
    assert graph.neighbours(1).tolist() == [0, 2]
    assert graph.neighbours(0).tolist() == []
    assert graph.labels.tolist() == [0, 1, -1]
    assert graph.features.tolist() == [[1.5], [2], [3]]
    assert graph.time is None


@pytest.mark.parametrize("kinds", [("csv", "parquet"), ("parquet", "csv")])
def test_numbers_as_ids_with_times(tmp_path, tiny, assert_same, kinds):
    write_tables(tmp_path, tiny, kinds, [10, 20, 30, 7])
    assert_same(read_table_folder(tmp_path, RAW), tiny)


@given(data=st.data())
def test_any_graph_survives_the_round_trip(tmp_path_factory, assert_same, data):
    nodes = data.draw(st.integers(1, 6))
    node = st.integers(0, nodes - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=12))
    name = st.text("a0é𝄞 ,;\"'\\", min_size=1, max_size=6)  # what a CSV may trip over
    graph = Graph.from_edges(
        torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T,
        features=torch.tensor(
            data.draw(st.lists(st.floats(-9, 9, width=32), min_size=nodes, max_size=nodes))
        )[:, None],
        labels=torch.tensor(
            data.draw(st.lists(st.integers(-1, 3), min_size=nodes, max_size=nodes))
        ),
    )
    kinds = data.draw(st.tuples(*[st.sampled_from(["csv", "parquet"])] * 2))
    ids = data.draw(st.lists(name, min_size=nodes, max_size=nodes, unique=True))
    folder = tmp_path_factory.mktemp("tables")
    write_tables(folder, graph, kinds, ids)
    assert_same(read_table_folder(folder, RAW), graph)


def test_names_of_classes_are_numbered_in_sorted_order(tmp_path):
    nodes = "id,label\na,pear\nb,apple\nc,\nd,fig\n"
    graph = read_table_folder(folder_of(tmp_path, nodes, "source,target\n"))
    assert graph.labels.tolist() == [2, 0, -1, 1]
    assert graph.features.shape == (4, 0)
    assert graph.num_edges == 0


def test_categories_and_floats_as_pandas_writes_them(tmp_path):
    label = pa.array(["x", None, "y"]).dictionary_encode()
    nodes = pa.table({"id": [1, 2, 3], "label": label, "flag": [True, False, True]})
    pyarrow.parquet.write_table(nodes, str(tmp_path / "nodes.parquet"))
    (tmp_path / "edges.csv").write_text("source,target\n1,3\n")
    graph = read_table_folder(tmp_path)
    assert graph.labels.tolist() == [0, -1, 1]
    assert graph.features.tolist() == [[1], [0], [1]]
    (tmp_path / "nodes.parquet").unlink()
    (tmp_path / "nodes.csv").write_text("id,label\n1,2.0\n2,\n3,0.0\n")
    assert read_table_folder(tmp_path).labels.tolist() == [2, -1, 0]


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        (None, EDGES, "has no table of nodes: expected nodes.csv or nodes.parquet"),
        (NODES, None, "has no table of edges: expected edges.csv or edges.parquet"),
        (NODES, "source,target\nann,bob\nann,dan\n", "edges.csv: row 2 has target 'dan'"),
        (NODES, "source,target\nzoe,bob\n", "edges.csv: row 1 has source 'zoe'"),
        (NODES, "source,target\n,bob\n", "edges.csv: row 1 has no value in column 'source'"),
        (NODES, "from,target\nann,bob\n", "edges.csv: has no column 'source': it has from, target"),
        ("id,f\nann,1\n", EDGES, "nodes.csv: has no column 'label': it has id, f"),
        ("id,label,id\na,1,b\n", EDGES, "nodes.csv: has 2 columns named 'id'"),
        (NODES + "ann,0,1\n", EDGES, "nodes.csv: row 4 repeats id 'ann' of row 1"),
        (NODES + ",0,1\n", EDGES, "nodes.csv: row 4 has no value in column 'id'"),
        (NODES + "dan,0,red\n", EDGES, "nodes.csv: row 4 has 'red' in column 'f': expected a num"),
        (NODES + "dan,0,inf\n", EDGES, "nodes.csv: row 4 has inf in column 'f': expected a finite"),
        (
            NODES + "dan,-2,1\n",
            EDGES,
            "nodes.csv: row 4 has -2 in column 'label': expected a class",
        ),
        (
            NODES + "dan,0.5,1\n",
            EDGES,
            "nodes.csv: row 4 has 0.5 in column 'label': expected a whole number",
        ),
        (
            NODES + "dan,0,1,9\n",
            EDGES,
            "nodes.csv: cannot be read as a table (CSV parse error: row 4:",
        ),
        ("", EDGES, "nodes.csv: cannot be read as a table"),
        ("id,label,time\na,0,x\n", "source,target\n", "row 1 has 'x' in column 'time': expected"),
        ("id,label,time\na,0,1\nb,0,\n", "source,target\n", "row 2 has no value in column 'time'"),
    ],
)
def test_bad_tables(tmp_path, nodes, edges, message):
    with pytest.raises(DataError) as caught:
        read_table_folder(folder_of(tmp_path, nodes, edges))
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_two_tables_of_one_kind_and_ids_that_are_none(tmp_path):
    folder_of(tmp_path)
    table = pa.table({"id": [0.5, 1.5], "label": [0, 1]})
    pyarrow.parquet.write_table(table, str(tmp_path / "nodes.parquet"))
    with pytest.raises(DataError, match=r"both nodes\.csv and nodes\.parquet"):
        read_table_folder(tmp_path)
    (tmp_path / "nodes.csv").unlink()
    with pytest.raises(DataError, match="column 'id' holds double: expected strings or integers"):
        read_table_folder(tmp_path)
