"""A finished run of anybody's as a row of the book, if it is sound."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evergraph.core.errors import EvergraphError, ResultsError
from evergraph.core.plugins import load_plugins
from evergraph.evaluation import average_accuracy, average_forgetting
from evergraph.evaluation.accuracy_matrix import matrix_of
from evergraph.experiments.build import resolved
from evergraph.experiments.config import RunConfig, read_toml
from evergraph.experiments.store import ARRAYS, CONFIG, RESULT, ResultStore
from evergraph.streams.stream import TESTINGS
from evergraph.studies.book.building import differences
from evergraph.studies.book.checking import Rules, check_row, decided, shipped_rules
from evergraph.studies.book.making import placeless, row_of
from evergraph.studies.book.plan import BookPlan, read_plan
from evergraph.studies.book.row import BookRow

EXACT = 1e-9
SUMMARIES = {"average_accuracy": average_accuracy, "average_forgetting": average_forgetting}


def submitted(
    run: Path,
    *,
    book: Path,
    commit: str,
    label: str | None = None,
    plan: BookPlan | None = None,
) -> BookRow:
    """Return the row of a finished run, or say in one sentence why it cannot be one.

    Args:
        run: its results folder.
        book: where rows lie; one that is there already is not replaced.
        commit: of the code that ran it.
        label: what the book is to call the method; its name unless given.
        plan: of the book; the shipped one unless given.
    """
    plan = read_plan() if plan is None else plan
    rules = shipped_rules() if plan == read_plan() else Rules.of(plan)
    result = _finished(run)
    config = placeless(RunConfig.of(result["config"]))
    load_plugins(config.plugins)
    for wrong in _complaints(run, result):
        raise ResultsError(f"{run}: {wrong}")
    dataset = _place(run, config, rules)
    named = config.method.name if label is None else label
    row = row_of(result, run, dataset=dataset, label=named, commit=commit)
    check_row(row, rules, where=str(run))
    _check_own(run, row, config, plan)
    if (book / row.place).exists():
        raise ResultsError(f"{run}: {book / row.place} is there already: give it another --label")
    return row


def _finished(run: Path) -> dict[str, Any]:
    if not (run / CONFIG).exists():
        raise ResultsError(f"{run} is no results folder: it has no {CONFIG}")
    result = ResultStore(run).finished()
    if result is None:
        raise ResultsError(f"{run} is not finished: it has no {RESULT}")
    missing = [key for key in ("config", "dataset", "versions", "machine") if key not in result]
    if missing:
        raise ResultsError(f"{run / RESULT} has no {missing[0]!r}")
    return result


def _complaints(run: Path, result: Mapping[str, Any]) -> Iterator[str]:
    """Yield where the folder contradicts itself."""
    stored = resolved(RunConfig.of(read_toml(run / CONFIG))).to_dict()
    for key, (there, here) in differences(result["config"], stored).items():
        yield f"{key} is {there!r} in {RESULT} and {here!r} in {CONFIG}"
    seeds = [seed["seed"] for seed in result["accuracy_matrix"]]
    for seed in result["config"]["seeds"]:
        if seed not in seeds:
            yield f"seed {seed} is missing from accuracy_matrix in {RESULT}"
    for seed in result["accuracy_matrix"]:
        yield from _of_seed(run, seed)
    yield from _of_means(result)


def _of_seed(run: Path, seed: Mapping[str, Any]) -> Iterator[str]:
    """Yield where a seed's matrices are none, or not those that were kept when it was learned."""
    path = run / f"seed-{seed['seed']}" / ARRAYS
    if not path.exists():
        yield f"{path.relative_to(run)} is missing"
        return
    with np.load(path, allow_pickle=False) as kept:
        for testing in TESTINGS:
            for average, rows in seed[testing].items():
                way = f"accuracy_matrix of seed {seed['seed']}, {testing}, {average},"
                if [len(row) for row in rows] != [*range(1, len(rows) + 1)]:
                    yield f"{way} must have a row for each task, one number longer each"
                numbers = [number for row in rows for number in row]
                if not all(math.isfinite(n) and 0 <= n <= 1 for n in numbers):
                    yield f"{way} must hold finite numbers within 0 and 1"
                same = np.allclose(
                    kept[f"{testing}_{average}"], matrix_of(rows), 0, EXACT, equal_nan=True
                )
                if not same:
                    yield f"{way} is not the one in {path.relative_to(run)}"


def _of_means(result: Mapping[str, Any]) -> Iterator[str]:
    for name, metric in SUMMARIES.items():
        for testing in TESTINGS:
            for average, told in result[name][testing].items():
                matrices = [matrix_of(s[testing][average]) for s in result["accuracy_matrix"]]
                again = float(np.mean([metric(matrix) for matrix in matrices]))
                if not math.isfinite(told["mean"]) or abs(told["mean"] - again) > EXACT:
                    yield (
                        f"{name}, {testing}, {average}, is {told['mean']}, but its accuracy "
                        f"matrices make it {again:.6f}"
                    )


def _place(run: Path, config: RunConfig, rules: Rules) -> str:
    """Return what the book calls a run's dataset: the one from which it differs least."""
    near = {
        dataset: decided(config.to_dict(), expected)
        for (dataset, setting), expected in rules.expected.items()
        if setting == config.stream.setting and expected.dataset.name == config.dataset.name
    }
    if not near:
        known = sorted({expected.dataset.name for expected in rules.expected.values()})
        raise ResultsError(
            f"{run}: the book has no dataset {config.dataset.name!r} in setting "
            f"{config.stream.setting}: it has {', '.join(known)}"
        )
    dataset = min(near, key=lambda name: len(near[name]))
    for key, (ours, theirs) in near[dataset].items():
        raise ResultsError(
            f"{run}: {key} must be {theirs!r} as in the book's {dataset}, not {ours!r}"
        )
    return dataset


def _check_own(run: Path, row: BookRow, config: RunConfig, plan: BookPlan) -> None:
    """Raise if a row has the label of one of the book's methods and is not that method."""
    for job in plan.jobs():
        if (job.label, job.dataset, job.setting) != (row.label, row.dataset, row.setting):
            continue
        try:
            other = differences(resolved(config).to_dict(), resolved(job.config).to_dict())
        except EvergraphError as error:
            raise ResultsError(f"{run}: {error}") from None
        for key, (ours, theirs) in other.items():
            raise ResultsError(
                f"{run}: {key} must be {theirs!r} as in the book's {row.label}, not {ours!r}: give "
                "a variant of it a --label of its own"
            )
