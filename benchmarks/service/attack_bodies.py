"""What attackers send: prepared before the clock runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # torch takes seconds to load, and few of them need it
    from evergraph.online.delta import Delta

ARROW, JSON = "application/vnd.apache.arrow.stream", "application/json"
IDS, ANSWERS = 100_000, 500_000  # ids in a request and numbers in an answer: what is allowed
KINDS = 40  # classes of the learner that is attacked
Request = tuple[str, str, bytes]  # path, content type, body


@dataclass(frozen=True)
class Prepared:
    """Requests with bodies, in the order in which they are sent."""

    requests: tuple[Request, ...] = ()


def _prepared(*requests: Request) -> Prepared:
    return Prepared(tuple(requests))


def large_predictions(nodes: int, _: int) -> Prepared:
    """100,000 ids in 0.7 MB, and 500,000 probabilities: as many as are allowed of each."""
    ids = [b"%d" % (place % nodes) for place in range(IDS)]
    return _prepared(
        ("/v1/predictions", JSON, b'{"ids":[%s]}' % b",".join(ids)),
        ("/v1/predictions", JSON, b'{"all":true,"ids":[%s]}' % b",".join(ids[: ANSWERS // KINDS])),
    )


def refused_at_their_end(size: int, nodes: int, _: int) -> Prepared:
    """JSON of so many bytes of which only the last ones are wrong."""
    ids = b",".join(b"%d" % (place % nodes) for place in range(size // 6))[: size - 100]
    ids = ids.rsplit(b",", 1)[0]
    pairs = b",".join([b"[0,1]"] * (size // 6 - 20))
    return _prepared(
        ("/v1/predictions", JSON, b'{"ids":[%s]]' % ids),
        ("/v1/deltas", JSON, b'{"edges":[%s,[0]]}' % pairs),
        ("/v1/predictions", JSON, b'{"ids":[%s,0.5]}' % ids),
    )


def refused_deltas(nodes: int, _: int) -> Prepared:
    """1 MB of edges each: one of the last is no pair, or joins a node that nobody knows."""
    pairs = b",".join([b"[0,1]"] * 160_000)
    pair = b"[0,%d]" % (nodes - 1)
    known = b",".join([pair] * (990_000 // (len(pair) + 1)))
    return _prepared(
        ("/v1/deltas", JSON, b'{"edges":[%s,[0]]}' % pairs),
        ("/v1/deltas", JSON, b'{"edges":[%s,["nobody",0]]}' % known),
    )


def _stream(**columns: object) -> bytes:
    import pyarrow as pa

    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def dictionary_bombs(_: int, first: int) -> Prepared:
    """0.2 MB that would be 0.5 GB: all rows name one long text, as id, label, end of edges."""
    import pyarrow as pa

    rows, width = 100_000, 32
    zeros = pa.array(np.zeros(rows, np.int8))
    bomb = pa.DictionaryArray.from_arrays(zeros, pa.array(["x" * 5_000]))
    short = pa.array(range(first, first + rows))
    few = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(rows, np.int8)), pa.array([[0.0] * width])
    )
    return _prepared(
        ("/v1/deltas", ARROW, _stream(source=bomb, target=bomb)),
        ("/v1/deltas", ARROW, _stream(id=bomb)),
        ("/v1/deltas", ARROW, _stream(id=short, label=bomb)),
        ("/v1/deltas", ARROW, _stream(id=short, features=few)),
        ("/v1/upsert", ARROW, _stream(source=bomb, target=bomb, op=bomb)),
    )


def truncated_arrow(_: int, first: int) -> Prepared:
    """Streams that end early, say that more comes, or have a bit changed."""
    whole = _stream(id=list(range(first, first + 2_000)), features=[[0.0] * 32] * 2_000)
    draw = np.random.default_rng(0)
    cut = [whole[: int(end)] for end in draw.integers(1, len(whole) - 64, 40)]
    changed = []
    for place in draw.integers(0, len(whole), 40):
        other = bytearray(whole)
        other[int(place) // 20] ^= 1 << int(draw.integers(8))  # in the head, where it matters
        changed.append(bytes(other[: len(other) - 64]))  # never whole: it must not be taken in
    return _prepared(*(("/v1/deltas", ARROW, body) for body in (*cut, *changed)))


def nested_arrow(_: int, first: int) -> Prepared:
    """Lists in lists, structs, and lists of lists of nothing but length."""
    import pyarrow as pa

    deep = pa.array([[0.0] * 32])
    for _level in range(60):
        deep = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), deep)
    empty = pa.array([[[]] * 50_000] * 20, pa.list_(pa.list_(pa.float32())))
    struct = pa.array([{"a": {"b": [1.0]}}] * 1_000)
    unions = pa.array([{"a": None}] * 1_000, pa.struct([("a", pa.list_(pa.null()))]))
    ids = list(range(first, first + 1_000))
    return _prepared(
        ("/v1/deltas", ARROW, _stream(id=[first], features=deep)),
        ("/v1/deltas", ARROW, _stream(id=ids[:20], features=empty)),
        ("/v1/deltas", ARROW, _stream(id=ids, features=struct)),
        ("/v1/deltas", ARROW, _stream(id=struct, label=ids)),
        ("/v1/deltas", ARROW, _stream(id=ids, features=unions)),
    )


def _growth(nodes: int, first: int, count: int, size: int, edges: int = 10) -> Iterator[Delta]:
    """Yield deltas of new nodes, joined to each other and to those that are known."""
    from benchmarks.service.service import deltas

    for delta in deltas(first, count, size, kinds=KINDS, edges=edges):
        ends = ((a, b if int(b) >= first else int(b) % nodes) for a, b in delta.edges)
        yield replace(delta, edges=tuple(ends))


def _sent(made: Iterable[Delta]) -> Prepared:
    from evergraph.server.client import arrow_from_delta

    return _prepared(*(("/v1/deltas", ARROW, arrow_from_delta(delta)) for delta in made))


def large_deltas(nodes: int, first: int) -> Prepared:
    """20,000 nodes with ten edges each in one delta, one delta after the other."""
    size = 20_000 if nodes > 20_000 else 5_000
    return _sent(_growth(nodes, first, 6 * size, size))


def small_deltas(nodes: int, first: int) -> Prepared:
    """A hundred nodes with ten edges each in one delta."""
    return _sent(_growth(nodes, first, 6_000, 100))


def a_class_a_node(nodes: int, first: int) -> Prepared:
    """100,000 nodes, each with a class of its own: an id column that was sent as label."""
    labels = tuple(f"paper-{place}" for place in range(IDS))
    made = next(_growth(nodes, first, IDS, IDS, edges=1))
    return _sent([replace(made, labels=labels)])


def deep_json(_: int, __: int) -> Prepared:
    """Brackets in brackets, by the hundred thousand, and numbers of a million digits."""
    depth = 200_000
    lists, objects = b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth
    return _prepared(
        ("/v1/deltas", JSON, b'{"nodes":%s}' % lists),
        ("/v1/predictions", JSON, b'{"ids":%s}' % lists),
        ("/v1/deltas", JSON, objects),
        ("/v1/upsert", JSON, b'{"rows":[%s]}' % objects),
        ("/v1/predictions", JSON, b'{"ids":[%s]}' % (b"9" * 1_000_000)),
        ("/v1/labels", JSON, b'{"labels":[[1,%s]]}' % (b"1" * 1_000_000)),
    )


BODIES: dict[str, Callable[[int, int], Prepared]] = {
    "large predictions": large_predictions,
    "20 large predictions": large_predictions,
    "refused deltas": refused_deltas,
    "30 MB of JSON": partial(refused_at_their_end, 30_000_000),
    "1 MB of JSON": partial(refused_at_their_end, 1_000_000),  # as much as is taken
    "look-ups": small_deltas,
    "dictionary bombs": dictionary_bombs,
    "truncated Arrow": truncated_arrow,
    "nested Arrow": nested_arrow,
    "large deltas": large_deltas,
    "a class a node": a_class_a_node,
    "deep JSON": deep_json,
}
