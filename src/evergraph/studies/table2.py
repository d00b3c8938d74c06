"""Table 2, samplers and budgets; and strategies of f_topo and numbers of hops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import torch

from evergraph.core.seeding import seeded
from evergraph.evaluation.evaluator import spread as spread_of
from evergraph.experiments.presets import presets, published, read_preset
from evergraph.graphs import Graph
from evergraph.memory import Candidates, EmbeddingMemory, samplers
from evergraph.reports.runs import percent
from evergraph.reports.tables import Cell
from evergraph.streams import GraphStream
from evergraph.studies import base
from evergraph.studies.base import DatasetStudy, Options, Sheet, studies

RATIOS = {"0.02": 0.0002, "0.1": 0.001, "1": 0.01, "5": 0.05, "40": 0.4}
SAMPLERS = ("uniform", "mean-feature", "coverage", "degree", "greedy-coverage")
QUICK = ("0.1", "1")
DETERMINISTIC = "greedy-coverage"
HOPS = 2
Spreads = dict[tuple[str, str], dict[str, Any] | None]
"""A mean and deviation by sampler and ratio."""
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
STRATEGY_HOPS = (1, 2, 3, 4, 5, 6)
FIXED = {"h2gcn": (2,), "identity": (0,)}  # strategies with a fixed number of hops


@studies.register
class Table2(DatasetStudy):
    """Buffer sizes x samplers: coverage ratio, and AA where there are features."""

    name = "table2"
    learns = False
    datasets = ("arxiv", "wordnet")

    def sheets(self, dataset: str, graph: Graph, options: Options) -> list[Sheet]:
        ratios = [ratio for ratio in RATIOS if not options.quick or ratio in QUICK]
        if graph.num_features:
            return _sheets_of_runs(dataset, ratios, options)
        return [
            _sheet_of_coverage(dataset, undirected, ratios, options) for undirected in (False, True)
        ]


def results_by_memory(
    name: str, ratios: Sequence[str], options: Options
) -> dict[tuple[str, str], dict[str, Any] | None]:
    """Return the result of a whole run for every sampler and ratio, with the paper's recipe."""
    values = read_preset("paper")
    values.pop("method")
    if options.quick:
        values["training"]["epochs"] = 10
    entries = []
    for sampler, ratio in product(SAMPLERS, ratios):
        run = values | {"memory": {"budget": RATIOS[ratio], "sampler": sampler}}
        entries.append({"name": "tem", "label": f"{sampler}-{ratio}", "run": run})
    results = {row.job.label: row.result for row in options.rows("table2", name, entries)}
    return {
        (sampler, ratio): results[f"{sampler}-{ratio}"]
        for sampler, ratio in product(SAMPLERS, ratios)
    }


def _sheets_of_runs(name: str, ratios: list[str], options: Options) -> list[Sheet]:
    stem = Path(name).stem
    results = results_by_memory(name, ratios, options)
    accuracy = {key: base.balanced(result, "average_accuracy") for key, result in results.items()}
    # A result keeps only the mean of the coverage over seeds.
    coverage = {
        key: None if result is None else {"mean": result["coverage_ratio"], "std": None}
        for key, result in results.items()
    }
    notes = options.differences("The paper's recipe; local testing; two hops.")
    return [
        _sheet(
            f"table2-{stem}-aa",
            f"Table 2, {stem}: AA, percent",
            name,
            accuracy,
            ratios,
            "average_accuracy",
            notes,
        ),
        _sheet(
            f"table2-{stem}-coverage",
            f"Table 2, {stem}: coverage ratio, percent",
            name,
            coverage,
            ratios,
            "coverage_ratio",
            notes,
        ),
    ]


def _sheet_of_coverage(name: str, undirected: bool, ratios: list[str], options: Options) -> Sheet:
    """Return the coverage of memories filled without learning."""
    stem = Path(name).stem
    edges = "both-ways" if undirected else "as-listed"
    graph = base.try_load(name, undirected=undirected)
    assert isinstance(graph, Graph)
    stream = GraphStream(graph)
    spreads: Spreads = {}
    for sampler, ratio in product(SAMPLERS, ratios):
        if sampler == "mean-feature":  # there are no features
            spreads[sampler, ratio] = None
            continue
        measured = []
        for seed in options.repeats()[: 1 if sampler == DETERMINISTIC else None]:
            path = options.out / "table2" / f"{stem}-{edges}" / f"{sampler}-{ratio}-{seed}.json"
            measure = partial(coverage_of, stream, sampler, RATIOS[ratio], seed=seed)
            measured.append(base.made_once(path, measure))
        spreads[sampler, ratio] = spread_of(measured)
    notes = options.differences(
        f"Edges {'both ways' if undirected else 'as listed'}, within tasks, two hops, exact; the "
        "structure alone, so no accuracy and no mean of features.",
        _coverage_against_uniform(spreads, ratios),
    )
    title = f"Table 2, {stem}, edges {edges.replace('-', ' ')}: coverage ratio, percent"
    return _sheet(f"table2-{stem}-{edges}", title, name, spreads, ratios, "coverage_ratio", notes)


def coverage_of(stream: GraphStream, sampler: str, budget: float, *, seed: int) -> float:
    """Return R_c of a memory over all tasks of a stream, with two hops within each task."""
    memory = EmbeddingMemory(budget=budget, sampler=samplers.make(sampler))
    for index in range(len(stream)):
        task = stream.open(index)
        no_features = torch.empty(len(task.train), 0)
        candidates = Candidates(
            task.graph,
            task.train,
            task.train_labels,
            no_features,
            HOPS,
            known_as=task.ids[task.train],
        )
        memory.store(candidates, task.class_sizes, generator=seeded(seed, index))
        memory.measure(task.graph, task.ids, task.own, hops=HOPS)
    return memory.coverage_ratio


def _sheet(
    name: str,
    title: str,
    dataset: str,
    spreads: Spreads,
    ratios: list[str],
    metric: str,
    notes: tuple[str, ...],
) -> Sheet:
    """Return our values and the paper's, a row per sampler, a column per ratio."""
    columns = (
        "sampler",
        *(f"{ratio} %" for ratio in ratios),
        *(f"paper's {ratio} % (ours minus it)" for ratio in ratios),
    )
    rows: dict[str, list[str | Cell]] = {sampler: [sampler] for sampler in SAMPLERS}
    for ratio in ratios:
        cells = base.marked([spreads[sampler, ratio] for sampler in SAMPLERS])
        for sampler, cell in zip(SAMPLERS, cells, strict=True):
            rows[sampler].append(cell)
    for sampler, ratio in product(SAMPLERS, ratios):
        preset = f"paper/table2/{sampler}-{ratio}"
        ours = spreads[sampler, ratio]
        text = "-"
        if base.papers_name(dataset) == "arxiv" and preset in presets():
            papers = published(preset)[metric]
            text = percent(papers, scale=1)
            if ours is not None:
                text += f" ({base.difference(100 * ours['mean'], papers['mean'])})"
        rows[sampler].append(text)
    return Sheet(name, title, columns, [tuple(row) for row in rows.values()], notes)


def _coverage_against_uniform(spreads: Spreads, ratios: list[str]) -> str:
    """Return a note on ratios at which coverage maximisation is not ahead of uniform sampling."""
    means = {key: 0.0 if spread is None else spread["mean"] for key, spread in spreads.items()}
    behind = [f"{r} %" for r in ratios if means["coverage", r] <= means["uniform", r]]
    if not behind:
        return "Coverage maximisation is ahead of uniform sampling at every ratio."
    return f"Coverage maximisation is not ahead of uniform sampling at {' and '.join(behind)}."


@studies.register
class Strategies(DatasetStudy):
    """f_topo strategies S1, S2, S3, reservoir, MixHop, H2GCN at 1 to 6 hops."""

    name = "strategies"
    datasets = ("wordnet",)

    def sheets(self, dataset: str, graph: Graph, options: Options) -> list[Sheet]:
        stem = Path(dataset).stem
        title = f"f_topo on {stem}: AA of tem in class-IL, percent, by hops"
        hops = STRATEGY_HOPS[:2] if options.quick else STRATEGY_HOPS
        training = {"training": {"epochs": 5}} if options.quick else {}
        entries = []
        for strategy in STRATEGIES:
            for hop in FIXED.get(strategy, hops):
                parameters = {} if strategy in FIXED else {"hops": hop}
                run = {"topology": {"name": strategy, **parameters}, **training}
                entries.append({"name": "tem", "label": f"{strategy}-{hop}", "run": run})
        rows = options.rows("strategies", dataset, entries)
        columns = ("strategy", *(f"{hop} hops" for hop in hops))
        results = {row.job.label: base.balanced(row.result, "average_accuracy") for row in rows}
        values = []
        for strategy, hop in product(STRATEGIES, hops):
            # A strategy with fixed hops appears in one column: theirs, or the first for 0 hops.
            (hops_run,) = FIXED.get(strategy, (hop,))
            shown = hop == (hops_run or hops[0])
            values.append(results.get(f"{strategy}-{hops_run}") if shown else None)
        cells = iter(base.marked(values))
        table: list[tuple[str | Cell, ...]] = [
            (label, *islice(cells, len(hops))) for label in STRATEGIES.values()
        ]
        notes = options.differences(
            "The paper chooses S1 with 2 hops and shows no table of the others.",
            "H2GCN keeps self, 1 and 2 hops apart, no topology is the features alone: once each.",
        )
        return [Sheet(f"strategies-{stem}", title, columns, table, notes)]
