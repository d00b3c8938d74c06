"""Graphs that several tests learn from, the command line, a browser and a cluster."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph.core import packages

# A plugin of trio, of which no test makes use, would be imported with hypothesis.
os.environ.setdefault("HYPOTHESIS_NO_PLUGINS", "1")

import pytest
from hypothesis import HealthCheck, settings

# The package is imported by the fixtures that need it.
if TYPE_CHECKING:
    from evergraph.cluster.ray_engine import RayEngine
    from evergraph.graphs import Graph
    from evergraph.streams import GraphStream

# Children that are forked after torch has used several threads would wait for them for ever.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The gate draws the same few examples every time: what passed here passes there. New ones, and many
# of them, are drawn with HYPOTHESIS_PROFILE=explore, as `make test-slow` does. No example has a
# deadline: how long one takes is a matter of what else the machine does.
in_any_time = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", in_any_time, derandomize=True, max_examples=12)
settings.register_profile("explore", in_any_time, print_blob=True, max_examples=100)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "gate")
settings.load_profile(PROFILE)

SHARED = Path(__file__).parents[2] / "shared" / "data"
CHROMIUM = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
Call = Callable[..., tuple[str, str]]
# Every run writes down which versions it had: the record of a package is read once, not a thousand
# times.
metadata.version = cache(metadata.version)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[Any], list[Any]]:
    """Look for examples only in files that have one: looking through all of them takes seconds."""
    collectors = yield
    if file_path.suffix != ".py" or ">>> " in file_path.read_text("utf-8"):
        return collectors
    return [each for each in collectors if type(each) is pytest.Module]


def pytest_collection() -> None:
    """Keep the garbage collector from looking through what is imported a hundred times."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave modules and tests out of what the garbage collector looks through, and call it less."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 20)
    gc.enable()


@pytest.fixture(scope="session")
def real() -> Callable[[str], Path]:
    """Return the path of one of the real graphs by name, or skip where they are not at hand."""

    def path_of(name: str) -> Path:
        path = SHARED / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"the real graph {path} is not at hand")
        return path

    return path_of


@pytest.fixture
def own_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test register parts of its own, which are gone when it is over, and import plugins."""
    from evergraph.datasets import datasets
    from evergraph.memory import samplers
    from evergraph.methods import methods
    from evergraph.nn import backbones
    from evergraph.topology import topologies

    for resolver in (datasets, samplers, methods, backbones, topologies):
        monkeypatch.setattr(resolver, "_classes", dict(resolver._classes))
        monkeypatch.setattr(resolver, "_aliases", dict(resolver._aliases))
    monkeypatch.setattr(packages, "_files", {})
    monkeypatch.setattr(packages, "_installed_loaded", False)
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture(scope="session")
def small_graph() -> Graph:
    """Six classes, three tasks; easy enough to learn in a second."""
    from evergraph.datasets import load

    return load("synthetic", nodes=360, classes=6, features=16, noise=0.4, seed=1)


@pytest.fixture(scope="session")
def stream(small_graph: Graph) -> GraphStream:
    """Its three tasks, each with all edges to nodes met before."""
    from evergraph.streams import GraphStream

    return GraphStream(small_graph, edges="all")


@pytest.fixture(scope="module")
def ray_engine() -> Iterator[RayEngine]:
    """Two Ray workers on this machine: starting them takes seconds, and they take some idle."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'evergraph[cluster]'")
    from evergraph.cluster.ray_engine import RayEngine

    with RayEngine(workers=2, store=200_000_000) as engine:
        yield engine


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Call:
    """Run ``evergraph ...`` in a folder of its own, in this process: importing torch takes long."""
    from evergraph.cli import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str, expect: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["evergraph", *arguments])
        capfd.readouterr()
        code = 0
        try:
            app.main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capfd.readouterr()
        assert code == expect, err
        return out, err

    return run


@pytest.fixture
def learned_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let benchmarks learn in this process: starting others takes seconds."""
    from evergraph.experiments.bench import benchmark
    from evergraph.experiments.bench.worker import learn

    def run_here(work: Any, *, on_event: Callable[..., None], **_: Any) -> None:
        for job, seed in work:
            on_event(learn(job, seed))

    monkeypatch.setattr(benchmark, "run_work", run_here)


@pytest.fixture(scope="module")
def narrow_heads() -> Iterator[None]:
    """Let learners that commands make have narrow heads of one view, unless told otherwise."""
    from evergraph.online.heads import AnalyticHead, FusedHead, TargetHead

    with pytest.MonkeyPatch.context() as patch:
        for head in (AnalyticHead, FusedHead, TargetHead):
            patch.setitem(head.__init__.__kwdefaults__, "width", 32)
        for head in (FusedHead, TargetHead):
            patch.setitem(head.__init__.__kwdefaults__, "views", ("0|1|2",))
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay figures out, and write empty ones: rendering them takes seconds."""
    empty = '<svg viewBox="0 0 1 1"><title>it was not drawn</title></svg>'

    def save(figure: Any, file: Any, *, format: str, **_: Any) -> None:
        file.write(empty if format == "svg" else b"")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", save)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Debian's chromium, driven by selenium, that notes what is requested and said."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no chromium and chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for option in CHROMIUM:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.fixture
def seen_as(chromium: Any) -> Callable[[int, str], Any]:
    """Return what gives an empty window a width and asks for a light or a dark scheme."""

    def dressed(width: int, scheme: str) -> Any:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        media = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in media.items()]
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        chromium.get("about:blank")  # what was shown before asks and notes nothing any more
        chromium.get_log("performance"), chromium.get_log("browser")
        return chromium

    return dressed


@pytest.fixture
def wait(chromium: Any) -> Callable[[str], Any]:
    """Return what waits until some JavaScript is true, and returns it."""
    from selenium.webdriver.support.ui import WebDriverWait

    def until(script: str) -> Any:
        return WebDriverWait(chromium, 60, 0.05).until(
            lambda driver: driver.execute_script(f"return {script}"), script
        )

    return until
