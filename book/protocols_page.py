"""The tables of docs/protocols.md: protocols side by side, published numbers with theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evergraph.experiments.config import flat, read_toml
from evergraph.experiments.presets import Protocol, presets, published, read_protocol
from evergraph.reports.tables import Cell, Table, TableColumn
from evergraph.studies.comparison import METHODS, PAPERS
from evergraph.studies.protocols import ORDER

PROTOCOL_COLUMNS = (
    "protocol",
    "tested",
    "averaged",
    "answers",
    "classes a task",
    "nodes arrive",
    "learns from",
    "split",
    "memory",
)
EDGES = {"within": "the task's own subgraph", "all": "the graph so far"}


def protocols_table() -> Table:
    """Return a row a protocol, with what it says unless a dataset differs.

    >>> protocols_table().texts[4][:4]
    ['tpp', 'local', 'balanced', 'a test set at a time']
    """
    rows = tuple(tuple(map(Cell, _row(read_protocol(name)))) for name in ORDER)
    columns = tuple(TableColumn(name) for name in PROTOCOL_COLUMNS)
    return Table("protocols", "What each protocol says", columns, (rows,))


def _row(protocol: Protocol) -> tuple[str, ...]:
    settings = flat(protocol.run)
    batch = settings.get("stream.batch")
    return (
        protocol.name,
        protocol.testing,
        protocol.averaging,
        "a test set at a time" if protocol.pooled else "a node at a time",
        str(settings["stream.classes_per_task"]),
        "by task" if batch is None else f"in batches of {batch}",
        EDGES[settings["stream.edges"]],
        _split(settings["stream.split"]),
        _budget(settings.get("memory.budget")),
    )


def _split(split: list[Any]) -> str:
    """Return a split as people write it.

    >>> _split([0.6, 0.2, 0.2]), _split([200, 50, 200])
    ('60/20/20 %', '200/50/200 nodes a class')
    """
    if all(isinstance(part, int) for part in split):
        return f"{'/'.join(map(str, split))} nodes a class"
    return f"{'/'.join(f'{100 * part:.0f}' for part in split)} %"


def _budget(budget: int | float | None) -> str:
    if budget is None:
        return "the method's own"
    return f"{budget} a class" if isinstance(budget, int) else f"{100 * budget:g} % of the nodes"


PUBLISHED_IN = {"table3": "class-il", "table5": "task-il"}


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
    path = Path(__file__).with_name("published_numbers.toml")
    return [*_of_the_paper(), *(PublishedNumber(**one) for one in read_toml(path)["numbers"])]


def _of_the_paper() -> Iterator[PublishedNumber]:
    paths = presets()
    for table, setting in PUBLISHED_IN.items():
        for method, method_name in METHODS.items():
            for dataset in PAPERS:
                name = f"paper/{table}/{dataset}-{method}"
                if name in paths:
                    metrics = published(name)
                    yield PublishedNumber(
                        method_name,
                        dataset,
                        setting,
                        metrics["average_accuracy"]["mean"],
                        "paper",
                        f"Table {table.removeprefix('table')}",
                        metrics.get("average_forgetting", {}).get("mean"),
                    )


def published_table(setting: str) -> Table:
    """Return a row a method and protocol, and a column a dataset.

    >>> published_table("class-il").texts[0]
    ['Fine-tune', 'paper', 'Table 3', '2.9 / -94.7', '4.9 / -87.0', '5.1 / -94.5', '3.4 / -82.5']
    """
    numbers = [number for number in published_numbers() if number.setting == setting]
    cells = {(n.method, n.protocol, n.source, n.dataset): _cell_text(n) for n in numbers}
    rows = dict.fromkeys((n.method, n.protocol, n.source) for n in numbers)
    body = tuple(
        (*map(Cell, row), *(Cell(cells.get((*row, dataset), "-")) for dataset in PAPERS))
        for row in rows
    )
    columns = tuple(TableColumn(name) for name in ("method", "protocol", "read in", *PAPERS))
    return Table(f"published-{setting}", f"Published AA / AF, {setting}, percent", columns, (body,))


def _cell_text(number: PublishedNumber) -> str:
    forgetting = number.average_forgetting
    return f"{number.average_accuracy}{'' if forgetting is None else f' / {forgetting}'}"
