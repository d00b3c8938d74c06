"""Published numbers, each with the protocol that made it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from evergraph.experiments.config import read_toml
from evergraph.experiments.presets import presets, published
from evergraph.reports.tables.record import Cell, Column, Table
from evergraph.studies.comparison import METHODS, PAPERS

TABLES = {"table3": "class-il", "table5": "task-il"}


@dataclass(frozen=True)
class PublishedNumber:
    """What a paper says that a method reaches, in percent.

    Attributes:
        method: as the paper calls it.
        dataset: as it is called here.
        setting: ``class-il`` or ``task-il``.
        average_accuracy, average_forgetting: AA and AF; no AF where the paper gives none.
        protocol: how it was measured.
        source: where it was read.
    """

    method: str
    dataset: str
    setting: str
    average_accuracy: float
    protocol: str
    source: str
    average_forgetting: float | None = None


def published_numbers() -> list[PublishedNumber]:
    """Return all that is known: the presets of the paper's tables, then what was read elsewhere.

    >>> {number.protocol for number in published_numbers()} == {"paper", "cglb"}
    True
    """
    path = Path(str(resources.files("evergraph.studies"))) / "published_numbers.toml"
    return [*_of_the_paper(), *(PublishedNumber(**one) for one in read_toml(path)["numbers"])]


def _of_the_paper() -> Iterator[PublishedNumber]:
    known = presets()
    for table, setting in TABLES.items():
        for method, called in METHODS.items():
            for dataset in PAPERS:
                name = f"paper/{table}/{dataset}-{method}"
                if name in known:
                    told = published(name)
                    yield PublishedNumber(
                        called, dataset, setting, told["average_accuracy"]["mean"], "paper",
                        f"Table {table.removeprefix('table')}",
                        told.get("average_forgetting", {}).get("mean"),
                    )  # fmt: skip


def published_table(setting: str) -> Table:
    """Return a row a method and protocol, and a column a dataset.

    >>> published_table("class-il").texts[0]
    ['Fine-tune', 'paper', 'Table 3', '2.9 / -94.7', '4.9 / -87.0', '5.1 / -94.5', '3.4 / -82.5']
    """
    numbers = [number for number in published_numbers() if number.setting == setting]
    found = {(n.method, n.protocol, n.source, n.dataset): _told(n) for n in numbers}
    rows = dict.fromkeys((n.method, n.protocol, n.source) for n in numbers)
    body = tuple(
        (*map(Cell, row), *(Cell(found.get((*row, dataset), "-")) for dataset in PAPERS))
        for row in rows
    )
    columns = tuple(Column(name) for name in ("method", "protocol", "read in", *PAPERS))
    return Table(f"published-{setting}", f"Published AA / AF, {setting}, percent", columns, (body,))


def _told(number: PublishedNumber) -> str:
    forgotten = number.average_forgetting
    return f"{number.average_accuracy}{'' if forgotten is None else f' / {forgotten}'}"
