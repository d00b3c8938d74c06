"""Parts of a graph on three machines, none of which has more than its own, nor a shared folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from evergraph.core.resources import Resources
from evergraph.graphs.split_folder import SplitFolder, write_split
from evergraph.topology import topologies
from evergraph.topology.column_blocks import encode_within
from graphs_to_draw import random_graph

SCRIPT = Path(__file__).parents[2] / "scripts" / "cluster_in_namespaces"
CALL_SECONDS = 240
On = Callable[..., tuple[int, str]]


def call(*words: object) -> tuple[int, str]:
    """Call the script; sources and programs of this process are those of the nodes."""
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    given = os.environ | {"PATH": paths, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(SCRIPT), *map(str, words)]
    with tempfile.TemporaryFile("w+") as said:  # no pipe: nodes that go on would keep it open
        done = subprocess.run(
            command, env=given, stdout=said, stderr=said, check=False, timeout=CALL_SECONDS
        )
        said.seek(0)
        return done.returncode, said.read()


@pytest.fixture
def on() -> Iterator[On]:
    """Three nodes, and what runs a command on one of them."""
    code, said = call("up", "--nodes", 3, "--cpu", 1, "--store", "100MB")
    if code:
        pytest.skip(f"no cluster of namespaces here: {said.strip()}")
    try:
        yield lambda node, *command: call("run", "--on", node, "--", *command)
    finally:
        call("down")


def give_parts(on: On, original: Path, place: Path) -> None:
    """Give every node a file system of its own at ``place``, with one part of a graph in it."""
    place.mkdir()
    for node in (1, 2, 3):
        copy = (
            f"mount -t tmpfs none {place} && mkdir {place}/split && cp -r {original}/split.json "
            f"{original}/part-{node - 1:05d} {place}/split"
        )
        assert on(node, "sh", "-c", copy)[0] == 0


def embed(on: On, place: Path, name: str, *options: object) -> tuple[int, str]:
    command = (sys.executable, "-m", "evergraph.cli.app", "embed", place / "split")
    where = ("--out", place / name, "--engine", "ray", "--address", "auto")
    return on(1, *command, *where, *options)


@pytest.mark.slow
def test_parts_are_worked_on_where_they_are(on: On, tmp_path: Path) -> None:
    graph, topology = random_graph(7, nodes=300, edges=2000, dims=8), topologies.make("sgc")
    write_split(graph, tmp_path / "split", parts=3)
    place, collected = tmp_path / "place", tmp_path / "collected"
    give_parts(on, tmp_path / "split", place)
    code, said = embed(on, place, "out")
    assert code == 0, said
    for node in (1, 2, 3):
        at = collected / str(node)
        at.mkdir(parents=True)
        assert on(node, "cp", "-r", place / "out", at)[0] == 0
        parts = sorted(path.name for path in (at / "out").glob("part-*"))
        assert parts == [f"part-{node - 1:05d}"]
        shutil.copytree(at / "out", collected / "out", dirs_exist_ok=True)
    found = SplitFolder.open(collected / "out").whole(verify=True)
    expected = encode_within(topology, graph, resources=Resources(memory=10**12))
    assert torch.equal(found.features, expected)
    assert torch.equal(found.indices, graph.indices)

    assert call("kill", 3)[0] == 0
    code, said = embed(on, place, "again", "--hops", 1)
    assert code == 2, said
    assert "split/part-00002: is on none of the 2 machines of the cluster" in said
