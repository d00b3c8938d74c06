"""Tables and pages about a live learner: its report, and the scores of held-out nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from evergraph.evaluation.held_out import ClassScore, HeldOutScores
from evergraph.online.plotting import SHOWN, LearnerHistory, draw_confusion, pictures_of
from evergraph.reports.figures import Inches, Picture, drawn
from evergraph.reports.report import PageSection, figures_html, page, write_page
from evergraph.reports.runs import size, slugs_of
from evergraph.reports.tables import Cell, Table, TableColumn, html_table, numbers

MEANINGS = {
    "accuracy": "share of nodes whose class is predicted correctly",
    "balanced accuracy": "the same, with every class counting alike",
    "calibration error": "gap between confidence and accuracy, 0 being the best",
    "micro F1": "correct labels twice, of all true and all predicted labels",
    "macro F1": "the same label by label, then the mean",
    "average precision": "precision over all thresholds, the mean over labels",
    "R2": "share of the variance explained: 1 is perfect, 0 no better than the mean",
    "mean absolute error": "in units of the target",
    "root mean squared error": "in units of the target; large errors count more",
}
IN_UNITS = ("R2", "mean absolute error", "root mean squared error")  # not shares
WIDE: Inches = (4.6, 3.1)
HIGH: Inches = (4.6, 3.5)
ACCURACY = "Predictions before their labels came"
LEADS = {
    ACCURACY: (
        "Every label is predicted before it is learned, so the curve shows how good the learner is "
        "on nodes that it has no label of."
    ),
    "Classes": (
        "The labels learned so far. If the latest are spread otherwise, the data is changing: look "
        "whether accuracy falls as well."
    ),
    "Confusion of the latest predictions": (
        "Each row is a true class: how many of its nodes were predicted as which class, before "
        "their labels were learned."
    ),
}
SECTION_OF = {"Growth": ACCURACY, "Drift of the classes": "Classes"}


def share(value: float | None) -> Cell:
    """Return a share as a cell in percent."""
    return Cell("-") if value is None else Cell(f"{100 * value:.1f} %", (value,))


def count(value: int) -> Cell:
    """Return a number of things as a cell."""
    return Cell(f"{value:,}", (value,))


def facts_table(facts: Mapping[str, str]) -> Table:
    """Return facts as a table of two columns."""
    rows = tuple((Cell(fact), Cell(value)) for fact, value in facts.items())
    return Table("facts", "", (TableColumn("fact"), TableColumn("value")), (rows,))


def learner_facts(status: Mapping[str, Any]) -> dict[str, str]:
    """Return what is known of a learner, and of its folder or service, in words.

    status: the fields of ``Status``, ``FolderStatus``, or both.
    """
    known = {name: value for name, value in status.items() if value is not None}
    accuracy = "none predicted yet"
    if "accuracy" in known:
        value = known["accuracy"]
        text = f"{value:.4g}" if known["metric"] in IN_UNITS else f"{100 * value:.1f} %"
        accuracy = f"{text} of {known['predicted']:,} predictions"
    facts = {
        "nodes": f"{known['nodes']:,}",
        "edges": f"{known['edges']:,}, {'undirected' if known['undirected'] else 'directed'}",
        "classes": f"{known['classes']:,}",
        "labelled nodes": f"{known['labelled']:,}",
        "numbers per node": f"{known['features']:,}",
        "memory": size(known["memory"]),
        f"{known['metric']} before labels came": accuracy,
        "deltas": f"{known['seq']:,}",
    }
    if "better_than_chance" in known:
        negation = "" if known["better_than_chance"] else "not "
        facts["labelled nodes left out"] = f"{negation}predicted better than by chance"
    if "snapshot" in known:
        taken = f", {_time(known['snapshot_time'])}" if "snapshot_time" in known else ""
        facts["newest snapshot"] = f"delta {known['snapshot']:,}{taken}" if taken else "none yet"
    if "deltas_since" in known:
        journal = f" ({size(known['bytes_since'])})" if known["deltas_since"] else ""
        facts["deltas since"] = f"{known['deltas_since']:,}{journal}"
    if known.get("waiting"):
        facts["changes waiting"] = f"{known['waiting']:,}"
    if known.get("set_aside"):
        facts["deltas set aside"] = f"{known['set_aside']:,}: evergraph check lists them"
    if "snapshot_error" in known:
        facts["last snapshot"] = f"failed: {known['snapshot_error']}"
    if "stopped" in known:
        facts["changes"] = f"not accepted: {known['stopped']}"
    return facts


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def class_sizes_table(sizes: Mapping[Any, int], latest: Mapping[Any, int]) -> Table:
    """Return a row per class: its labelled nodes, and its share of all and of the latest."""
    total = sum(sizes.values()) or 1
    total_of_latest = sum(latest.values())
    rows = []
    for name, nodes in sizes.items():
        of_latest = latest.get(name, 0) / total_of_latest if total_of_latest else None
        rows.append((Cell(str(name)), count(nodes), share(nodes / total), share(of_latest)))
    columns = numbers(("labelled nodes", "share", "share of the latest"))
    caption = "Labelled nodes by class, and shares of all labels and of the latest."
    return Table("classes", caption, (TableColumn("class"), *columns), (tuple(rows),))


def measures_table(scores: HeldOutScores) -> Table:
    """Return a row per measure, with what it says."""
    rows = []
    for name, value in scores.measures.items():
        cell = share(value)
        if value is not None and name in IN_UNITS:
            cell = Cell(f"{value:.4g}", (value,))
        rows.append((Cell(name), cell, Cell(MEANINGS[name])))
    columns = TableColumn("measure"), TableColumn("value", ("value",)), TableColumn("what it is")
    caption = f"Scores of {scores.nodes:,} nodes."
    return Table("measures", caption, columns, (tuple(rows),))


def scores_table(classes: Iterable[ClassScore], caption: str) -> Table:
    """Return a row per class: its nodes, what they are predicted as, precision, recall and F1."""
    rows = tuple(
        (
            Cell(str(score.name)),
            *map(count, (score.nodes, score.predicted)),
            *map(share, (score.precision, score.recall, score.f1)),
        )
        for score in classes
    )
    columns = numbers(("nodes", "predicted", "precision", "recall", "F1"))
    return Table("per-class", caption, (TableColumn("class"), *columns), (rows,))


def confusion_table(scores: HeldOutScores) -> Table:
    """Return nodes by true class (rows) and predicted class (columns), of the largest classes."""
    names = [str(score.name) for score in scores.classes[:SHOWN]]
    rows = tuple(
        (Cell(name), *map(count, row[:SHOWN]))
        for name, row in zip(names, scores.confusion, strict=False)
    )
    caption = "Nodes by true class (rows) and predicted class (columns)."
    return Table("confusion", caption, (TableColumn("true class"), *numbers(names)), (rows,))


def calibration_table(scores: HeldOutScores) -> Table:
    """Return a row per bin of confidence."""
    rows = tuple(
        (Cell(share(part.confidence).text), count(part.nodes), share(part.accuracy))
        for part in scores.calibration
    )
    columns = TableColumn("mean confidence"), *numbers(("nodes", "accuracy"))
    caption = "Predictions by confidence. Where both shares agree, probabilities can be trusted."
    return Table("calibration", caption, columns, (rows,))


def evaluation_tables(scores: HeldOutScores) -> list[Table]:
    """Return every table with content."""
    tables = [measures_table(scores)]
    if scores.classes:
        caption = (
            "Precision: the share right of nodes given the class. Recall: the share found of its "
            "nodes. F1: their harmonic mean."
        )
        tables.append(scores_table(scores.classes, caption))
    if scores.confusion and len(scores.classes) <= SHOWN:
        tables.append(confusion_table(scores))
    if scores.calibration:
        tables.append(calibration_table(scores))
    return tables


def write_learner_report(
    name: str, status: Mapping[str, Any], history: LearnerHistory, path: Path
) -> Path:
    """Write the page of a learner: accuracy over time, classes and their drift, confusion.

    status: see ``learner_facts``.
    """
    facts = learner_facts(status)
    alarms = "".join(f"<p><b>Alarm:</b> {escape(alarm.message)}.</p>" for alarm in history.alarms)
    glance = alarms + html_table(facts_table(facts))
    content: dict[str, list[Picture]] = {}
    for title, draw in pictures_of(history).items():
        section = SECTION_OF.get(title, title)
        size = WIDE if section == ACCURACY else HIGH  # names need room
        content.setdefault(section, []).append(_picture(title, size, draw))
    tables = {}
    if history.class_sizes:
        tables["Classes"] = class_sizes_table(history.class_sizes, history.latest_sizes)
    if history.confusion:
        tables["Confusion of the latest predictions"] = scores_table(
            _scores_of(history), "The latest predictions, class by class."
        )
    sections = [PageSection("glance", "At a glance", "", glance)]
    for heading, pictures in content.items():
        below = html_table(tables[heading]) if heading in tables else ""
        body = f"{figures_html(pictures)}\n{below}"
        (anchor,) = slugs_of([heading])
        sections.append(PageSection(anchor, heading, LEADS[heading], body))
    about = " · ".join(f"{facts[name]} {name}" for name in ("nodes", "classes", "deltas"))
    return write_page(path, page(name, about, sections, command="evergraph report"))


def _scores_of(history: LearnerHistory) -> list[ClassScore]:
    names, table = history.recorded, history.confusion
    predicted = [sum(column) for column in zip(*table, strict=True)]
    return [
        ClassScore(name, sum(row), predicted[index], row[index])
        for index, (name, row) in enumerate(zip(names, table, strict=True))
    ]


def write_evaluation(name: str, about: str, scores: HeldOutScores, path: Path) -> Path:
    """Write the page of scores of held-out nodes; about: which nodes, in a line."""
    pictures: dict[str, Picture] = {}
    if scores.confusion:
        names = [score.name for score in scores.classes]
        draw = partial(draw_confusion, names=names, counts=scores.confusion)
        pictures["confusion"] = _picture("Confusion", HIGH, draw)
    if scores.calibration:
        pictures["calibration"] = _picture("Calibration", WIDE, partial(_draw_calibration, scores))
    if scores.values:
        draw = partial(_draw_values, scores)
        pictures["measures"] = _picture("True and predicted values", WIDE, draw)
    headings = {"measures": "Scores", "per-class": "Class by class"}
    tables = {table.name: table for table in evaluation_tables(scores)}
    tables.pop("confusion", None)  # it is drawn
    sections = []
    for key in dict.fromkeys((*tables, *pictures)):
        drawing = figures_html([pictures[key]]) if key in pictures else ""
        body = drawing + (html_table(tables[key]) if key in tables else "")
        (anchor,) = slugs_of([key])
        sections.append(PageSection(anchor, headings.get(key, key.capitalize()), "", body))
    return write_page(path, page(name, about, sections, command="evergraph evaluate"))


def _draw_calibration(scores: HeldOutScores, axes: Any) -> None:
    confidence = [100 * part.confidence for part in scores.calibration]
    accuracy = [100 * part.accuracy for part in scores.calibration]
    axes.plot([0, 100], [0, 100], color="#9ca3af", linewidth=1, linestyle=":")
    areas = [4 + 200 * part.nodes / scores.nodes for part in scores.calibration]
    axes.plot(confidence, accuracy, linewidth=1, alpha=0.5)
    axes.scatter(confidence, accuracy, s=areas, color="C0", zorder=3)  # larger for more nodes
    axes.set(xlabel="confidence (%)", ylabel="accuracy (%)", xlim=(-2, 102), ylim=(-2, 102))


def _draw_values(scores: HeldOutScores, axes: Any) -> None:
    true, predicted = zip(*scores.values, strict=True)
    ends = [min(true), max(true)]
    axes.plot(ends, ends, color="#9ca3af", linewidth=1, linestyle=":")
    axes.plot(true, predicted, "o", markersize=3, alpha=0.5)
    axes.set(xlabel="true value", ylabel="predicted value")


def _picture(title: str, size: Inches, draw: Callable[[Any], None]) -> Picture:
    def on_one(_: Any, axes: Any) -> None:
        draw(axes)
        axes.set_title(title)

    return drawn(slugs_of([title])[0], title, size, on_one)


def plain(scores: HeldOutScores) -> dict[str, Any]:
    """Return scores as JSON can hold them, with the shares of every class."""
    classes = [
        asdict(score) | {name: getattr(score, name) for name in ("precision", "recall", "f1")}
        for score in scores.classes
    ]
    values = asdict(scores) | {"classes": classes, "measures": dict(scores.measures)}
    del values["values"]  # one pair a node
    return values
