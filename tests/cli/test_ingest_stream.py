"""``evergraph ingest FOLDER -`` and ``predict --all`` as a user meets them."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from evergraph.cli.inputs import arriving_lines, seconds_of
from evergraph.core.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("narrow_heads")
LINES = "".join(
    json.dumps(line) + "\n"
    for line in [
        *(
            {"node": f"n{i}", "features": [i % 2, 1 - i % 2], "label": "xy"[i % 2]}
            for i in range(6)
        ),
        {"node": "n6", "features": [0, 1]},
        *({"edge": [f"n{i}", f"n{i - 2}"]} for i in range(2, 7)),
    ]
)


@pytest.fixture
def piped(call: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(text: str, *arguments: str, expect: int = 0) -> tuple[str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        found = call("ingest", "learner", "-", *arguments, expect=expect)
        return found

    return run


def test_a_stream_then_all_predictions(piped, call):
    pq = pytest.importorskip("pyarrow.parquet")
    out, _ = piped(LINES, "--batch", "5", "--every", "60m")  # no batch is late
    assert out == "12 lines, 0 known, in 3 deltas; the learner knows 7 nodes and 2 classes\n"
    done = json.loads(piped(LINES, "--json")[0])
    assert (done["lines"], done["known"], done["deltas"], done["nodes"]) == (12, 12, 0, 7)
    call("predict", "learner", "--all", "--out", "all.parquet")
    table = pq.read_table("all.parquet")
    assert table["id"].to_pylist() == [f"n{i}" for i in range(7)]
    assert table["label"].to_pylist()[6] == "x"
    told, _ = call("predict", "learner", "--all")
    assert told.splitlines()[0] == "id,label,probability,known"
    assert len(told.splitlines()) == 8
    call("predict", "learner", "all.parquet", "--out", "all.csv")  # ids of a table, too
    assert Path("all.csv").read_text() == told


def test_all_is_written_in_blocks(piped, call, monkeypatch):
    pq = pytest.importorskip("pyarrow.parquet")
    lines = [{"node": i, "features": [i % 2, 1], "label": i % 2} for i in range(7)]
    piped("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr("evergraph.cli.asking_commands.IDS_PER_QUESTION", 3)
    call("predict", "learner", "--all", "--out", "all.parquet")
    table = pq.read_table("all.parquet")
    assert pq.ParquetFile("all.parquet").num_row_groups == 3
    assert table["id"].to_pylist() == [*range(7)]
    assert str(table["label"].type) == "int64"
    _, err = call("predict", "learner", expect=2)
    assert err == "error: predict needs one of a file of ids, --all and --dry\n"


def test_lines_that_are_known_can_be_skipped(piped):
    piped(LINES)
    later = "".join(LINES.splitlines(keepends=True)[5:])
    assert "node 'n5' is in the graph already" in piped(later, expect=2)[1]
    out, _ = piped(later, "--skip-known")
    assert out.endswith("the learner knows 7 nodes and 2 classes\n")


def test_what_a_stream_is_not(piped, call):
    _, err = piped(LINES, "--nodes", "nodes.csv", expect=2)
    assert err.startswith("error: tables are given by --nodes and --edges")
    _, err = piped(LINES, "--every", "soon", expect=2)
    assert err == "error: --every must be a time such as 2s, 500ms or 1m, not 'soon'\n"
    with pytest.raises(ConfigurationError):
        seconds_of("-1s")


def test_lines_of_a_pipe_come_as_they_are_written(monkeypatch):
    reading, writing = os.pipe()
    monkeypatch.setattr("sys.stdin", os.fdopen(reading))
    lines = arriving_lines()
    os.write(writing, b"one\ntw")
    assert next(lines) == b"one"
    assert next(lines) is None  # half a line is none
    os.write(writing, b"o\nthree")
    assert next(lines) == b"two"
    os.close(writing)
    assert list(lines) == [b"three"]
