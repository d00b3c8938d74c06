"""What ``import evergraph as eg`` offers, and what somebody types who has read nothing."""

import ast
import inspect
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from importlib import import_module, metadata
from operator import attrgetter
from pathlib import Path

import pytest
import torch

import evergraph
import evergraph as eg
from evergraph.core import errors, packages
from evergraph.core.component import Resolver
from evergraph.datasets import datasets
from evergraph.memory.samplers import samplers
from evergraph.methods import methods
from evergraph.nn import backbones
from evergraph.online.heads import heads
from evergraph.topology import topologies

SPACES: dict[str, Resolver[object]] = {
    "methods": methods,
    "samplers": samplers,
    "topologies": topologies,
    "backbones": backbones,
    "datasets": datasets,
    "online.heads": heads,
}


@pytest.mark.parametrize("space", SPACES)
def test_every_registered_part_is_in_its_namespace_under_the_name_of_its_class(space):
    resolver = SPACES[space]
    ours = [resolver.resolve(name) for name in resolver.names()]
    ours = [cls for cls in ours if cls.__module__.startswith("evergraph.")]
    assert len(ours) >= 3
    homes = [attrgetter(space)(eg), *([eg.closed_form] if space == "backbones" else [])]
    found = [c for c in ours if any(getattr(home, c.__name__, None) is c for home in homes)]
    assert found == ours


def test_typed_names_are_those_that_are_looked_up():
    tree = ast.parse(Path(eg.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            typed |= {alias.name: str(node.module) for alias in node.names}
        elif isinstance(node, ast.Import):
            typed |= {str(alias.asname): alias.name for alias in node.names}
    looked_up = eg._NAMES | eg._NAMESPACES
    assert typed == {name: f"evergraph.{home}" for name, home in looked_up.items()}
    assert sorted(eg.__all__) == sorted(looked_up)


def test_every_name_can_be_had_and_is_listed():
    for name in eg.__all__:
        assert getattr(eg, name) is not None
        assert name in dir(eg)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'TEN'"):
        _ = eg.TEN


def test_a_name_is_imported_on_first_use():
    code = (
        "import sys, evergraph as eg; assert 'torch' not in sys.modules; dir(eg)\n"
        "assert 'torch' not in sys.modules; eg.RunConfig; eg.errors.DataError\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.usefixtures("own_parts")
def test_entry_points_are_imported_for_what_nothing_has():
    methods.make("finetune", generator=eg.seeded(0))
    assert not packages._installed_loaded
    with pytest.raises(errors.UnknownNameError):
        methods.resolve("nobody")
    assert packages._installed_loaded


def test_every_public_method_is_described_here_or_by_a_parent():
    bare = []
    for module in pkgutil.walk_packages(evergraph.__path__, "evergraph."):
        if module.name in {"evergraph.__main__", "evergraph.graphs.kernels.triton_sum"}:
            continue
        for cls in vars(import_module(module.name)).values():
            ours = inspect.isclass(cls) and cls.__module__ == module.name
            if not ours or cls.__name__.startswith("_"):
                continue
            for name, member in vars(cls).items():
                own = getattr(member, "__name__", name) == name  # not a default that is a function
                method = (inspect.isfunction(member) and own) or isinstance(
                    member, property | classmethod
                )
                if method and not name.startswith("_") and not inspect.getdoc(getattr(cls, name)):
                    bare.append(f"{module.name}.{cls.__name__}.{name}")
    assert not bare


def test_a_class_has_a_name_of_its_own():
    texts = [file.read_text("utf-8") for file in Path(eg.__file__).parent.rglob("*.py")]
    names = [name for text in texts for name in re.findall(r"^class ([A-Za-z]\w*)", text, re.M)]
    assert len(names) > 300
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_the_version_is_that_of_the_installed_package():
    assert evergraph.__version__ == metadata.version("evergraph")
    assert "__version__" in dir(evergraph)


def test_a_source_tree_that_was_never_installed_says_so(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert evergraph.__version__ == "0+unknown"


def test_a_strangers_ten_lines(small_graph, tmp_path, monkeypatch):
    for package in ("torch_geometric", "pandas", "matplotlib"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    from torch_geometric.data import Data

    edges = torch.stack([small_graph.indices.long(), small_graph.edge_rows()])
    x, y = small_graph.features, small_graph.labels

    data = Data(x=x, edge_index=edges, y=y)
    result = eg.run(data, method="auto", memory="2MB", device="cpu")
    frame = result.to_frame()
    axes = result.plot()
    result.learner.save("m")
    predicted = eg.load_learner("m").predict(data)

    assert (predicted == y).float().mean() > 0.9
    assert predicted.equal(result.learner.predict(data))
    last = frame[(frame.after == 2) & (frame.testing == "local") & (frame.average == "balanced")]
    assert last.accuracy.mean() == pytest.approx(result.average_accuracy())
    assert axes.lines[-1].get_ydata()[-1] == pytest.approx(100 * result.average_accuracy("global"))
