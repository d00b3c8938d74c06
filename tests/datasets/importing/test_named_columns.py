"""An import keeps several labels, numbers to predict, types of nodes and relations of edges."""

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch

from evergraph.core.errors import ResourceError
from evergraph.datasets.importing import importing
from evergraph.datasets.importing.importing import import_graph
from evergraph.datasets.table_folder import read_table_folder
from evergraph.graphs.graph_folder import open_graph_folder, read_facts
from evergraph.tables import Columns
from tables_to_import import StopError, long_tables, tables

NODES = "id,type,labels,f\nann,author,law;art,1\nbob,paper,,2\ncid,author,;,3\n"
RAW = Columns({"*": "raw"})  # numbers as they are
PLAIN = "a07f5f6b83d4b844e10bff4646e1d41f6c9e0ee3aa29854040f3a1336f8dd9a7"  # before these were kept
EDGES = "source,target,relation,weight\nann,bob,writes,2\nbob,ann,cites,3\nann,bob,writes,5\n"


def test_hand_made(tmp_path):
    report = import_graph(*tables(tmp_path, NODES, EDGES), tmp_path / "g", columns=RAW)
    assert (report.nodes, report.classes, report.features, report.entries) == (3, 0, 1, 2)
    facts = read_facts(tmp_path / "g")
    assert facts["format"] == 2
    assert facts["relations"] == ["writes", "cites"]
    graph = open_graph_folder(tmp_path / "g", verify=True)
    assert graph.targets.names == ("art", "law")
    assert graph.targets.values.nan_to_num(-1).tolist() == [[1, 1], [-1, -1], [0, 0]]
    assert graph.labels.tolist() == [-1, -1, -1]
    assert graph.features.tolist() == [[1], [2], [3]]
    assert graph.types.of(torch.tensor([0, 1, 2])) == ["author", "paper", "author"]
    # ann: bob stands there as who she writes (1), and as who cites her (2); bob the other way.
    assert graph.relations.indptr.tolist() == [0, 2, 4, 4]
    assert graph.relations.indices.tolist() == [1, 1, 0, 0]
    assert graph.relations.kinds.tolist() == [1, 2, 0, 3]
    assert graph.relations.weights.tolist() == [5, 3, 5, 3]
    held = graph.in_memory()
    assert type(held.targets.values) is torch.Tensor
    assert held.subgraph(torch.tensor([2, 0])).targets.values.tolist() == [[0, 0], [1, 1]]


@pytest.mark.usefixtures("in_small_pieces")
def test_parquet_has_lists_and_categories(tmp_path, assert_same):
    nodes = pa.table(
        {
            "id": list(range(12)),
            "labels": [["b", "a"], None, []] * 4,
            "type": pa.array(["x", "y", "x"] * 4).dictionary_encode(),
        }
    )
    pyarrow.parquet.write_table(nodes, tmp_path / "nodes.parquet", row_group_size=5)
    edges = pa.table({"source": [1, 2, 3], "target": [2, 3, 1], "relation": [7, 8, 7]})
    pyarrow.parquet.write_table(edges, tmp_path / "edges.parquet")
    paths = tmp_path / "edges.parquet", tmp_path / "nodes.parquet"
    import_graph(*paths, tmp_path / "g", undirected=False)
    found = open_graph_folder(tmp_path / "g", verify=True)
    assert found.relations.names == ("7", "8")
    assert_same(found, read_table_folder(tmp_path))


def test_plain_tables_make_what_they_made(tmp_path):
    report = import_graph(*tables(tmp_path), tmp_path / "g", columns=RAW)
    facts = read_facts(tmp_path / "g")
    assert list(facts) == ["format", "undirected", "arrays", "sha256", "about"]
    assert facts["format"] == 2
    assert report.checksum == PLAIN


def test_other_tables_are_not_mixed_in(tmp_path):
    edges, nodes = long_tables(tmp_path)

    def stop(stage, done, total):
        if stage == "checksum":
            raise StopError

    with pytest.raises(StopError):
        import_graph(edges, nodes, tmp_path / "g", on_progress=stop)
    for name in ("relation_weights", "weights"):
        assert (tmp_path / "g.partial" / "graph" / f"{name}.npy").exists()
    edges.write_text("source,target\nn0,n1\n")
    stages = []
    report = import_graph(
        edges, nodes, tmp_path / "g", on_progress=lambda stage, *_: stages.append(stage)
    )
    assert (report.edges, report.entries) == (1, 2)
    assert "nodes" not in stages  # those are the same
    found = open_graph_folder(tmp_path / "g")
    assert (found.relations, found.weights) == (None, None)
    assert found.targets is not None  # of nodes, which are the same
    with pytest.raises(StopError):
        import_graph(edges, nodes, tmp_path / "h", on_progress=stop)
    nodes.write_text("id,label,f\nn0,0,1\nn1,1,2\n")
    import_graph(edges, nodes, tmp_path / "h")
    found = open_graph_folder(tmp_path / "h", verify=True)
    assert (found.targets, found.types) == (None, None)


def test_relations_that_do_not_fit_are_refused(tmp_path, monkeypatch):
    paths = tables(tmp_path, NODES, EDGES)
    with monkeypatch.context() as patch:
        patch.setattr(importing, "_BYTES_A_RELATED_EDGE", 1 << 60)
        with pytest.raises(ResourceError, match=r"sorting 3 edges by relation takes at least "):
            import_graph(*paths, tmp_path / "g")
    import_graph(*paths, tmp_path / "g")
    assert open_graph_folder(tmp_path / "g").relations is not None


def test_a_feature_may_be_called_as_an_end_of_edges_is(tmp_path, assert_same):
    nodes = "id,label,source,type\na,x,1.5,2\nb,y,2.5,3\nc,x,3,4\n"  # a type is a text
    paths = tables(tmp_path, nodes, "source,target\na,b\nb,c\n")
    import_graph(*paths, tmp_path / "g", undirected=False, columns=RAW)
    graph = open_graph_folder(tmp_path / "g")
    assert graph.types is None
    assert graph.features.tolist() == [[1.5, 2.0], [2.5, 3.0], [3.0, 4.0]]
    assert_same(graph, read_table_folder(tmp_path, RAW))
