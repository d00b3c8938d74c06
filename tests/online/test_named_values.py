"""Categories, items of lists and words that speak for a class, named by the user's table alone."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import evergraph as eg
from evergraph.tables import Columns
from evergraph.tables.hashed import CategoryEncoder, ListEncoder, TextEncoder, hashes_of

CITIES = ["Oslo", "Oslo", "Rome", "Rome", None, "Oslo"]
TAGS = ["a;b", "a", "b;b", "c", "", "a;c"]
NOTES = ["red wine", "red red car", "a blue car", "Blue", None, "wine, and wine"]
PEOPLE = pd.DataFrame(
    {
        "who": [*"uvwxyz"],
        "kind": ["n", "n", "s", "s", None, None],
        "city": CITIES,
        "tags": TAGS,
        "note": NOTES,
        "age": [30.0, 40.0, 50.0, 60.0, 70.0, 80.0],
    }
)
KINDS = {"city": "category", "tags": "list", "note": "text", "age": "number"}
LINKS = [("u", "v"), ("w", "x"), ("y", "w"), ("z", "u")]
NAMES = {"id": "who", "label": "kind"}


@pytest.mark.parametrize(
    ("kind", "values"), [(CategoryEncoder, CITIES), (ListEncoder, TAGS), (TextEncoder, NOTES)]
)
def test_parts_add_up_to_the_features_of_a_value(kind, values):
    column = pa.array(values)
    encoder = kind.fit(column, "c", Columns(text_width=64))
    features = encoder.encode(column, "c").matrix
    for row, parts in zip(features, encoder.parts(column, "c"), strict=True):
        assert np.allclose(row, sum(parts.values(), np.zeros(len(row))), atol=1e-6)


def test_parts_by_hand():
    items = ListEncoder.fit(pa.array(TAGS), "tags")
    ab, _, bb, _, none, _ = items.parts(pa.array(TAGS), "tags")
    assert [*ab] == ["a", "b"]
    assert np.array_equal(bb["b"], 2 * ab["b"])  # its mean is all of it, not half
    assert none == {}
    words = TextEncoder.fit(pa.array(NOTES), "note", Columns(text_width=64))
    twice = words.parts(pa.array(["red red car"]), "note")[0]
    idf = {"red": 1 + np.log(6 / 3), "car": 1 + np.log(6 / 3)}  # both are in 2 of 5 texts
    assert np.linalg.norm(twice["red"]) == pytest.approx(2 * np.linalg.norm(twice["car"]))
    length = np.hypot(2 * idf["red"], idf["car"])
    assert np.linalg.norm(twice["car"]) == pytest.approx(idf["car"] / length)


@pytest.fixture
def model():
    columns = Columns(kinds=KINDS, text_width=64)
    model = eg.ContinualNodeClassifier(width=32, columns=columns)
    return model.partial_fit(PEOPLE, edges=LINKS, **NAMES)


def test_values_add_up_to_what_their_column_says(model):
    why = model.explain("y", top=2, limit=100, rows=PEOPLE, **NAMES)
    by_column = {each.column: np.array(each.says) for each in why.columns}
    for column in ("city", "tags", "note"):
        own = [np.array(each.says) for each in why.values if each.column == column]
        assert len(own) > 1 or column == "city"
        assert np.allclose(sum(own), by_column[column], atol=1e-5)
    assert {each.value for each in why.values if each.column == "city"} <= {"Oslo", "Rome"}
    assert [each for each in why.values if each.column == "age"] == []
    assert model.explain("y").values is None
    # Only what the table still says of a node is named, and only of nodes in it.
    changed = PEOPLE.assign(city="Bonn")
    assert "city" not in {each.column for each in model.explain("y", rows=changed, **NAMES).values}
    assert model.explain("y", rows=PEOPLE[:0], **NAMES).values == ()


def test_the_command_names_them_by_a_table_and_the_folder_does_not_hold_them(call, narrow_heads):
    PEOPLE.to_csv("people.csv", index=False)
    pd.DataFrame(LINKS, columns=["source", "target"]).to_csv("links.csv", index=False)
    options = ("--nodes", "people.csv", "--id", "who", "--label", "kind")
    kinds = [word for column, kind in KINDS.items() for word in ("--column", f"{column}={kind}")]
    call("ingest", "learner", *options, "--edges", "links.csv", *kinds)
    out, _ = call("explain", "learner", "z", *options)
    assert "Oslo" in out
    told = json.loads(call("explain", "learner", "z", *options, "-n", "50", "--json")[0])
    assert {"Oslo", "wine"} <= {each["value"] for each in told["values"]}
    assert "values" not in json.loads(call("explain", "learner", "z", "--json")[0])
    kept = b"".join(path.read_bytes() for path in Path("learner").rglob("*") if path.is_file())
    assert b"Oslo" not in kept
    assert hashes_of(["Oslo"])[0].encode() in kept
    _, err = call("explain", "http://127.0.0.1:1", "z", *options, expect=2)
    assert "--nodes of explain needs a learner's folder" in err
