"""What ``import evergraph as eg`` offers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import evergraph as eg
from evergraph.core import errors
from evergraph.core.resolver import Resolver
from evergraph.datasets import datasets
from evergraph.memory.samplers import samplers
from evergraph.methods import methods
from evergraph.nn import backbones
from evergraph.online.heads import heads
from evergraph.topology import topologies

PARTS = (methods, samplers, topologies, backbones, datasets, heads)


@pytest.mark.parametrize("resolver", PARTS, ids=lambda resolver: resolver.kind)
def test_every_registered_part_is_there_under_the_name_of_its_class(
    resolver: Resolver[object],
) -> None:
    ours = [resolver.resolve(name) for name in resolver.names()]
    ours = [cls for cls in ours if cls.__module__.startswith("evergraph.")]
    assert len(ours) >= 3
    missing = [cls.__name__ for cls in ours if getattr(eg, cls.__name__, None) is not cls]
    assert missing == []


def test_every_error_is_there() -> None:
    raised = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, Exception)]
    assert all(getattr(eg, error.__name__, None) is error for error in raised)


def test_the_three_lists_of_names_agree() -> None:
    tree = ast.parse(Path(eg.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        str(node.module): {alias.name for alias in node.names}
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    }
    looked_up = {f"evergraph.{home}": set(names) for home, names in eg._HOMES.items()}
    assert typed == looked_up
    assert len(eg.__all__) == len(set(eg.__all__))
    assert set(eg.__all__) == set().union(*looked_up.values())


@pytest.mark.parametrize("name", eg.__all__)
def test_every_name_can_be_had_and_is_listed(name: str) -> None:
    assert getattr(eg, name) is not None
    assert name in dir(eg)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'TEN'"):
        _ = eg.TEN  # type: ignore[attr-defined]


def test_a_name_is_imported_on_first_use() -> None:
    code = (
        "import sys, evergraph as eg; assert 'torch' not in sys.modules; dir(eg)\n"
        "assert 'torch' not in sys.modules; eg.RunConfig; assert 'torch' not in sys.modules\n"
        "eg.Analytic; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
