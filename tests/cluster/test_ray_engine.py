"""Work on Ray: the same results as here, in order, whoever dies on the way.

Everything that needs Ray is in this file: starting it takes 15 s of processors, and idle it takes some too.
"""

import json
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form import statistics
from evergraph.cluster.ray_engine import IN_FLIGHT, RayEngine, make_engine, pack, unpack
from evergraph.core.errors import ConfigurationError, ResourceError, UnknownNameError
from evergraph.core.mapped import MappedTensor, map_array
from evergraph.core.packages import load_plugin
from evergraph.core.resources import ColumnSlice, LocalEngine, Resources
from evergraph.experiments.bench import pool
from evergraph.experiments.bench.benchmark import open_bench, run_bench
from evergraph.experiments.bench.jobs import BenchConfig
from evergraph.experiments.bench.pool import run_work
from evergraph.experiments.bench.worker import Event
from evergraph.experiments.config import RunConfig
from evergraph.experiments.runner import run
from evergraph.topology import SGC, MixHop, column_blocks, topologies
from evergraph.topology.column_blocks import encode_within
from graph_in_folder import written
from small_runs import comparable, job_of
from waiting import until


def test_results_come_in_the_order_of_the_items(ray_engine):
    def late(seconds, factor):
        time.sleep(seconds)
        return factor * seconds

    items = [0.3, 0.0, 0.1, 0.0, 0.0, 0.0]
    assert list(ray_engine.map(late, items, shared={"factor": 2})) == [2 * i for i in items]
    assert list(ray_engine.map(late, [])) == []


def test_work_is_done_elsewhere_on_few_threads(ray_engine):
    def place(item):
        return os.getpid(), torch.get_num_threads()

    found = list(ray_engine.map(place, range(8)))
    assert os.getpid() not in {process for process, _ in found}
    assert {threads for _, threads in found} == {ray_engine.threads}


def test_all_kinds_of_arrays_arrive_as_they_were(ray_engine, small_graph):
    def told(item, **shared):
        return shared[item]

    shared = {
        "dense": torch.arange(6.0).reshape(2, 3),
        "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "sparse": torch.eye(3).to_sparse_csr(),
        "turned": torch.arange(6).reshape(2, 3).t(),
        "numpy": np.arange(3),
        "plain": {"a": [1, "two", None]},
    }
    for name, found in zip(shared, ray_engine.map(told, list(shared), shared=shared), strict=True):
        wanted = shared[name]
        if isinstance(wanted, Tensor):
            assert (found.dtype, found.layout) == (wanted.dtype, wanted.layout)
            assert torch.equal(found.to_dense(), wanted.to_dense())
        else:
            assert str(found) == str(wanted)

    def edges(item, graph):
        return graph.num_edges + item

    assert list(ray_engine.map(edges, [1], shared={"graph": small_graph})) == [
        small_graph.num_edges + 1
    ]


def test_a_mapped_array_goes_as_its_path(ray_engine, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(5))

    def kind(item, array):
        return type(array).__name__, int(array[item])

    array = map_array(tmp_path / "a.npy")
    assert list(ray_engine.map(kind, [3], shared={"array": array})) == [("MappedTensor", 3)]
    array.path = None  # as of a file that has lost its name
    assert list(ray_engine.map(kind, [3], shared={"array": array})) == [("Tensor", 3)]


def test_records_are_stored_once_and_other_values_anew(ray_engine, small_graph, monkeypatch):
    stored = []
    put = ray_engine.ray.put
    monkeypatch.setattr(ray_engine.ray, "put", lambda v: (stored.append(v), put(v))[1])
    graph, loose = small_graph.subgraph(torch.arange(3)), torch.ones(2)

    def first(item, graph, loose):
        return graph.num_nodes + float(loose[0])

    assert list(ray_engine.map(first, [0], shared={"graph": graph, "loose": loose})) == [4.0]
    loose.numpy()[0] = 5.0  # unseen by torch
    assert list(ray_engine.map(first, [0], shared={"graph": graph, "loose": loose})) == [8.0]
    assert len(stored) == 3


def test_that_arrays_go_to_disk_is_said_once(ray_engine, monkeypatch, caplog):
    def length(item, array):
        return len(array) + item

    monkeypatch.setattr(ray_engine, "_warned", False)
    shared = {"array": torch.zeros(1_000_000)}
    assert list(ray_engine.map(length, [0], shared=shared)) == [1_000_000]
    assert not caplog.records  # the store holds 200 MB
    monkeypatch.setattr("evergraph.cluster.ray_cluster.smallest_store", lambda ray: 3_999_999)
    for _ in range(2):
        assert list(ray_engine.map(length, [0, 1], shared=shared)) == [1_000_000, 1_000_001]
    (record,) = caplog.records
    assert "arrays of 4 MB, but the smallest object store of a machine" in record.getMessage()


def test_no_more_is_given_out_than_is_taken(ray_engine):
    pulled = []

    class Items(Sequence[int]):
        def __len__(self):
            return 50

        def __getitem__(self, place):
            pulled.append(place)
            return place

        def __iter__(self):
            return (self[place] for place in range(50))

    results = ray_engine.map(abs, Items())
    assert next(results) == 0
    assert len(pulled) == IN_FLIGHT * ray_engine.workers + 1
    assert list(results) == list(range(1, 50))


def test_errors_arrive(ray_engine):
    def fail(item):
        raise UnknownNameError("sampler", item, ["coverage"])

    with pytest.raises(UnknownNameError) as raised:
        list(ray_engine.map(fail, ["coverge"]))
    wanted = "unknown sampler 'coverge': did you mean 'coverage'? choose one of coverage"
    assert str(raised.value) == wanted

    # Another error is still of its kind.
    def fail(item):
        return 1 / item

    with pytest.raises(ZeroDivisionError):
        list(ray_engine.map(fail, [0]))


def test_work_of_a_killed_worker_is_done_again(ray_engine, tmp_path):
    def work(item, flag):
        if item == 3 and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item * item

    flag = tmp_path / "died"
    assert list(ray_engine.map(work, range(6), shared={"flag": flag})) == [0, 1, 4, 9, 16, 25]
    assert flag.exists()


@pytest.mark.slow
def test_an_engine_that_joined_leaves_ray_alone(ray_engine):
    with RayEngine(workers=1) as other:
        assert list(other.map(abs, [-1, -2])) == [1, 2]
    assert list(ray_engine.map(abs, [-3])) == [3]


def test_a_worker_gives_out_no_work(ray_engine):
    assert type(pickle.loads(pickle.dumps(ray_engine))) is LocalEngine  # noqa: S301


def test_without_ray_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'evergraph\[cluster\]'"):
        make_engine("ray")


def test_engines_by_name():
    assert type(make_engine("local")) is LocalEngine
    with pytest.raises(UnknownNameError, match="unknown engine 'rya': did you mean 'ray'"):
        make_engine("rya")
    with pytest.raises(ConfigurationError, match="address 'auto' needs engine 'ray', not 'local'"):
        make_engine("local", address="auto")
    with pytest.raises(
        ConfigurationError, match="worker threads 4 needs engine 'ray', not 'local'"
    ):
        make_engine("local", threads=4)


@given(
    st.recursive(
        st.integers() | st.text(max_size=3),
        lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=2), v, max_size=3),
        max_leaves=6,
    )
)
def test_plain_values_survive_packing(value):
    assert unpack(pack(value)) == value
    assert json.dumps(unpack(pack((value,)))) == json.dumps((value,))


def test_of_columns_only_these_travel(tmp_path):
    whole = torch.arange(12.0).reshape(3, 4)
    sent = unpack(pack(ColumnSlice(whole, 1, 3, 1)))
    assert (sent.array.tolist(), sent.start, sent.stop) == ([[1, 2], [5, 6], [9, 10]], 0, 2)
    assert sent.first == 1
    np.save(tmp_path / "a.npy", whole.numpy())
    opened = unpack(pack(ColumnSlice(map_array(tmp_path / "a.npy"), 1, 3, 1)))
    assert isinstance(opened.array, MappedTensor)
    assert (opened.start, opened.stop) == (1, 3)
    sparse = unpack(pack(ColumnSlice(whole.to_sparse_csr(), 1, 3, 1)))
    assert (sparse.array.layout, sparse.start) == (torch.sparse_csr, 1)


PARTS = Path(__file__).parents[2] / "examples" / "my_parts.py"


@pytest.mark.parametrize("in_files", [False, True])  # which the workers open themselves
def test_columns_are_those_of_one_process(in_files, ray_engine, small_graph, tmp_path):
    graph = written(small_graph, tmp_path / "graph") if in_files else small_graph
    agree(SGC() if in_files else MixHop(), graph, ray_engine)


def test_workers_encode_with_a_topology_that_they_cannot_import(own_parts, ray_engine, small_graph):
    load_plugin(PARTS)
    agree(topologies.make("residual"), small_graph, ray_engine)


def agree(topology, graph, engine):
    found = encode_within(topology, graph, resources=Resources(engine=engine), shared=True)
    torch.testing.assert_close(found, topology.encode(graph), rtol=0, atol=1e-6)


SYNTHETIC = {"name": "synthetic", "nodes": 300, "classes": 6, "features": 8, "noise": 1.2}


@pytest.fixture
def _everything_is_shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give small graphs to workers too, and compute on as many threads here as there."""
    monkeypatch.setattr(column_blocks, "SHARED_FROM", 0)
    monkeypatch.setattr(statistics, "BLOCK_ROWS", 16)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Watched:
    """Gives work to another engine, and keeps account of what was given."""

    def __init__(self, engine: RayEngine) -> None:
        self.engine = engine
        self.workers, self.machines = engine.workers, engine.machines
        self.given: list[str] = []

    def map(self, work: Any, *items: Any, **shared: Any) -> Iterator[Any]:
        self.given.append(work.__name__)
        return self.engine.map(work, *items, **shared)


@pytest.mark.usefixtures("_everything_is_shared")
def test_a_run_learns_what_it_learns_in_one_process(ray_engine):
    values = {"dataset": SYNTHETIC, "method": "analytic", "device": "cpu"}
    config = RunConfig.of(values | {"backbone": {"name": "random-features", "width": 64}})
    watched = Watched(ray_engine)
    shared = run(config, resources=Resources(engine=watched))
    assert [seed.rows for seed in shared.seeds] == [seed.rows for seed in run(config).seeds]
    assert {"encode_columns", "count_block"} <= set(watched.given)


def first_waits(first: Path, learn: Any = pool._learn) -> Any:
    """Return what learns as a worker does; the first of all waits after a task to be killed."""

    def learn_or_wait(*given: Any) -> Any:
        from evergraph.experiments.store import SeedStore

        keep_task = SeedStore.keep_task

        def keep_and_wait(store: Any, *given: Any, **more: Any) -> None:
            keep_task(store, *given, **more)
            try:
                first.mkdir()
            except FileExistsError:  # another one was
                return
            (first / "new").write_text(str(os.getpid()))
            (first / "new").rename(first / "process")
            time.sleep(600)

        SeedStore.keep_task = keep_and_wait
        try:
            return learn(*given)
        finally:
            SeedStore.keep_task = keep_task

    return learn_or_wait


def test_a_bench_is_the_same_on_ray_though_a_worker_is_killed(ray_engine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    killed = tmp_path / "killed" / "process"
    monkeypatch.setattr(pool, "_learn", first_waits(killed.parent))
    values = {
        "datasets": [SYNTHETIC],
        "seeds": [0, 1],
        "common": {"device": "cpu", "training": {"epochs": 10}},
        "methods": [{"name": "tem", "run": {"memory": {"budget": 3}}}],
    }
    config, events = BenchConfig.of(values), list[Event]()

    def watch(event):
        events.append(event)
        if event.kind == "task" and [e.kind for e in events].count("task") == 1:
            until(killed.exists, seconds=60)
            os.kill(int(killed.read_text()), signal.SIGKILL)

    opened = open_bench(config, out=Path("on-ray"))  # a relative folder
    rows = run_bench(opened, workers=2, on_event=watch, pool=partial(run_work, engine=ray_engine))
    assert [row.failure for row in rows] == [None]
    assert "task" in {event.kind for event in events}
    assert [e.kind for e in events].count("done") == opened.size == 2
    before = torch.get_num_threads()
    torch.set_num_threads(ray_engine.threads)
    for row in rows:
        run(row.job.config, out=tmp_path / "here" / row.job.label)
        both = (row.job.folder, tmp_path / "here" / row.job.label)
        ours, theirs = (json.loads((folder / "result.json").read_text()) for folder in both)
        assert comparable(ours) == comparable(theirs)
    torch.set_num_threads(before)
    again = []
    resumed = open_bench(config, out=Path("on-ray"), resume=True)
    run_bench(resumed, workers=2, on_event=again.append, pool=partial(run_work, engine=ray_engine))
    assert {event.kind for event in again} == {"kept"}


def test_a_folder_workers_cannot_see_is_a_failed_row(ray_engine, tmp_path):
    events = []
    work = [(job_of(RunConfig(), tmp_path / "nowhere"), 0)]
    run_work(work, workers=1, on_event=events.append, engine=ray_engine)
    assert [event.kind for event in events] == ["started", "failed"]
    assert "use a folder that all machines share" in events[-1].failure.error


def test_work_stops_when_the_bench_does(ray_engine, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    values = {"dataset": SYNTHETIC, "method": "finetune", "device": "cpu"}
    long = RunConfig.of(values | {"training": {"epochs": 100_000}})

    def interrupt(event):
        if event.seed == 1:
            raise KeyboardInterrupt

    work = [(job_of(long, folder), seed) for seed in (0, 1)]
    with pytest.raises(KeyboardInterrupt):
        run_work(work, workers=2, on_event=interrupt, engine=ray_engine)
    # Both workers are free again, and not after minutes.
    until(lambda: ray_engine.ray.available_resources().get("CPU") == 2, seconds=120)


# The last one, since a worker that is killed is replaced when there is work, which takes seconds.
def test_work_that_always_kills(ray_engine, monkeypatch):
    monkeypatch.setattr("evergraph.cluster.ray_cluster.RETRIES", 0)

    def work(item):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ResourceError, match="the Ray worker of an item died 1 times"):
        list(ray_engine.map(work, [0]))
