"""Results as ``evergraph run`` writes them, without running anything."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evergraph.reports.report import gallery, write_report
from evergraph.reports.runs import collect, grouped
from written_runs import result_of
from written_runs import write as write_result

WriteRun = Callable[..., Path]


@pytest.fixture(scope="session")
def write_run() -> WriteRun:
    """Write the result of one run below a folder, laid out as a benchmark does."""

    def write(
        folder: Path,
        label: str,
        accuracies: list[float],
        *,
        dataset: str = "data/rings.npz",
        setting: str = "class-il",
        kept: int = 4000,
        seeds: int = 2,
        **stream: str,
    ) -> Path:
        run = folder / Path(dataset).stem / setting / label
        result = result_of(accuracies, dataset=dataset, setting=setting, kept=kept, seeds=seeds)
        result["config"]["stream"] |= stream
        return write_result(run, result)

    return write


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory, write_run: WriteRun) -> Path:
    """Two datasets, two settings, five runs; curves of different lengths, one of a single task."""
    folder = tmp_path_factory.mktemp("bench")
    write_run(folder, "a<b>&\"'$x", [0.9, 0.85, 0.8], kept=1500)
    write_run(folder, "plain", [0.5, 0.25])
    write_run(folder, "nine", [0.99, 0.09, 0.03], kept=0)
    write_run(folder, "plain", [0.75, 0.875, 0.75], setting="task-il", kept=20_000_000)
    write_run(folder, "single", [1.0], dataset="other_&_graph", kept=0)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _coarse() -> Iterator[None]:
    """Draw few pixels: nobody looks at them here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evergraph.reports.figures.DPI", 20)
        yield


@pytest.fixture(scope="session")
def all_figures(bench: Path) -> dict[str, Any]:
    """All figures of those runs, drawn once: that takes seconds."""
    return gallery(grouped(collect(bench), bench))


@pytest.fixture(scope="session")
def reported(
    bench: Path, all_figures: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Those runs with their report, in a folder whose name must be escaped."""
    folder = tmp_path_factory.mktemp("reported") / "a <b> & c"
    shutil.copytree(bench, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evergraph.reports.report.gallery", lambda groups: all_figures)
        write_report(collect(folder), folder)
    return folder


@pytest.fixture(scope="session")
def change() -> Callable[..., Path]:
    """Return what changes a written run's result: by tables of values, or by a function."""

    def apply(run: Path, edit: Callable[[Any], object] | None = None, **values: Any) -> Path:
        path = run / "result.json"
        result = json.loads(path.read_text())
        result |= {k: result[k] | v if k in ("seconds", "config") else v for k, v in values.items()}
        if edit is not None:
            edit(result)
        path.write_text(json.dumps(result))
        return run

    return apply
