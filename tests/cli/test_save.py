"""``evergraph run --save``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import evergraph as eg

Call = Callable[..., tuple[str, str]]
TINY = [
    "run", "--dataset", "synthetic", "--set", "dataset.nodes=60", "--set", "dataset.classes=4",
    "--epochs", "1", "--device", "cpu", "--json",
]  # fmt: skip


def test_the_trained_learner_is_written(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "new" / "model.eg"
    call(*TINY, "--method", "ewc", "--seeds", "0,1", "--save", path, "--out", tmp_path / "a")
    learner = eg.load_learner(path)
    assert isinstance(learner, eg.methods.EWC)
    graph = eg.load("synthetic", nodes=60, classes=4)
    config = eg.RunConfig.of({"dataset": {"name": "synthetic", "nodes": 60, "classes": 4}})
    here = eg.run(config, "ewc", epochs=1, device="cpu", seeds=[1], progress=False).learner
    assert here is not None
    assert learner.predict_proba(graph).equal(here.predict_proba(graph))  # of the last seed
    said = call(*TINY, "--method", "ewc", "--seeds", "0,1", "--resume", "--save", tmp_path / "b",
                "--out", tmp_path / "a", expect=2)[1]  # fmt: skip
    assert "the run had already finished, and its learner was not kept" in " ".join(said.split())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("--method", "ewc,mas", "--save", "m.eg"),
            "--save needs a single method, and 2 are given",
        ),
        (("--save", "."), "--save must be a file, and . is a folder"),
    ],
)
def test_what_cannot_be_saved_is_said_before_anything_is_learned(
    options: tuple[str, ...], sentence: str, call: Call, tmp_path: Path
) -> None:
    said = call(*TINY, *options, "--out", tmp_path / "a", expect=2)[1]
    assert sentence in " ".join(said.split())
    assert not (tmp_path / "a").exists()
