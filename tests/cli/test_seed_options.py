"""``--seed``, ``--seeds`` and ``--repeats`` of every command that has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evergraph.core.errors import EvergraphError
from evergraph.experiments import plan, runner
from evergraph.experiments.bench import benchmark
from evergraph.studies import theorem

WAYS = [
    (("--seed", "5"), [5]),
    (("--seeds", "0,1,2"), [0, 1, 2]),
    (("--seeds", "0"), [0]),
    (("--seeds", "3,"), [3]),
    (("--repeats", "5"), [0, 1, 2, 3, 4]),
]


class SeenError(EvergraphError):
    """Nothing is learned here: the seeds are all that is looked at."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Keep the seeds that a command was going to run, and stop it there."""
    found: list[list[int]] = []

    def stop(seeds: Any) -> None:
        found.append(list(seeds))
        raise SeenError("seen")

    monkeypatch.setattr(runner, "open_together", lambda configs, **_: stop(configs[0].seeds))
    monkeypatch.setattr(plan, "plan_run", lambda config, **_: stop(config.seeds))
    monkeypatch.setattr(benchmark, "open_bench", lambda config, **_: stop(config.seeds))
    monkeypatch.setattr(theorem.Theorem, "run", lambda _, options: stop(options.repeats()))
    return found


COMMANDS = [
    ("run", "--dataset", "synthetic"),
    ("plan", "synthetic"),
    ("bench", "quick"),
    ("reproduce", "theorem"),
]


# Every way of one command, and one way of every command.
@pytest.mark.parametrize(
    ("command", "asked", "seeds"),
    [*((COMMANDS[0], *way) for way in WAYS), *((command, *WAYS[4]) for command in COMMANDS[1:])],
)
def test_each_means_the_same_everywhere(
    call: Any, seen: list[list[int]], command: tuple[str, ...], asked: Any, seeds: list[int]
) -> None:
    _, err = call(*command, *asked, expect=2)
    assert seen == [seeds]
    assert "now runs only" not in err


def test_one_seed_after_seeds_is_that_seed_and_one_line_says_so(
    call: Any, seen: list[list[int]]
) -> None:
    _, err = call(*COMMANDS[0], "--seeds", "5", expect=2)
    assert seen == [[5]]
    line = "note: --seeds 5 now runs only seed 5; --repeats 5 runs seeds 0 to 4"
    assert [said for said in err.splitlines() if "--seeds" in said] == [line]
    _, err = call(*COMMANDS[0], "--seed", "5", "--repeats", "5", expect=2)
    assert "only one of seed, seeds and repeats can be given, not seed and repeats" in err


def test_options_replace_what_a_file_says(call: Any, seen: list[list[int]], tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('dataset = "synthetic"\nrepeats = 4\n')
    for asked in ((), ("--seed", "7"), ("--set", "seed=8")):
        call("run", "--preset", "mine.toml", *asked, expect=2)
    assert seen == [[0, 1, 2, 3], [7], [8]]
