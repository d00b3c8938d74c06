"""Rows are read alike, whenever they come and however many at once."""

from __future__ import annotations

import json
from datetime import date

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import DataError
from evergraph.tables import Columns, Scheme
from evergraph.tables.fitting import fit_scheme
from mixed_tables import COLUMNS, mixed_rows

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
def test_rows_one_by_one_and_all_at_once(first: list[object], later: list[object]) -> None:
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


def test_one_row_a_column(scheme: Scheme) -> None:
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
def test_what_does_not_fit_is_one_sentence(
    scheme: Scheme, changes: dict[str, object], said: str
) -> None:
    row = mixed_rows(3, 4)[0] | changes
    table = pa.Table.from_pylist([{k: v for k, v in row.items() if v is not None or k == "score"}])
    with pytest.raises(DataError) as caught:
        scheme.read(table, before=6)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_new_categories_and_gaps_are_counted_or_refused(caplog: pytest.LogCaptureFixture) -> None:
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


@pytest.mark.parametrize("kept", [{}, {"format": 2}, {"format": 1, "columns": [{"name": "f"}]}])
def test_what_was_not_kept_by_us(kept: dict[str, object]) -> None:
    with pytest.raises(DataError, match="columns"):
        Scheme.from_json(kept)
