"""Tables in memory are read as those in a folder are: columns of any kind, types, relations."""

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

import evergraph as eg
from evergraph.core.errors import ConfigurationError, DataError, EvergraphError
from evergraph.datasets.importing.importing import import_graph
from evergraph.online.codecs.tables import read_deltas
from evergraph.online.delta import Delta
from evergraph.online.learner import OnlineLearner
from evergraph.tables import Columns

NODES = pd.DataFrame(
    {
        "id": ["a", "b", "c", "d"],
        "label": ["x", None, "y", "x"],
        "type": ["paper", "paper", "author", "author"],
        "age": [30.0, None, 50.0, 20.0],
        "town": ["Ulm", "Bonn", "Ulm", None],
        "since": pd.to_datetime(["2020-01-01", "2021-05-01", None, "2019-02-01"]),
    }
)
EDGES = pd.DataFrame(
    {
        "source": ["a", "b", "c"],
        "target": ["b", "c", "d"],
        "weight": [1.0, 2.0, 0.5],
        "relation": ["cites", "wrote", "knows"],
    }
)


def _polars(*tables: pd.DataFrame) -> Any:
    pl = pytest.importorskip("polars")
    return tuple(pl.from_arrow(pa.Table.from_pandas(table)) for table in tables)


def _arrow(*tables: pd.DataFrame) -> Any:
    return tuple(pa.Table.from_pandas(table) for table in tables)


def _written(folder: Path, nodes: pd.DataFrame, edges: pd.DataFrame) -> Path:
    for name, table in (("nodes", nodes), ("edges", edges)):
        pq.write_table(pa.Table.from_pandas(table), folder / f"{name}.parquet")
    return folder


AS = pytest.mark.parametrize("held", [lambda *tables: tables, _arrow, _polars])


@AS
def test_a_pair_is_read_as_files_are(held, tmp_path):
    columns, files = {"town": "category"}, _written(tmp_path, NODES, EDGES)
    there = eg.load(files, columns=columns)
    found = eg.load(held(NODES, EDGES), columns=columns)
    assert found.features.equal(there.features)
    assert found.features.shape[1] > 3  # flags, a category and a date
    assert found.labels.equal(there.labels)
    assert found.weights.equal(there.weights)
    assert found.types.names == there.types.names == ("paper", "author")
    assert found.relations.names == there.relations.names == ("cites", "wrote", "knows")
    # A model reads a pair as an ingest reads files.
    model = eg.ContinualNodeClassifier(width=16).partial_fit(held(NODES, EDGES))
    learner = _ingested(files, eg.ContinualNodeClassifier(width=16).learner_)
    assert (model.embed(["a", "b", "c", "d"]) == learner.embed(["a", "b", "c", "d"]).numpy()).all()
    assert model.predict(["b"]).tolist() == learner.predict(["b"])
    read = {row["column"]: row["read as"] for row in model.reading_}
    assert set(read) == {"age", "town", "since"}
    assert (read["age"], read["since"]) == ("number", "date")


def _ingested(folder: Path, learner: OnlineLearner) -> OnlineLearner:
    files = (folder / "nodes.parquet", folder / "edges.parquet")
    for delta in read_deltas(*files, columns=Columns()):
        assert isinstance(delta, Delta)
        learner.apply(delta)
    return learner


@pytest.mark.parametrize("undirected", [True, False])
def test_a_graph_keeps_its_types_and_relations_in_a_model(undirected):
    pair, ids = (NODES.assign(label=[0, None, 1, 0]), EDGES), ["a", "b", "c", "d"]
    graph = eg.load(pair, undirected=undirected)
    models = [eg.ContinualNodeClassifier(width=16, undirected=undirected) for _ in range(2)]
    models[0].partial_fit(graph, ids=ids)
    models[1].partial_fit(pair)
    one, other = (model.predict_proba(ids) for model in models)
    assert (one == other).all()
    with pytest.raises(ConfigurationError, match="accepts only repeated as options, not 'columns'"):
        eg.load(graph, columns={"age": "number"})


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("labels", ["x;y", None, ";", "y"], "labels"),
        ("labels", [["x", "y"], None, [], ["y"]], "labels"),
        ("target", [1.5, None, 2.0, 3.0], "numbers"),
    ],
)
def test_a_model_finds_its_targets(name, values, kind, tmp_path):
    nodes = NODES.drop(columns=["label", "type"]).assign(**{name: values})
    edges = EDGES.drop(columns="relation")
    model = eg.ContinualNodeClassifier(width=16, targets=kind).partial_fit((nodes, edges))
    fresh = eg.ContinualNodeClassifier(width=16, targets=kind).learner_
    learner = _ingested(_written(tmp_path, nodes, edges), fresh)
    assert model.status().labelled == 3
    assert list(model.predict(["a", "b", "c"])) == learner.predict(["a", "b", "c"])
    with pytest.raises(DataError, match=f"column '{name}', but the model .* targets='class'"):
        eg.ContinualNodeClassifier(width=16).partial_fit((nodes, edges))
    there = eg.load(_written(tmp_path, nodes, edges))
    found = eg.load((nodes, edges))
    assert found.targets.kind == kind
    torch.testing.assert_close(found.targets.values, there.targets.values, equal_nan=True)
    assert found.features.equal(there.features)


def test_later_tables_are_read_as_the_first_was():
    first, later = NODES.iloc[:3], NODES.iloc[3:]
    model = eg.ContinualNodeClassifier(width=16).partial_fit((first, EDGES.iloc[:2]))
    width = model.status().features
    model.partial_fit((later, EDGES.iloc[2:]))
    assert (model.status().features, model.status().nodes) == (width, 4)
    whole = eg.ContinualNodeClassifier(width=16).partial_fit((first, EDGES.iloc[:2]))
    changed = later.assign(age=99.0)
    whole.partial_fit((changed, EDGES.iloc[2:]))
    model.update_features(["d"], changed.drop(columns=["id", "label", "type"]))
    assert abs(model.embed(["c", "d"]) - whole.embed(["c", "d"])).max() < 1e-5
    with pytest.raises(DataError, match="has no column 'town'"):
        model.partial_fit(NODES.drop(columns="town").assign(id=list("efgh")))
    with pytest.raises(ConfigurationError, match="have a column 'type' as well"):
        model.partial_fit(NODES.assign(id=list("efgh")), types=["paper"] * 4)


LOST = (
    "id,label,f\na,x,1\nb,y,2\nc,x,3\n",
    (
        "source,target,weight,relation\na,b,2,cites\nb,nobody,3,cites\nnobody,c,1,likes\nc,b,4,likes\n"
    ),
)


@pytest.mark.parametrize("way", ["folder", "frames", "import", "model"])
def test_edges_to_unknown_nodes_are_skipped_on_request(way, tmp_path, caplog):
    for name, text in zip(("nodes", "edges"), LOST, strict=True):
        (tmp_path / f"{name}.csv").write_text(text)
    frames = tuple(pd.read_csv(tmp_path / f"{name}.csv") for name in ("nodes", "edges"))

    def taken(**options):
        if way == "folder":
            return eg.load(tmp_path, **options)
        if way == "frames":
            return eg.load(frames, **options)
        if way == "model":
            return eg.ContinualNodeClassifier(width=16).partial_fit(frames, **options)
        paths = (tmp_path / "edges.csv", tmp_path / "nodes.csv", tmp_path / "graph")
        assert import_graph(*paths, **options).unknown_edges == 2
        return eg.load(tmp_path / "graph")

    with pytest.raises(EvergraphError, match="nobody"):
        taken()
    found = taken(unknown_edges="skip")
    said = [record.getMessage() for record in caplog.records]
    (line,) = [line for line in said if "skipped" in line]
    assert line.endswith(": 2 edges join an unknown node: skipped")
    if way == "model":
        assert found.status().edges == 2
        return
    assert found.weights.tolist() == [2, 2, 4, 4]
    assert found.relations.names == ("cites", "likes")
    with pytest.raises(EvergraphError, match="unknown unknown_edges 'drop'"):
        taken(unknown_edges="drop")


SEVERAL = pd.DataFrame(
    {
        "source": ["a", "a", "b", "c", "a"],
        "target": ["c", "c", "c", "a", "c"],
        "weight": [100.0, 250.0, 7.0, 49.0, 1.0],
    }
)


def _entered(way: str, folder: Path, edges: pd.DataFrame, **options: Any) -> eg.Graph:
    """Return the graph of two tables that come in by a way."""
    nodes = pd.DataFrame({"id": ["a", "b", "c"], "label": ["x", "y", "x"], "f": [1.0, 2, 3]})
    place = folder / way
    place.mkdir(exist_ok=True)
    pairs = [["abc".index(node) for node in edges[name]] for name in ("source", "target")]
    weights = torch.tensor(edges["weight"].to_numpy()) if "weight" in edges else None
    if way == "frames":
        return eg.load((nodes, edges), **options)
    if way == "networkx":
        graph = nx.MultiDiGraph()
        graph.add_nodes_from((row.id, {"label": row.label}) for row in nodes.itertuples())
        for row in edges.itertuples(index=False):
            held = {"weight": row.weight} if weights is not None else {}
            graph.add_edge(row.source, row.target, **held)
        return eg.load(graph, **options)
    if way == "scipy":
        values = np.ones(len(edges)) if weights is None else weights.numpy()
        return eg.load(scipy.sparse.coo_array((values, pairs), shape=(3, 3)), **options)
    arrays = {"x": torch.eye(3), "edge_index": torch.tensor(pairs), "y": torch.tensor([0, 1, 0])}
    arrays |= {} if weights is None else {"edge_weight": weights}
    if way == "data":
        return eg.load(Data(**arrays), **options)
    if way == "npz":
        np.savez(place / "mine.npz", **{name: array.numpy() for name, array in arrays.items()})
        return eg.load(place / "mine.npz", **options)
    kind = "csv" if way == "import" else "parquet"
    for name, table in (("nodes", nodes), ("edges", edges)):
        _write = table.to_csv if kind == "csv" else table.to_parquet
        _write(place / f"{name}.{kind}", index=False)
    if way == "parquet":
        return eg.load(place, **options)
    made = place / "graph"
    import_graph(place / "edges.csv", place / "nodes.csv", made, overwrite=True, **options)
    return eg.load(made)


@pytest.mark.parametrize("way", ["parquet", "frames", "import", "networkx", "scipy", "data", "npz"])
def test_rows_that_list_an_edge_again_are_counted_and_combined_by_the_rule(way, tmp_path, caplog):
    def weights(edges: pd.DataFrame = SEVERAL, **options: Any) -> tuple[list[float], str]:
        caplog.clear()
        graph = _entered(way, tmp_path, edges, **options)
        (line,) = [m for m in map(str, caplog.messages) if "an edge again" in m] or [""]
        held = torch.ones(graph.num_edges) if graph.weights is None else graph.weights
        return held.tolist(), line

    # Entries: c into a, c into b, then a and b into c. A direction that is not listed has the
    # weight of the other; what a table lists as c - a is a - c, but not what an array lists.
    table = way in ("parquet", "frames", "import")
    found, line = weights()
    assert found == [49, 7, 1, 7]
    assert "2 of 5 rows list an edge again: the last weight counts" in line
    for rule, there, back, whole in (
        ("sum", 351, 49, 400),
        ("mean", 117, 49, 100),
        ("count", 3, 1, 4),
    ):
        found, line = weights(repeated=rule)
        other = 1 if rule == "count" else 7
        expected = [whole, other, whole, other] if table else [back, other, there, other]
        assert found == pytest.approx(expected)
        assert f"{3 if table else 2} of 5 rows list an edge again" in line
    with pytest.raises(EvergraphError, match=r"again.*: expected each edge once"):
        weights(repeated="refuse")
    with pytest.raises(EvergraphError, match="unknown repeated 'add'"):
        weights(repeated="add")
    assert weights(SEVERAL[2:4], repeated="refuse") == ([49, 7, 49, 7], "")
    plain = SEVERAL.drop(columns="weight")
    assert weights(plain)[0] == [1, 1, 1, 1]
    assert weights(plain, repeated="count")[0] == ([4, 1, 4, 1] if table else [1, 1, 3, 1])


@pytest.mark.parametrize("way", ["parquet", "frames", "import"])
def test_edges_of_different_relations_or_directions_of_one_are_different_edges(way, tmp_path):
    related = SEVERAL.assign(relation=["pays", "pays", "knows", "pays", "knows"])
    graph = _entered(way, tmp_path, related, repeated="sum")
    ends, kinds = graph.relations.edges()
    names = [graph.relations.names[kind] for kind in kinds.tolist()]
    found = zip(*ends.tolist(), names, graph.relations.edge_weights().tolist(), strict=True)
    assert sorted(found) == [
        (0, 2, "knows", 1),
        (0, 2, "pays", 350),
        (1, 2, "knows", 7),
        (2, 0, "pays", 49),
    ]
    assert graph.weights.tolist() == [49, 7, 1, 7]  # of two relations the last
