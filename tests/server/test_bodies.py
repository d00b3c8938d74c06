"""What a body says, and how much of it is taken: small ones that stand for much are refused."""

import json
import math
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from arrow_bytes import delta_from_arrow, stream
from evergraph import ContinualNodeClassifier
from evergraph.core.errors import DataError, EvergraphError
from evergraph.online.codecs.delta_bytes import delta_to_bytes
from evergraph.online.codecs.json_lines import delta_of_lines, parsed_line
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import FusedHead
from evergraph.online.learner import OnlineLearner
from evergraph.server.arrow import check_decoded
from evergraph.server.bodies import LONGEST_ID, DeltaBody, PredictionsBody, UpsertBody, parse
from evergraph.server.client import arrow_from_delta
from evergraph.server.http import ARROW, RefusedError, status_of
from forked import in_a_child

LONG = "x" * (LONGEST_ID + 1)
GOOD = ["a", "é", "x" * LONGEST_ID, 0, -7, 2**63 - 1]
ODD = ["", LONG, 2**63, True, 1.5, None, ["a"], {}]
IDS = st.sampled_from(GOOD * 4 + ODD)
NUMBERS = st.sampled_from([0, 1, -2.5, 1e300, 2**80, 3.5, True, "1", None])
TOLD = IDS | NUMBERS | st.lists(IDS, max_size=2)
PARTS: dict[str, Any] = {
    "nodes": st.lists(IDS, max_size=3),
    "features": st.lists(st.lists(NUMBERS, min_size=2, max_size=2), max_size=2),
    "labels": st.lists(TOLD, max_size=2),
    "edges": st.lists(st.tuples(IDS, IDS) | st.tuples(IDS), max_size=2),
    "weights": st.lists(NUMBERS, max_size=2),
    "relations": st.lists(st.text(max_size=2), max_size=2),
    "types": st.lists(st.text(max_size=2) | st.none(), max_size=2),
    "removed_edges": st.lists(st.tuples(IDS, IDS), max_size=2),
    "late": st.lists(st.tuples(IDS, TOLD), max_size=2),
    "forgotten": st.lists(IDS, max_size=2),
    "key": st.sampled_from([None, "k", "", "k" * 201, 3]),
    "other": st.none(),
}


def is_id(value: Any) -> bool:
    if type(value) is int:
        return -(2**63) <= value < 2**63
    return type(value) is str and 0 < len(value) <= LONGEST_ID


def is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def is_told(value: Any) -> bool:
    return is_id(value) or is_number(value) or (type(value) is list and all(map(is_id, value)))


SOUND: dict[str, Any] = {
    "nodes": is_id,
    "features": lambda row: all(map(is_number, row)),
    "labels": lambda told: told is None or is_told(told),
    "edges": lambda pair: len(pair) == 2 and all(map(is_id, pair)),
    "weights": is_number,
    "relations": bool,
    "types": lambda name: name != "",
    "removed_edges": lambda pair: all(map(is_id, pair)),
    "late": lambda pair: is_id(pair[0]) and is_told(pair[1]),
    "forgotten": is_id,
}


@given(st.fixed_dictionaries({}, optional=PARTS))
@settings(max_examples=80, deadline=None)
def test_json_is_taken_as_it_is_or_refused(body):
    sound = all(all(map(SOUND[name], values)) for name, values in body.items() if name in SOUND)
    keyed = body.get("key") in (None, "k")
    data = json.dumps(body).encode()
    if not sound or not keyed or "other" in body:
        with pytest.raises(RefusedError):
            parse(DeltaBody, data)
        return
    delta = parse(DeltaBody, data).delta()
    for name, said in json.loads(data).items():
        found = getattr(delta, name)
        if name == "features":
            assert found.tolist() == np.array(said, np.float64).astype(np.float32).tolist()
        elif name == "key":
            assert found == said
        else:
            gaps = [None] * len(delta.nodes) if name == "labels" else []  # where none is told
            assert json.loads(json.dumps(list(found))) == (said or gaps)
    if "key" in body:
        with pytest.raises(RefusedError, match="key: extra inputs"):
            parse(UpsertBody, data)


MANY: dict[str, Any] = {
    "nodes": [f"n{place}" if place % 2 else place for place in range(4_500)],
    "features": [[0, place / 8] for place in range(4_500)],
    "labels": [("x", None, ["x", 2], 0.5, 2**80)[place % 5] for place in range(4_500)],
    "edges": [[place, "n1"] for place in range(2_001)],
    "weights": [1.5] * 2_000 + [3],
    "rows": [{"id": place, "a": None, "b": [1, "c"]} for place in range(2_001)],
    "key": "k",
}


def test_a_mistake_far_behind_in_a_large_body_is_found():
    body = json.dumps(MANY).encode()
    assert parse(DeltaBody, body) == DeltaBody.model_validate_json(body)
    for wrong, said in (
        ({"nodes": [*MANY["nodes"], 1.5]}, r"nodes\[4500\]: must be a string of 1 to 1024"),
        ({"edges": [*MANY["edges"], [1]]}, r"edges\[2001\]\[1\]: field required"),
        ({"weights": [*MANY["weights"], "1"]}, r"weights\[2001\]: input should be a valid number"),
        ({"relations": 3}, "relations: input should be a valid"),
        ({"other": 3}, "other: extra inputs are not permitted"),
    ):
        with pytest.raises(RefusedError, match=said):
            parse(DeltaBody, json.dumps(MANY | wrong).encode())
    for broken in (body[:-1], body + b"]", body.replace(b"1.5", b"NaN", 1), b"[%s]" % body):
        with pytest.raises(RefusedError):
            parse(DeltaBody, broken)


def test_of_many_mistakes_one_is_found():
    for wrong in (
        {"nodes": [1.5] * 500},
        {"features": [["x"] * 500]},
        {"late": [["a", [[]] * 500]]},
        {"rows": [{f"k{place}": {} for place in range(500)}]},
    ):
        with pytest.raises(ValidationError) as caught:
            DeltaBody.model_validate_json(json.dumps(wrong))
        assert caught.value.error_count() <= 9  # one for each kind that a value may be
    with pytest.raises(ValidationError) as caught:
        PredictionsBody.model_validate_json(b'{"ids": [1.5, 1.5, 1.5]}')
    assert caught.value.error_count() <= 2


def repeated(value: Any, rows: int) -> pa.DictionaryArray:
    indices = pa.array(np.zeros(rows, np.int8))
    return pa.DictionaryArray.from_arrays(indices, pa.array([value]))


def packed_as_of_old() -> bytes:
    """Return 100 MB in 4 kB: in version 4 only metadata of a message says that it is packed."""
    size = 100_000_000
    packed = size.to_bytes(8, "little") + bytes(pa.compress(bytes(size), "zstd"))
    batch = pa.record_batch({"id": np.frombuffer(packed, np.int8)})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        codec = {"ARROW:experimental_compression": "zstd"}
        writer.write_batch(batch, custom_metadata=codec)
    return bytes(sink.getvalue())


def growing() -> bytes:
    """Return a dictionary of 2 MB to which each of 400 batches adds a text."""
    words = ["x" * 1_000 + str(number) for number in range(2_000)]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    schema = pa.schema({"id": pa.dictionary(pa.int32(), pa.string())})
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for number in range(400):
            words.append(f"y{number}")
            ids = pa.DictionaryArray.from_arrays(pa.array([number], pa.int32()), words)
            writer.write_batch(pa.record_batch([ids], schema=schema))
    return bytes(sink.getvalue())


def arrow_bombs() -> dict[str, Any]:
    """Return tables or streams whose few bytes stand for many, and the status of each."""
    return {
        "compressed": (packed_as_of_old(), 422),
        "a growing dictionary": (growing(), 413),
        "a long text, many rows": ({"id": repeated("x" * 300_000, 10_000)}, 413),
        "a text, very many rows": ({"id": repeated("é" * 1_000, 300_000)}, 413),
        "labels": ({"id": np.arange(300_000), "label": repeated("é" * 1_000, 300_000)}, 413),
        "ends of edges": (
            {"source": repeated("a" * 900, 200_000)} | {"target": ["b"] * 200_000},
            413,
        ),
        "nulls": ({"id": pa.nulls(2**31 - 1)}, 413),
        "bytes": ({"id": repeated(b"x" * 300_000, 10_000)}, 413),
    }


def sent(*paths: Path) -> list[tuple[int, str]]:
    """Return what is said to bodies by a process that may take 600 MB more than it has."""

    def read(path: Path) -> object:
        if path.suffix == ".arrow":
            return delta_from_arrow(path.read_bytes())
        return parse(PredictionsBody if path.suffix == ".ids" else DeltaBody, path.read_bytes())

    def read_all() -> None:
        limit = psutil.Process().memory_info().vms + 600_000_000
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for path in paths:
            try:
                read(path)
            except EvergraphError as error:
                sys.stdout.write(f"{json.dumps([status_of(error), str(error)])}\n")

    done = in_a_child(read_all)
    assert done.code == 0, done.err[-500:]
    return [tuple(json.loads(line)) for line in done.out.splitlines()]


@pytest.mark.skipif(sys.platform != "linux", reason="addresses are limited by Linux")
def test_bodies_that_stand_for_gigabytes_are_refused_within_600_megabytes(tmp_path):
    paths, expected = [], []
    for name, (columns, status) in arrow_bombs().items():
        paths.append(tmp_path / f"{name}.arrow")
        paths[-1].write_bytes(columns if isinstance(columns, bytes) else stream(columns))
        expected.append(status)
    many = b"[" + b",".join([b"[]"] * 200_000) + b"]"
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


def test_columns_are_measured_or_refused():
    for column in (
        pa.RunEndEncodedArray.from_arrays(pa.array([9], pa.int32()), pa.array(["a"])),
        pa.array(["a"], pa.string_view()),
        pa.array([["a"]], pa.list_view(pa.string())),
        pa.array([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        pa.array([[["a"]]]),
        pa.array([{"a": 1}]),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    ):  # lengths do not tell the size of these
        with pytest.raises(RefusedError, match="expected numbers, strings or lists of them"):
            delta_from_arrow(stream({"id": ["n"] * len(column), "label": column}))
    words = pa.array(["ab", None, "é", "ab"] * 5)
    table = pa.table({"word": words.dictionary_encode(), "plain": words})
    decoded = 20 * 4 + 15 * 2  # an offset for each, two bytes for each text
    assert check_decoded(table, 10**6) == 2 * decoded
    one = stream({"id": np.arange(100)})
    assert len(delta_from_arrow(one, most=800).forgotten) == 100
    with pytest.raises(RefusedError, match="once decoded"):  # over all tables
        delta_from_arrow(one + stream({"source": [1], "target": [2]}), most=800)


def learner() -> OnlineLearner:
    return OnlineLearner(head=FusedHead(width=16, codes=4))


def delta(**parts: Any) -> Delta:
    given = {"nodes": ("n",), "features": torch.ones(1, 2), "labels": ("x",)}
    return Delta(**given | parts)


WRONG = [
    delta(nodes=(LONG,)),
    delta(labels=(LONG,)),
    delta(types=("t" * 201,)),
    delta(key="k" * 201),
    delta(nodes=("",)),
    delta(labels=("",)),
    delta(key=""),
]


def test_names_of_a_length_that_is_not_taken_in_are_refused_on_every_path(lasting, fingerprint):
    before = fingerprint(lasting)
    for wrong in WRONG:
        for take in (learner().apply, lasting.folder.submit):
            with pytest.raises(DataError, match=r"1 to (1024|200) characters|began without them"):
                take(wrong)
        key = {"Idempotency-Key": wrong.key} if wrong.key else {}
        body = {name: list(getattr(wrong, name)) for name in ("nodes", "labels", "types")}
        body |= {"features": [[1.0, 1.0]]} | ({} if wrong.key is None else {"key": wrong.key})
        assert lasting.post("/v1/deltas", json=body).status_code == 422
        if wrong.key != "" and wrong.labels != ("",):  # in Arrow "" is none, and no header no key
            headers = {"Content-Type": ARROW} | key
            answer = lasting.post("/v1/deltas", content=arrow_from_delta(wrong), headers=headers)
            assert answer.status_code in (400, 422), answer.text
    assert fingerprint(lasting) == before
    line = parsed_line(json.dumps({"node": LONG, "features": [1.0]}).encode(), 1)
    with pytest.raises(DataError, match="1 to 1024 characters"):
        learner().apply(delta_of_lines([line]))
    with pytest.raises(EvergraphError, match="1 to 1024 characters"):
        ContinualNodeClassifier(width=16).partial_fit([LONG], torch.ones(1, 1), ["x"])


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
