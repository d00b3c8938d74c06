"""Every benchmark measures what it says it does; how fast is no test's business."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
TINY = "synthetic-500"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT))

    def module(name: str) -> ModuleType:
        return importlib.import_module(f"benchmarks.{name}")

    return module


def test_table_is_markdown(load):
    table = load("measure").Table("Title", ("a", "b"), [["x", "1"]], ("note",))
    assert table.markdown() == "## Title\n\n| a | b |\n| --- | ---: |\n| x | 1 |\n\n- note"


def test_report_says_where_and_how(load):
    text = load("measure").report("reach", "Title", [], arguments=["--quick"])
    assert "cores" in text
    assert f"torch {torch.__version__}" in text
    assert "`python benchmarks/reach.py --quick`" in text


def test_interleaved_runs_every_contender_every_round(load):
    calls: list[str] = []
    contenders = {name: lambda name=name: calls.append(name) for name in "abc"}
    best = load("measure").interleaved(contenders, rounds=2)
    assert calls == ["a", "b", "c", "b", "c", "a"]
    assert set(best) == {"a", "b", "c"}


def test_extra_peak_sees_what_is_allocated(load):
    size = 64_000_000
    assert load("measure").extra_peak(lambda: torch.ones(size // 4)) > size // 2


def test_random_words_are_sound(load):
    words = load("graphs").random_words(20, 100, 7)
    dense = words.to_dense()
    assert dense.shape == (20, 100)
    assert (dense.sum(1) == 7).all()
    assert set(dense.unique().tolist()) == {0.0, 1.0}


def test_absent_files_are_said(load):
    graphs = load("graphs")
    case = graphs.Case("gone", "none", lambda: None, Path("/nowhere/gone.npz"))
    assert case.missing == "gone: skipped, /nowhere/gone.npz is absent"


@pytest.mark.filterwarnings("ignore")
def test_embedding(load):
    embedding, graphs = load("embedding"), load("graphs")
    row = embedding.measure(graphs.CASES[TINY], rounds=1)
    assert row.difference <= embedding.AGREE
    assert set(row.seconds) == {"ours", "floor", "PyG scatter", "PyG CSR", "normalisation"}
    alone = embedding.measure_alone(graphs.CASES[TINY], rounds=1)
    for table in (embedding.time_table([row]), embedding.alone_table([alone])):
        assert [len(cells) for cells in table.rows] == [len(table.columns)]
        assert table.rows[0][0] == TINY
    assert embedding.peak(TINY, "ours") >= 0


def test_embedding_refuses_contenders_that_disagree(load):
    contenders = {"floor": lambda: torch.zeros(2), "ours": lambda: torch.ones(2)}
    with pytest.raises(ValueError, match="ours differs from the floor by 1"):
        load("embedding").disagreement(contenders)


@pytest.mark.parametrize("per_task", [True, False])
def test_reach(load, per_task):
    reach = load("reach")
    row = reach.measure(TINY, per_task=per_task, sample=50, rounds=1)
    assert row.graphs == (5 if per_task else 1)
    table = reach.size_table([(row, reach.peak(TINY, per_task))])
    assert [len(cells) for cells in table.rows] == [len(table.columns)]


def test_reach_refuses_wrong_sizes(load):
    reach = load("reach")
    graph = load("graphs").CASES[TINY].load()
    walker = reach.Walker(graph, 3)
    with pytest.raises(ValueError, match="disagree"):
        reach.check([torch.zeros(graph.num_nodes, dtype=torch.int64)], [walker])


def test_greedy(load):
    table = load("reach").greedy_table(500, rounds=1)
    assert [cells[0] for cells in table.rows] == ["gains measured", "seconds"]
    lazy, naive = (int(cell.replace(",", "")) for cell in table.rows[0][1:3])
    assert 500 < lazy < naive


def test_stream(load):
    stream = load("stream")
    profile = stream.profile_stream(TINY, "paper", 2)
    assert profile.epochs == (2, 200)
    assert 0 < profile.products < 1
    assert all(profile.sections[section] > 0 for section in stream.SECTIONS)
    factor = profile.scaled["optimiser"] / profile.sections["optimiser"]
    assert factor == pytest.approx(100)
    for make in (stream.phase_table, stream.share_table, stream.overhead_table):
        table = make([profile])
        assert [len(cells) for cells in table.rows] == [len(table.columns)]


def test_stream_stopwatch_leaves_the_library_as_it_was(load):
    stream = load("stream")
    before = [getattr(owner, name) for owner, name, _ in stream.PLACES]
    with stream.watched(stream.Stopwatch()):
        pass
    assert [getattr(owner, name) for owner, name, _ in stream.PLACES] == before


def test_recomputing_learns_the_same(load):
    stream, graphs = load("stream"), load("graphs")
    graph, config = graphs.CASES[TINY].load(), stream.recipe("default", 2)
    plain, again = (stream.learn(config, graph, recompute=habit) for habit in (False, True))
    assert [report.rows for report in plain] == [report.rows for report in again]
    seconds = stream.compare_habits(TINY, "paper", 1)
    table = stream.habit_table([(TINY, 1, seconds)])
    assert table.rows[0][0] == TINY
