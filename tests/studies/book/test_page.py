"""The page shows what the rows say, sorts and filters."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from book_page import book_page, book_section, summary
from book_rows import BookPlan, BookRow, Change
from submission import submitted


@pytest.fixture
def rows(finished: Path, plan: BookPlan, tmp_path: Path) -> list[BookRow]:
    """Two rows with results, 50 and 75 percent, and one that failed."""
    row = submitted(finished, book=tmp_path, commit="<abc>", plan=plan)

    def numbered(label: str, accuracy: float, kept: int) -> BookRow:
        found = {
            "average_accuracy": [accuracy, accuracy + 0.02],
            "average_forgetting": [-0.1, -0.1],
            "anytime_accuracy": [0.5, 0.5],
        }
        values = {testing: {"balanced": found} for testing in ("local", "global")}
        return replace(row, label=label, values=values, bytes=kept)

    failed = replace(row, label="slow", failure="stopped <late>", values={}, tasks={}, facts={})
    return [failed, numbered("ten", 0.49, 9_000), numbered("nine", 0.74, 10_000)]


def test_every_row_is_there_the_best_first(rows, plan):
    html = book_section(rows, plan)
    places = [html.index(f"<td>{label}</td>") for label in ("nine", "ten", "slow")]
    assert places == sorted(places)
    assert "75.0 ± 1.4" in html
    assert "10.0 kB" in html
    assert "stopped &lt;late&gt;" in html
    assert "&lt;abc&gt;" in html
    assert "it is &lt;not&gt; at hand" in html
    assert "evergraph run --dataset synthetic" in html
    jobs = plan.jobs()
    assert summary(rows, plan) == (
        "3 rows: 3 methods on 1 datasets; 1 rows say why there is no result; "
        f"{len(jobs)} of {len(jobs)} planned rows are missing."
    )
    whole = [replace(rows[1], label=j.label, setting=j.setting, dataset=j.dataset) for j in jobs]
    assert "missing" not in summary(whole, plan)
    assert summary(whole[1:], plan).endswith(f"; 1 of {len(jobs)} planned rows are missing.")


def test_it_is_said_where_auto_is_asked_elsewhere_than_it_was_fitted(rows, plan):
    _, low, high = rows
    behind = [replace(low, label="auto"), replace(high, label="analytic")]
    html = book_section(behind, plan)
    assert "analytic is ahead of auto there on\nsmall (50.0 against 75.0)." in html
    ahead = [replace(high, label="auto"), replace(low, label="analytic")]
    for others in (ahead, behind[:1], rows):
        assert "is ahead of auto" not in book_section(others, plan)


def test_a_row_from_before_a_change_of_its_method_says_so(rows, plan):
    changed = plan.model_copy(
        update={"changed": {"nine": Change(date="2026-01-02", what="has <a>")}}
    )
    before, since = (replace(rows[2], date=f"2026-01-0{day}") for day in (1, 2))
    assert "<td>2026-01-01 (before it has &lt;a&gt;)</td>" in book_section([before], changed)
    assert "<td>2026-01-02</td>" in book_section([since], changed)
    assert "<td>2026-01-01</td>" in book_section([replace(before, label="ten")], changed)


def labels(chromium: Any) -> list[str]:
    script = """return [...document.querySelectorAll("tbody tr:not([hidden])")]
                 .map(row => row.cells[2].textContent)"""
    found = chromium.execute_script(script)
    return found


def test_columns_sort_and_menus_filter_in_a_browser(rows, plan, tmp_path, chromium):
    page = tmp_path / "book.html"
    page.write_text(book_page(rows, plan))
    chromium.get(page.as_uri())
    assert labels(chromium) == ["nine", "ten", "slow"]
    heading = chromium.find_elements("css selector", "th button")[3]
    heading.click()
    assert labels(chromium) == ["ten", "nine", "slow"]  # without a number, last
    heading.click()
    assert labels(chromium) == ["nine", "ten", "slow"]
    chromium.find_elements("css selector", "th button")[9].click()
    assert labels(chromium) == ["ten", "nine", "slow"]  # 9 kB before 10 kB
    chromium.execute_script(
        """const menu = document.querySelectorAll("select")[2];
           menu.value = "nine"; menu.dispatchEvent(new Event("change"));"""
    )
    assert labels(chromium) == ["nine"]
    assert chromium.find_element("css selector", "output").text == "1 of 3 rows"
