"""Check a finished run, and add it to the results book as a row.

Dataset, stream and seeds must be the book's; numbers are computed from the accuracy matrices.
With --check and a book, all rows of the book are checked.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import book_rows
import numpy as np
from book_rows import BookPlan, BookRow

from evergraph.core.errors import EvergraphError, ResultsError
from evergraph.core.packages import is_file_plugin, load_plugins
from evergraph.evaluation.evaluator import average_accuracy_curve, matrix_of
from evergraph.experiments.build import resolved
from evergraph.experiments.config import RunConfig, differences, flat, nested
from evergraph.experiments.store import CONFIG, RESULT, ResultStore

# Options on which the defaults of others depend; they are given first.
_CHOICES = (
    "dataset.name",
    "method.name",
    "backbone.name",
    "topology.name",
    "memory.sampler.name",
    "protocol",
    "seeds",
    "device",
    "plugins",
)
_OPTIONS = {
    "dataset.name": "--dataset",
    "method.name": "--method",
    "stream.setting": "--setting",
    "backbone.name": "--backbone",
    "protocol": "--protocol",
    "device": "--device",
}
_BARE = re.compile(r"(?!(true|false|inf|nan)$)[A-Za-z][\w-]*")


def command_of(config: RunConfig) -> str:
    """Return the shortest ``evergraph run`` command of a configuration, without defaults.

    >>> command_of(RunConfig.of({"method": "tem", "memory": {"budget": 20}, "repeats": 3}))
    'evergraph run --dataset wordnet --method tem --set memory.budget=20 --repeats 3'
    """

    def resolved_values(values: Mapping[str, Any]) -> dict[str, Any]:
        return flat(resolved(RunConfig.of(nested(values))).to_dict())

    settings = flat(resolved(config).to_dict())
    chosen = {key: settings[key] for key in _CHOICES if settings.get(key) not in (None, [])}
    plain = resolved_values(chosen)
    defaults = resolved_values({"method.name": settings["method.name"]})
    given = {
        key: value
        for key, value in settings.items()
        if key in ("dataset.name", "method.name", "seeds")
        or (key in chosen and defaults.get(key) != value)
        or (key not in chosen and value is not None and plain.get(key) != value)
    }
    words = [word for key, value in given.items() for word in _words(key, value)]
    return shlex.join(["evergraph", "run", *words])


def _words(key: str, value: Any) -> list[str]:
    """Return a setting as options of the command line.

    >>> _words("seeds", [0, 1, 2]), _words("seeds", [7]), _words("seeds", [7, 9])
    (['--repeats', '3'], ['--seed', '7'], ['--seeds', '7,9'])
    >>> [_words("a", value)[1] for value in ("shuffled", [0.6, 0.2], True, "true")]
    ['a=shuffled', 'a=[0.6, 0.2]', 'a=true', 'a="true"']
    """
    if key in _OPTIONS:
        return [_OPTIONS[key], str(value)]
    if key == "seeds":
        if len(value) == 1:
            return ["--seed", str(value[0])]
        if value == list(range(len(value))):
            return ["--repeats", str(len(value))]
        return ["--seeds", ",".join(map(str, value))]
    if key == "plugins":
        return [word for source in value for word in ("--plugin", plugin_file_name(source))]
    bare = isinstance(value, str) and _BARE.fullmatch(value)  # otherwise it is written as TOML
    return ["--set", f"{key}={value if bare else json.dumps(value)}"]


COMMIT = "EVERGRAPH_COMMIT"


def row_of(
    result: Mapping[str, Any], folder: Path, *, dataset: str, label: str, commit: str
) -> BookRow:
    """Return the row of a finished run.

    result: the content of its ``result.json``. folder: the row has the date of its result there.
    dataset, label: names in the book. commit: of the code that ran it.
    """
    config = without_folder(RunConfig.of(result["config"]))
    matrices = result["accuracy_matrix"]
    # The summaries of each seed's matrix, by testing and averaging.
    tasks = {
        testing: {
            averaging: [_matrix_summary(seed[testing][averaging]) for seed in matrices]
            for averaging in by_averaging
        }
        for testing, by_averaging in matrices[0].items()
        if testing != "seed"
    }
    finished = (folder / RESULT).stat().st_mtime
    return BookRow(
        dataset=dataset,
        setting=config.stream.setting,
        label=label,
        method=config.method.name,
        protocol=getattr(config, "protocol", None),
        config=stored_config(config),
        command=command_of(config),
        commit=commit,
        versions=dict(result["versions"]),
        machine=machine_in_words(result["machine"]),
        date=datetime.fromtimestamp(finished, timezone.utc).strftime("%Y-%m-%d"),
        seeds=tuple(seed["seed"] for seed in matrices),
        values={
            testing: {
                averaging: book_rows.metrics_of(seeds) for averaging, seeds in by_averaging.items()
            }
            for testing, by_averaging in tasks.items()
        },
        tasks=tasks,
        facts={k: v for k, v in result["dataset"].items() if k != "task_classes"},
        seconds={phase: round(spent, 3) for phase, spent in result["seconds"].items()},
        bytes=result["memory"]["bytes"],
        cumulative=bool(result.get("cumulative", False)),
        peak_bytes=result["peak_rss_bytes"],
    )


def without_folder(config: RunConfig) -> RunConfig:
    """Return a configuration with a graph's file by name, without its folder."""
    path = Path(config.dataset.name)
    if len(path.parts) < 2:
        return config
    return config.model_copy(
        update={"dataset": config.dataset.model_copy(update={"name": path.name})}
    )


def plugin_file_name(plugin: str) -> str:
    """Return a plugin's name without its folder, which is private."""
    return Path(plugin).name if is_file_plugin(plugin) else plugin


def stored_config(config: RunConfig) -> dict[str, Any]:
    """Return a configuration as stored in a row: plugins by name, without their folders."""
    # Not in ``without_folder``: a configuration without their folders could not load its plugins.
    return config.to_dict() | {"plugins": [plugin_file_name(each) for each in config.plugins]}


def machine_in_words(machine: Mapping[str, Any]) -> str:
    """Return a machine as text.

    >>> machine_in_words({"cpus": 16, "memory": "128 GiB", "gpu": "NVIDIA H200"})
    'NVIDIA H200, 16 CPUs, 128 GiB'
    """
    cpus = f"{machine['cpus']} CPUs"
    return ", ".join(filter(None, (machine.get("gpu"), cpus, machine.get("memory"))))


def commit_here(given: str | None = None) -> str:
    """Return the commit of this code: as given, from ``$EVERGRAPH_COMMIT``, or from git."""
    commit = given or os.environ.get(COMMIT)
    if commit:
        return commit
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    folder = Path(__file__).parent
    try:
        result = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):  # no git, or no repository
        return "unknown"
    return result.stdout.strip() or "unknown"


def _matrix_summary(rows: Sequence[Sequence[float]]) -> dict[str, list[float]]:
    """Return the mean of each row, the diagonal and the last row.

    >>> _matrix_summary([[0.9], [0.5, 0.7]])
    {'curve': [0.9, 0.6], 'learned': [0.9, 0.7], 'final': [0.5, 0.7]}
    """
    matrix = matrix_of(rows)
    parts = {
        "curve": average_accuracy_curve(matrix),
        "learned": matrix.diagonal(),
        "final": matrix[-1],
    }
    return {name: np.round(values, book_rows.DIGITS).tolist() for name, values in parts.items()}


def submit(run: Path, *, book: Path, label: str | None, commit: str | None, check: bool) -> str:
    """Do what the command line asks for, and return what to print."""
    if check and not (run / CONFIG).exists():
        rows = book_rows.check_book(run)
        failed = sum(row.failure is not None for row in rows)
        return f"{run}: {len(rows)} rows are valid, {failed} of them record a failure"
    row = submitted(run, book=book, commit=commit_here(commit), label=label)
    if check:
        return f"{run}: valid; its row would be {book / row.path_in_book}"
    return f"{run}: written to {row.write(book)}"


def submitted(
    run: Path, *, book: Path, commit: str, label: str | None = None, plan: BookPlan | None = None
) -> BookRow:
    """Return the row of a finished run; raise if it breaks a rule.

    run: its results folder. book: an existing row in it is not replaced. commit: of the code that
    ran it. label: name of the method in the book, by default its own. plan: by default that of
    the repository.
    """
    plan = book_rows.read_plan() if plan is None else plan
    if not (run / CONFIG).exists():
        raise ResultsError(f"{run} is not a results folder: it has no {CONFIG}")
    result = ResultStore(run).finished()
    if result is None:
        raise ResultsError(f"{run} is not finished: it has no {RESULT}")
    for key in ("config", "dataset", "versions", "machine"):
        if key not in result:
            raise ResultsError(f"{run / RESULT} has no {key!r}")
    config = without_folder(RunConfig.of(result["config"]))
    load_plugins(config.plugins)
    dataset = _dataset_of(run, config, plan)
    method_label = config.method.name if label is None else label
    row = row_of(result, run, dataset=dataset, label=method_label, commit=commit)
    book_rows.check_row(row, plan, where=str(run))
    _check_label(run, row, config, plan)
    if (book / row.path_in_book).exists():
        raise ResultsError(f"{run}: {book / row.path_in_book} exists: choose another --label")
    return row


def _dataset_of(run: Path, config: RunConfig, plan: BookPlan) -> str:
    """Return the book's name of a run's dataset: the one with the fewest differences."""
    differences_by_dataset = {
        dataset: book_rows.fixed_differences(config.to_dict(), expected)
        for (dataset, setting), expected in plan.expected.items()
        if setting == config.stream.setting and expected.dataset.name == config.dataset.name
    }
    if not differences_by_dataset:
        datasets = sorted({expected.dataset.name for expected in plan.expected.values()})
        raise ResultsError(
            f"{run}: the book has no dataset {config.dataset.name!r} in setting "
            f"{config.stream.setting}: it has {', '.join(datasets)}"
        )
    dataset = min(differences_by_dataset, key=lambda name: len(differences_by_dataset[name]))
    for key, (ours, theirs) in differences_by_dataset[dataset].items():
        raise ResultsError(
            f"{run}: {key} must be {theirs!r} as in the book's {dataset}, not {ours!r}"
        )
    return dataset


def _check_label(run: Path, row: BookRow, config: RunConfig, plan: BookPlan) -> None:
    """Raise if a row has the label of one of the book's methods but differs from it."""
    entries = [e for e in plan.entries if row.label in [variant.called for variant in e.variants]]
    for job in plan.jobs(entries=entries) if entries else ():
        if (job.label, job.dataset, job.setting) != (row.label, row.dataset, row.setting):
            continue
        try:
            found_differences = differences(
                resolved(config).to_dict(), resolved(job.config).to_dict()
            )
        except EvergraphError as error:
            raise ResultsError(f"{run}: {error}") from None
        for key, (ours, theirs) in found_differences.items():
            raise ResultsError(
                f"{run}: {key} must be {theirs!r} as in the book's {row.label}, not {ours!r}: "
                "choose another --label for a variant"
            )


def main() -> None:
    """Submit the run of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="a run's results folder, or a book")
    parser.add_argument("--book", type=Path, default=Path("book"), help="where the row is added")
    parser.add_argument("--label", help="the method's name in the book (default: its own)")
    parser.add_argument("--commit", help="of the code that ran (default: git's)")
    parser.add_argument("--check", action="store_true", help="print problems, write nothing")
    try:
        print(submit(**vars(parser.parse_args())))
    except EvergraphError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
