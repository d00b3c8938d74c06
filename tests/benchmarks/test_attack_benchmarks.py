"""The benchmarks of attacks, of long times and of limits measure what they say they do."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed")
ROOT = Path(__file__).resolve().parents[2]


def row(bench, *, wait: float = 0.01, wrong=None, grown: int = 0, delta=0.1, same=True):
    one = {"p50": wait, "p99": wait, "max": wait, "count": 9, "wrong": wrong or {}}
    return bench.Row("silent", {"predictions": one, "healthz": one}, {"503": 2}, (0, grown), delta,
                     3.0, same)  # fmt: skip


def test_an_attack_holds_only_if_all_does_and_waits_are_ranked(load) -> None:
    bench = load("attacks")
    assert row(bench).held
    broken = (row(bench, wait=0.2), row(bench, wrong={"503": 1}), row(bench, grown=2 << 30),
              row(bench, delta=None), row(bench, same=False))  # fmt: skip
    assert not any(one.held for one in broken)
    table = bench.table([row(bench), *broken], bench.QUICK)
    assert [cells[1] for cells in table.rows] == ["yes"] + ["**no**"] * 5
    assert all(len(cells) == len(table.columns) for cells in table.rows)
    # Waits are told by rank.
    asked = load("victim").Asked(took=[n / 100 for n in range(101)])
    told = asked.summary()
    assert (told["p50"], told["p99"], told["max"]) == (0.5, 0.99, 1.0)


def test_what_attackers_send_is_what_it_is_called(load) -> None:
    bodies = load("attack_bodies")
    assert {*bodies.BODIES} <= {*load("attackers").ATTACKS}
    (path, kind, body), *_ = bodies.large_predictions(50, 0).requests
    assert (path, kind) == ("/v1/predictions", bodies.JSON)
    assert len(json.loads(body)["ids"]) == 100_000
    bombs = bodies.dictionary_bombs(50, 100).requests
    assert max(len(body) for _, _, body in bombs) < 1_000_000
    growth = bodies._growth(50, 1_000, 20, 10)
    ends = [end for delta in growth for _, end in delta.edges]
    assert all(end < 50 or 1_000 <= end < 1_020 for end in ends)  # all of them are there


def test_a_soak_is_flat_where_it_is_after_its_last_restart(load) -> None:
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


def test_a_learner_is_measured_at_every_size(load, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = load("limits")
    monkeypatch.setattr(limits, "ROUNDS", 1)
    monkeypatch.setattr(limits, "ASKED", 5)
    found = limits.by_nodes((100, 300))
    assert [one.nodes for one in found] == [100, 300]
    assert all(one.cpu > 0 and one.predicted > 0 and one.held > 0 for one in found)
    assert [cells[0] for cells in limits.nodes_table(found).rows] == ["100", "300"]
