"""The page and everything beside it."""

import re
import shutil
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from evergraph.core.errors import ResultsError
from evergraph.reports.figures import accuracy_matrix
from evergraph.reports.report import write_report
from evergraph.reports.runs import collect, grouped, percent


@pytest.fixture(scope="module")
def page(reported: Path) -> str:
    return (reported / "report.html").read_text("utf-8")


class Reader(HTMLParser):
    """Notes what a page would load, and which tags it leaves open."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data", "srcset") and value:
                self.loads.append(value)
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("meta", "link", "img"):
            assert self.open.pop() == tag


def test_every_run_is_in_the_page_with_its_numbers(reported, page):
    table = page[page.index('<table id="table-summary"') :]
    rows = re.findall(r"<tr[^>]*>(<td>.*?)</tr>", table[: table.index("</table>")])
    runs = collect(reported)
    assert len(rows) == len(runs)
    for run in runs:
        start = "".join(f"<td>{escape(t)}</td>" for t in (run.method, run.dataset, run.setting))
        (row,) = [row for row in rows if row.startswith(start)]
        told = run.result["average_accuracy"]["global"]["balanced"]
        assert f'data-value="{told["mean"]!r}"' in row
        assert percent(told) in row
    assert page.count("<details><summary>") == len(runs) + 3
    assert page.count("<details ") == 1  # the definitions, below all results
    assert page.index('id="matrices"') < page.index('<details class="definitions">')


def test_the_page_is_well_formed_and_loads_nothing(page):
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert all(load.startswith(("#", "data:")) for load in reader.loads)
    assert not re.search(r"https?://|@import|url\((?!#)", page)
    assert "<script src" not in page
    # What users wrote is told and escaped.
    for bare in ("a <b> & c", "a<b>", "other_&_graph"):
        assert bare not in page
    for told in (
        "<title>a &lt;b&gt; &amp; c",
        "a&lt;b&gt;&amp;&quot;",
        "name = &quot;data/rings.npz&quot;",
    ):
        assert told in page


def test_same_runs_give_same_bytes(bench, all_figures, reported):
    files = [reported / "report.html", *(reported / "report").rglob("*.*")]
    assert len(files) == 1 + 4 * 3 + 8 * 2  # page, tables, figures
    before = {path: path.read_bytes() for path in files}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evergraph.reports.report.gallery", lambda groups: all_figures)
        write_report(collect(reported)[::-1], reported)
    assert {path: path.read_bytes() for path in files} == before
    group = grouped(collect(bench), bench)[1]  # one figure stands for all, which one function draws
    assert accuracy_matrix(group, group.entries[0]) == all_figures["matrices"][1]


@pytest.mark.usefixtures("undrawn")
def test_files_of_an_earlier_report_go(tmp_path, write_run, change):
    gone = write_run(tmp_path, "gone", [0.5])
    write_run(tmp_path, "stays", [0.5])
    write_report(collect(tmp_path), tmp_path)
    shutil.rmtree(gone)
    write_report(collect(tmp_path), tmp_path)
    figures = [path.name for path in (tmp_path / "report" / "figures").iterdir()]
    assert any("stays" in name for name in figures)
    assert not any("gone" in name for name in figures)
    shutil.rmtree(tmp_path / "report")
    (tmp_path / "report").write_text("in the way")
    with pytest.raises(ResultsError, match="cannot be written"):
        write_report(collect(tmp_path), tmp_path)
