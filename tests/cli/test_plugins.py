"""Parts of one's own on the command line: --plugin, plugins in TOML, installed packages."""

import json
import shlex
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from evergraph.core import packages
from evergraph.experiments.bench import benchmark
from evergraph.experiments.bench.benchmark import open_bench, run_bench
from evergraph.experiments.bench.jobs import BenchConfig
from evergraph.experiments.bench.pool import run_work
from evergraph.experiments.config import read_toml
from evergraph.memory import samplers
from evergraph.methods import methods
from evergraph.topology import topologies

Call = Callable[..., tuple[str, str]]

pytestmark = pytest.mark.usefixtures("own_parts", "narrow_heads")
FILE = Path(__file__).parents[2] / "examples" / "my_parts.py"
BENCH = """\
plugins = ["parts/my_parts.py"]
datasets = [{ name = "synthetic", nodes = 60, classes = 4 }]
repeats = 2
common = { device = "cpu", training = { epochs = 1 }, topology = "residual" }
methods = ["anchored", { name = "tem", run = { memory = { sampler = "low-degree", budget = 3 } } }]
"""
DATASET = """\
from evergraph.datasets import Synthetic, datasets

@datasets.register
class Village(Synthetic):
    "A small graph of my own."

    name = "village"

    def __init__(self, *, nodes: int = 48) -> None:
        super().__init__(nodes=nodes, classes=4, features=8)
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with the example's parts, a benchmark and a preset that name them."""
    (tmp_path / "parts").mkdir()
    shutil.copy(FILE, tmp_path / "parts")
    (tmp_path / "village.py").write_text(DATASET)
    (tmp_path / "mine.toml").write_text(BENCH)
    (tmp_path / "base.toml").write_text('plugins = ["village.py"]\n[dataset]\nname = "village"\n')
    (tmp_path / "parts" / "preset.toml").write_text(
        'plugins = ["my_parts.py"]\nmethod = "anchored"\ntopology = "residual"\n'
    )
    return tmp_path


def forget() -> None:
    """Be like a fresh process, which has imported no plugin."""
    packages._files.clear()
    for resolver, name in (
        (methods, "anchored"),
        (samplers, "low-degree"),
        (topologies, "residual"),
    ):
        resolver._classes.pop(name, None)


def test_parts_of_a_plugin_are_listed(call, files):
    for kind, name, line in (
        ("methods", "anchored", "Keeps weights near those of the task before: "),
        ("samplers", "low-degree", "p_v ∝ 1 / (1 + in-degree): "),
        ("topologies", "residual", "E = (X + Â^L X) / 2: "),
    ):
        listed = call("list", kind, "--plugin", "parts/my_parts.py", "--json")[0]
        assert json.loads(listed)[kind][name].startswith(line)
    listed = call("list", "datasets", "--plugin", "village.py", "--json")[0]
    assert json.loads(listed)["datasets"]["village"] == {"title": "A small graph of my own."}


def test_a_run_takes_parts_of_several_plugins_and_resumes(call, files):
    options = shlex.split(
        "run --plugin parts/my_parts.py --plugin village.py --dataset village "
        "--method anchored --topology residual --set method.strength=0.5 --epochs 1 "
        "--device cpu --json --out out"
    )
    config = json.loads(call(*options)[0])["config"]
    assert config["method"] == {"name": "anchored", "strength": 0.5}
    assert config["topology"]["name"] == "residual"
    paths = [str(files / "parts" / "my_parts.py"), str(files / "village.py")]
    assert read_toml(files / "out" / "config.toml")["plugins"] == paths
    shutil.move("parts", "elsewhere")  # where a plugin lies makes no other run of it
    options[2] = "elsewhere/my_parts.py"
    forget()
    assert json.loads(call(*options, "--resume")[0])["config"]["method"]["name"] == "anchored"
    # The folder's own configuration says all that is needed to learn the same again.
    shutil.move("elsewhere", "parts")
    forget()
    again = call("run", "--preset", "out/config.toml", "--out", "again", "--json")[0]
    first = json.loads((files / "out" / "result.json").read_text())
    assert json.loads(again)["accuracy_matrix"] == first["accuracy_matrix"]


def test_plugins_of_presets_count_from_their_files_and_add_up(call, files):
    (files / "parts" / "preset.toml").write_text(
        'plugins = ["my_parts.py"]\nextends = "base.toml"\nmethod = "anchored"\n'
    )
    told = call("run", "--preset", "parts/preset.toml", "--epochs", "1", "--json")[0]
    config = json.loads(told)["config"]
    paths = [str(files / "village.py"), str(files / "parts" / "my_parts.py")]
    assert config["plugins"] == paths
    assert (config["dataset"]["name"], config["method"]["name"]) == ("village", "anchored")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["run", "--plugin", "absent.py"], "plugin {folder}/absent.py: no such file"),
        (["bench", "quick", "--plugin", "absent.py"], "plugin {folder}/absent.py: no such file"),
        (["list", "methods", "--plugin", "absent.py"], "plugin absent.py: no such file"),
        (["run", "--plugin", "wrong.py"], "plugin {folder}/wrong.py, line 2: NameError: name 'y'"),
        (["info", "wordnet", "--plugin", "wrong.py"], "plugin wrong.py, line 2: NameError: "),
        (["predict", "l", "ids", "--plugin", "wrong.py"], "plugin wrong.py, line 2: NameError: "),
        (["run", "--set", "plugins=village.py"], "plugins: input should be a valid tuple"),
    ],
)
def test_broken_plugins(options, said, call, files):
    (files / "wrong.py").write_text("x = 1\ny.z\n")
    (files / "ids").write_text("a\n")
    out, err = call(*options, expect=2)
    assert out == ""
    assert err.startswith(f"error: {said.format(folder=files)}")
    assert err.count("\n") == 1
    assert not (files / "runs").exists()


@pytest.mark.usefixtures("learned_here")
def test_workers_import_plugins(call, files, monkeypatch):
    here = benchmark.run_work

    def fresh(*given, **options):
        forget()
        here(*given, **options)

    monkeypatch.setattr(benchmark, "run_work", fresh)
    told = json.loads(call("bench", "mine.toml", "--workers", "1", "--json", "--out", "out")[0])
    assert [row["state"] for row in told["rows"]] == ["done", "done"]
    paths = [str(files / "parts" / "my_parts.py")]
    assert read_toml(files / "out" / "bench.toml")["plugins"] == paths
    for method in ("anchored", "tem"):
        config = read_toml(files / "out" / "synthetic" / "class-il" / method / "config.toml")
        assert config["plugins"] == paths
        assert config["seeds"] == [0, 1]
    kept = call("bench", "out/bench.toml", "--resume", "--json", "--out", "out")[0]
    assert [row["state"] for row in json.loads(kept)["rows"]] == ["done", "done"]


@pytest.mark.usefixtures("learned_here")
def test_a_bench_takes_further_plugins(call, files):
    options = ["--plugin", "village.py", "--datasets", "village", "--repeats", "1"]
    told = json.loads(call("bench", "mine.toml", *options, "--json", "--out", "out")[0])
    assert {(row["dataset"], row["state"]) for row in told["rows"]} == {("village", "done")}
    stored = read_toml(files / "out" / "bench.toml")
    assert [Path(path).name for path in stored["plugins"]] == ["my_parts.py", "village.py"]
    assert stored["seeds"] == [0]


@pytest.mark.slow
def test_ray_workers_import_a_benchmarks_plugins(ray_engine, files, monkeypatch):
    monkeypatch.chdir(files)
    opened = open_bench(BenchConfig.of(read_toml(Path("mine.toml"))), out=Path("out"))
    rows = run_bench(opened, workers=2, pool=partial(run_work, engine=ray_engine))
    assert [row.failure for row in rows] == [None, None]


def test_a_learner_that_lives_on_takes_parts_too(call, files):
    from evergraph.core.packages import load_plugin
    from evergraph.online import LearnerFolder

    load_plugin(FILE)
    LearnerFolder.open(
        "learner", {"topology": {"name": "residual"}, "head": {"name": "analytic"}}
    ).close()
    forget()
    (files / "nodes.csv").write_text("id,label,f\na,x,0\nb,y,1\nc,x,0\nd,y,1\n")
    (files / "ids").write_text("a\nd\n")
    plugin = ["--plugin", "parts/my_parts.py"]
    call("ingest", "learner", "--nodes", "nodes.csv", *plugin)
    told = call("predict", "learner", "ids", *plugin)[0].splitlines()
    assert [line.rsplit(",", 2)[0] for line in told] == ["id,label", "a,x", "d,y"]


def test_a_mistyped_parameter_suggests_the_nearest(call, tmp_path):
    for setting, near in (("haed.width=8", "'head'"), ("head.widht=8", "'width'")):
        said = call("serve", "learner", "--port", "0", "--set", setting, expect=2)[1]
        assert said.startswith("error: ")
        assert f"has no parameter {setting[:4]!r}: " in said or "'widht'" in said
        assert f"did you mean {near}? it takes " in said
        assert said.count("\n") == 1
