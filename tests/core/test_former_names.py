"""Names of version 0.1 go on working, with a warning; what was saved with them is read without."""

import json
import warnings
from typing import Any

import pytest

import evergraph as eg
from evergraph.core.component import Part
from evergraph.core.errors import ConfigurationError
from evergraph.core.resources import Resources
from evergraph.experiments.build import resolved
from evergraph.experiments.store import ResultStore
from evergraph.topology import APPNP, PPR, SGC, MixHop, Reservoir, topologies

QUICK: dict[str, Any] = {"device": "cpu", "progress": False}


@pytest.mark.parametrize(
    ("make", "old", "new", "value"),
    [
        *((make, "rows", "dtype", "float16") for make in (SGC, PPR, APPNP, MixHop, Reservoir)),
        (MixHop, "keep", "kept_hops", (0, 2)),
        (Resources, "memory", "memory_limit", 10**9),
    ],
)
def test_a_part_takes_a_parameter_by_its_former_name(make, old, new, value):
    with pytest.warns(DeprecationWarning, match=rf"\({old}=...\) is now called {new}") as warned:
        part = make(**{old: value})
    assert [one.filename for one in warned] == [__file__]
    assert getattr(part, new) == value
    if isinstance(part, Part):
        assert part.get_params()[new] == value
        assert old not in part.get_params()


def test_saved_parameters_are_read_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        part = topologies.make("mixhop", hops=2, keep=[0, 2], rows="float16")
    assert (part.kept_hops, part.dtype) == ([0, 2], "float16")


def test_a_run_takes_keep_for_either_of_its_meanings(small_graph):
    with pytest.warns(
        DeprecationWarning, match=r"run\(keep=...\) is now called keep_learner"
    ) as said:
        assert eg.run(small_graph, "slda", keep=False, **QUICK).learner is None
    ours = [one for one in said if "keep" in str(one.message)]  # torch may warn beside it
    assert [one.filename for one in ours] == [__file__]
    with pytest.warns(DeprecationWarning, match=r"run\(keep=...\) is now called memory"):
        result = eg.run(small_graph, "auto", keep="200KB", **QUICK)
    assert result.config.method.parameters["memory"] == "200KB"
    assert result.learner is not None


def test_a_results_folder_with_former_names_can_be_resumed(tmp_path):
    config = resolved(eg.RunConfig.of({"method": {"name": "auto", "memory": "1MB"}}))
    old = (
        config.to_toml().replace('dtype = "', 'rows = "').replace('memory = "1MB"', 'keep = "1MB"')
    )
    assert old.count("rows = ") == 2
    assert 'keep = "1MB"' in old
    (tmp_path / "config.toml").write_text(old)
    ResultStore(tmp_path).open(config, resume=True)


def test_a_folder_is_made_of_parameters_or_by_a_function(tmp_path):
    with pytest.raises(ConfigurationError, match="only one of given and make"):
        eg.LearnerFolder.open(tmp_path, {"seed": 3}, make=eg.OnlineLearner)


def test_options_have_former_names_too(call):
    small = ("--dataset", "synthetic", "--set", "dataset.nodes=200", "--set", "dataset.classes=4")
    out, err = call("run", *small, "--keep", "200KB", "--device", "cpu", "--json")
    assert json.loads(out)["config"]["method"]["memory"] == "200KB"
    assert "note: --keep is now called --memory; the old name works for one more version" in err
    _, err = call("run", *small, "--keep", "1MB", "--memory", "1MB", expect=2)
    assert "--keep is the former name of --memory: give only --memory" in err
    assert "--keep" not in call("run", "--help")[0]
