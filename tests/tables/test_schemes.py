"""A table's scheme: kinds guessed or chosen, rows read alike whenever they come, and kept as JSON."""

import json
import math
import re
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.cli.inputs import ColumnKinds
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.datasets.table_folder import read_table_folder
from evergraph.tables import Columns, Scheme
from evergraph.tables.fitting import fit_scheme
from evergraph.tables.measured import BooleanEncoder
from evergraph.tables.values import column_kinds
from mixed_tables import COLUMNS, mixed_rows


@pytest.mark.parametrize(
    ("values", "typed", "kind"),
    [
        (["1", "2", ""], False, "number"),
        (["true", "FALSE"], False, "boolean"),
        (["2020-01-02", "2021-01-02 03:04:05"], False, "date"),
        (["2020", "2021"], False, "number"),
        (["red", "green", "red"], False, "category"),
        (["007", "7"], True, "category"),
        (["a|b", "b|c", "c"], False, "list"),
        ([["a"], []], True, "list"),
        (["many words in a row", "other words in a row"], False, "text"),
        ([f"user{n}" for n in range(30)], False, "skip"),
        ([str(n) for n in range(30)], False, "number"),  # the only column there is
        (["", None], False, "skip"),
    ],
)
def test_kinds_are_guessed(values, typed, kind):
    scheme = fit_scheme(pa.table({"f": values}), ["f"], typed=typed)
    assert scheme.columns[0].encoder.name == kind


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["3,5", "-4,25"] * 20, "such as '3,5', but is read as a category: write 3.5, or give --d"),
        ([f"{n},5" for n in range(40)], "such as '0,5', but is left out as an id: write 3.5, or"),
        (["12/31/2024", "1/2/2024"] * 20, "such as '12/31/2024', but is read as a category: write"),
        (["31.12.24", "01.02.25"] * 20, "dates such as '31.12.24', but is read as a category: wr"),
    ],
)
def test_numbers_and_dates_read_as_names_are_said(values, said, caplog):
    fit_scheme(pa.table({"f": values}), ["f"], typed=False, where="t.csv")
    (record,) = caplog.records
    assert record.getMessage().startswith("t.csv: column 'f' looks like ")
    assert said in record.getMessage()
    caplog.clear()
    fit_scheme(pa.table({"f": ["red, 3", "1/2", "8,000 Zurich"] * 20}), ["f"], typed=False)
    fit_scheme(pa.table({"f": values}), ["f"], Columns(kinds={"f": "category"}), typed=False)
    assert not caplog.records


def test_what_looks_like_an_id_or_a_label_is_said(caplog):
    labels = pa.array(["x", "y", "z"] * 10)
    table = pa.table(
        {
            "ticket": [f"T-{n}" for n in range(30)],
            "code": ["1", "2", "3"] * 10,
            "colour": ["red", "red", "blue", "blue", "red"] * 6,
        }
    )
    scheme = fit_scheme(table, table.column_names, labels=labels, where="t.csv")
    assert [each.encoder.width for each in scheme.columns] == [0, 8, 8]
    assert [record.getMessage() for record in caplog.records] == [
        "t.csv: column 'ticket' looks like an id, since nearly every row has another value: it is "
        "left out unless its kind is named",
        "t.csv: column 'code' alone determines the label of 100% of the labelled rows: leave it "
        "out if it is not known before the label",
    ]
    named = fit_scheme(table, ["ticket"], Columns(kinds={"ticket": "category"}))
    assert named.width == 64
    said = "columns names 'tiket', which is not a feature column: did you mean 'ticket'"
    with pytest.raises(ConfigurationError, match=said):
        fit_scheme(table, ["ticket"], Columns(kinds={"tiket": "number"}))


def test_suspicious_numbers_are_reported(tmp_path, caplog):
    rows = [f"n{n},{'xyz'[n % 3]},{n * 7},{n % 3},0.5" for n in range(30)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,label,user_id,code,f", *rows]) + "\n")
    (tmp_path / "edges.csv").write_text("source,target\n")
    graph = read_table_folder(tmp_path)
    assert graph.features[4].tolist() == [0, 0]  # the medians
    said = [record.getMessage().split(": ")[1] for record in caplog.records]
    assert said == [
        "column 'user_id' looks like an id, since nearly every row has another value",
        "column 'code' alone determines the label of 100% of the labelled rows",
    ]


def test_categories_that_pandas_knows_are_categories():
    codes = pa.array([7, 8, 7]).dictionary_encode()
    scheme = fit_scheme(pa.table({"f": codes}), ["f"])
    assert scheme.kinds == {"f": "category"}
    assert torch.equal(
        scheme.encode(pa.table({"f": codes})), scheme.encode(pa.table({"f": [7, 8, 7]}))
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kinds": {"f": "colour"}}, "column 'f' cannot be read as 'colour': choose one of"),
        ({"gaps": "guess"}, "unknown gaps 'guess'"),
        ({"fill": "mean"}, "unknown fill 'mean'"),
        ({"text_width": 100}, "text_width must be a multiple of 8 and at most 512, not 100"),
    ],
)
def test_choices_that_are_none(given, said):
    with pytest.raises(ConfigurationError, match=said):
        Columns(**given)


ROWS = st.fixed_dictionaries(
    {
        "number": st.none() | st.floats(-1e6, 1e6),
        "word": st.none() | st.sampled_from(["red", "green", "blue"]),
        "text": st.none() | st.text("ab c", max_size=12),
        "tags": st.none() | st.lists(st.sampled_from("xyz"), max_size=3),
        "yes": st.none() | st.booleans(),
        "day": st.none() | st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    }
)
KINDS = {
    "number": "number",
    "word": "category",
    "text": "text",
    "tags": "list",
    "yes": "boolean",
    "day": "date",
}
SCHEMA = pa.schema(
    [
        ("number", pa.float64()),
        ("word", pa.string()),
        ("text", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("yes", pa.bool_()),
        ("day", pa.date32()),
    ]
)


@given(st.lists(ROWS, min_size=1, max_size=8), st.lists(ROWS, min_size=1, max_size=8))
def test_rows_one_by_one_and_all_at_once(first, later):
    fitted = fit_scheme(
        pa.Table.from_pylist(first, SCHEMA), list(KINDS), Columns(kinds=KINDS, text_width=8)
    )
    scheme = Scheme.from_json(json.loads(json.dumps(fitted.to_json())))
    assert scheme == fitted
    table = pa.Table.from_pylist(first + later, SCHEMA)
    whole = fitted.encode(table)
    alone = [scheme.encode(table.slice(row, 1)) for row in range(table.num_rows)]
    assert whole.shape == (len(first) + len(later), scheme.width)
    assert bool(whole.isfinite().all())
    assert torch.equal(torch.cat(alone), whole)


@pytest.fixture
def scheme() -> Scheme:
    table = pa.Table.from_pylist(mixed_rows(0, 40))
    return fit_scheme(table, list(COLUMNS))


def test_one_row_a_column(scheme):
    kinds = ["text", "category", "date", "number", "list", "boolean"]
    assert [row[:2] for row in scheme.table()] == list(zip(COLUMNS, kinds, strict=True))
    assert [int(row[3]) for row in scheme.table()] == [128, 16, 5, 2, 16, 1]
    gaps = sum(row["score"] is None for row in mixed_rows(0, 40))
    assert [int(row[4]) for row in scheme.table()] == [0, 0, 0, gaps, 0, 0]
    assert scheme.width == len(scheme.names) == 168


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"score": "high"}, "row 7 has 'high' in column 'score': expected a number"),
        ({"published": "soon"}, "row 7 has 'soon' in column 'published': expected a date such as"),
        ({"open": "perhaps"}, "row 7 has 'perhaps' in column 'open': expected true or false"),
        ({"open": 2}, "row 7 has 2.0 in column 'open': expected true or false"),
        ({"score": [1.0]}, "column 'score' holds list<item: double>: expected numbers"),
        ({"venue": ["v1"]}, "column 'venue' holds list<item: string>: expected texts"),
        ({"tags": 7}, "column 'tags' holds int64: expected lists"),
        ({"venue": None}, "has no column 'venue': expected title, venue, "),
    ],
)
def test_misfits_are_one_sentence(scheme, changes, said):
    row = mixed_rows(3, 4)[0] | changes
    table = pa.Table.from_pylist([{k: v for k, v in row.items() if v is not None or k == "score"}])
    with pytest.raises(DataError) as caught:
        scheme.read(table, before=6)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_new_categories_and_gaps_are_counted_or_refused(caplog):
    first = pa.table({"colour": ["red", "green"], "size": [1.0, 2.0]})
    later = pa.table({"colour": ["red", "blue", "blue"], "size": [1, 2, 3]})
    loose = fit_scheme(first, ["colour", "size"])
    loose.read(later).say_new("t.csv")
    said = "column 'colour' has 1 new category in 2 rows ('blue'): each is encoded by its hash"
    assert [record.getMessage() for record in caplog.records] == [f"t.csv: {said}"]
    strict = fit_scheme(first, ["colour", "size"], Columns(strict=True))
    with pytest.raises(DataError, match="row 2 has 'blue' in column 'colour': expected a category"):
        strict.read(later)
    gap = pa.table({"colour": ["red", "green"], "size": [1.0, None]})
    with pytest.raises(DataError, match="row 2 has no value in column 'size': expected one"):
        fit_scheme(gap, ["colour", "size"], Columns(gaps="refuse")).read(gap)


FORGED: dict[str, list[tuple[str, Any]]] = {
    "title": [("dims", 12), ("dims", 1 << 40), ("rows", -1), ("frequencies", [[1 << 20], [1]])],
    "venue": [("dims", 0), ("hashes", ["<b>"]), ("hashes", "0" * 16)],
    "published": [("median", None), ("median", 1e300), ("flag", "yes")],
    "score": [("median", math.nan), ("scale", 0.0), ("scale", math.inf), ("scale", "2"), ("x", 1)],
    "tags": [("separator", ""), ("separator", 7)],
}


def test_a_scheme_from_elsewhere_is_checked_value_by_value(scheme):
    assert Scheme.from_json(scheme.to_json()) == scheme
    for name, changes in FORGED.items():
        for key, value in changes:
            kept = scheme.to_json()
            column = next(each for each in kept["columns"] if each["name"] == name)
            column["encoder"] = column["encoder"] | {key: value}
            with pytest.raises(DataError, match=rf"cannot be read back \({key}") as caught:
                Scheme.from_json(kept)
            assert "\n" not in str(caught.value)
    for key, value in (("gaps", "<b>"), ("gaps", -1), ("name", 7), ("kind", "none"), ("kind", [])):
        kept = scheme.to_json()
        kept["columns"][0][key] = value
        with pytest.raises(DataError, match="cannot be read back"):
            Scheme.from_json(kept)
    twice = scheme.to_json()
    twice["columns"] *= 2
    with pytest.raises(
        ConfigurationError, match="names of columns must differ, not have 'title' twice"
    ):
        Scheme.from_json(twice)


@pytest.mark.parametrize("kept", [{}, {"format": 2}, {"format": 1, "columns": [{"name": "f"}]}])
def test_what_was_not_kept_by_us(kept):
    with pytest.raises(DataError, match="columns"):
        Scheme.from_json(kept)


def test_a_kind_that_is_registered_can_be_chosen_and_is_in_help_and_docs(monkeypatch):
    names = [name for name in column_kinds.names() if name != "skip"]
    page = Path(__file__).parents[2] / "docs" / "your-graph.md"
    table = page.read_text("utf-8").split("| kind | becomes")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (\w+)", table, re.MULTILINE)
    assert sorted(rows) == names
    assert set(names) < set(ColumnKinds.__metadata__[0].help.split(", "))
    monkeypatch.setattr(column_kinds, "_classes", dict(column_kinds._classes))

    @column_kinds.register
    class LengthEncoder(BooleanEncoder):
        name = "length"
        reads = staticmethod(lambda values, name, before=0: pc.utf8_length(values).to_numpy())

    scheme = fit_scheme(pa.table({"f": ["a", "abc"]}), ["f"], Columns({"f": "length"}))
    assert scheme.encode(pa.table({"f": ["ab"]})).tolist() == [[2]]
    assert Scheme.from_json(scheme.to_json()) == scheme
