"""The results book as a table that sorts and filters: for the documentation, and by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import inf
from pathlib import Path
from statistics import mean
from typing import Any

from book_rows import BookPlan, BookRow

from evergraph.evaluation.evaluator import spread
from evergraph.reports.runs import ALL, percent, size

AVERAGE = "balanced"  # the one that the page shows; rows have the plain one too
HEADINGS = (
    "dataset",
    "setting",
    "method",
    "AA local",
    "AF local",
    "AA global",
    "AF global",
    "seeds",
    "seconds a seed",
    "kept",
    "peak",
    "machine",
    "commit",
    "date",
    "command",
)
SHOWN = ("wordnet", "computers", "coauthor-cs", "actor")  # the real graphs, in this order
FILTERS = {"dataset": 0, "setting": 1, "method": 2}


def book_section(rows: Sequence[BookRow], plan: BookPlan) -> str:
    """Return the whole book as HTML: what it holds, filters, the table, what is not there.

    The style and the script are in it: it can stand in any page.
    """
    ordered = _in_order(rows, plan)
    heads = "".join(
        f'<th scope="col"><button type="button">{escape(name)}</button></th>' for name in HEADINGS
    )
    body = "\n".join(_row(row, _stale(row, plan)) for row in ordered)
    return f"""<div class="book" data-search-exclude>
<style>
{_part("book.css")}</style>
<p>{escape(summary(rows, plan))}</p>{_note_on_global_testing(rows)}
<form class="book-filters">{"".join(_filter(name, ordered) for name in FILTERS)}
<output></output></form>
<div class="book-scroll"><table class="book-table">
<thead><tr>{heads}</tr></thead>
<tbody>
{body}
</tbody>
</table></div>
{_absent(plan)}
<script>
{_part("book.js")}</script>
</div>"""


def _note_on_global_testing(rows: Sequence[BookRow]) -> str:
    """Say where auto is behind analytic in the whole graph, on which it was not fitted."""
    accuracies = {
        (row.dataset, row.label): 100 * mean(row.values["global"][AVERAGE]["average_accuracy"])
        for row in rows
        if row.label in ("auto", "analytic") and row.setting == "class-il" and not row.failure
    }
    behind = [
        f"{dataset} ({value:.1f} against {accuracies[dataset, 'analytic']:.1f})"
        for (dataset, label), value in accuracies.items()
        if label == "auto" and value < accuracies.get((dataset, "analytic"), value)
    ]
    if not behind:
        return ""
    return f"""
<p>auto fits its mixture on nodes inside their own task's subgraph. Global testing uses the graph of
everything, where another mixture may be better: in class-il, analytic is ahead of auto there on
{escape(", ".join(behind))}.</p>"""


def methods_table(rows: Sequence[BookRow]) -> str:
    """Return AA of every method in class-IL on the real graphs, local / global, as Markdown."""
    rows_by_method = {
        (row.label, row.dataset): row
        for row in rows
        if row.setting == "class-il" and row.dataset in SHOWN
    }

    def cell(label: str, dataset: str) -> str:
        row = rows_by_method.get((label, dataset))
        if row is None or row.failure is not None:
            return "-"
        means = [_mean(row, testing, "average_accuracy") for testing in ("local", "global")]
        return " / ".join(f"{100 * value:.1f}" for value in means)

    def order(label: str) -> tuple[bool, float, str]:
        row = rows_by_method.get((label, "computers"))
        if row is None or row.failure is not None:
            return _is_pooled(label), 0.0, label
        return _is_pooled(label), -_mean(row, "local", "average_accuracy"), label

    lines = [
        f"| `{label}` | {' | '.join(cell(label, dataset) for dataset in SHOWN)} |"
        for label in sorted({label for label, _ in rows_by_method}, key=order)
    ]
    head = f"| method | {' | '.join(SHOWN)} |\n|---{'|---' * len(SHOWN)}|"
    return "\n".join([head, *lines])


def _is_pooled(label: str) -> bool:
    return label.endswith("-per-test-set")


def book_page(rows: Sequence[BookRow], plan: BookPlan) -> str:
    """Return the book as a page that needs no other file."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>The results book of evergraph</title><link rel="icon" href="data:,"></head>
<body><h1>The results book</h1>
{book_section(rows, plan)}
</body>
</html>
"""


def summary(rows: Sequence[BookRow], plan: BookPlan) -> str:
    """Return in one sentence how much a book holds, and how much of its plan it does not."""
    failed = sum(row.failure is not None for row in rows)
    counts = (len(rows), len({row.label for row in rows}), len({row.dataset for row in rows}))
    text = "{:,} rows: {} methods on {} datasets".format(*counts)
    text += f"; {failed} rows say why there is no result" if failed else ""
    paths = {row.path_in_book for row in rows}
    jobs = [f"{job.dataset}/{job.setting}/{job.label}.json" for job in plan.jobs()]
    missing = sum(place not in paths for place in jobs)
    return f"{text}; {missing} of {len(jobs)} planned rows are missing." if missing else f"{text}."


def _in_order(rows: Iterable[BookRow], plan: BookPlan) -> list[BookRow]:
    """Return rows of real graphs, then as the plan has them, the best method of each first."""
    planned = list(dict.fromkeys(job.dataset for job in plan.jobs()))
    known = [*SHOWN, *(dataset for dataset in planned if dataset not in SHOWN)]  # real graphs first

    def key(row: BookRow) -> tuple[Any, ...]:
        position = known.index(row.dataset) if row.dataset in known else len(known)
        accuracy = -_mean(row, "local", "average_accuracy") if row.failure is None else 1.0
        # Whoever is told which test nodes share a task is not compared with the others.
        return position, row.dataset, row.setting, _is_pooled(row.label), accuracy, row.label

    return sorted(rows, key=key)


def _stale(row: BookRow, plan: BookPlan) -> str:
    """Return what has changed a row's method since, or nothing."""
    change = plan.changed.get(row.label)
    return f" (before it {change.what})" if change and row.date < change.date else ""


def _row(row: BookRow, stale: str) -> str:
    cells = [_text(row.dataset), _text(row.setting), _text(row.label)]
    if row.failure is None:
        cells += _number_cells(row)
    else:
        cells.append(f'<td colspan="8" class="failed">no result: {escape(row.failure)}</td>')
    cells += [_text(row.machine), _text(row.commit), _text(row.date + stale)]
    cells.append(f"<td><details><summary>show</summary>{_code(row.command)}</details></td>")
    return f"<tr>{''.join(cells)}</tr>"


def _number_cells(row: BookRow) -> list[str]:
    seconds = (row.seconds["embed"] + row.seconds["train"]) / len(row.seeds)
    ways = [
        (testing, metric)
        for testing in ("local", "global")
        for metric in ("average_accuracy", "average_forgetting")
    ]
    accuracies = [
        _number(_mean(row, *way), percent(spread(row.values[way[0]][AVERAGE][way[1]])))
        for way in ways
    ]
    stored, peak = row.bytes or 0, row.peak_bytes or 0
    return [
        *accuracies,
        _number(len(row.seeds), str(len(row.seeds))),
        _number(seconds, f"{seconds:.1f}"),
        _number(inf, ALL) if row.cumulative else _number(stored, size(stored)),
        _number(peak, size(peak)),
    ]


def _mean(row: BookRow, testing: str, metric: str) -> float:
    values: list[float] = row.values[testing][AVERAGE][metric]
    return sum(values) / len(values)


def _text(text: str) -> str:
    return f"<td>{escape(text)}</td>"


def _number(value: float, text: str) -> str:
    data_value = "Infinity" if value == inf else f"{value:.6g}"
    return f'<td class="number" data-value="{data_value}">{escape(text)}</td>'


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _filter(name: str, rows: Sequence[BookRow]) -> str:
    field = "label" if name == "method" else name
    values = dict.fromkeys(getattr(row, field) for row in rows)
    ordered = sorted(values) if name == "method" else list(values)
    options = "".join(f"<option>{escape(value)}</option>" for value in ordered)
    return (
        f'<label>{name} <select data-column="{FILTERS[name]}">'
        f'<option value="">all</option>{options}</select></label>\n'
    )


def _absent(plan: BookPlan) -> str:
    lines = "".join(
        f"<li>{escape(name)}: {escape(why)}</li>" for name, why in sorted(plan.absent.items())
    )
    return f"<p>Not in the book:</p><ul>{lines}</ul>" if lines else ""


def _part(name: str) -> str:
    return (Path(__file__).parent / name).read_text("utf-8")
