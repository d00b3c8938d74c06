"""Small bodies that stand for much: refused before they become it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from evergraph import ContinualNodeClassifier
from evergraph.core.errors import DataError, EvergraphError
from evergraph.online.codecs.delta_bytes import delta_to_bytes
from evergraph.online.codecs.json_lines import LineReader, delta_of_lines
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import FusedHead
from evergraph.online.learner import OnlineLearner
from evergraph.server.arrow import arrow_from_delta, delta_from_arrow
from evergraph.server.arrow_stream import check_decoded
from evergraph.server.http import ARROW, RefusedError

LONG = "x" * 1025


def stream(columns: dict[str, Any]) -> bytes:
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def repeated(value: Any, rows: int) -> pa.DictionaryArray:
    indices = pa.array(np.zeros(rows, np.int8))
    return pa.DictionaryArray.from_arrays(indices, pa.array([value]))


ARROW_BOMBS = {
    "a long text, many rows": ({"id": repeated("x" * 300_000, 10_000)}, 422),
    "a text, very many rows": ({"id": repeated("é" * 1_000, 300_000)}, 413),
    "labels": ({"id": np.arange(300_000), "label": repeated("é" * 1_000, 300_000)}, 413),
    "ends of edges": ({"source": repeated("a" * 900, 200_000)} | {"target": ["b"] * 200_000}, 413),
    "nulls": ({"id": pa.nulls(2**31 - 1)}, 413),
    "bytes": ({"id": repeated(b"x" * 300_000, 10_000)}, 413),
}

# Each under a limit of addresses that decoding would pass.
SENT = """
import json, resource, sys
from evergraph.core.errors import EvergraphError
from evergraph.server.arrow import delta_from_arrow
from evergraph.server.http import status_of
from evergraph.server.payloads import parse
from evergraph.server.bodies import quick_delta
from evergraph.server.payloads import DeltaBody, PredictionsBody
import psutil

def read(kind, body):
    if kind == "arrow":
        return delta_from_arrow(body)
    if kind == "ids":
        return parse(PredictionsBody, body)
    return quick_delta(body, keyed=True) or parse(DeltaBody, body)

limit = psutil.Process().memory_info().vms + 600_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[1:]:
    try:
        read(path.split(".")[-1], open(path, "rb").read())
    except EvergraphError as error:
        print(json.dumps([status_of(error), str(error)]))
"""


def sent(*paths: Path) -> list[tuple[int, str]]:
    """Return what is said to bodies by a process that may take 600 MB."""
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", SENT, *map(str, paths)],
        capture_output=True,
        env=dict(os.environ) | {"PYTHONPATH": str(source)},
        text=True,
    )
    assert done.returncode == 0, done.stderr[-500:]
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.skipif(sys.platform != "linux", reason="addresses are limited by Linux")
def test_bodies_that_stand_for_gigabytes_are_refused_within_600_megabytes(tmp_path):
    paths, expected = [], []
    for name, (columns, status) in ARROW_BOMBS.items():
        paths.append(tmp_path / f"{name}.arrow")
        paths[-1].write_bytes(stream(columns))
        expected.append(status)
    many = b"[" + b",".join([b"[]"] * 400_000) + b"]"
    fields = b",".join(b'"k%d":{}' % place for place in range(100_000))
    bodies = {
        "nodes.json": b'{"nodes":' + many + b"}",
        "edges.json": b'{"edges":' + many + b"}",
        "labels.json": b'{"late":[["a",' + many + b"]]}",
        "fields.json": b"{" + fields + b"}",
        "rows.json": b'{"rows":[{' + fields + b"}]}",
        "asked.ids": b'{"ids":' + many + b"}",
        "deep.json": b"[" * 1_000_000,
        "digits.json": b'{"nodes":[' + b"9" * 1_000_000 + b"]}",
        "exponent.json": b'{"weights":[1e' + b"9" * 1_000_000 + b"]}",
    }
    for name, body in bodies.items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(body)
        expected.append(422)
    assert all(path.stat().st_size < 4_000_000 for path in paths)
    assert [status for status, _ in sent(*paths)] == expected


@pytest.mark.parametrize(
    "column",
    [
        pa.RunEndEncodedArray.from_arrays(pa.array([9], pa.int32()), pa.array(["a"])),
        pa.array(["a"], pa.string_view()),
        pa.array([["a"]], pa.list_view(pa.string())),
        pa.array([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        pa.array([[["a"]]]),
        pa.array([{"a": 1}]),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    ],
    ids=lambda column: str(column.type).split("<")[0],
)
def test_columns_of_which_lengths_do_not_tell_the_size_are_refused(column):
    with pytest.raises(RefusedError, match="expected numbers, strings or lists of them"):
        delta_from_arrow(stream({"id": ["n"] * len(column), "label": column}))


def test_what_is_decoded_is_counted_over_all_tables():
    one = stream({"id": np.arange(100)})
    assert len(delta_from_arrow(one, most=800).forgotten) == 100
    with pytest.raises(RefusedError, match="once decoded"):
        delta_from_arrow(one + stream({"source": [1], "target": [2]}), most=800)


def test_sizes_told_are_those_of_what_is_decoded():
    words = pa.array(["ab", None, "é", "ab"] * 5)
    table = pa.table({"word": words.dictionary_encode(), "plain": words})
    decoded = 20 * 4 + 15 * 2  # an offset for each, two bytes for each text
    assert check_decoded(table, 10**6) == 2 * decoded


def learner() -> OnlineLearner:
    return OnlineLearner(head=FusedHead(width=16, codes=4))


def delta(**parts: Any) -> Delta:
    given = {"nodes": ("n",), "features": torch.ones(1, 1), "labels": ("x",)}
    return Delta(**given | parts)


WRONG = {
    "id": delta(nodes=(LONG,)),
    "label": delta(labels=(LONG,)),
    "type": delta(types=("t" * 201,)),
    "key": delta(key="k" * 201),
    "no id": delta(nodes=("",)),
    "no label": delta(labels=("",)),
    "no key": delta(key=""),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_names_of_a_length_that_is_not_taken_in_are_refused_on_every_path(wrong, tmp_path, serve):
    with pytest.raises(DataError, match=r"1 to (1024|200) characters"):
        learner().apply(wrong)
    with LearnerFolder.open(tmp_path / "own", make=learner) as folder:
        with pytest.raises(DataError, match=r"1 to (1024|200) characters"):
            folder.submit(wrong)
        assert folder.seq == 0
    client = serve()
    key = {"Idempotency-Key": wrong.key} if wrong.key else {}
    body = {name: list(getattr(wrong, name)) for name in ("nodes", "labels", "types")}
    body |= {"features": [[1.0]]} | ({} if wrong.key is None else {"key": wrong.key})
    assert client.post("/v1/deltas", json=body).status_code == 422
    if wrong.key != "" and wrong.labels != ("",):  # in Arrow "" is no label, and no header no key
        headers = {"Content-Type": ARROW} | key
        answer = client.post("/v1/deltas", content=arrow_from_delta(wrong), headers=headers)
        assert answer.status_code in (400, 422), answer.text
    assert client.get("/v1/status").json()["seq"] == 0


def test_names_too_long_are_refused_from_lines_and_models():
    line = LineReader().read(json.dumps({"node": LONG, "features": [1.0]}).encode(), 1)
    with pytest.raises(DataError, match="1 to 1024 characters"):
        learner().apply(delta_of_lines([line]))
    model = ContinualNodeClassifier(width=16)
    with pytest.raises(EvergraphError, match="1 to 1024 characters"):
        model.partial_fit([LONG], torch.ones(1, 1), ["x"])


def test_names_that_a_journal_holds_are_read_whatever_their_length(tmp_path, monkeypatch):
    long = delta(nodes=(LONG,), labels=(LONG,))
    with monkeypatch.context() as before:  # as it was when there was no such rule
        before.setattr("evergraph.online.checking._check_lengths", lambda *_, **__: None)
        with LearnerFolder.open(tmp_path, make=learner) as folder:
            folder.submit(long)
    with LearnerFolder.open(tmp_path, make=learner) as folder:
        assert folder.learner.predict([LONG]) == [LONG]
        folder.submit(Delta(forgotten=(LONG,)))
        assert folder.learner.status().nodes == 0
    assert delta_to_bytes(long)
