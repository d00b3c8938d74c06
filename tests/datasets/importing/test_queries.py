"""Imports from databases (SQLite, DuckDB, SQLite through ADBC) and from object storage."""

import json
import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.datasets import load
from evergraph.datasets.importing.importing import InputFile, import_graph
from evergraph.tables.chunks import read_chunks
from evergraph.tables.sources import Query, StoredFile

NODES = "select id, label, f, g from papers order by id"
EDGES = "select source, target, weight from cites"
ROWS = [(f"n{i}", None if i % 5 == 4 else "xy"[i % 2], i, i / 4) for i in range(20)]
CITES = [
    (f"n{a}", f"n{b}", 0.5 + a) for a, b in np.random.default_rng(0).integers(20, size=(40, 2))
]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "graph.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table papers (id text, label text, f integer, g real)")
        connection.executemany("insert into papers values (?, ?, ?, ?)", ROWS)
        connection.execute("create table cites (source text, target text, weight real)")
        connection.executemany("insert into cites values (?, ?, ?)", CITES)
    connection.close()
    return path


def as_files(folder: Path) -> tuple[Path, Path]:
    nodes, edges = folder / "n.csv", folder / "e.csv"
    listed = sorted(ROWS)  # as the query orders them
    text = "".join(f"{i},{'' if label is None else label},{f},{g}\n" for i, label, f, g in listed)
    nodes.write_text("id,label,f,g\n" + text)
    edges.write_text("source,target,weight\n" + "".join(f"{s},{t},{w}\n" for s, t, w in CITES))
    return edges, nodes


def test_a_query_makes_the_graph_that_files_make(database, tmp_path, assert_same, call):
    import_graph(*as_files(tmp_path), tmp_path / "one")
    queries = ("--nodes", NODES, "--edges", EDGES + ";")
    out, _ = call("import", "--from", f"sqlite:{database}", *queries, "--out", "other", "--json")
    assert (json.loads(out)["nodes"], json.loads(out)["edges"]) == (20, 40)
    assert_same(load("other"), load(str(tmp_path / "one")))
    out, _ = call("import", "--from", f"sqlite:{database}", *queries, "--out", "other")
    assert "which already existed" in out
    with sqlite3.connect(database) as connection:
        connection.execute("insert into cites values ('n1', 'n2', 7)")
    connection.close()
    _, err = call("import", "--from", f"sqlite:{database}", *queries, "--out", "other", expect=2)
    assert "exists and is not a graph of these tables" in err


def test_rows_come_in_batches(database):
    query = Query.of(f"sqlite:{database}", NODES)
    pieces = list(read_chunks(query, ("id",), size=16 * 4 * 6))  # 4 columns: 6 rows
    assert [piece.table.num_rows for piece in pieces] == [0, 6, 6, 6, 2]
    assert [piece.done for piece in pieces] == [0, 6, 12, 18, 20]
    assert {piece.total for piece in pieces} == {20}
    assert [piece.before for piece in pieces[1:]] == [0, 6, 12, 18]
    kinds = ["string", "string", "int64", "double"]
    assert [str(kind) for kind in pieces[0].table.schema.types] == kinds
    mixed = "select 1 id, 1 f, null gap union all select 'b', 2.5, null"
    (_, rows) = read_chunks(Query.of(f"sqlite:{database}", mixed), (), size=99)
    # A column of several types has the widest of them.
    assert rows.table.to_pydict() == {"id": ["1", "b"], "f": [1.0, 2.5], "gap": [None, None]}


@pytest.mark.parametrize(
    ("source", "sql", "said"),
    [
        ("sqlite:{}", "select absent", "SQLite reports: no such column: absent"),
        ("sqlite:{}", "select id as a from papers", "has no column 'id': it has a"),
        ("sqlite:{}", "delete from papers", "SQLite reports: near"),
        ("sqlite:gone.db", "select 1", "gone.db: no such file"),
    ],
)
def test_mistakes_in_a_query(database, source, sql, said):
    query = Query.of(source.format(database), sql)
    edges = Query.of(source.format(database), EDGES)
    with pytest.raises(DataError, match=said):
        import_graph(edges, query, database.with_name("out"))
    with sqlite3.connect(database) as connection:
        assert connection.execute("select count(*) from papers").fetchone() == (20,)
    connection.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--from", "mysql:x", "--nodes", "a", "--edges", "b"), "unknown database 'mysql'"),
        (("--from", "adbc:x", "--nodes", "a", "--edges", "b"), "must be adbc:DRIVER:URI"),
        (("--from", "sqlite:", "--nodes", "a", "--edges", "b"), "must name a file"),
        (("--from", "sqlite:x", "--nodes", "a"), "--from needs the queries"),
        (("e.csv",), "import needs a file of edges and one of nodes, or --from"),
    ],
)
def test_mistakes_on_the_command_line(call, arguments, said):
    assert said in call("import", *arguments, "--out", "g", expect=2)[1]


def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "g.db").touch()
    for kind, package in (("duckdb", "duckdb"), ("adbc:driver", "adbc_driver_manager")):
        monkeypatch.setattr("evergraph.core.packages.installed", package.__ne__)
        query = Query.of(f"{kind}:{tmp_path / 'g.db'}", "select 1")
        with pytest.raises(
            ConfigurationError, match=rf"needs the package {package}.*evergraph\[sql\]"
        ):
            list(read_chunks(query, (), size=100))


def test_passwords_are_not_shown():
    query = Query.of("adbc:libpostgres.so:postgresql://me:secret@host/g", "select 1")
    assert "secret" not in f"{query} {query!r} {InputFile.of(query)}"


def test_other_databases_for_real(database, tmp_path, assert_same):
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("adbc_driver_sqlite")
    nodes = pa.table(list(map(pa.array, zip(*ROWS, strict=True))), ["id", "label", "f", "g"])
    edges = pa.table(list(map(pa.array, zip(*CITES, strict=True))), ["source", "target", "weight"])
    with duckdb.connect(str(tmp_path / "duck.db")) as connection:
        connection.register("n", nodes)
        connection.register("e", edges)
        connection.execute("create table papers as select id, label, f, g::decimal(9, 2) g from n")
        connection.execute("create table cites as select * from e")
    import_graph(*as_files(tmp_path), tmp_path / "files")
    for source, said in (
        (f"duckdb:{tmp_path / 'duck.db'}", "DuckDB reports: .*gone"),
        (
            f"adbc:adbc_driver_sqlite:file:{database}?mode=ro",
            "adbc_driver_sqlite reports: .*no such table: gone",
        ),
    ):
        out = tmp_path / source.split(":")[0]
        import_graph(Query.of(source, EDGES), Query.of(source, NODES), out)
        assert_same(load(str(out)), load(str(tmp_path / "files")))
        with pytest.raises(DataError, match=said):
            list(read_chunks(Query.of(source, "select * from gone"), (), size=99))


@pytest.fixture
def addresses(tmp_path: Path) -> tuple[str, str]:
    nodes = {"id": list(range(6)), "label": [0, 0, 1, 1, 2, 2], "f": [0.5 * n for n in range(6)]}
    edges = {"source": [0, 1, 2, 3], "target": [1, 2, 3, 4]}
    for name, columns in (("nodes", nodes), ("edges", edges)):
        parquet.write_table(pa.table(columns), tmp_path / f"{name}.parquet", row_group_size=2)
    return f"file://{tmp_path}/edges.parquet", f"file://{tmp_path}/nodes.parquet"


def test_import_by_address_gives_the_graph_of_the_files(call, addresses):
    stored = json.loads(call("import", *addresses, "--out", "a", "--json")[0])
    files = (address.removeprefix("file://") for address in addresses)
    plain = json.loads(call("import", *files, "--out", "b", "--json")[0])
    assert stored["checksum"] == plain["checksum"]
    assert stored["entries"] == 8
    assert "a, which already existed" in call("import", *addresses, "--out", "a")[0]
    with StoredFile(addresses[0]).open() as file:  # so that only what is asked for is read
        assert file.seekable()
        assert file.size() == StoredFile(addresses[0]).state()[0]


def test_what_cannot_be_read_is_one_sentence(call, addresses):
    edges, nodes = addresses
    for wrong, said in (
        (nodes.replace("nodes", "none"), "none.parquet: no such file"),
        ("nowhere://b/n.parquet", "nowhere://b/n.parquet: cannot be reached"),
        ("s3://b/n.csv", "s3://b/n.csv: only .parquet is read from object storage"),
    ):
        _, err = call("import", edges, wrong, "--out", "g", expect=2)
        assert said in err
        assert len(err.strip().splitlines()) == 1
