"""The results folder, with atomic writes, so that a stopped run can be resumed.

DIR/config.toml                  the resolved configuration
DIR/result.json                  once every seed is done
DIR/seed-0/progress.json         rows and seconds of the tests so far
DIR/seed-0/state-0007.safetensors  the learner after the last test, by the task or step before it
DIR/seed-0/accuracy.npz          the accuracy matrices, once the seed is done
DIR/seed-0/lock                  locked while the seed is being learned
DIR/lock                         locked while the folder is being claimed

A benchmark may add:

DIR/failure.json                 why the last attempt failed
DIR/search.json                  how its hyper-parameters were chosen
DIR/search/NAME/...              one run per combination, in the same layout
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from evergraph.core.errors import LockedError, ResultsError
from evergraph.core.label_space import LabelSpace
from evergraph.core.safe_files import LOCK_FILE, FileLock, results_written, written_aside
from evergraph.evaluation.evaluator import (
    AccuracyMatrix,
    average_accuracy,
    average_forgetting,
    matrix_of,
)
from evergraph.experiments.config import RunConfig, differences, merged, read_toml
from evergraph.experiments.protocol import TaskReport
from evergraph.experiments.result import RunResult, SeedResult
from evergraph.memory import MemoryUsage
from evergraph.streams.task import TESTINGS
from evergraph.training import Learner

CONFIG, RESULT, PROGRESS, ARRAYS = "config.toml", "result.json", "progress.json", "accuracy.npz"
FAILURE, SEARCH, CHOICE = "failure.json", "search", "search.json"
PARTS_OF_RESULT = (  # what reports read
    *("metric", "protocol", "headline", "measures", "config", "versions", "machine"),
    *("average_accuracy", "average_forgetting", "anytime_accuracy", "average_accuracy_curve"),
    *("tested_after", "accuracy_matrix", "coverage_ratio", "cumulative", "memory", "seconds"),
)
STATE = "state-{:04d}.safetensors"
RESUMABLE = "finished work is kept, --resume continues after it"


class ResultStore:
    """One results folder.

    Before anything is written, ``open`` rejects a folder with anything other than a finished or
    unfinished run of the same configuration.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, config: RunConfig, *, resume: bool) -> None:
        """Claim the folder for a configuration; several processes may do so for the same one."""
        path = self.folder / CONFIG
        claimed = path.exists()  # read first: another process may claim it while this one looks
        check_free(self.folder, CONFIG, resume=resume, beside=(FAILURE, SEARCH, CHOICE))
        if not claimed:
            # Only one process may write it: a second would overwrite the first one's.
            with locked(self.folder, "it is being claimed", wait=True):
                if path.exists():
                    check_free(self.folder, CONFIG, resume=resume)
                else:
                    write_whole(path, config.to_toml().encode())
        stored = merged(RunConfig().to_dict(), read_toml(path))
        for key, (new, old) in differences(config.to_dict(), stored).items():
            raise ResultsError(
                f"{self.folder} holds another configuration: {key} is {old!r} there and "
                f"{new!r} here"
            )

    def finished(self) -> dict[str, Any] | None:
        """Return the stored result of a finished run."""
        path = self.folder / RESULT
        return read_result(path) if path.exists() else None

    def keep_result(self, result: RunResult) -> None:
        """Write the result, which marks the run as finished; an existing one is kept."""
        if self.finished() is not None:
            return
        text = json.dumps(result.to_dict(), indent=1, allow_nan=False)
        write_whole(self.folder / RESULT, text.encode())

    def seed(self, seed: int) -> SeedStore:
        """Return the part of the folder that belongs to one repeat."""
        return SeedStore(self.folder / f"seed-{seed}", seed)


@dataclass(frozen=True)
class SeedProgress:
    """What is stored of a repeat: the tests so far, and the result once all are done.

    tasks: how many are to be learned, or steps if tasks arrive in batches.
    """

    reports: list[TaskReport]
    tasks: int
    result: SeedResult | None

    @property
    def done(self) -> int:
        """The number of tasks or steps learned."""
        return self.reports[-1].index + 1

    @property
    def seconds(self) -> float:
        """Seconds spent so far."""
        return sum(sum(report.seconds.values()) for report in self.reports)

    @property
    def matrix(self) -> AccuracyMatrix:
        """The local matrix so far, in the main measure, which comes first."""
        return matrix_of([next(iter(report.rows["local"].values())) for report in self.reports])

    def __str__(self) -> str:
        accuracy, forgetting = average_accuracy(self.matrix), average_forgetting(self.matrix)
        return f"AA {100 * accuracy:.1f}, AF {100 * forgetting:.1f} local"


class SeedStore:
    """The part of a results folder that belongs to one repeat."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed

    def lock(self) -> FileLock:
        """Keep other processes from learning this repeat until the lock is closed."""
        return locked(self.folder, f"seed {self.seed} is being learned")

    def progress(self) -> SeedProgress | None:
        """Return the progress so far; None if nothing is stored yet."""
        path = self.folder / PROGRESS
        if not path.exists():
            return None
        stored = _read_json(path)
        try:
            reports = [TaskReport(**report) for report in stored["reports"]]
            if not reports:
                raise KeyError("reports")  # written after the first test
            result = None
            if (values := stored["result"]) is not None:
                usage = MemoryUsage(**values["usage"])
                result = SeedResult(**values | {"reports": reports, "usage": usage})
            return SeedProgress(reports, stored["tasks"], result)
        except (KeyError, TypeError) as error:
            raise ResultsError(f"{path} is not a progress file of evergraph: {error}") from None

    def keep_task(self, reports: list[TaskReport], state: dict[str, Tensor], *, tasks: int) -> None:
        """Write the learner after a test, then the progress that refers to it.

        tasks: number of tasks of the stream, or of steps if tasks arrive in batches.
        """
        current = self.folder / STATE.format(reports[-1].index)
        contiguous = {name: value.contiguous() for name, value in state.items()}
        write_whole(current, tensors_to_bytes(contiguous))
        self._keep(reports, tasks, state=current)

    def keep_result(self, result: SeedResult) -> None:
        """Write the matrices and mark the repeat as finished; its learner is no longer needed."""
        arrays = {f"{t}_{a}": result.matrix(t, a) for t in TESTINGS for a in result.averages}
        path = self.folder / ARRAYS
        with results_written(path, remedy=RESUMABLE), written_aside(path) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        values = asdict(replace(result, reports=[]))  # which are stored beside it
        self._keep(result.reports, result.reports[-1].index + 1, result=values)

    def _keep(
        self, reports: list[TaskReport], tasks: int, *, result: object = None, state: object = None
    ) -> None:
        """Write the progress, then remove all states but the one that it refers to."""
        rows = [asdict(report) for report in reports]
        content = json.dumps({"tasks": tasks, "reports": rows, "result": result})
        write_whole(self.folder / PROGRESS, content.encode())
        with results_written(self.folder, remedy=RESUMABLE):
            for path in self.folder.glob(STATE.replace("{:04d}", "*")):
                if path != state:
                    path.unlink()

    def restore(self, learner: Learner, index: int, label_space: LabelSpace) -> None:
        """Give a learner its state after a task."""
        path = self.folder / STATE.format(index)
        try:
            learner.restore(tensors_from_bytes(path.read_bytes()), label_space)
        except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
            raise ResultsError(
                f"{path} cannot be read to resume, it is damaged or of another version: {error!r}"
            ) from error


def locked(folder: Path, doing: str, *, wait: bool = False) -> FileLock:
    """Lock a folder against other processes, and create it if it does not exist.

    Where the file system cannot lock, as some network drives, this does nothing.
    """

    def refusal(holder: str) -> LockedError:
        return LockedError(
            f"{folder}: {doing} by {holder}: wait for it or stop it, then use --resume, or "
            "choose another --out"
        )

    with results_written(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / LOCK_FILE, refusal, wait=wait)


def check_free(folder: Path, marker: str, *, resume: bool, beside: Collection[str] = ()) -> None:
    """Raise unless a folder is empty, or holds results that may be continued.

    marker: the file by which results are known; beside: names of other files that may be there.
    """
    if (folder / marker).exists():
        if not resume:
            raise ResultsError(
                f"{folder} already holds results: use --resume to continue them, or another --out"
            )
        return
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    # Another process may be claiming the folder: its temporary file is ignored.
    temporary = (LOCK_FILE, f".{marker}-")
    foreign = [name for name in names if name not in beside and not name.startswith(temporary)]
    # Checked last: another process may have claimed the folder and started meanwhile.
    if (folder.is_file() or foreign) and not (folder / marker).exists():
        raise ResultsError(f"{folder} is neither empty nor a results folder of evergraph")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file of the results folder atomically."""
    with results_written(path, remedy=RESUMABLE), written_aside(path) as file:
        file.write(content)


def read_result(path: Path) -> dict[str, Any]:
    """Return the content of a ``result.json``; raise unless it is one."""
    content = _read_json(path)
    missing = [key for key in PARTS_OF_RESULT if key not in content]
    if missing:
        raise ResultsError(f"{path} is not a result of evergraph: it has no {missing[0]!r}")
    return content


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise ResultsError(f"{path} cannot be read: it is not a JSON object")
    return content
