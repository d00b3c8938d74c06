"""What a study is: one table or figure of the paper, made again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from evergraph.core.errors import DataError, EvergraphError
from evergraph.core.extras import require
from evergraph.core.resolver import Resolver
from evergraph.datasets import load
from evergraph.experiments.bench.benchmark import Row
from evergraph.experiments.bench.config import BenchConfig
from evergraph.graphs import Graph
from evergraph.reports.figures.picture import Picture
from evergraph.reports.tables.record import Cell, Column, Table


@dataclass(frozen=True)
class Sheet:
    """A table or a figure of a study.

    Attributes:
        name: what its files are called.
        title: what it shows.
        columns, rows: the table; none for a figure.
        notes: what ran otherwise than in the paper, and what to know.
        picture: the figure; none for a table.
    """

    name: str
    title: str
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[str | Cell, ...]] = ()
    notes: tuple[str, ...] = ()
    picture: Picture | None = None

    @property
    def table(self) -> Table:
        """The table, ready for any format."""
        body = tuple(
            tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row)
            for row in self.rows
        )
        columns = tuple(Column(name) for name in self.columns)
        return Table(self.name, self.title, columns, (body,))


NOT_RUN = ("dataset", "not run")  # columns of a sheet that says why there is none
_EXTRAS = {"matplotlib": "report", "sklearn": "ogb"}  # of evergraph, which hold a package

RunBench = Callable[[BenchConfig, Path], list[Row]]
"""Runs a benchmark into a folder, going on with what is there."""


@dataclass(frozen=True)
class Options:
    """How a study is made.

    Attributes:
        out: where runs, tables and pictures go; what is there already is not run again.
        datasets: names or paths; those of the study itself unless given.
        seeds: how many repeats.
        quick: few epochs, small choices: to see that it works, not to be quoted.
        bench: runs a benchmark.
        tables: of tables 3 and 5, those that study paper makes; both unless given.
        methods: of tables 3 and 5 and of protocols, by their names here; the study's own unless
            given.
        missing: datasets that are known not to be at hand, with the reason.
    """

    out: Path
    bench: RunBench
    datasets: tuple[str, ...] = ()
    seeds: int = 3
    quick: bool = False
    tables: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)

    def repeats(self) -> list[int]:
        """Return the seeds."""
        return list(range(1 if self.quick else self.seeds))

    def differences(self, *more: str) -> tuple[str, ...]:
        """Return what was run otherwise than in the paper, as notes."""
        count = len(self.repeats())
        notes = [f"{count} seed{'s' if count > 1 else ''}; the paper has 5."]
        if self.quick:
            notes.append(
                "--quick: few epochs, tables 3 and 5 in fewer, larger tasks: not to be quoted."
            )
        return (*notes, *more)


class Study(ABC):
    """One table or figure of the paper.

    Attributes:
        datasets: used unless others are asked for.
        needs: packages without which it cannot be made.
    """

    name: ClassVar[str]
    datasets: ClassVar[tuple[str, ...]]
    needs: ClassVar[tuple[str, ...]] = ()

    def check(self) -> None:
        """Raise if it could not be made here: before hours of work, not after them."""
        for package in self.needs:
            require(package, extra=_EXTRAS[package], why=self.name)

    @abstractmethod
    def run(self, options: Options) -> list[Sheet]:
        """Make it, going on with whatever of it is there."""

    def asked(self, options: Options) -> tuple[str, ...]:
        """Return the datasets to use."""
        return options.datasets or self.datasets


class DatasetStudy(Study):
    """A study with sheets of its own for each dataset.

    Attributes:
        learns: whether it needs features, or the structure alone will do.
    """

    learns: ClassVar[bool] = True

    def run(self, options: Options) -> list[Sheet]:
        """Make the sheets of every dataset, or say why there are none."""
        return [sheet for dataset in self.asked(options) for sheet in self._made(dataset, options)]

    def _made(self, dataset: str, options: Options) -> list[Sheet]:
        graph = options.missing.get(dataset) or try_load(dataset)
        if isinstance(graph, Graph) and self.learns and not graph.num_features:
            graph = f"{dataset} has no features to learn from"
        if isinstance(graph, Graph):
            try:
                return self.sheets(dataset, graph, options)
            except DataError as error:  # too small, say: the other datasets are made all the same
                graph = str(error)
        stem = Path(dataset).stem
        title = f"{self.name}, {stem}"
        return [Sheet(f"{self.name}-{stem}", title, NOT_RUN, [(stem, graph)])]

    @abstractmethod
    def sheets(self, dataset: str, graph: Graph, options: Options) -> list[Sheet]:
        """Make the sheets of one dataset that is at hand."""


def try_load(name: str, *, undirected: bool = True) -> Graph | str:
    """Return a dataset, or the sentence that says why it is not at hand."""
    try:
        return load(name, undirected=undirected)
    except EvergraphError as error:
        return str(error)


studies = Resolver[Study]("study")
