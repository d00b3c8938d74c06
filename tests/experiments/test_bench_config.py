"""Benchmarks as files: what they expand to, and what is refused before any work starts."""

from pathlib import Path
from typing import Any

import pytest

from evergraph.core.errors import ConfigurationError, ResultsError
from evergraph.experiments.bench.benchmark import open_bench
from evergraph.experiments.bench.jobs import BENCH, BenchConfig, Job, check_jobs, expand
from evergraph.experiments.config import RunConfig, tomllib
from evergraph.experiments.presets import benches, read_bench
from evergraph.experiments.store import check_free

SYNTHETIC = {"name": "synthetic", "nodes": 300, "classes": 6}


def bench(**values: Any) -> BenchConfig:
    return BenchConfig.of({"datasets": [SYNTHETIC], "methods": ["finetune"], **values})


def only(jobs: list[Job]) -> Job:
    (job,) = jobs
    return job


def test_every_method_meets_every_dataset_in_every_setting(tmp_path):
    config = bench(
        datasets=["../graphs/photo.npz", {**SYNTHETIC, "label": "small"}],
        settings=["class-il", "task-il"],
        seeds=[3, 4],
        methods=["finetune", {"name": "tem", "label": "tem-2", "weighting": "plain"}],
    )
    jobs = expand(config, out=tmp_path)
    assert [job.folder.relative_to(tmp_path).as_posix() for job in jobs] == [
        f"{dataset}/{setting}/{label}"
        for dataset in ("photo", "small")
        for setting in ("class-il", "task-il")
        for label in ("finetune", "tem-2")
    ]
    last = jobs[-1].config.to_dict()
    assert last["dataset"] == SYNTHETIC
    assert last["method"] == {"name": "tem", "weighting": "plain"}
    assert (last["stream"]["setting"], last["seeds"], last["part"]) == ("task-il", [3, 4], "test")


def test_what_is_closer_to_the_run_wins():
    def training(value):
        return {"training": {"epochs": value}}

    method = {"name": "finetune", "run": training(2), "settings": {"task-il": training(3)}}
    config = bench(common=training(1), methods=[method], settings=["class-il", "task-il"])
    epochs = [job.config.training.epochs for job in expand(config)]
    assert epochs == [2, 3]
    assert [job.config.training.epochs for job in expand(config, over=training(4))] == [4, 4]
    assert only(expand(bench(common=training(1)))).config.training.epochs == 1
    # A grid of one combination is no search.
    grid = {"training.lr": [0.5], "memory": {"budget": [7]}}
    job = only(expand(bench(methods=[{"name": "tem", "grid": grid}])))
    assert not job.grid
    assert (job.config.training.lr, job.config.memory.budget) == (0.5, 7)


SWEPT = {"name": "tem", "label": "small", "sweep": {"memory": {"budget": [5, 0.5]}}}


def test_a_bench_survives_toml():
    grid = {"memory.sampler": ["coverage", "uniform"]}
    config = bench(methods=[{"name": "tem", "grid": grid}, SWEPT])
    assert BenchConfig.of(tomllib.loads(config.to_toml())) == config


def test_a_sweep_is_a_method_a_value_and_what_is_swept_is_not_searched():
    wide = {
        "name": "analytic",
        "run": {"backbone": {"name": "random-features", "width": 64}},
        "sweep": {"backbone.width": [256]},
    }
    ranked = {"name": "analytic", "label": "low", "sweep": {"method.rank": [8]}}
    jobs = expand(bench(methods=[SWEPT, wide, ranked]), search=True)
    assert [job.folder.name for job in jobs] == ["small@5", "small@0.5", "analytic@256", "low@8"]
    assert [job.config.memory.budget for job in jobs[:2]] == [5, 0.5]
    assert list(jobs[0].grid) == ["training.weight_decay"]  # the shipped one has a budget too
    assert jobs[2].config.to_dict()["backbone"] == {"name": "random-features", "width": 256}
    assert jobs[3].config.method.parameters == {"rank": 8}
    # A run is what its name says.
    with pytest.raises(ConfigurationError, match=r"small@5: memory\.budget is swept"):
        expand(bench(methods=[SWEPT]), over={"memory": {"budget": 7}})


@pytest.mark.parametrize("name", sorted(benches()))
def test_every_shipped_bench_can_begin(name):
    jobs = expand(BenchConfig.of(read_bench(name)))
    # Files may not be at hand everywhere.
    named = [job for job in jobs if not job.config.dataset.name.endswith(".npz")]
    check_jobs({job.label: job for job in named}.values())


def test_a_folder_of_tables_takes_names_of_columns(tmp_path):
    values = {"datasets": [{"name": f"{tmp_path}", "id": "customer"}], "methods": ["finetune"]}
    check_jobs(expand(BenchConfig.of(values)))


def test_the_bench_of_the_documentation_is_one():
    page = Path(__file__).parents[2] / "docs" / "comparing.md"
    text = page.read_text("utf-8")
    snippet = text.split("```toml\n")[1].split("```")[0]
    jobs = expand(BenchConfig.of(tomllib.loads(snippet)))
    assert len(jobs) == 8
    assert [job.config.training.epochs for job in jobs if job.label == "tem-small"][:2] == [100, 50]
    assert jobs[1].grid == {"training.lr": [1e-3, 5e-3]}
    assert (jobs[0].config.memory.budget, jobs[1].config.memory.budget) == (None, 40)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"methods": ["tem", "tem"]}, "methods must differ, not have 'tem' twice: give .* a label"),
        ({"datasets": ["a/x.npz", "b/x.npz"]}, "datasets must differ, not have 'x' twice"),
        ({"seeds": [1, 1]}, "seeds must differ, not have 1 twice"),
        ({"settings": ["class"]}, "settings.0: input should be 'class-il' or 'task-il'"),
        ({"methods": []}, "methods: "),
        (
            {"methods": [{"name": "tem", "label": "a/b"}]},
            "a label must be a folder name.* not 'a/b'",
        ),
        ({"methods": [{"name": "tem", "label": "search"}]}, "not 'search'"),
        ({"methods": [{"name": "tem", "sweep": {"memory.budget": []}}]}, "0.sweep.memory.budget"),
        ({"methods": [{"name": "tem", "sweep": {"seeds": [1], "part": [1]}}]}, "methods.0.sweep: "),
        ({"methods": [{"name": "tem", "sweep": {"memory.budget": [5, 5]}}]}, "have 'tem@5' twice"),
        (
            {"epochs": 3},
            "'epochs': did you mean 'common.training.epochs'. the benchmark takes datasets",
        ),
        (
            {"search": {"tesing": "local"}},
            "'search.tesing': did you mean 'search.testing'. search takes testing, seed",
        ),
        ({"method": ["tem"]}, "unknown key 'method': did you mean 'methods'"),
    ],
)
def test_a_wrong_file_is_named(values, message):
    with pytest.raises(ConfigurationError, match=message):
        bench(**values)


TEM_ON_GCN = {"name": "tem", "run": {"backbone": "gcn"}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"methods": ["ewcc"]}, "unknown method 'ewcc'"),
        ({"methods": [TEM_ON_GCN]}, "tem on synthetic, class-il: tem stores embeddings"),
        ({"methods": [{"name": "tem", "grid": {"training.lrr": [1, 2]}}]}, "tem: grid: .*lrr"),
        ({"methods": [{"name": "tem", "grid": {"memory.budget": [1, 1]}}]}, "'budget=1' twice"),
        ({"methods": [{"name": "tem", "grid": {"seeds": [[1], [2]]}}]}, "seeds must be set by"),
        ({"methods": [{"name": "tem", "run": {"part": "validation"}}]}, "part must be set by"),
        ({"common": {"method": {"weighting": "plain"}}}, "common.method|method must be left"),
        ({"common": {"stream": {"by": "size"}}}, "finetune on .*: unknown by 'size'"),
        ({"datasets": ["absent.npz"]}, "no such file or folder: absent.npz"),
    ],
)
def test_a_bench_that_cannot_run_is_refused_before_anything_is_written(values, message, tmp_path):
    with pytest.raises(ConfigurationError, match=message):
        open_bench(bench(**values), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_strangers_folder_is_refused(tmp_path):
    check_free(tmp_path, BENCH, resume=False)  # empty
    (tmp_path / "thesis.txt").write_text("precious")
    for resume in (False, True):
        with pytest.raises(ResultsError, match="neither empty nor a results folder of evergraph"):
            open_bench(bench(), out=tmp_path, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_method_may_begin_with_a_preset():
    own = {"name": "tem", "label": "mine", "preset": "paper", "run": {"memory": {"budget": 7}}}
    bench = BenchConfig.of({"datasets": ["synthetic"], "methods": ["tem", own]})
    plain, mine = (job.config for job in expand(bench, out=Path()))
    assert (mine.head.hidden, mine.memory.budget, mine.training.lr) == ((256,), 7, 0.005)
    assert mine.method.parameters["store"] == "after"
    assert plain == RunConfig.of({"dataset": "synthetic", "method": "tem"})
