"""Tables that are no graph, and machines with too little room, are one sentence."""

import gzip

import pytest

from evergraph.core.errors import DataError, ResourceError
from evergraph.core.resources import Resources
from evergraph.datasets.importing.importing import import_graph
from tables_to_import import EDGES, NODES, tables

MANY = "source,target\n" + "ann,bob\n" * 50


@pytest.mark.usefixtures("in_small_pieces")
@pytest.mark.parametrize(
    ("nodes", "edges", "said"),
    [
        (NODES, MANY + "cid\n", r"edges\.csv: cannot be read .*row 51: Expected 2 columns, got 1"),
        (NODES, MANY + "cid,dan\n", r"edges\.csv: row 51 has target 'dan': expected the id of a"),
        (NODES, MANY + ",ann\n", r"edges\.csv: row 51 has no value in column 'source'"),
        (NODES + "ann,,1,2\n", EDGES, r"nodes\.csv: row 4 repeats id 'ann' of row 1"),
        (NODES + "d,,1,2\n" * 9 + "e,,1,x\n", EDGES,
         r"nodes\.csv: row 13 has 'x' in column 'f': expected a number"),
        ("id,label\na,0\nb,-7\n", EDGES, r"nodes\.csv: row 2 has -7 in column 'label': expected a"),
        ("id,label\na,0\n", "source,target,relation\n" + "a,a,r\n" * 30 + "a,a,\n",
         r"edges\.csv: row 31 has no value in column 'relation'"),
        ("id,label,type\n" + "".join(f"{n},0,t\n" for n in range(30)) + "30,0,\n", EDGES,
         r"nodes\.csv: row 31 has no value in column 'type'"),
        ("id,target\n" + "".join(f"{n},\n" for n in range(30)) + "30,inf\n", EDGES,
         r"nodes\.csv: row 31 has inf in column 'target': expected a finite number, or no value"),
        ("id,labels\na,\nb,;\n", EDGES, r"nodes\.csv: column 'labels' holds no label"),
        ("id,labels,target_x\na,b,1\n", EDGES, r"nodes\.csv: has columns 'labels' and 'target_x'"),
        ("id,f\na,1\n", EDGES, r"nodes\.csv: has no column 'label'"),
    ],
)  # fmt: skip
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
