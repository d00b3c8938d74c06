"""Columns as they are, from a file or a DataFrame into a learner, and the same rows later."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from evergraph import ContinualNodeClassifier, Graph, load
from evergraph.core.errors import ConfigurationError, DataError, say_once
from evergraph.datasets.importing.importing import import_graph
from evergraph.datasets.table_folder import read_table_folder
from evergraph.online.conversion import as_edges
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.markers import store_columns, stored_columns
from evergraph.tables import Columns, Encoder, Scheme, choices
from evergraph.tables.fitting import fit_scheme
from evergraph.tables.measured import BooleanEncoder
from evergraph.tables.scheme import Column
from evergraph.topology import SGC
from mixed_tables import COLUMNS, mixed_edges, mixed_rows, write_mixed

pytestmark = pytest.mark.usefixtures("narrow_heads")
NODES, MORE = 40, 60
IDS = [f"n{node}" for node in range(MORE)]


def frame(start: int, stop: int) -> pd.DataFrame:
    return pd.DataFrame(mixed_rows(start, stop))


def model(**parameters: Any) -> ContinualNodeClassifier:
    return ContinualNodeClassifier(topology="sgc", head="analytic", width=32, **parameters)


def fitted(one: ContinualNodeClassifier, start: int, stop: int) -> ContinualNodeClassifier:
    rows = frame(start, stop)
    return one.partial_fit(rows["id"], rows[list(COLUMNS)], rows["label"], mixed_edges(start, stop))


def embeddings(scheme: Any) -> torch.Tensor:
    """Return those of all rows, encoded by a scheme and taken as one graph."""
    import pyarrow as pa

    places = {node: place for place, node in enumerate(IDS)}
    pairs = [(places[a], places[b]) for a, b in as_edges(mixed_edges(0, MORE))]
    graph = Graph.from_edges(
        torch.tensor(pairs).t(),
        features=scheme.encode(pa.Table.from_pylist(mixed_rows(0, MORE))),
        labels=torch.zeros(MORE, dtype=torch.int64),
        undirected=True,
    )
    return torch.nn.functional.normalize(SGC().encode(graph))


@pytest.mark.parametrize("door", ["files", "frames"])
def test_later_rows_have_the_embeddings_of_one_graph(call, tmp_path, door):
    if door == "files":
        LearnerFolder.open(
            "learner", {"topology": {"name": "sgc"}, "head": {"name": "analytic", "width": 32}}
        ).close()
        for part, (start, stop) in enumerate([(0, NODES), (NODES, MORE)]):
            nodes, edges = write_mixed(tmp_path, start, stop, f"{part}")
            call("ingest", "learner", "--nodes", str(nodes), "--edges", str(edges), "--batch", "7")
        with LearnerFolder.open("learner", readonly=True) as folder:
            found, scheme = folder.learner.embed(IDS), folder.columns
    else:
        one = fitted(model(), 0, NODES)
        assert [row["read as"] for row in one.reading_] == [
            "text",
            "category",
            "date",
            "number",
            "list",
            "boolean",
        ]
        for node in range(NODES, MORE):
            fitted(one, node, node + 1)
        found, scheme = one.learner_.embed(IDS), one._kept.columns
    assert torch.allclose(found, embeddings(scheme), atol=1e-5, rtol=0)


def test_what_a_killed_process_left_does_not_count(call, tmp_path):
    nodes, _ = write_mixed(tmp_path, 0, 6)
    LearnerFolder.open("learner").close()
    store_columns(Path("learner"), Scheme((Column("f", BooleanEncoder(flag=True)),)))
    call("ingest", "learner", "--nodes", str(nodes))  # would have no column f
    LearnerFolder.open("plain").close()
    store_columns(Path("plain"), Scheme((Column("f", BooleanEncoder(flag=True)),)))
    Path("plain.csv").write_text("id,f\na,7\n")
    call("ingest", "plain", "--nodes", "plain.csv")
    kept = stored_columns(Path("plain"))
    assert kept.kinds == {"f": "number"}


def test_a_first_table_that_is_refused_leaves_no_scheme(call, tmp_path):
    nodes, _ = write_mixed(tmp_path, 0, NODES)
    Path("loose.csv").write_text("source,target\nn0,nobody\n")
    call("ingest", "learner", "--nodes", str(nodes), "--edges", "loose.csv", expect=2)
    assert stored_columns(Path("learner")) is None
    one = ContinualNodeClassifier.open("learner")
    with one, pytest.raises(DataError, match="nobody"):
        one.partial_fit(frame(0, 3)["id"], frame(0, 3)[["score"]], edges=[("n0", "nobody")])
    assert stored_columns(Path("learner")) is None


def test_a_learner_that_began_plain_stays_plain(call, tmp_path):
    Path("plain.csv").write_text("id,label,f\na,x,1\nb,y,2\n")
    with ContinualNodeClassifier.open("learner") as one:
        one.partial_fit(["a", "b"], torch.tensor([[1.0], [2.0]]), ["x", "y"])
    out, err = call("ingest", "learner", "--nodes", "plain.csv", "--json")
    assert json.loads(out)["columns"] == []
    assert "columns are matched by position and not encoded" in err
    assert not Path("learner", "columns.json").exists()
    Path("gap.csv").write_text("id,label,f\nc,x,\n")
    _, err = call("ingest", "learner", "--nodes", "gap.csv", expect=2)
    assert "gap.csv: feature column 'f' holds null: expected numbers" in err
    _, err = call("ingest", "learner", "--nodes", "plain.csv", "--column", "f=text", expect=2)
    assert err == (
        "error: learner: column 'f' cannot be read as 'text': it has been a plain number since the "
        "first table\n"
    )


def test_columns_that_the_first_table_had_not_are_refused(call, tmp_path):
    nodes, _ = write_mixed(tmp_path, 0, NODES)
    call("ingest", "learner", "--nodes", str(nodes))
    more = pd.DataFrame(mixed_rows(NODES, NODES + 1)).assign(venue="afar", open=None)
    more.assign(mood="good").to_csv("more.csv", index=False)
    _, err = call("ingest", "learner", "--nodes", "more.csv", expect=2)
    assert "has a column 'mood' that the first table did not have: expected title, venue" in err
    more.to_csv("more.csv", index=False)
    out, err = call("ingest", "learner", "--nodes", "more.csv", "--json")
    assert json.loads(out)["new_nodes"] == 1
    assert "column 'venue' has 1 new category in 1 row ('afar'): each is encoded by its hash" in err
    assert "column 'open' has 1 gap but had none at first: filled without a flag" in err


def test_an_import_reads_as_a_folder_of_tables_does(tmp_path):
    nodes, edges = write_mixed(tmp_path / "tables", 0, NODES)
    report = import_graph(edges, nodes, tmp_path / "graph")
    there, again = load(tmp_path / "tables"), load(tmp_path / "graph")
    assert torch.equal(there.features, again.features)
    assert [row["column"] for row in report.columns] == list(COLUMNS)
    kept = json.loads((tmp_path / "graph" / "graph.json").read_text())["about"]["columns"]
    assert [column["kind"] for column in kept["columns"]][:2] == ["text", "category"]
    assert import_graph(edges, nodes, tmp_path / "graph").columns == report.columns
    with pytest.raises(DataError, match="is not a graph of these tables"):
        import_graph(edges, nodes, tmp_path / "graph", columns=Columns(kinds={"score": "skip"}))
    with pytest.raises(ConfigurationError, match="fill must be 'median' for an import"):
        import_graph(edges, nodes, tmp_path / "other", columns=Columns(fill="neighbours"))


def test_kinds_that_are_named_and_gaps_that_are_refused_or_filled(tmp_path):
    (tmp_path / "nodes.csv").write_text("id,label,zip,size\na,x,007,1\nb,y,7,\nc,x,007,3\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    zips = read_table_folder(tmp_path, Columns(kinds={"zip": "category"})).features
    assert torch.equal(zips[0, :8], zips[2, :8])
    assert not torch.equal(zips[0, :8], zips[1, :8])  # two texts
    assert zips[:, 8:].tolist() == [[-1, 0], [0, 1], [1, 0]]  # median 2, quartiles 1.5 and 2.5
    with pytest.raises(DataError, match="row 2 has no value in column 'size'"):
        load(tmp_path, columns=Columns(gaps="refuse"))
    (tmp_path / "nodes.csv").write_text("id,label,size\na,x,1\nb,y,\nc,x,3\nd,x,5\ne,x,5\n")
    # Of 1, 3, 5, 5: median 4, quartiles 2.5 and 5; b becomes the mean of a and c, (-1.2 - 0.4) / 2.
    filled = load(tmp_path, columns=Columns(fill="neighbours")).features
    assert torch.allclose(filled[:3, 0], torch.tensor([-1.2, -0.8, -0.4]))
    assert filled[:3, 1].tolist() == [0, 1, 0]


def test_a_folder_asks_for_the_encoder_that_it_was_made_with(tmp_path):
    lengths = Encoder.named("length", version="1", of=lambda texts: [[len(t)] for t in texts])
    with ContinualNodeClassifier.open(tmp_path / "l", columns={"title": lengths}) as one:
        fitted(one, 0, 6)
    said = "need the encoder 'length' of version '1', which is missing: given no encoder"
    with pytest.raises(ConfigurationError, match=said):
        ContinualNodeClassifier.open(tmp_path / "l")
    ContinualNodeClassifier.open(tmp_path / "l", readonly=True).predict(["n1"])
    with ContinualNodeClassifier.open(tmp_path / "l", columns={"title": lengths}) as one:
        fitted(one, 6, 7)
        assert one.reading_[0]["how"] == "by length 1"
    with pytest.raises(ConfigurationError, match="cannot be read as 'text': it has been"):
        ContinualNodeClassifier.open(tmp_path / "l", columns={"title": lengths, "venue": "text"})


@pytest.mark.usefixtures("own_parts")
def test_an_encoder_of_a_plugin_is_found_by_its_name(call, tmp_path, monkeypatch):
    monkeypatch.setattr(choices, "_registered", {})
    nodes, _ = write_mixed(tmp_path, 0, 6)
    Path("mine.py").write_text(
        "from evergraph.tables import Encoder\n"
        "Encoder.named('vowels', version='1', of=lambda texts: [[t.count('a')] for t in texts])"
        ".register()\n"
    )
    asked = ("--column", "title=vowels", "--plugin", "mine.py", "--strict", "--json")
    for new in (6, 0):  # what was said may be said again
        out, _ = call("ingest", "learner", "--nodes", str(nodes), *asked)
        done = json.loads(out)
        assert done["columns"][0]["how"] == "by vowels 1"
        assert (done["new_nodes"], done["other_features"]) == (new, 0)
    _, err = call("ingest", "learner", "--nodes", str(nodes), "--gaps", "refuse", expect=2)
    said = "error: learner: gaps cannot be 'refuse': it has been 'flag' since the first table\n"
    assert err == said


def test_in_a_frame_of_features_only_ids_and_labels_are_none(call, tmp_path, caplog):
    """``time`` says when a node of a table came; among features it is what it measures."""
    labels = ["late" if row % 2 else "soon" for row in range(NODES)]
    rows = {"time": [row % 2 + row / 1000 for row in range(NODES)], "label": labels}
    one = model().partial_fit(IDS[:NODES], pd.DataFrame(rows), labels)
    assert [row["column"] for row in one.reading_] == ["time"]
    assert "column 'label' is ignored" in caplog.text
    one.partial_fit(["new"], pd.DataFrame({"time": [1.0], "label": ["soon"]}))
    assert one.predict(["new"]).tolist() == ["late"]
    one.save(tmp_path / "learner")
    (tmp_path / "later.csv").write_text("id,time\nlast,0.02\n")
    call("ingest", str(tmp_path / "learner"), "--nodes", str(tmp_path / "later.csv"))
    grown = ContinualNodeClassifier.load(tmp_path / "learner")
    assert grown.predict(["last"]).tolist() == ["soon"]


def test_frames_without_names_are_arrays():
    one = model().partial_fit(["a", "b"], pd.DataFrame([[1, 0.5], [2, 7]]), ["x", "y"])
    assert one.reading_ == []
    assert one.learner_._knowledge.graph.features[:2].tolist() == [[1, 0.5], [2, 7]]
    with pytest.raises(ConfigurationError, match="fill must be 'median' for a learner"):
        fitted(model(columns=Columns(fill="neighbours")), 0, 4)
    with pytest.raises(DataError, match="features must be a matrix of numbers"):
        one.partial_fit(["c"], pd.DataFrame({"f": ["red"], "g": [1]}))
    with pytest.raises(DataError, match="finite numbers"):
        one.partial_fit(["c"], pd.DataFrame({"f": [float("nan")], "g": [1.0]}))
    with pytest.raises(DataError, match="row 1 has no value in column 'f'"):
        model(columns=Columns(gaps="refuse")).partial_fit(
            ["c", "d"], pd.DataFrame({"f": [float("nan"), 2.0], "g": [1.0, 3.0]})
        )


def numbers(start: int, stop: int) -> pd.DataFrame:
    rows = np.arange(start, stop)
    return pd.DataFrame({"age": 20.0 + rows * 7 % 40, "income": 3_000.0 + rows * 31 % 700})


def test_arrays_are_taken_by_position_with_one_note(caplog):
    say_once.cache_clear()
    one = model().partial_fit([*range(40)], numbers(0, 40), ["x", "y"] * 20)
    for node in (40, 41):
        one.partial_fit([node], numbers(node, node + 1).to_numpy())
    features = one.learner_._knowledge.graph.features
    assert features[40].tolist() == numbers(40, 41).iloc[0].tolist()  # not scaled
    assert features[:40].abs().max() <= 5
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [message for message in said if message.startswith("features")] == [
        "features: an array has no column names: its columns are matched by position and not "
        "scaled, unlike the columns of a table"
    ]


def test_a_graph_that_its_own_table_scaled_is_refused_later():
    def pair(start, stop):
        nodes = numbers(start, stop).assign(id=[*range(start, stop)], label="x")
        return nodes, pd.DataFrame({"source": [start], "target": [start + 1]})

    first, more = pair(0, 40), pair(40, 80)
    graph = load(first)
    one = model().partial_fit(graph, ids=first[0]["id"])
    assert [row["column"] for row in one.reading_] == ["age", "income"]
    with pytest.raises(DataError, match="scaled by its own table: expected the scale of the first"):
        one.partial_fit(load(more), ids=more[0]["id"])
    one.partial_fit(load(more, columns=graph.columns), ids=more[0]["id"])
    two = model().partial_fit(first).partial_fit(more)
    assert (one.embed([*range(80)]) == two.embed([*range(80)])).all()
    assert load(first).subgraph(torch.tensor([1, 2])).columns == graph.columns
    assert graph.with_features(graph.features * 2).columns is None


def test_a_kind_for_all_columns(call):
    numbers(0, 40).assign(id=[*range(40)]).to_csv("nodes.csv", index=False)
    out, _ = call("ingest", "learner", "--nodes", "nodes.csv", "--column", "*=raw")
    assert out.count("as it is") == 2  # the table of columns is printed
    with LearnerFolder.open("learner", readonly=True) as folder:
        knowledge = folder.learner._knowledge
        assert knowledge.graph.features[3].tolist() == [41, 3_093]
    call("ingest", "learner", "--nodes", "nodes.csv", "--column", "*=raw")  # said again
    _, err = call("ingest", "learner", "--nodes", "nodes.csv", "--column", "age=number", expect=2)
    assert "column 'age' cannot be read as 'number': it has been raw since the first table" in err


def table_delta(ids: str, sizes: list[float]) -> Delta:
    """Return nodes of a table of one column, scaled by its own values."""
    import pyarrow as pa

    table = pa.table({"size": sizes})
    scheme = fit_scheme(table, ["size"])
    return Delta(nodes=ids, features=scheme.encode(table), labels=[None] * len(ids), scheme=scheme)


def test_the_first_table_of_several_that_wait_decides_how_columns_are_read(tmp_path):
    first, other = table_delta("ab", [1.0, 2.0]), table_delta("cd", [10.0, 50.0])
    plain = Delta(nodes="e", features=first.features[:1], labels=[None])
    with LearnerFolder.open(tmp_path / "learner") as folder:
        taken, refused, numbers = folder.submit_many([first, other, plain])
        assert (taken.seq, numbers.seq, folder.columns) == (1, 2, first.scheme)
        assert "another process has fixed how columns are read" in str(refused)
        with pytest.raises(DataError, match="another process has fixed"):
            folder.upsert(other)
    with LearnerFolder.open(tmp_path / "learner") as folder:
        assert folder.columns == first.scheme
    with LearnerFolder.open(tmp_path / "numbers") as folder:
        numbers, refused = folder.submit_many([plain, other])
        assert (numbers.seq, folder.columns) == (1, None)
        assert "began with plain numbers" in str(refused)
