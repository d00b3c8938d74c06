"""One table of nodes means the same whichever way it comes in: ways against cases.

A row of the matrix is a way in (``WAYS``), a column a case (a test below). The first case is tried
with all ways, the others with those that have a reader of their own (``READERS``). Frames of Arrow
and Polars are held against those of pandas in ``test_tables_of_any_kind``, databases against files
in ``test_queries``, tables sent to a service against its rows in ``test_rows``, loaded and imported
graphs against frames and folders in ``test_mixed_columns``.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
import torch

import evergraph as eg
from arrow_bytes import stream
from evergraph.core.errors import EvergraphError
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner
from evergraph.server.app import create_app
from evergraph.tables import Scheme

ROWS = 40
LATER = pd.DataFrame({"id": ["later"], "label": ["x"], "age": [50.0], "income": [2_000.0]})
EDGES = pd.DataFrame({"source": ["n1"], "target": ["n0"]})
NO_EDGES = EDGES.iloc[:0]


def people(**changes: Any) -> pd.DataFrame:
    """Return a table of nodes with two columns of very different sizes."""
    drawn = np.random.default_rng(0)
    columns = {
        "id": [f"n{row}" for row in range(ROWS)],
        "label": ["x", "y"] * (ROWS // 2),
        "age": drawn.normal(40, 12, ROWS).round(2),
        "income": drawn.normal(3_000, 900, ROWS).round(2),
    }
    return pd.DataFrame(columns | changes)


def scaled(table: pd.DataFrame, rows: pd.DataFrame) -> torch.Tensor:
    """Return what rows become by the medians and quartiles of a first table, in plain NumPy."""
    found = []
    for name in ("age", "income"):
        low, median, high = np.quantile(table[name], (0.25, 0.5, 0.75))
        found.append(np.clip((rows[name] - median) / (high - low), -5, 5))
    return torch.tensor(np.stack(found, 1), dtype=torch.float32)


class Way:
    """A way for tables of nodes to come into a learner in the folder ``learner``."""

    repeated = "last"  # the rule for edges that a table lists several times

    def __init__(self, root: Path, call: Any, live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.call, self.live, self.monkeypatch = root, call, live, monkeypatch
        self.served: Any = None
        self.begin()

    def begin(self) -> None:
        with LearnerFolder.open(
            "learner", make=lambda: OnlineLearner(head=AnalyticHead(width=8), topology="identity")
        ):
            pass

    def take(self, nodes: Any, edges: Any = NO_EDGES, *, refused: bool = False) -> str:
        """Take tables in, or be refused; return what was said."""
        raise NotImplementedError

    def known(self) -> tuple[torch.Tensor, list[int], Scheme | None]:
        """Return features and classes of nodes in the order of their coming, and the scheme."""
        if self.served is not None:
            return self._looked(self.served)
        with LearnerFolder.open("learner", readonly=True) as folder:
            return self._looked(folder)

    def names(self) -> list[Any]:
        """Return the names of classes in the order of their coming."""
        with LearnerFolder.open("learner", readonly=True) as folder:
            return list((self.served or folder).learner._knowledge.names)

    @staticmethod
    def _looked(folder: LearnerFolder) -> tuple[torch.Tensor, list[int], Scheme | None]:
        knowledge, nodes = folder.learner._knowledge, folder.learner.status().nodes
        if knowledge is None:
            return torch.zeros(0, 0), [], None
        labels = knowledge.labels.of(torch.arange(nodes)).tolist()
        return knowledge.graph.features[:nodes].clone(), labels, folder.columns

    def _written(self, folder: str, kind: str, **tables: pd.DataFrame) -> list[Path]:
        (self.root / folder).mkdir(exist_ok=True)
        paths = []
        for name, table in tables.items():
            paths.append(self.root / folder / f"{name}.{kind}")
            if kind == "csv":
                table.to_csv(paths[-1], index=False)
            else:
                table.to_parquet(paths[-1], index=False)
        return paths


class Csv(Way):
    kind = "csv"
    target = "learner"

    def take(self, nodes: Any, edges: Any = NO_EDGES, *, refused: bool = False) -> str:
        tables = {"nodes": nodes} if edges.empty else {"nodes": nodes, "edges": edges}
        paths = self._written("sent", self.kind, **tables)
        options = [part for p in paths for part in (f"--{p.stem}", str(p))]
        options += ["--repeated", self.repeated]
        out, err = self.call("ingest", self.target, *options, expect=2 if refused else 0)
        return f"{out}\n{err}"


class Parquet(Csv):
    kind = "parquet"


class Lines(Way):
    def take(self, nodes: Any, edges: Any = NO_EDGES, *, refused: bool = False) -> str:
        rows = [_plain(row) for row in nodes.to_dict("records")]
        lines = [{("node" if k == "id" else k): v for k, v in row.items()} for row in rows]
        for source, target, *weight in edges.itertuples(index=False):
            lines += [{"edge": [source, target]} | ({"weight": weight[0]} if weight else {})]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        self.monkeypatch.setattr("sys.stdin", io.StringIO(text))
        given = ("--repeated", self.repeated)
        out, err = self.call("ingest", "learner", "-", *given, expect=2 if refused else 0)
        return f"{out}\n{err}"


class Frames(Way):
    def take(self, nodes: Any, edges: Any = NO_EDGES, *, refused: bool = False) -> str:
        with eg.ContinualNodeClassifier.open("learner") as model:
            if refused:
                with pytest.raises(EvergraphError) as caught:
                    model.partial_fit((nodes, edges), repeated=self.repeated)
                return str(caught.value)
            model.partial_fit((nodes, edges), repeated=self.repeated)
            return str(model.reading_)


class Http(Way):
    """A service that is sent JSON: rows by name."""

    def begin(self) -> None:
        super().begin()
        self.served = LearnerFolder.open("learner")
        self.url = self.live(create_app(self.served))

    def body(self, nodes: pd.DataFrame, edges: pd.DataFrame) -> dict[str, Any]:
        rows = [_plain(row) for row in nodes.to_dict("records")]
        pairs = edges[["source", "target"]].to_numpy().tolist()
        weights = edges["weight"].tolist() if "weight" in edges else []
        return {"json": {"rows": rows, "edges": pairs, "weights": weights}}

    def take(self, nodes: Any, edges: Any = NO_EDGES, *, refused: bool = False) -> str:
        httpx = pytest.importorskip("httpx")  # unverified: certificates take longer to read
        where = f"{self.url}/v1/deltas?repeated={self.repeated}"
        answer = httpx.post(where, verify=False, **self.body(nodes, edges))
        assert answer.status_code == (422 if refused else 200), answer.text
        return str(answer.json().get("error", ""))


class HttpArrow(Http):
    """A service that is sent tables of Arrow."""

    def body(self, nodes: pd.DataFrame, edges: pd.DataFrame) -> dict[str, Any]:
        tables = [pa.Table.from_pandas(each, preserve_index=False) for each in (nodes, edges)]
        sent = b"".join(stream(table) for table in tables if len(table))
        kind = {"Content-Type": "application/vnd.apache.arrow.stream"}
        return {"content": sent, "headers": kind}


# n0 and n1 four times, once the other way round; n2 and n3 once.
SEVERAL = pd.DataFrame(
    {
        "source": ["n0", "n0", "n2", "n1", "n0"],
        "target": ["n1", "n1", "n3", "n0", "n1"],
        "weight": [100.0, 250.0, 7.0, 49.0, 1.0],
    }
)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value != value else value for name, value in row.items()}


READERS = (Csv, Lines, Frames, Http, HttpArrow)
WAYS = (*READERS, Parquet)


@pytest.fixture(params=READERS, ids=lambda way: way.__name__)
def way(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    call: Any,
    live: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> Way:
    """Each way in, with a learner that knows nothing."""
    made = request.param(tmp_path, call, live, monkeypatch)
    return made


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)  # Arrow sends float32


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__, indirect=True)
def test_columns_are_scaled_as_the_first_were_and_matched_by_name(way, caplog):
    table = people(label=["NULL", "NA", "", None, *["x", "y"] * 18])
    table.insert(0, "Unnamed: 0", np.arange(ROWS)[::-1])  # as pandas writes its index
    said = way.take(table.rename(columns={"label": " label", "age": " age"}), EDGES)
    features, classes, scheme = way.known()
    close(features, scaled(table, table))
    assert scheme.kinds == {"age": "number", "income": "number"}
    assert classes[:4] == [-1] * 4
    assert set(classes[4:]) == {0, 1}
    told = "column 'Unnamed: 0' is ignored: it is the index of a data frame, not a feature"
    assert told in said + caplog.text
    way.take(LATER[["id", "label", "income", "age"]])
    features, _, _ = way.known()
    assert len(features) == ROWS + 1
    close(features[-1:], scaled(table, LATER))
    said = way.take(LATER.rename(columns={"age": "shoe", "income": "zip"}), refused=True)
    assert "has " in said
    assert "'shoe'" in said
    assert "age, income" in said
    assert len(way.known()[0]) == ROWS + 1


def test_numbers_that_stand_for_no_label(way):
    way.take(people(label=[-1, -1.0, None, float("nan"), *[0, 1] * 18]), EDGES)
    _, classes, _ = way.known()
    assert classes[:4] == [-1] * 4
    assert set(classes[4:]) == {0, 1}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__, indirect=True)
def test_booleans_are_the_classes_true_and_false(way):
    way.take(people(label=[True, False] * (ROWS // 2)), EDGES)
    way.take(people(label="true", id=[f"m{row}" for row in range(ROWS)]))  # a text, the same class
    features, classes, _ = way.known()
    assert len(features) == 2 * ROWS
    assert (classes[:2], set(classes[ROWS:])) == ([0, 1], {0})
    assert way.names() == ["true", "false"]


@pytest.mark.parametrize(
    "labels",
    [[True, False], np.array([True, False]), pd.Series([True, False]), torch.eye(2)[0] > 0],
)
def test_booleans_are_the_same_classes_in_python(labels):
    model = eg.ContinualNodeClassifier(width=16)
    model.partial_fit(["a", "b"], np.eye(2), labels, [("a", "b")])
    assert model.classes_.tolist() == ["true", "false"]
    model.label(["b"], labels[:1])
    assert model.score(["a", "b"], [True, True]) == model.score(["a", "b"], ["true", "true"])


def test_booleans_are_classes_of_a_graph(tmp_path):
    adjacency = scipy.sparse.csr_array(np.ones((2, 2)))
    named = eg.datasets.named_graph((adjacency, np.eye(2), [True, False]))
    assert (named.graph.labels.tolist(), named.classes) == ([1, 0], ("false", "true"))
    edge = np.array([[0], [1]])
    np.savez(tmp_path / "two.npz", edge_index=edge, y=np.array([True, False]), x=np.eye(2))
    assert eg.load(tmp_path / "two.npz").labels.tolist() == [1, 0]  # an array has no names


def test_a_missed_label_column_is_said(way, caplog):
    table = people(label=[0, 1] * (ROWS // 2)).rename(columns={"label": "class"})
    said = way.take(table, EDGES) + caplog.text
    assert "has no column 'label'" in said
    assert "if 'class' holds" in said


def test_what_looks_wrong_is_said_and_taken(way, caplog):
    way.take(people(label=["NO", "yes"] * (ROWS // 2)))
    caplog.clear()
    name = type(way).__name__
    cents = LATER.assign(income=2e6, label=f"yes{name}")
    said = way.take(cents)
    said += way.take(cents.assign(id="again", label=f"YES{name}"))
    said += way.take(LATER.assign(id="usual"))
    said = " ".join([said, *caplog.messages])
    assert said.count("column 'income' has values ") == 2
    assert "times as large as those of the first table: is their unit another one?" in said
    assert "column 'age' has values" not in said
    other = f"class 'YES{name}' differs from 'yes{name}' only in case or blanks: they are two"
    assert said.count(other) == 1
    assert way.known()[1][-3:] == [2, 3, 4]


def test_rows_that_list_an_edge_again_are_counted_and_combined_by_the_rule(way, caplog):
    def weights() -> list[float]:
        folder = way.served or LearnerFolder.open("learner", readonly=True)
        graph = folder.learner._knowledge.graph
        found = graph.weights_of(torch.tensor([0, 1, 2]), torch.tensor([1, 0, 3])).tolist()
        if folder is not way.served:
            folder.close()
        return found

    said = way.take(people(), SEVERAL)
    said += " ".join(record.getMessage() for record in caplog.records)
    assert "3 of 5 rows list an edge again: the last weight counts" in said
    assert weights() == [1, 1, 7]
    way.repeated = "sum"  # of the rules; what each comes to is in tests/graphs/test_repeats.py
    way.take(LATER, SEVERAL)  # the edge is known by now, and gets the new weight
    assert weights() == [400, 400, 7]
    way.repeated = "refuse"
    said = way.take(LATER.assign(id="last"), SEVERAL, refused=True)
    assert "lists the edge of" in said
    assert "again: expected each edge once, since repeated is 'refuse'" in said
    if not isinstance(way, Lines):  # of which those before the mistake are applied
        assert weights() == [400, 400, 7]
