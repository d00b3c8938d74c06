"""Tables as files: they parse back to what ``result.json`` says."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from evergraph.reports.report import tables_of
from evergraph.reports.runs import collect, grouped
from evergraph.reports.tables import Table, csv_text, html_table, latex, markdown


@pytest.fixture(scope="module")
def tables(bench: Path) -> dict[str, Table]:
    return tables_of(grouped(collect(bench), bench))


def result_of(bench: Path, row: dict[str, str]) -> dict[str, Any]:
    path = bench / row["dataset"] / row["setting"] / row["method"] / "result.json"
    result = json.loads(path.read_text())
    return result


def test_csv_has_every_run_and_all_digits(bench, tables):
    rows = list(csv.DictReader(io.StringIO(csv_text(tables["summary"]))))
    assert len(rows) == 5
    for row in rows:
        result = result_of(bench, row)
        for testing in ("local", "global"):
            told = result["average_accuracy"][testing]["balanced"]
            assert float(row[f"AA {testing} mean"]) == told["mean"]
            assert float(row[f"AA {testing} std"]) == told["std"]
            forgot = result["average_forgetting"][testing]["balanced"]
            assert float(row[f"AF {testing} mean"]) == forgot["mean"]
        assert int(row["memory bytes"]) == result["memory"]["bytes"]
        spent = sum(result["seconds"][phase] for phase in ("embed", "train", "evaluate"))
        assert float(row["seconds per seed"]) == pytest.approx(spent / 2)  # without loading


def test_the_other_tables_say_what_the_results_say(bench, tables):
    for row in csv.DictReader(io.StringIO(csv_text(tables["costs"]))):
        kept, seconds = (result_of(bench, row)[what] for what in ("memory", "seconds"))
        assert {part: int(row[part]) for part in kept} == kept
        assert {part: 2 * float(row[part]) for part in seconds} == seconds


def test_latex_is_balanced_and_marks_the_best(tables):
    for table in tables.values():
        text = latex(table)
        bare = re.sub(r"\\[\\&%$#_{}]", "", text)
        assert bare.count("{") == bare.count("}")
        lines = [line for line in text.splitlines() if line.endswith(r" \\")]
        assert len(lines) == 1 + len(table.rows)
        assert all(len(re.findall(r"(?<!\\)&", line)) == len(table.columns) - 1 for line in lines)
    text = latex(tables["summary"])
    assert r"\textbf{85.0 $\pm$ 0.0}" in text
    assert r"\underline{37.5 $\pm$ 0.0}" in text
    assert r"other\_\&\_graph" in text
    assert text.count(r"\midrule") == 3  # below the head and between the groups


def test_markdown_and_html(tables):
    for table in tables.values():
        lines = [line for line in markdown(table).splitlines() if line.startswith("|")]
        assert len(lines) == 2 + len(table.rows)
        assert all(len(re.findall(r"(?<!\\)\|", ln)) == len(table.columns) + 1 for ln in lines)
    assert "**85.0 ± 0.0**" in markdown(tables["summary"])
    assert "<u>37.5 ± 0.0</u>" in markdown(tables["summary"])
    # HTML is escaped, and sorts by the exact number.
    text = html_table(tables["summary"])
    assert "<td>a&lt;b&gt;&amp;&quot;&#x27;$x</td>" in text
    assert "a<b>" not in text
    assert 'data-value="0.375"><u>37.5 ± 0.0</u>' in text


def test_what_every_row_says_is_said_once_above_in_html_alone(tmp_path, write_run):
    write_run(tmp_path, "a", [0.5], kept=0)
    write_run(tmp_path, "b", [0.25], kept=0)
    table = tables_of(grouped(collect(tmp_path), tmp_path))["summary"]
    text = html_table(table)
    above, inside = text.split("<table")
    for name, said in (("dataset", "rings"), ("setting", "class-il"), ("memory", "none")):
        assert f"{name} <b>{said}</b>" in above
        assert f">{name}</button>" not in inside
    assert ">method</button>" in inside
    assert ">AA local</button>" in inside
    assert inside.count("<td") == 2 * (len(table.columns) - len(table.constants))
    assert csv_text(table).startswith("method,dataset,setting,AA local mean")
    single = tables_of(grouped(collect(tmp_path / "rings/class-il/a"), tmp_path))["summary"]
    assert [single.columns[place].name for place in single.constants] == ["dataset", "setting"]


def test_all_data_is_more_than_any_number(tmp_path, write_run, change):
    write_run(tmp_path, "tem", [0.5], kept=1500)
    change(write_run(tmp_path, "all", [0.75], kept=0), cumulative=True)
    table = tables_of(grouped(collect(tmp_path), tmp_path))["summary"]
    assert 'data-value="Infinity">all data</td>' in html_table(table)
    told = {
        row["method"]: row["memory bytes"] for row in csv.DictReader(io.StringIO(csv_text(table)))
    }
    assert told == {"tem": "1500", "all": ""}


def test_one_seed_has_no_deviation(tmp_path, write_run):
    write_run(tmp_path, "tem", [0.5], seeds=1)
    made = tables_of(grouped(collect(tmp_path), tmp_path))
    for table in made.values():
        for text in (csv_text(table), html_table(table), latex(table), markdown(table)):
            assert "±" not in text
            assert r"\pm" not in text
    (row,) = csv.DictReader(io.StringIO(csv_text(made["summary"])))
    assert (row["AA local mean"], row["AA local std"]) == ("0.5", "")
