"""What stands on the page, in its order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from evergraph.reports.formats import html_table
from evergraph.reports.gallery import Gallery
from evergraph.reports.page.configurations import configurations
from evergraph.reports.page.leaders import leaders
from evergraph.reports.page.section import Section, figures_html
from evergraph.reports.page.terms import terms
from evergraph.reports.runs import Group
from evergraph.reports.tables import Table


def sections_of(
    groups: Sequence[Group], tables: Mapping[str, Table], gallery: Gallery
) -> list[Section]:
    """Return all sections; the first ones are what most readers came for."""
    return [
        leaders(groups),
        _summary(tables["summary"]),
        *_figure_sections(gallery),
        *_further(tables),
        _memory_table(tables["memory"]),
        _time(tables["time"], gallery),
        _matrices(groups, gallery),
        terms(),
        configurations(groups),
        _made_with(tables["versions"], tables["machine"]),
    ]


def _summary(table: Table) -> Section:
    lead = "All runs. Click a heading to sort by it, once more to turn the order round."
    return Section("summary", "Summary", lead, html_table(table))


def _figure_sections(gallery: Gallery) -> list[Section]:
    """Return a section a kind of figure, those of which there is none left out."""
    shown = [
        Section(
            "curves",
            "Learning curves",
            "Average accuracy over the tasks learned so far: local as full lines, global dashed, "
            "the local end value beside each name.",
            figures_html(gallery.curves, "c"),
        ),
        Section(
            "local-global",
            "Local against global",
            "The price of testing in the whole graph instead of inside each task's own subgraph. "
            "Thin lines are standard deviations over seeds, where there are several.",
            figures_html(gallery.local_global, "l"),
        ),
        _frontier(gallery),
        Section(
            "memory-accuracy",
            "Memory against accuracy",
            "Bytes kept between tasks, on a log scale, and the accuracy they buy: up and to the "
            "left is better.",
            figures_html(gallery.memory, "m"),
        ),
    ]
    return [section for section in shown if "<figure>" in section.content]


def _frontier(gallery: Gallery) -> Section:
    lead = (
        "One line per family of runs: the best accuracy so far, over the bytes kept and over the "
        "seconds of learning, on log scales; up and to the left is better. A hollow point is no "
        "better than a cheaper one of its family. Dotted lines cost nothing, or keep all data."
    )
    return Section("frontier", "Accuracy against cost", lead, figures_html(gallery.frontier, "f"))


def _further(tables: Mapping[str, Table]) -> list[Section]:
    """Return sections of what only some runs tell."""
    told = {
        "beyond": ("Beyond accuracy", "Along the way, how sure, what is new, what carries over."),
        "budgets": ("At equal cost", "The best of each method's runs within the same budget."),
    }
    return [
        Section(name, heading, lead, html_table(tables[name]))
        for name, (heading, lead) in told.items()
        if name in tables
    ]


def _memory_table(table: Table) -> Section:
    return Section("memory", "Memory", "What the memory is made of.", html_table(table))


def _time(table: Table, gallery: Gallery) -> Section:
    lead = "Where the time went. Runs that shared a machine slowed each other down."
    return Section("time", "Time", lead, f"{figures_html(gallery.time, 't')}\n{html_table(table)}")


def _matrices(groups: Sequence[Group], gallery: Gallery) -> Section:
    lead = (
        "Accuracy on each task (across) after learning each task (down), in percent, the mean over "
        "seeds. A column that darkens on its way down is a task being forgotten."
    )
    parts = [
        f"<h3>{escape(group.title)}</h3>\n{figures_html(pictures, f'a{place}-', small=True)}"
        for place, (group, pictures) in enumerate(zip(groups, gallery.matrices, strict=True))
    ]
    return Section("matrices", "Accuracy matrices", lead, "\n".join(parts))


def _made_with(versions: Table, machine: Table) -> Section:
    content = f"{html_table(versions)}\n<h3>Machine</h3>\n{html_table(machine)}"
    return Section("versions", "Versions and machine", "", content)
