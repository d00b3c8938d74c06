"""Lines of JSON with columns of any kind, types, relations and several labels."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from evergraph.core.errors import DataError
from evergraph.online.codecs.json_lines import LineReader, delta_of_lines
from evergraph.online.delta import Delta
from evergraph.online.folder.in_memory import InMemoryLearner
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import FusedHead, TargetHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.line_stream import LineStream
from mixed_tables import mixed_edges, mixed_rows, write_mixed

BEGIN, END = 12, 18


class Kept(InMemoryLearner):
    """A learner in memory that a stream can be taken into."""

    def submit(self, delta: Delta) -> Any:
        return vars(super().submit(delta))

    def last_key(self, prefix: str) -> str | None:
        return next((key for key in reversed(self._keys) if key.startswith(prefix)), None)


def written(lines: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(line).encode() for line in lines]


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    """Return nodes, without what is not known, and edges as lines."""
    nodes = [{"node": row.pop("id"), **row} for row in mixed_rows(start, stop)]
    known = [{name: value for name, value in row.items() if value is not None} for row in nodes]
    return [*known, *({"edge": list(pair)} for pair in mixed_edges(start, stop))]


@pytest.fixture
def begun(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what takes lines into a folder that began with a mixed table."""

    def take(folder: str, lines: list[dict[str, Any]], *options: str, expect: int = 0) -> str:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        err: str = call("ingest", folder, "-", *options, expect=expect)[1]
        return err

    nodes, edges = write_mixed(tmp_path, 0, BEGIN)
    call("ingest", "learner", "--nodes", str(nodes), "--edges", str(edges), "--strict")
    return take


def test_lines_are_read_as_the_first_table_was(begun: Any, call: Any, tmp_path: Path) -> None:
    shutil.copytree("learner", "tables")
    later = [row | {"venue": "v1"} if "node" in row else row for row in rows(BEGIN, END)]
    begun("learner", later, "--batch", "4")
    nodes, edges = write_mixed(tmp_path, BEGIN, END, "later")
    table = nodes.read_text().splitlines()
    place = table[0].split(",").index("venue")
    cells = [line.split(",") for line in table[1:]]
    fixed = [",".join([*row[:place], "v1", *row[place + 1 :]]) for row in cells]
    nodes.write_text("\n".join([table[0], *fixed]) + "\n")
    call("ingest", "tables", "--nodes", str(nodes), "--edges", str(edges))
    ids = [f"n{node}" for node in range(END)]
    found = []
    for name in ("learner", "tables"):
        with LearnerFolder.open(name, readonly=True) as folder:
            found.append(folder.learner.embed(ids))
    assert torch.allclose(*found, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"score": "high"}, "line 2: row 2 has 'high' in column 'score': expected a number"),
        ({"venue": "else"}, "line 2: row 2 has 'else' in column 'venue': expected a category"),
        ({"scores": 1}, "line 2: has a column 'scores' that the first table did not have"),
    ],
)
def test_a_mistake_names_its_line(begun: Any, change: dict[str, Any], said: str) -> None:
    lines = [row | {"venue": "v1"} for row in rows(BEGIN, BEGIN + 3) if "node" in row]
    lines[1] |= change
    err = begun("learner", lines, expect=2)
    assert err.startswith(f"error: {said}")
    assert err.count("\n") == 1
    with LearnerFolder.open("learner", readonly=True) as folder:
        assert folder.learner.status().nodes == BEGIN + 1  # the line before it


def test_a_stream_settles_how_its_columns_are_read(begun: Any) -> None:
    lines = [{"node": row.pop("id"), **row} for row in mixed_rows(0, 40)]
    begun("fresh", lines, "--column", "venue=category")
    with LearnerFolder.open("fresh", readonly=True) as folder:
        assert folder.columns is not None
        assert folder.columns.kinds["venue"] == "category"
        assert folder.columns.kinds["score"] == "number"


TYPED: list[dict[str, Any]] = [
    {"node": "a", "features": [1, 0], "label": "x", "type": "paper"},
    {"node": "b", "features": [0, 1], "label": "y", "type": "author"},
    {"node": "c", "features": [1, 1], "type": None},
    {"edge": ["a", "b"], "relation": "wrote"},
    {"edge": ["a", "c"], "relation": "cites"},
    {"edge": ["a", "b"], "relation": "cites"},
]


def test_types_and_relations_by_hand() -> None:
    reader = LineReader()
    lines = [reader.read(text, number) for number, text in enumerate(written(TYPED), start=1)]
    delta = delta_of_lines(lines)
    assert delta.types == ["paper", "author", None]
    assert delta.relations == ["wrote", "cites", "cites"]
    assert reader.read(b'{"node": "d", "type": 2, "size": 1}', 7).features == (2.0, 1.0)
    with pytest.raises(DataError, match="line 8: relation must be a text, not 3"):
        reader.read(b'{"edge": ["a", "b"], "relation": 3}', 8)


@pytest.mark.parametrize("batch", [1, 2, 9])
def test_batches_of_relations_give_one_outcome(batch: int) -> None:
    kept, whole = (Kept(OnlineLearner(head=FusedHead(width=16))) for _ in range(2))
    LineStream(kept, batch=batch).take_in(written(TYPED))
    LineStream(whole).take_in(written(TYPED))
    learners = [kept.learner, whole.learner]
    assert [one.status().nodes for one in learners] == [3, 3]
    one, other = (learner.predict_proba(["a", "b", "c"])[1] for learner in learners)
    assert torch.allclose(one, other, atol=1e-4, rtol=0)
    plain = [{k: v for k, v in line.items() if k != "type"} for line in TYPED]
    with pytest.raises(DataError, match=r"line 4: .*began without them"):
        LineStream(Kept(OnlineLearner()), batch=batch).take_in(written(plain))


@pytest.mark.parametrize(
    ("kind", "told", "wrong"), [("labels", ["x", "y"], "x"), ("numbers", 2.5, [1])]
)
def test_labels_and_numbers_in_lines(kind: Any, told: Any, wrong: Any) -> None:
    kept = Kept(OnlineLearner(head=TargetHead(kind=kind, width=16)))
    lines = [
        {"node": "a", "features": [1, 0], "label": told},
        {"node": "b", "features": [0, 1]},
        {"label": ["b", told]},
    ]
    LineStream(kept).take_in(written(lines))
    assert kept.learner.status().labelled == 2
    with pytest.raises(DataError, match="line 1: "):
        LineStream(kept, prefix="p").take_in(written([{"label": ["b", wrong]}]))
