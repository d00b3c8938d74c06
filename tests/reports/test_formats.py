"""Tables as files: they parse back to what ``result.json`` says."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from evergraph.reports import collect
from evergraph.reports.formats import csv_text, html_table, latex, markdown
from evergraph.reports.groups import grouped
from evergraph.reports.tables import Table, tables_of


@pytest.fixture(scope="module")
def tables(bench: Path) -> dict[str, Table]:
    return tables_of(grouped(collect(bench), bench))


def result_of(bench: Path, row: dict[str, str]) -> dict[str, Any]:
    path = bench / row["dataset"] / row["setting"] / row["method"] / "result.json"
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def test_csv_has_every_run_and_all_digits(bench: Path, tables: dict[str, Table]) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(tables["summary"]))))
    assert len(rows) == 6
    for row in rows:
        result = result_of(bench, row)
        for testing in ("local", "global"):
            told = result["average_accuracy"][testing]["balanced"]
            assert float(row[f"AA {testing} mean"]) == told["mean"]
            assert float(row[f"AA {testing} std"]) == told["std"]
            forgot = result["average_forgetting"][testing]["balanced"]
            assert float(row[f"AF {testing} mean"]) == forgot["mean"]
        assert int(row["memory bytes"]) == result["memory"]["bytes"]
        assert float(row["seconds"]) == result["seconds"]["total"]


def test_the_other_tables_say_what_the_results_say(bench: Path, tables: dict[str, Table]) -> None:
    for row in csv.DictReader(io.StringIO(csv_text(tables["memory"]))):
        kept = result_of(bench, row)["memory"]
        assert {part: int(row[part]) for part in kept} == kept
    for row in csv.DictReader(io.StringIO(csv_text(tables["time"]))):
        seconds = result_of(bench, row)["seconds"]
        assert {part: float(row[part]) for part in seconds} == seconds
    (versions,) = csv.DictReader(io.StringIO(csv_text(tables["versions"])))
    assert versions == {"python": "3.11.7", "torch": "2.13.0", "runs": "6"}


def test_latex_is_balanced_and_marks_the_best(tables: dict[str, Table]) -> None:
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
    assert text.count(r"\midrule") == 4  # below the head and between the groups


def test_markdown_has_a_cell_for_each_column(tables: dict[str, Table]) -> None:
    for table in tables.values():
        lines = [line for line in markdown(table).splitlines() if line.startswith("|")]
        assert len(lines) == 2 + len(table.rows)
        assert all(len(re.findall(r"(?<!\\)\|", ln)) == len(table.columns) + 1 for ln in lines)
    assert "**85.0 ± 0.0**" in markdown(tables["summary"])
    assert "<u>37.5 ± 0.0</u>" in markdown(tables["summary"])


def test_html_is_escaped_and_sorts_by_the_exact_number(tables: dict[str, Table]) -> None:
    text = html_table(tables["summary"])
    assert "<td>a&lt;b&gt;&amp;&quot;&#x27;$x</td>" in text
    assert "a<b>" not in text
    assert 'data-value="0.375"><u>37.5 ± 0.0</u>' in text
