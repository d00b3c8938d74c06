"""``seed``, ``seeds`` and ``repeats`` mean the same wherever they are given."""

from pathlib import Path

import pytest
from book_rows import rows_in, seeds_in

import evergraph as eg
from evergraph.core.errors import ConfigurationError
from evergraph.experiments.bench.jobs import BenchConfig
from evergraph.experiments.presets import read_bench, read_preset
from evergraph.experiments.settings import configured

RunConfig = eg.RunConfig
BENCH = {"datasets": ["synthetic"], "methods": ["tem"]}
WAYS = [
    ({"seed": 5}, (5,)),
    ({"seed": 0}, (0,)),
    ({"seeds": (0, 1, 2)}, (0, 1, 2)),
    ({"seeds": [7]}, (7,)),
    ({"seeds": range(2)}, (0, 1)),
    ({"repeats": 5}, (0, 1, 2, 3, 4)),
    ({"seed": None, "seeds": None, "repeats": None}, (0,)),
    ({}, (0,)),
]


@pytest.mark.parametrize(("asked", "seeds"), WAYS)
def test_python_takes_all_three(asked, seeds):
    assert RunConfig(**asked).seeds == seeds
    assert RunConfig.of(asked).seeds == seeds
    assert configured(RunConfig(), asked).seeds == seeds
    assert BenchConfig.of(BENCH | asked).seeds == seeds


LINES = [("seed = 5", (5,)), ("seeds = [0, 2]", (0, 2)), ("repeats = 3", (0, 1, 2)), ("", (0,))]


@pytest.mark.parametrize(("line", "seeds"), LINES)
def test_files_take_all_three(tmp_path, line, seeds):
    preset, bench = tmp_path / "run.toml", tmp_path / "bench.toml"
    preset.write_text(line)
    bench.write_text(f'{line}\ndatasets = ["synthetic"]\nmethods = ["tem"]\n')
    assert RunConfig.of(read_preset(str(preset))).seeds == seeds
    assert BenchConfig.of(read_bench(str(bench))).seeds == seeds


def test_a_file_laid_over_another_has_the_last_word(tmp_path):
    base, over = tmp_path / "base.toml", tmp_path / "over.toml"
    base.write_text("repeats = 3")
    over.write_text(f'extends = "{base}"\nseeds = [4, 5]\n[methods.tem]\nseed = 9\n')
    assert RunConfig.of(read_preset(str(over))).seeds == (4, 5)
    assert RunConfig.of(read_preset(str(over), "tem")).seeds == (9,)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"seed": "5"}, "seed must be an integer of at least 0, not '5'"),
        ({"seed": -1}, "seed must be an integer of at least 0, not -1"),
        ({"seed": True}, "seed must be an integer"),
        ({"repeats": 0}, "repeats must be an integer of at least 1, not 0"),
        ({"repeats": 2.0}, "repeats must be an integer of at least 1, not 2.0"),
        ({"seeds": 0}, r"seeds must be a list such as \[0\], not 0: write seed = 0"),
        ({"seeds": 3}, r"not 3: write seed = 3, or repeats = 3 for that many seeds"),
        ({"seeds": [1, 1]}, "seeds must differ"),
    ],
)
def test_what_is_no_seed_is_refused(asked, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        RunConfig.of(asked)


def test_commands_of_the_book_still_run_what_they_ran():
    rows = rows_in(Path(__file__).parents[2] / "book")
    assert rows
    assert all(seeds_in(row.command) == [*row.seeds] for row in rows)
