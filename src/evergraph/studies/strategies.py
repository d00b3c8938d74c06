"""Which f_topo: strategies and hops compared, on homophilous and heterophilous graphs."""

from __future__ import annotations

from pathlib import Path

from evergraph.experiments.bench.benchmark import Row
from evergraph.experiments.bench.config import BenchConfig
from evergraph.graphs import Graph
from evergraph.reports.tables.record import Cell
from evergraph.studies.base import DatasetStudy, Options, Sheet, studies
from evergraph.studies.cells import balanced, marked, spread

STRATEGIES = {
    "sgc": "S1",
    "s2gc": "S2",
    "ppr": "S3",
    "appnp": "S3 as released (APPNP)",
    "reservoir": "reservoir",
    "mixhop": "MixHop",
    "h2gcn": "H2GCN",
    "identity": "no topology",
}
HOPS = (1, 2, 3, 4, 5, 6)
FIXED = {"h2gcn": (2,), "identity": (0,)}  # these look only so far


@studies.register
class Strategies(DatasetStudy):
    """f_topo strategies S1, S2, S3, reservoir, MixHop, H2GCN at 1 to 6 hops."""

    name = "strategies"
    datasets = ("wordnet",)

    def sheets(self, dataset: str, graph: Graph, options: Options) -> list[Sheet]:
        """Learn with every strategy."""
        return [_sheet(dataset, options)]


def _sheet(name: str, options: Options) -> Sheet:
    stem = Path(name).stem
    title = f"f_topo on {stem}: AA of tem in class-IL, percent, by hops"
    hops = HOPS[:2] if options.quick else HOPS
    rows = options.bench(_bench(name, hops, options), options.out / "strategies" / stem)
    columns = ("strategy", *(f"{hop} hops" for hop in hops))
    notes = options.differences(
        "The paper chooses S1 with 2 hops and shows no table of the others.",
        "H2GCN keeps self, 1 and 2 hops apart, no topology is the features alone: once each.",
    )
    return Sheet(f"strategies-{stem}", title, columns, _lines(rows, hops), notes)


def _bench(name: str, hops: tuple[int, ...], options: Options) -> BenchConfig:
    training = {"training": {"epochs": 5}} if options.quick else {}
    entries = [
        {"name": "tem", "label": f"{strategy}-{hop}",
         "run": {"topology": _topology(strategy, hop), **training}}
        for strategy in STRATEGIES
        for hop in FIXED.get(strategy, hops)
    ]  # fmt: skip
    return BenchConfig.of({"datasets": [name], "seeds": options.repeats(), "methods": entries})


def _topology(strategy: str, hop: int) -> dict[str, object]:
    return {"name": strategy} if strategy in FIXED else {"name": strategy, "hops": hop}


def _lines(rows: list[Row], hops: tuple[int, ...]) -> list[tuple[str | Cell, ...]]:
    found = {row.job.label: balanced(row.result, "average_accuracy") for row in rows}
    labels = [
        f"{strategy}-{_shown(strategy, hop, hops)}" for strategy in STRATEGIES for hop in hops
    ]
    values = [found.get(label) for label in labels]
    cells = marked(
        [spread(value, scale=100) for value in values],
        [None if value is None else value["mean"] for value in values],
    )
    return [
        (said, *cells[place * len(hops) : (place + 1) * len(hops)])
        for place, said in enumerate(STRATEGIES.values())
    ]


def _shown(strategy: str, hop: int, hops: tuple[int, ...]) -> int | str:
    """Return which run stands at a hop: those that look only so far stand in one column."""
    if strategy not in FIXED:
        return hop
    only = FIXED[strategy][0]
    return only if hop == (only or hops[0]) else "-"
