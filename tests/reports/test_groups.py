"""Which runs stand side by side, in which order and under which names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from evergraph.reports import collect, comparison
from evergraph.reports.runs import grouped
from evergraph.reports.tables.record import Cell, ranked


def test_runs_are_grouped_and_the_best_stands_first(bench: Path) -> None:
    groups = grouped(collect(bench), bench)
    assert [group.title for group in groups] == [
        "other_&_graph, class-il",
        "other_&_graph, task-il",
        "rings, class-il",
        "rings, task-il",
    ]
    assert [entry.name for entry in groups[2].entries] == ["a<b>&\"'$x", "plain", "nine"]
    slugs = [entry.slug for entry in groups[2].entries]
    assert slugs == ["a-b-x", "plain", "nine"]


def test_the_order_of_the_runs_does_not_matter(bench: Path) -> None:
    runs = collect(bench)
    assert grouped(runs, bench) == grouped(runs[::-1], bench)


def test_runs_of_one_method_are_told_apart_by_their_folders(
    tmp_path: Path, write_run: Callable[..., Path]
) -> None:
    for name in ("first", "second"):
        write_run(tmp_path, name, [0.5]).rename(tmp_path / name)
    (group,) = grouped(collect(tmp_path), tmp_path)
    assert [entry.name for entry in group.entries] == ["tem (first)", "tem (second)"]


def test_runs_of_other_streams_stand_apart_and_say_so(
    tmp_path: Path, write_run: Callable[..., Path]
) -> None:
    write_run(tmp_path, "first", [0.5])  # as the first version wrote it
    write_run(tmp_path, "usual", [0.5], by="class", edges="within")
    write_run(tmp_path, "all", [0.5], by="class", edges="all")
    write_run(tmp_path, "years", [0.5], by="time", edges="within")
    write_run(tmp_path, "both", [0.5], by="blurred", edges="all")
    runs = collect(tmp_path)
    groups = grouped(runs, tmp_path)
    assert {group.title: [entry.name for entry in group.entries] for group in groups} == {
        "rings, class-il": ["first", "usual"],
        "rings, class-il, all edges": ["all"],
        "rings, class-il, blurred, all edges": ["both"],
        "rings, class-il, by time": ["years"],
    }
    assert len({group.slug for group in groups}) == 4
    assert {row[0]: row[2] for row in comparison(runs).texts}["years"] == "class-il, by time"


def test_equals_share_a_rank_and_one_alone_has_none() -> None:
    cells = [Cell("", (value,)) for value in (-0.5, -0.1, -0.1)]
    assert [cell.rank for cell in ranked(cells)] == [2, 1, 1]
    assert [cell.rank for cell in ranked(cells[:1])] == [0]
    assert [cell.rank for cell in ranked(cells[1:])] == [0, 0]
