"""A study's results folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evergraph.core.written_aside import results_written, written_aside
from evergraph.reports.formats import csv_text, latex, markdown
from evergraph.studies.base import Sheet


def keep(study: str, sheets: Sequence[Sheet], out: Path) -> list[Path]:
    """Write a study's page, its tables and pictures in every format; return the pages' paths."""
    folder = out / study
    page = folder / f"{study}.md"
    with results_written(folder, remedy="the same command goes on from what is there"):
        for sheet in sheets:
            _keep_files(sheet, folder)
        _write(page, "\n\n".join(_section(sheet) for sheet in sheets) + "\n")
    return [page]


def _keep_files(sheet: Sheet, folder: Path) -> None:
    if sheet.picture is not None:
        _write(folder / f"{sheet.name}.svg", sheet.picture.svg)
        with written_aside(folder / f"{sheet.name}.png") as file:
            file.write(sheet.picture.png)
    if sheet.rows:
        _write(folder / f"{sheet.name}.csv", csv_text(sheet.table))
        _write(folder / f"{sheet.name}.tex", latex(sheet.table))


def _section(sheet: Sheet) -> str:
    parts = [f"## {sheet.title}"]
    if sheet.picture is not None:
        parts.append(f"![{sheet.title}]({sheet.name}.png)")
    if sheet.rows:
        parts.append(markdown(sheet.table).rsplit("\n\n", 1)[0])  # the caption is the heading
    if sheet.notes:
        parts.append("\n".join(f"- {note}" for note in sheet.notes))
    return "\n\n".join(parts)


def _write(path: Path, text: str) -> None:
    with written_aside(path) as file:
        file.write(text.encode())
