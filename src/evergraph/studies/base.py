"""The base classes of studies, each of which reproduces a table or figure of the paper."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

from evergraph.core.component import Resolver
from evergraph.core.errors import DataError, EvergraphError, ResultsError
from evergraph.core.packages import require
from evergraph.core.safe_files import results_written, written_aside
from evergraph.datasets import load
from evergraph.experiments.bench.benchmark import Row
from evergraph.experiments.bench.jobs import BenchConfig
from evergraph.experiments.config import read_toml
from evergraph.graphs import Graph
from evergraph.reports.figures import Picture
from evergraph.reports.runs import percent
from evergraph.reports.tables import Cell, Table, TableColumn, csv_text, latex, markdown

NOT_RUN = ("dataset", "not run")  # columns of a sheet with the reason why it was not run
_EXTRAS = {"matplotlib": "report", "sklearn": "ogb"}  # extras of evergraph that install a package
TOLERANCE = 5.0  # points of AA: the paper gives neither splits nor seeds
RunBench = Callable[[BenchConfig, Path], list[Row]]
"""Runs a benchmark into a folder, resuming earlier runs."""
# Parts of file names, with the dataset that they mean.
_STEMS = {"cora_full": "corafull", "arxiv": "arxiv", "reddit": "reddit", "products": "products"}


@dataclass(frozen=True)
class Sheet:
    """A table or a figure of a study, one of them empty."""

    name: str
    title: str
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[str | Cell, ...]] = ()
    notes: tuple[str, ...] = ()  # differences to the paper, and remarks
    picture: Picture | None = None

    @property
    def table(self) -> Table:
        """The table, ready for any format."""
        body = tuple(
            tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row)
            for row in self.rows
        )
        return Table(self.name, self.title, tuple(map(TableColumn, self.columns)), (body,))


@dataclass(frozen=True)
class Options:
    """Options of a study."""

    out: Path  # folder for runs, tables and figures; finished runs are not repeated
    bench: RunBench  # runs a benchmark
    datasets: tuple[str, ...] = ()  # names or paths; by default those of the study
    seeds: tuple[int, ...] = (0, 1, 2)  # one repeat each; with ``quick`` only the first
    # Few epochs and few choices, to see that it works; the numbers are not to be quoted.
    quick: bool = False
    # Which of tables 3 and 5 the study ``paper`` makes; by default both.
    tables: tuple[str, ...] = ()
    # Methods of tables 3 and 5 and of protocols, by name; by default those of the study.
    methods: tuple[str, ...] = ()
    # Datasets known to be unavailable, with the reason.
    missing: Mapping[str, str] = field(default_factory=dict)

    def repeats(self) -> list[int]:
        """Return the seeds to run."""
        return list(self.seeds[: 1 if self.quick else None])

    def rows(
        self, study: str, dataset: str, methods: Sequence[Mapping[str, Any]], **more: Any
    ) -> list[Row]:
        """Run methods on a dataset, in the study's folder; more: of the benchmark."""
        values = {"datasets": [dataset], "seeds": self.repeats(), "methods": methods, **more}
        return self.bench(BenchConfig.of(values), self.out / study / Path(dataset).stem)

    def differences(self, *more: str) -> tuple[str, ...]:
        """Return the differences to the paper's setup as notes."""
        count = len(self.repeats())
        notes = [f"{count} seed{'s' if count > 1 else ''}; the paper has 5."]
        if self.quick:
            notes.append(
                "--quick: few epochs, tables 3 and 5 in fewer, larger tasks: not to be quoted."
            )
        return (*notes, *more)


class Study(ABC):
    """One table or figure of the paper; ``needs`` are required packages."""

    name: ClassVar[str]
    datasets: ClassVar[tuple[str, ...]]
    needs: ClassVar[tuple[str, ...]] = ()

    def check(self) -> None:
        """Raise if a required package is missing, before hours of work."""
        for package in self.needs:
            require(package, extra=_EXTRAS[package], why=self.name)

    @abstractmethod
    def run(self, options: Options) -> list[Sheet]:
        """Make the sheets, resuming earlier runs."""

    def datasets_of(self, options: Options) -> tuple[str, ...]:
        """Return the datasets to use."""
        return options.datasets or self.datasets


class DatasetStudy(Study):
    """A study with separate sheets for each dataset; ``learns``: whether it needs features."""

    learns: ClassVar[bool] = True

    def run(self, options: Options) -> list[Sheet]:
        sheets: list[Sheet] = []
        for dataset in self.datasets_of(options):
            try:
                graph = options.missing.get(dataset) or try_load(dataset)
                if isinstance(graph, str):
                    raise DataError(graph)
                if self.learns and not graph.num_features:
                    raise DataError(f"{dataset} has no features to learn from")
                sheets += self.sheets(dataset, graph, options)
            except DataError as error:  # for example too small: other datasets are still made
                name, stem = self.name, Path(dataset).stem
                sheets.append(
                    Sheet(f"{name}-{stem}", f"{name}, {stem}", NOT_RUN, [(stem, str(error))])
                )
        return sheets

    @abstractmethod
    def sheets(self, dataset: str, graph: Graph, options: Options) -> list[Sheet]:
        """Make the sheets of one available dataset."""


def try_load(name: str, *, undirected: bool = True) -> Graph | str:
    """Return a dataset, or the reason why it is not available."""
    try:
        return load(name, undirected=undirected)
    except EvergraphError as error:
        return str(error)


studies = Resolver[Study]("study")


def difference(ours: float | None, papers: float | None) -> str:
    """Return our value minus the paper's, with its sign.

    >>> difference(53.0, 53.2), difference(53.0, None)
    ('-0.2', '-')
    """
    return "-" if ours is None or papers is None else f"{ours - papers:+.1f}"


def within(ours: float, papers: Mapping[str, Any]) -> str:
    """Return whether our AA is within ``TOLERANCE`` of the paper's, with the tolerance.

    >>> papers = {"average_accuracy": {"mean": 53.2}}
    >>> within(49.0, papers), within(48.0, papers), within(49.0, {})
    ('yes (5.0)', 'no (5.0)', '-')
    """
    if not papers:
        return "-"
    near = abs(ours - papers["average_accuracy"]["mean"]) <= TOLERANCE
    return f"{'yes' if near else 'no'} ({TOLERANCE})"


def marked(values: Sequence[Mapping[str, Any] | None], aside: Collection[int] = ()) -> list[Cell]:
    """Return means in percent as cells, the best and the second best marked.

    aside: indices of those that are not ranked.

    >>> cells = marked([{"mean": mean, "std": None} for mean in (0.1, 0.3, 0.2, 0.9)], aside=[3])
    >>> [(cell.text, cell.rank) for cell in cells]
    [('10.0', 0), ('30.0', 1), ('20.0', 2), ('90.0', 0)]
    """
    means = [None if v is None or i in aside else v["mean"] for i, v in enumerate(values)]
    descending = sorted({mean for mean in means if mean is not None}, reverse=True)
    ranks = {mean: rank for rank, mean in enumerate(descending[:2], start=1)}
    return [
        Cell(percent(value), rank=ranks.get(mean, 0))
        for value, mean in zip(values, means, strict=True)
    ]


def balanced(result: Mapping[str, Any] | None, metric: str, testing: str = "local") -> Any:
    """Return the class-balanced mean and deviation of a result, None for None."""
    return None if result is None else result[metric][testing]["balanced"]


def write_study(study: str, sheets: Sequence[Sheet], out: Path) -> Path:
    """Write a study's page, its tables and figures in every format; return the page's path."""
    folder = out / study
    page = folder / f"{study}.md"
    files: dict[Path, bytes] = {}
    sections = []
    for sheet in sheets:
        name = sheet.name
        parts = [f"## {sheet.title}"]
        if sheet.picture is not None:
            files[folder / f"{name}.svg"] = sheet.picture.svg.encode()
            files[folder / f"{name}.png"] = sheet.picture.png
            parts.append(f"![{sheet.title}]({sheet.name}.png)")
        if sheet.rows:
            files[folder / f"{name}.csv"] = csv_text(sheet.table).encode()
            files[folder / f"{name}.tex"] = latex(sheet.table).encode()
            parts.append(markdown(sheet.table).rsplit("\n\n", 1)[0])  # the caption is the heading
        if sheet.notes:
            parts.append("\n".join(f"- {note}" for note in sheet.notes))
        sections.append("\n\n".join(parts))
    files[page] = ("\n\n".join(sections) + "\n").encode()
    with results_written(folder, remedy="the same command resumes the study"):
        for path, content in files.items():
            with written_aside(path) as file:
                file.write(content)
    return page


def made_once(path: Path, make: Callable[[], Any]) -> Any:
    """Return the plain values in a file; make and keep them if there is none."""
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        values = make()
    except (OSError, ValueError) as error:
        raise ResultsError(
            f"{path} cannot be read ({error}): remove it to make its values again"
        ) from None
    with results_written(path), written_aside(path) as file:
        file.write(json.dumps(values).encode())
    return values


@cache
def facts() -> dict[str, Any]:
    """Return Tables 1 and 4 and the homophily ratios.

    >>> facts()["datasets"]["arxiv"]["homophily"]
    0.655
    """
    return read_toml(Path(str(resources.files("evergraph.studies"))) / "paper_facts.toml")


def papers_name(dataset: str) -> str | None:
    """Return which of the paper's four datasets a name or path means, or None."""
    stem = Path(dataset).stem.lower().replace("-", "_")
    if stem in facts()["datasets"]:
        return stem
    return next((name for part, name in _STEMS.items() if part in stem), None)
