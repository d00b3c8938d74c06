"""All protocols beside each other, as the documentation has them."""

from __future__ import annotations

from typing import Any

from evergraph.experiments.dotted import flat
from evergraph.experiments.protocols import Protocol, read_protocol
from evergraph.reports.tables.record import Cell, Column, Table
from evergraph.studies.protocol_runs import ORDER

COLUMNS = (
    "protocol", "tested", "averaged", "answers", "classes a task", "nodes arrive", "learns from",
    "split", "memory",
)  # fmt: skip
EDGES = {"within": "the task's own subgraph", "all": "the graph so far"}


def protocols_table() -> Table:
    """Return a row a protocol, with what it says unless a dataset differs.

    >>> protocols_table().texts[4][:4]
    ['tpp', 'local', 'balanced', 'a test set at a time']
    """
    rows = tuple(tuple(map(Cell, _row(read_protocol(name)))) for name in ORDER)
    columns = tuple(Column(name) for name in COLUMNS)
    return Table("protocols", "What each protocol says", columns, (rows,))


def _row(protocol: Protocol) -> tuple[str, ...]:
    said = flat(protocol.run)
    batch = said.get("stream.batch")
    return (
        protocol.name,
        protocol.testing,
        protocol.averaging,
        "a test set at a time" if protocol.pooled else "a node at a time",
        str(said["stream.classes_per_task"]),
        "by task" if batch is None else f"in batches of {batch}",
        EDGES[said["stream.edges"]],
        _split(said["stream.split"]),
        _budget(said.get("memory.budget")),
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
