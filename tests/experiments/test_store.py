"""The results folder: nothing is lost, whatever fails, and one process at a time learns a seed."""

import errno
import os
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from evergraph.core.errors import LockedError, ResultsError
from evergraph.experiments import runner, store
from evergraph.experiments.bench.benchmark import open_bench, run_bench
from evergraph.experiments.bench.jobs import BenchConfig
from evergraph.experiments.bench.worker import learn
from evergraph.experiments.build import resolved
from evergraph.experiments.config import RunConfig
from evergraph.experiments.protocol import TaskReport
from evergraph.experiments.result import versions
from evergraph.experiments.runner import Observer, open_run, run
from evergraph.experiments.store import ResultStore
from small_runs import comparable, job_of, small


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return comparable(run(two_tasks()).to_dict())


def two_tasks() -> RunConfig:
    dataset = {"name": "synthetic", "nodes": 40, "classes": 4, "features": 4}
    return small(dataset=dataset, training={"epochs": 1, "batch_size": 64})


class PowerCutError(BaseException):
    """Stands for the end of everything."""


def cut_at(patch: pytest.MonkeyPatch, place: int) -> None:
    """Let the power fail instead of the so-manieth renaming or removal."""
    left = [place]

    def failing(real: Callable[..., None]) -> Callable[..., None]:
        def call(*given: Any, **options: Any) -> None:
            if not left[0]:
                raise PowerCutError
            left[0] -= 1
            real(*given, **options)

        return call

    patch.setattr(os, "replace", failing(os.replace))
    patch.setattr(os, "unlink", failing(os.unlink))


def test_wherever_the_power_fails_the_run_goes_on_to_the_same_result(tmp_path, monkeypatch, whole):
    for place in range(100):
        out = tmp_path / str(place)
        try:
            with monkeypatch.context() as patch:
                cut_at(patch, place)
                run(two_tasks(), out=out)
            break
        except PowerCutError:
            assert comparable(run(two_tasks(), out=out, resume=True).to_dict()) == whole, place
    assert place > 2 * 2  # a state and the progress for each of two tasks, and more


def test_an_old_state_goes_only_when_the_progress_names_the_new_one(tmp_path, monkeypatch):
    calls = []
    replace, unlink = os.replace, os.unlink

    def renamed(source, target):
        calls.append(f"write {Path(target).name}")
        replace(source, target)

    def removed(path, **options):
        if not Path(path).name.startswith("."):  # what was written aside
            calls.append(f"drop {Path(path).name}")
        unlink(path, **options)

    monkeypatch.setattr(os, "replace", renamed)
    monkeypatch.setattr(os, "unlink", removed)
    run(small(), out=tmp_path / "out")
    assert calls[3:6] == [
        "write state-0001.safetensors",
        "write progress.json",
        "drop state-0000.safetensors",
    ]


FILES = ["config.toml", "state-0001", "accuracy.npz"]


@pytest.mark.parametrize("name", FILES)
def test_a_full_disk_is_one_sentence_and_nothing_is_lost(name, tmp_path, monkeypatch, whole):
    real = store.written_aside

    def full(path):
        if path.name.startswith(name):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(store, "written_aside", full)
        with pytest.raises(ResultsError) as said:
            run(two_tasks(), out=out)
    assert str(said.value).startswith(str(out))
    assert "cannot be written: No space left on device: finished work is kept" in str(said.value)
    assert comparable(run(two_tasks(), out=out, resume=True).to_dict()) == whole


def second(config: RunConfig, out: Path) -> tuple[dict[str, Any], list[str]]:
    """Run, and try the same once more after every task; return the result and what was said."""
    said = []

    def again(seed: int, report: TaskReport) -> None:
        with pytest.raises(LockedError) as error:
            run(config, out=out, resume=True)
        said.append(str(error.value))

    return run(config, out=out, observer=Observer(on_task=again)).to_dict(), said


def test_a_second_run_into_the_same_folder_is_refused_in_one_sentence(tmp_path):
    out = tmp_path / "out"
    result, said = second(small(seeds=[0, 1]), out)
    # Also while the second seed is learned: else the two would take turns.
    assert set(said) == {
        f"{out / 'seed-0'}: seed 0 is being learned by process {os.getpid()} (this one): wait for "
        "it or stop it, then use --resume, or choose another --out"
    }
    assert len(said) == 6
    again = run(small(seeds=[0, 1]), out=out, resume=True).to_dict()
    assert comparable(again) == comparable(result)


def test_workers_share_a_folder_but_not_a_seed(tmp_path):
    config, out = small(seeds=[0, 1]), tmp_path / "out"
    opened = open_run(config, out=out, seeds=[0])
    assert learn(job_of(config, out), 1).failure is None
    failure = learn(job_of(config, out), 0).failure
    assert failure.type == "LockedError"
    opened.close()
    assert learn(job_of(config, out), 0).failure is None
    assert (out / "result.json").exists()


def test_a_run_that_failed_lets_go_of_its_folder(tmp_path):
    fail = Mock(side_effect=ValueError("for another reason"))
    kept = None
    try:
        run(small(), out=tmp_path / "out", observer=Observer(on_task=fail))
    except ValueError as error:
        kept = error  # and with it all that the run held
    assert kept is not None
    run(small(), out=tmp_path / "out", resume=True)


@pytest.mark.parametrize("lr", [0.25, 0.5])
def test_of_two_claims_the_first_wins(tmp_path, monkeypatch, lr):
    """The second has looked, and found nothing, before the first one writes."""
    look = store.check_free

    def look_before_another_claims(*given, **options):
        look(*given, **options)
        monkeypatch.setattr(store, "check_free", look)
        store_of_first = ResultStore(tmp_path)
        store_of_first.open(resolved(small(training={"lr": 0.5})), resume=False)

    monkeypatch.setattr(store, "check_free", look_before_another_claims)
    with pytest.raises(ResultsError, match="already holds results"):
        ResultStore(tmp_path).open(resolved(small(training={"lr": lr})), resume=False)
    assert "lr = 0.5\n" in (tmp_path / "config.toml").read_text()


def test_a_second_benchmark_is_refused_in_one_sentence(tmp_path):
    values = {"datasets": ["synthetic"], "methods": ["finetune"], "common": {"device": "cpu"}}
    config, out = BenchConfig.of(values), tmp_path / "out"
    out.mkdir()  # left by one that was killed while it claimed its folder
    (out / "lock").write_text("")
    (out / ".bench.toml-x1").write_text("")
    bench = open_bench(config, out=out)
    with pytest.raises(LockedError, match=r"out: a benchmark is being run by process \d+"):
        open_bench(config, out=out, resume=True)
    run_bench(bench, workers=1, pool=lambda work, *, workers, on_event: None)
    open_bench(config, out=out, resume=True)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        '{"reports": [{"rank": 1}], "result": null}',
        '{"reports": [], "result": null, "tasks": 2}',
    ],
)
def test_progress_that_is_not_ours_is_said(content, tmp_path):
    (tmp_path / "seed-0").mkdir()
    (tmp_path / "seed-0" / "progress.json").write_text(content)
    with pytest.raises(
        ResultsError, match=r"progress\.json (cannot be read|is not a progress file)"
    ):
        ResultStore(tmp_path).seed(0).progress()
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(ResultsError, match=r"is not a result of evergraph: it has no 'metric'"):
        ResultStore(tmp_path).finished()


def test_versions_without_metadata(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.delitem(sys.modules, "torch_geometric", raising=False)
    monkeypatch.setattr(sys.modules["evergraph"], "__version__", "9.9", raising=False)
    import torch

    told = versions()
    assert told["torch"] == torch.__version__
    assert told["evergraph"] == "9.9"
    assert "torch-geometric" not in told
    monkeypatch.delitem(sys.modules, "scipy")
    assert versions()["scipy"] == "unknown"


def test_what_can_be_known_at_the_start_does_not_fail_at_the_end(tmp_path, monkeypatch):
    fail = Mock(side_effect=RuntimeError("no such thing here"))
    learned = []
    observer = Observer(on_task=lambda seed, report: learned.append(seed))
    for name in ("versions", "machine", "describe"):
        with monkeypatch.context() as patch:
            patch.setattr(runner, name, fail)
            with pytest.raises(RuntimeError):
                run(small(), out=tmp_path / name, observer=observer)
        assert learned == []
        assert not (tmp_path / name).exists()


STREAM = {"stream": {"by": "blurred"}}
HALF = {"topology": {"name": "sgc", "dtype": "float16"}}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"part": "validation"}, "part is 'test' there and 'validation' here"),
        (STREAM, "stream.by is 'class' there and 'blurred' here"),
        (HALF, "topology.dtype is 'float32' there and 'float16' here"),
    ],
)
def test_a_folder_of_another_configuration_is_refused(other, said, tmp_path):
    ResultStore(tmp_path).open(resolved(small()), resume=False)
    ResultStore(tmp_path).open(resolved(small(device="cpu")), resume=True)
    with pytest.raises(ResultsError, match=said):
        ResultStore(tmp_path).open(resolved(small(**other)), resume=True)
