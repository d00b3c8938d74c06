"""Tables as strangers have them: gaps in labels, weights of edges, dates, columns of all sizes."""

import logging
import math
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import DataError
from evergraph.datasets.importing import importing
from evergraph.datasets.importing.importing import import_graph
from evergraph.datasets.loading import load
from evergraph.graphs import Graph
from evergraph.tables import Columns
from evergraph.tables.labels import SPELLINGS, label_values, one_label

Read = Callable[..., Graph]
NO_EDGES = "source,target\n"


def read_folder(folder: Path, columns: Columns | None = None) -> Graph:
    return load(folder, undirected=False, columns=columns)


def imported(folder: Path, columns: Columns | None = None) -> Graph:
    nodes, edges = (next(folder.glob(f"{name}.*")) for name in ("nodes", "edges"))
    options = {"undirected": False, "overwrite": True, "columns": columns}
    import_graph(edges, nodes, folder / "graph", **options)
    return load(folder / "graph", undirected=False)


@pytest.fixture(params=[read_folder, imported])
def read(request: pytest.FixtureRequest) -> Read:
    """Both ways to read tables; the rules are the same."""
    reader = request.param
    return reader


@pytest.fixture(autouse=True)
def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import reads 32 bytes at a time, so that no piece knows what the others hold."""
    monkeypatch.setattr(importing, "_LARGEST_PIECE", 32)


def csv_of(folder: Path, nodes: str, edges: str = NO_EDGES) -> Path:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder


def parquet_of(folder: Path, **nodes: Any) -> Path:
    pyarrow.parquet.write_table(pa.table(nodes), str(folder / "nodes.parquet"))
    (folder / "edges.csv").write_text(NO_EDGES)
    return folder


def test_labels_that_are_written_as_missing(tmp_path, read, caplog):
    spelled = ["NULL", "\\N", "NaN", "None", "nan", "null", "NA", "N/A", "n/a", "#N/A", "<NA>", ""]
    rows = "".join(f"m{place},{text}\n" for place, text in enumerate(spelled))
    graph = read(csv_of(tmp_path, f"id,label\na,music\n{rows}b,art\nc,none\nd,Na\n"))
    # Sorted by name: Na, art, music, none. Other spellings are classes.
    assert graph.labels.tolist() == [2, *[-1] * 12, 1, 3, 0]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert said[0].startswith(f"{tmp_path / 'nodes.csv'}: 11 labels are missing, written as '#N/A'")
    assert r"or '\N'" in said[0]
    assert caplog.records[0].levelno == logging.WARNING


def test_numbers_beside_missing_labels_stay_numbers(tmp_path, read, caplog):
    # Columns of several sizes and empty labels are not worth a word.
    nodes = "id,label,f,g,h\na,10,1,3,2999\nb,,2,1,5\nc,9,1,1,1\n"
    assert read(csv_of(tmp_path, nodes)).labels.tolist() == [10, -1, 9]
    assert not caplog.records
    nodes = "id,label\na,10\nb,None\nc,9\nd,\\N\n"
    assert read(csv_of(tmp_path, nodes)).labels.tolist() == [10, -1, 9, -1]


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (pa.array([1.0, float("nan"), None]), [1, -1, -1]),
        (pa.array([1, -1, 0]), [1, -1, 0]),
        (pa.array(["x", "NULL", None]), [0, -1, -1]),
        (pa.array(["10", "9", "None"]), [0, 1, -1]),  # Parquet says that they are names
    ],
)
def test_missing_labels_in_parquet(tmp_path, label, expected):
    assert read_folder(parquet_of(tmp_path, id=[1, 2, 3], label=label)).labels.tolist() == expected


def test_other_columns_of_edges_are_ignored_and_named(tmp_path, read, caplog):
    graph = read(
        csv_of(tmp_path, "id,label\na,0\nb,1\n", "source,weight,target,colour\na,0.5,b,red\n")
    )
    assert graph.weights.tolist() == [0.5]
    (record,) = caplog.records
    said = f"{tmp_path / 'edges.csv'}: column 'colour' is ignored: only source, target"
    assert record.getMessage().startswith(said)
    assert record.getMessage().endswith("of edges are used")


DAY = 86_400


def test_times_of_a_csv(tmp_path, read):
    for first, second, expected in (
        ("2019", "2020.0", [2019, 2020]),
        ("1970-01-03", "1969-12-31", [2 * DAY, -DAY]),
        ("1970-01-01 01:00:00", "1970-01-02", [3600, DAY]),
        ("1970-01-01T00:00:07.9", "1970-01-01T00:00:08", [7, 8]),
        ("1970-01-01T02:00:00+02:00", "1970-01-01T00:00:05Z", [0, 5]),
    )[:: 1 if read is read_folder else 3]:  # an import reads every piece as a folder is read
        graph = read(csv_of(tmp_path, f"id,label,time\na,0,{first}\nb,0,{second}\n"))
        assert graph.time.tolist() == expected


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ([date(1970, 1, 2), date(1969, 12, 31)], [DAY, -DAY]),
        ([datetime(1970, 1, 1, 1), datetime(1970, 1, 1)], [3600, 0]),
        ([datetime(1969, 12, 31, 23, 59, 59, 500_000)] * 2, [-1, -1]),
        ([datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))] * 2, [0, 0]),
        ([2019.0, 2020.0], [2019, 2020]),
    ],
)
def test_times_of_a_parquet(tmp_path, time, expected):
    graph = read_folder(parquet_of(tmp_path, id=["a", "b"], label=[0, 1], time=time))
    assert graph.time.tolist() == expected


def test_what_is_no_time(tmp_path, read):
    for times, said in (
        (("1", "soon"), "row 2 has 'soon' in column 'time': expected a"),
        (("1990", "1991", "1992", "1990-05-05"), "row 4 has '1990-05-05' in column 'time'"),
        (("1", "2.5"), "row 2 has 2.5 in column 'time': expected a whole number"),
        (("1990-05-05", "1990-13-05"), "row 2 has '1990-13-05' in column 'time': expected a"),
        (("noon",), "row 1 has 'noon' in column 'time': expected a whole number, a date or a"),
    )[: 5 if read is read_folder else 2]:
        rows = "".join(f"n{place},0,{time}\n" for place, time in enumerate(times))
        csv_of(tmp_path, f"id,label,time\n{rows}")
        with pytest.raises(DataError, match=rf"nodes\.csv: {said}"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("time", [0.0, float("nan")], "row 2 has nan in column 'time': expected a whole number"),
        ("time", [1, None], "row 2 has no value in column 'time'"),
        ("time", [True, False], "column 'time' holds bool: expected a whole number, a date"),
        ("f", [1.0, float("inf")], "row 2 has inf in column 'f': expected a finite number"),
        ("label", [[1], [2, 3]], "column 'label' holds list<.*>: expected text or integers"),
    ],
)
def test_what_is_refused_in_parquet(tmp_path, name, values, said):
    parquet_of(tmp_path, **{"id": ["a", "b"], "label": [0, 1], name: values})
    with pytest.raises(DataError, match=rf"nodes\.parquet: {said}"):
        read_folder(tmp_path)


def test_a_column_that_drowns_the_others_is_named(tmp_path, read, caplog):
    # The largest values are 2, 3 and 4e6; the median of them is 3.
    csv_of(tmp_path, "id,label,f,g,income\na,0,1,3,-4e6\nb,1,2,1,5\nc,0,0,0,0\n")
    assert read(tmp_path).features.abs().max() <= 5  # scaled, so none drowns the others
    assert not caplog.records
    graph = read(tmp_path, Columns({"*": "raw"}))
    assert graph.features[0].tolist() == [1, 3, -4e6]
    said = {record.getMessage().partition(": ")[2] for record in caplog.records}
    assert said == {
        "feature column 'income' reaches 4e+06, 1,333,333 times what the median column reaches "
        "(3): it drowns the others, so standardise the features"
    }


def test_blanks_around_ids_and_labels_of_a_csv_are_dropped_alike(tmp_path, read, caplog):
    edges = "source,target,relation\n a ,b, knows\nb, c ,knows\n"
    csv_of(tmp_path, "id,label,type,f\na, art,x ,1\nb ,art , x,2\n c,law,x,3\n", edges)
    graph = read(tmp_path)
    assert (graph.class_names, graph.labels.tolist()) == (("art", "law"), [0, 0, 1])
    assert (graph.indices.tolist(), graph.relations.names) == ([0, 1], ("knows",))
    assert graph.types.names == ("x",)
    assert not caplog.records


def test_what_has_types_keeps_the_blanks_around_ids_and_labels(tmp_path, read, caplog):
    parquet_of(tmp_path, id=["a", "a ", "b"], label=["art", "art ", " NA "], f=[1.0, 2, 3])
    assert read(tmp_path).class_names == ("art", "art ")
    said = [record.getMessage().partition(": ")[2] for record in caplog.records]
    twice = "class 'art ' differs from 'art' only in case or blanks: they are two classes"
    assert twice in said


def test_classes_that_differ_in_case_are_named(tmp_path, read, caplog):
    csv_of(tmp_path, "id,label,f\na,VIP,1\nb,vip,2\nc,law,3\n")
    assert read(tmp_path).class_names == ("VIP", "law", "vip")
    (said,) = {record.getMessage().partition(": ")[2] for record in caplog.records}
    assert said == "class 'vip' differs from 'VIP' only in case or blanks: they are two classes"


@pytest.mark.parametrize("more", ["", ",town"], ids=["numbers alone", "beside texts"])
def test_zeros_in_front_of_numbers_are_named(tmp_path, read, caplog, monkeypatch, more):
    monkeypatch.setattr(importing, "_LARGEST_PIECE", 256)  # of 1,000
    town = ",Ulm" if more else ""
    rows = "".join(f"n{n},{n % 2},0{n % 7}234,0.5,{n},00{n}{town}\n" for n in range(40, 80))
    csv_of(tmp_path, f"id,label,zip,share,size,code{more}\n{rows}")
    chosen = {"code": "number", "size": "number"}
    graph = read(tmp_path, Columns(chosen))
    assert graph.columns.kinds["zip"] == "number"
    said = [m for m in caplog.messages if "zeros" in m]
    assert len(said) == 1
    assert "column 'zip' is read as numbers, so '05234' loses its zeros" in said[0]
    assert "if these are codes, give --column zip=category" in said[0]
    caplog.clear()
    read(tmp_path, Columns(chosen | {"zip": "category"}))
    assert not [m for m in caplog.messages if "zeros" in m]


@given(
    st.lists(st.none() | st.text("aN UL-", max_size=4) | st.sampled_from(SPELLINGS), min_size=1)
    | st.lists(st.none() | st.integers(-1, 9), min_size=1)
    | st.lists(st.none() | st.sampled_from([-1.0, 0.0, 2.0, math.nan]), min_size=1)
)
def test_one_label_is_read_as_a_column_of_them(labels):
    column = label_values(pa.array(labels), guess=False).to_pylist()
    assert [one_label(label) for label in labels] == column
