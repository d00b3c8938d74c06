"""Parts of examples/my_parts.py and docs/extending.md keep the promises of registered ones."""

import inspect
import shutil
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from evergraph.core.packages import load_plugin
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.memory import Candidates, samplers
from evergraph.methods import methods
from evergraph.streams import GraphStream
from evergraph.topology import topologies
from evergraph.training import Trainer
from from_file import module_of

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "my_parts.py"
# The file whose tests run on every registered part of a kind, and the part to run them on.
PROMISES = {
    "methods/test_contract.py": "anchored",
    "memory/test_samplers.py": "low-degree",
    "topology/test_encoders.py": "residual",
    "topology/test_growth.py": "residual",
}


@pytest.fixture
def parts(request, tmp_path, monkeypatch, own_parts) -> Iterator[str | None]:
    """Bring the parts in by ``--plugin``, or as a package that is installed; or the page's own."""
    if request.param == "page":
        page = (ROOT / "docs" / "extending.md").read_text("utf-8")
        exec(page.split("```python\n# powered_degree.py\n")[1].split("\n```")[0], {})
        yield "powered-degree"
        return
    if request.param == "plugin":
        load_plugin(FILE)
        yield None
        return
    shutil.copy(FILE, tmp_path / "my_installed_parts.py")
    info = tmp_path / "my_parts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-parts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[evergraph.parts]\nmine = my_installed_parts\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield None
    del sys.modules["my_installed_parts"]


def calls_of(test: Any) -> Iterator[dict[str, Any]]:
    """Yield what pytest would call a test with, but for the name."""
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    axes = []
    for names, rows in (mark.args for mark in marks if mark.args[0] != "name"):
        one = isinstance(names, str)
        axes.append([{names: row} if one else dict(zip(names, row, strict=True)) for row in rows])
    for chosen in product(*axes):
        yield {name: value for values in chosen for name, value in values.items()}


@pytest.mark.parametrize(
    ("parts", "file"),
    [
        *(("plugin", file) for file in sorted(PROMISES)),
        *((way, "memory/test_samplers.py") for way in ("entry point", "page")),
    ],
    indirect=["parts"],
)
def test_every_promise_is_kept(file, parts, small_graph, tmp_path, monkeypatch):
    module, kept = module_of(ROOT / "tests" / file, "promises"), 0
    for test in list(vars(module).values()):
        marks = getattr(test, "pytestmark", [])
        registered = [m for m in marks if m.name == "parametrize" and m.args[0] == "name"]
        if not registered or len(registered[0].args[1]) < len(_names(file)):
            continue  # of some parts only
        taken = inspect.signature(test).parameters
        fixtures = {"small_graph": small_graph, "tmp_path": tmp_path, "monkeypatch": monkeypatch}
        fixtures["tiny_graph"] = small_graph
        given = {fixture: value for fixture, value in fixtures.items() if fixture in taken}
        for values in calls_of(test):
            test(name=parts or PROMISES[file], **values, **given)
            kept += 1
    assert kept >= {"methods/test_contract.py": 5, "topology/test_growth.py": 1}.get(file, 3)


def _names(file: str) -> list[str]:
    resolver = {"methods": methods, "memory": samplers}.get(file.partition("/")[0], topologies)
    own = set(PROMISES.values())
    return [name for name in resolver.names() if name not in own]


def test_an_anchor_that_weighs_nothing_is_finetune_and_a_heavy_one_holds(own_parts, small_graph):
    load_plugin(FILE)

    def moved(name, **options):
        """Return the weights after two tasks, and how far the first layer went in the second."""
        trainer = Trainer(epochs=3, batch_size=64, device="cpu")
        learner = methods.make(name, trainer=trainer, generator=seeded(0, "learner"), **options)
        stream = GraphStream(small_graph)
        learner.fit_task(stream.open(0))
        before = next(iter(learner.named_parameters().values())).detach().clone()
        learner.fit_task(stream.open(1))
        after = next(iter(learner.named_parameters().values())).detach()
        return after, float((after - before).norm())

    plain, far = moved("finetune")
    free, _ = moved("anchored", strength=0.0)
    _, near = moved("anchored", strength=100.0)
    assert free.equal(plain)
    assert near < 0.1 * far


def test_weights_and_embeddings_by_hand(own_parts):
    load_plugin(FILE)
    # 0 - 1 - 2: one hop of Â without self-loops is x1/√2, (x0 + x2)/√2, x1/√2
    path = Graph.from_edges(
        torch.tensor([[0, 1], [1, 2]]),
        features=torch.tensor([[1.0], [2.0], [3.0]]),
        labels=torch.zeros(3, dtype=torch.long),
        undirected=True,
    )
    candidates = Candidates(path, torch.arange(3), path.labels, path.features, hops=1)
    weights = samplers.make("low-degree").weigh(candidates)
    assert weights.tolist() == [1 / 2, 1 / 3, 1 / 2]
    found = topologies.make("residual", hops=1, self_loops=False).encode(path)
    half = 2**-0.5 / 2
    expected = torch.tensor([[0.5 + 2 * half], [1 + 4 * half], [1.5 + 2 * half]])
    torch.testing.assert_close(found, expected)
