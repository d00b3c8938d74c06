"""Every benchmark measures what it says it does; how fast is no test's business."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from evergraph.server.bodies import read_question
from evergraph.server.http import Limits

ROOT = Path(__file__).resolve().parents[2]
TINY = "synthetic-500"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return what imports a benchmark by its name."""
    monkeypatch.syspath_prepend(str(ROOT))

    def found(name: str) -> ModuleType:
        (path,) = ROOT.glob(f"benchmarks/**/{name}.py")
        return importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))

    return found


def whole(*tables) -> bool:
    """Whether every row of some tables has a cell a column."""
    return all(len(cells) == len(table.columns) for table in tables for cells in table.rows)


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "benchmarks").rglob("*.py")))
def test_every_benchmark_finds_what_it_imports(load, name):
    assert load(name).__doc__


def test_reach(load):
    reach = load("reach")
    row = reach.measure(TINY, per_task=True, sample=50, rounds=1)
    assert row.graphs == 5
    table = reach.size_table([(row, reach.peak(TINY, True))])
    assert whole(table)


def test_a_claim_on_overlapping_splits_was_one_before_the_correction(load):
    found = [load("false_claims").claims(dataset, 0.3) for dataset in range(3)]
    assert all(before >= after for each in found for before, after in each)
    assert any(before > after for each in found for before, after in each)


def test_contenders_take_turns_and_tables_are_markdown(load):
    table = load("measure").Table("Title", ("a", "b"), [["x", "1"]], ("note",))
    assert table.markdown() == "## Title\n\n| a | b |\n| --- | ---: |\n| x | 1 |\n\n- note"
    calls = []
    contenders = {name: lambda name=name: calls.append(name) for name in "abc"}
    best = load("measure").interleaved(contenders, rounds=2)
    assert calls == ["a", "b", "c", "b", "c", "a"]
    assert set(best) == {"a", "b", "c"}


ZEROS, ONES = (lambda: torch.zeros(2)), (lambda: torch.ones(2))


@pytest.mark.parametrize(
    ("name", "check", "given", "said"),
    [
        (
            "kernels",
            "check",
            ({"torch CSR": ZEROS, "numba": ONES},),
            "numba differs from torch CSR by 1",
        ),
        (
            "cluster",
            "disagreement",
            ({"one process, 1 thread": ZEROS, "Ray": ONES},),
            "Ray differs from one process by 1",
        ),
    ],
)
def test_contenders_that_disagree_are_refused(load, name, check, given, said):
    with pytest.raises(ValueError, match=said):
        getattr(load(name), check)(*given)


def test_updates_come_in_thirds_and_none_twice(load):
    bench = load("updates")
    graph = load("graphs").synthetic(200, mean_degree=4.0, features=2)
    stream = bench.Stream(graph, features=2)
    loaded = {tuple(pair) for pair in stream.loaded.T.tolist()}
    batches = [stream.batch(9) for _ in range(2)]
    assert [(b.added.shape[1], b.cut.shape[1], len(b.nodes)) for b in batches] == [(3, 3, 3)] * 2
    came, went = (
        [tuple(p) for b in batches for p in ends(b)]
        for ends in (lambda b: b.added.T.tolist(), lambda b: b.cut.T.tolist())
    )
    assert len({*came, *went}) == 12
    assert not loaded & {*came}
    assert loaded >= {*went}
    kinds = [(b.added.shape[1], b.cut.shape[1], len(b.nodes)) for b in map(stream.batch, [1] * 6)]
    assert sorted(kinds) == sorted([(1, 0, 0), (0, 1, 0), (0, 0, 1)] * 2)


def test_updates_lead_the_engine_to_what_encoding_anew_gives(load):
    bench = load("updates")
    graph = load("graphs").synthetic(200, mean_degree=4.0, features=2)
    stream = bench.Stream(graph, features=2)
    engine = bench.Engine(stream, bench.SGC(hops=2))
    for _ in range(2):
        engine.apply(stream.batch(6))
    assert engine.off() <= bench.AGREE


def row(bench, *, wait: float = 0.01, wrong=None, grown: int = 0, delta=0.1, same=True, also=0.01):
    one = {"p50": wait, "p99": wait, "max": wait, "count": 9, "wrong": wrong or {}}
    victim = {"one": one, "health": one, "hundred": one | {"p99": also}}
    return bench.Row("silent", victim, {"503": 2}, (0, grown), 1.0, 2.0, delta, 3.0, same)


def test_an_attack_holds_only_if_all_does_and_waits_are_ranked(load):
    bench = load("attacks")
    assert row(bench).held
    broken = (
        row(bench, wait=0.2),
        row(bench, wrong={"503": 1}),
        row(bench, grown=2 << 30),
        row(bench, delta=None),
        row(bench, same=False),
    )
    slow = row(bench, also=1.0), row(bench, wait=0.05, also=0.1)
    assert [replace(one, name="large predictions").held for one in slow] == [False, True]
    assert not any(one.held for one in broken)
    table = bench.table([row(bench), *broken], bench.QUICK)
    assert [cells[1] for cells in table.rows] == ["yes"] + ["**no**"] * 5
    assert all(len(cells) == len(table.columns) for cells in table.rows)
    # Waits are told by rank.
    asked = load("client").Asked(took=[n / 100 for n in range(101)])
    told = asked.summary()
    assert (told["p50"], told["p99"], told["max"]) == (0.5, 0.99, 1.0)


def test_what_attackers_send_is_what_it_is_called(load):
    bodies = load("attack_bodies")
    assert {*bodies.BODIES} <= {*load("attackers").ATTACKS}
    for (path, kind, body), numbers in zip(
        bodies.large_predictions(50, 0).requests, (100_000, 500_000 // bodies.KINDS), strict=True
    ):
        assert (path, kind) == ("/v1/predictions", bodies.JSON)
        assert len(read_question(body, most=Limits().nodes).ids) == numbers
        assert len(body) <= Limits().json  # it is answered, and so measures something
    for _, _, body in bodies.refused_deltas(50, 0).requests:
        assert 0.9e6 < len(body) <= Limits().json
    bombs = bodies.dictionary_bombs(50, 100).requests
    assert max(len(body) for _, _, body in bombs) < 1_000_000
    growth = bodies._growth(50, 1_000, 20, 10)
    ends = [end for delta in growth for _, end in delta.edges]
    assert all(end < 50 or 1_000 <= end < 1_020 for end in ends)  # all of them are there


def test_a_soak_is_flat_where_it_is_after_its_last_restart(load):
    soak = load("soak")
    looks = [
        SimpleNamespace(at=60.0 * n, memory=n if n < 5 else max(n, 15), alive_since=n // 5 and 1)
        for n in range(16)
    ]
    kept = soak.last_half(looks)
    assert [one.at / 60 for one in kept] == [10, 11, 12, 13, 14, 15]
    rise, mean = soak.slope(kept, "memory")
    assert (round(rise, 6), mean) == (0.0, 15.0)
    assert soak.slope(looks[:5], "memory")[0] == pytest.approx(60.0)  # one a minute


def test_a_learner_is_measured_at_every_size(load, monkeypatch):
    limits = load("limits")
    monkeypatch.setattr(limits, "ROUNDS", 1)
    monkeypatch.setattr(limits, "ASKED", 5)
    found = limits.by_nodes((100, 300))
    assert [one.nodes for one in found] == [100, 300]
    assert all(one.cpu > 0 and one.predicted > 0 and one.held > 0 for one in found)
    assert [cells[0] for cells in limits.nodes_table(found).rows] == ["100", "300"]
