"""The one number that a protocol's paper reports, before all others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from evergraph.evaluation.yardstick import spread
from evergraph.reports import collect
from evergraph.reports.gallery import Gallery
from evergraph.reports.page.sections import sections_of
from evergraph.reports.report import tables_of
from evergraph.reports.runs import grouped
from evergraph.reports.tables.accuracy import headlines

WriteRun = Callable[..., Path]


def under(folder: Path, protocol: str, testing: str, averaging: str, accuracy: float) -> None:
    """Let a stored run be one under a protocol, with this as its headline."""
    path = folder / "result.json"
    result = json.loads(path.read_text())
    result |= {"protocol": protocol, "headline": {"testing": testing, "averaging": averaging}}
    result["average_accuracy"][testing][averaging] = spread([accuracy, accuracy])
    path.write_text(json.dumps(result))


def test_runs_under_a_protocol_stand_apart_with_their_own_number(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run(tmp_path, "tem", [0.9, 0.8])
    under(write_run(tmp_path, "tem-puma", [0.9, 0.8]), "puma", "local", "plain", 0.61)
    under(write_run(tmp_path, "tem-llm", [0.9, 0.8]), "llm4gcl", "global", "plain", 0.47)
    runs = collect(tmp_path)
    groups = grouped(runs, tmp_path)
    assert [group.setting for group in groups] == [
        "class-il", "class-il, protocol llm4gcl", "class-il, protocol puma"
    ]  # fmt: skip
    table = tables_of(groups)["headline"]
    assert [row[3:5] for row in table.texts] == [
        ["global, plain", "47.0 ± 0.0"], ["local, plain", "61.0 ± 0.0"]
    ]  # fmt: skip
    assert next(iter(tables_of(groups))) == "headline"
    told = headlines(runs)
    assert told is not None
    assert len(told.rows) == 2
    undrawn = Gallery((), (), (), (), (), ((),) * len(groups), ())
    headings = [s.heading for s in sections_of(groups, tables_of(groups), undrawn)]
    assert headings.index("By protocol") < headings.index("Summary")


def test_without_a_protocol_there_is_no_such_table(write_run: WriteRun, tmp_path: Path) -> None:
    write_run(tmp_path, "tem", [0.9, 0.8])
    assert headlines(collect(tmp_path)) is None
    assert "headline" not in tables_of(grouped(collect(tmp_path), tmp_path))
