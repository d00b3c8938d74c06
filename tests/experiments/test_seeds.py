"""``seed``, ``seeds`` and ``repeats`` mean the same wherever they are given."""

from pathlib import Path

import pytest
from book_rows import rows_in, seeds_in
from hypothesis import given
from hypothesis import strategies as st

import evergraph as eg
from evergraph.core.errors import ConfigurationError
from evergraph.experiments.bench.config import BenchConfig
from evergraph.experiments.presets import read_bench, read_preset
from evergraph.experiments.seeds import with_seeds
from evergraph.experiments.settings import configured
from evergraph.experiments.store import ResultStore

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
        ({"seeds": [1, 1]}, "seeds must differ"),
    ],
)
def test_what_is_no_seed_is_refused(asked, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        RunConfig.of(asked)


@given(st.integers(min_value=1, max_value=50))
def test_a_bare_number_was_a_count_and_is_read_as_one_with_a_warning(count):
    with pytest.warns(DeprecationWarning, match=f"is read as {count} repeats"):
        assert configured(RunConfig(), {"seeds": count}).seeds == tuple(range(count))
    with pytest.warns(DeprecationWarning, match=f"write repeats = {count} for seeds 0 to"):
        assert with_seeds({"seeds": count}) == with_seeds({"repeats": count})


def test_the_warning_points_at_the_caller(small_graph):
    with pytest.warns(DeprecationWarning, match="1 repeats") as warned:
        eg.run(small_graph, "slda", seeds=1, device="cpu", progress=False)
    assert [one.filename for one in warned] == [__file__]


def test_a_bare_number_was_a_count(tmp_path, caplog):
    (tmp_path / "old.toml").write_text("seeds = 3")
    for _ in range(2):
        assert RunConfig.of(read_preset(str(tmp_path / "old.toml"))).seeds == (0, 1, 2)
    assert caplog.text.count("seeds = 3 is read as 3 repeats: write repeats = 3") == 1


def test_a_results_folder_that_holds_a_count_can_be_resumed(tmp_path):
    config = RunConfig(seeds=(0, 1, 2))
    text = config.to_toml()
    kept = "seeds = [\n    0,\n    1,\n    2,\n]\n"
    assert kept in text
    (tmp_path / "config.toml").write_text(text.replace(kept, "seeds = 3\n"))
    ResultStore(tmp_path).open(config, resume=True)


def test_commands_of_the_book_still_run_what_they_ran():
    rows = rows_in(Path(__file__).parents[2] / "book")
    assert rows
    assert all(seeds_in(row.command) == [*row.seeds] for row in rows)
