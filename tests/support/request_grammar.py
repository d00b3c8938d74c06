"""Requests for every route of a service: sound ones, some with one thing wrong, and wild ones.

What there is to ask for comes from the OpenAPI document, so that a new route is asked for by
itself. What a body means the document cannot tell: deltas are made here, from nodes that the
service knows and new ones, in JSON and in Arrow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import torch

from evergraph.online.delta import Delta
from evergraph.server.arrow import arrow_from_delta
from evergraph.server.http import ARROW, JSON

SOUND, NEARLY, WILD = "sound", "nearly", "wild"
KINDS = (SOUND, SOUND, NEARLY, NEARLY, NEARLY, WILD)  # how often each is drawn
WIDTH = 2  # of features
KNOWN: tuple[str | int, ...] = ("a", "b", "c", 1, 2, 3)
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW")
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 1e308, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**40,
    "", " ", "0", "a", "\0", "ü" * 3, "\ud800", "\u202e", "x" * 1024, "x" * 1025, "null", "NaN",
    float("nan"), float("inf"), float("-inf"), [], {}, [[]], [None], {"": None}, [[[[[[]]]]]],
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    kind: str = SOUND
    route: str = ""

    @property
    def url(self) -> str:
        """Path and query, quoted as they are sent."""
        pairs = "&".join(f"{quote(n, safe='')}={quote(v, safe='')}" for n, v in self.query)
        return self.path + (f"?{pairs}" if pairs else "")


@dataclass
class Grammar:
    """Draws requests for the operations of an OpenAPI document.

    Args:
        document: of the service.
        seed: the same one draws the same requests.
    """

    document: dict[str, Any]
    seed: int
    _new: int = field(default=0, init=False)
    _came: list[str | int] = field(default_factory=list, init=False)
    _keyed: bool = field(default=False, init=False)  # by a header
    _known: tuple[str | int, ...] = field(default=KNOWN, init=False)

    def __post_init__(self) -> None:
        self.draw = Random(self.seed)
        self.operations = [
            (method.upper(), path, operation)
            for path, item in self.document["paths"].items()
            for method, operation in item.items()
        ]
        # Three times as many of those with bodies: there is more that can be wrong with them.
        bodies = [each for each in self.operations if "requestBody" in each[2]]
        self._turns = [*self.operations, *bodies, *bodies]

    def request(self, number: int) -> Asked:
        """Return request 0, 1, ...: routes come in turn, so that none is left out."""
        method, path, operation = self._turns[number % len(self._turns)]
        kind = self.draw.choice(KINDS)
        asked = self._asked(method, path, operation)
        if kind == NEARLY:
            asked = self._spoiled(asked, operation)
        elif kind == WILD:
            asked = self._wild(asked)
        return replace(asked, kind=kind, route=f"{method} {path}")

    def _asked(self, method: str, path: str, operation: dict[str, Any]) -> Asked:
        query, headers, place = [], [], path
        for given in operation.get("parameters", []):
            if not given.get("required", False) and self.draw.random() < 0.5:
                continue
            value = self._value(given["schema"], given["name"])
            if given["in"] == "path":
                place = place.replace(f"{{{given['name']}}}", quote(value, safe=""))
            elif given["in"] == "query":
                query.append((given["name"], value))
            else:
                headers.append((given["name"], value))
        body = None
        if content := operation.get("requestBody", {}).get("content"):
            kind = self.draw.choice(list(content))
            self._keyed = any(name == "Idempotency-Key" for name, _ in headers)
            body = self._body(path, kind, content[kind].get("schema", {}))
            headers.append(("Content-Type", kind))
        return Asked(method, place, tuple(query), tuple(headers), body)

    def _value(self, schema: dict[str, Any], name: str) -> str:
        """Return a value that a parameter may have."""
        kind = schema.get("type", "string")
        if name == "integer":
            return "false"  # sound for every id
        if kind == "boolean":
            return self.draw.choice(("true", "false", "1", "0"))
        if kind in ("integer", "number"):
            most = schema.get("maximum", 100)
            drawn = self.draw.choice((schema.get("minimum", 0), 1, 7, most))
            return str(drawn if name != "wait" else 0)
        if name == "node":
            return str(self.draw.choice((*KNOWN, "nobody", "x/y", "é")))
        return f"k{self.draw.randrange(10_000)}"

    def _bodies(self) -> dict[str, Callable[[], Any]]:
        """Return what makes the bodies of routes whose meaning is known here."""
        return {
            "/v1/deltas": lambda: self.delta(),
            "/v1/upsert": lambda: self.delta(known=True),
            "/v1/labels": lambda: {"labels": [[self._node(), self._label()]]},
            "/v1/forget": lambda: {"ids": [self._leaving()]},
            "/v1/predictions": lambda: {"ids": [self._node()], "all": self._maybe()},
        }

    def understands(self, asked: Asked) -> bool:
        """Whether a sound request has to be taken in: the document does not tell all rules."""
        return asked.body is None or asked.path in self._bodies()

    def _body(self, path: str, kind: str, schema: dict[str, Any]) -> bytes:
        made = self._bodies()
        self._known = KNOWN[:3] if kind == ARROW else KNOWN  # a column is of one kind
        body = made[path]() if path in made else _from_schema(schema, self.draw)
        if kind != ARROW:
            return json.dumps(body).encode()
        body.pop("key", None)  # Arrow has it in a header
        features = torch.tensor(body.get("features", []), dtype=torch.float32).reshape(-1, WIDTH)
        return arrow_from_delta(Delta(**body | {"features": features}))

    def delta(self, *, known: bool = False) -> dict[str, Any]:
        """Return a delta with some of its parts; known: its nodes may be known already."""
        count = self.draw.randint(0, 3)
        nodes: list[Any] = [self._fresh() for _ in range(count)]
        if known and nodes and self._maybe():
            nodes[0] = self.draw.choice(self._known)
        ends = [*nodes, *self._known]
        parts: dict[str, Any] = {
            "nodes": nodes,
            "features": [[self.draw.uniform(-1, 1) for _ in range(WIDTH)] for _ in nodes],
            "labels": [self.draw.choice((None, "x", "y")) for _ in nodes],
        }
        if self._maybe() or not nodes:
            parts["edges"] = [[self.draw.choice(ends), self.draw.choice(self._known)] for _ in "12"]
        if self._maybe():
            parts["late"] = [[self._node(), self._label()]]
        if not known and not self._keyed and self._maybe():
            parts["key"] = f"k{self.draw.randrange(10_000)}"
        return parts

    def _fresh(self) -> str | int:
        self._new += 1
        number = 1_000 * self.seed + self._new
        text = self._known != KNOWN or self._maybe()
        self._came.append(f"new-{number}" if text else 10**6 + number)
        return self._came[-1]

    def _node(self) -> str | int:
        return self.draw.choice((*self._known, *(("nobody", 99) if self._known == KNOWN else ())))

    def _leaving(self) -> str | int:
        """Return a node that may go: those that all requests are about stay, unless it is wild."""
        return self.draw.choice(("nobody", *self._came[-3:]))

    def _label(self) -> str:
        return self.draw.choice(("x", "y", "z"))

    def _maybe(self) -> bool:
        return self.draw.random() < 0.5

    def _spoiled(self, asked: Asked, operation: dict[str, Any]) -> Asked:
        """Return a request with one thing wrong."""
        ways = [self._other_method, self._other_query, self._other_header, self._other_path]
        if asked.body is not None:
            ways = [*ways, *([self._other_body] * 6), self._other_type]
        return self.draw.choice(ways)(asked)

    def _other_method(self, asked: Asked) -> Asked:
        return replace(asked, method=self.draw.choice(METHODS))

    def _other_query(self, asked: Asked) -> Asked:
        """Give a parameter another value, twice, or one that nobody knows."""
        query = list(asked.query) or [("after", "0")]
        name, value = self.draw.choice(query)
        odd = str(self.draw.choice(ODD)).encode("utf-8", "replace").decode()
        added = self.draw.choice(((name, odd), (name, value), (f"{name}s", value), ("", odd)))
        return replace(asked, query=(*query, added) if self._maybe() else (added,))

    def _other_header(self, asked: Asked) -> Asked:
        odd = self.draw.choice(("", "x" * 300, "a b", "\t", "k,k", "é", '"'))
        names = ("Idempotency-Key", "Content-Length", "Accept", "Authorization", "Host", "Expect",
                 "Content-Encoding", "X-Forwarded-For", "Range", "Connection")  # fmt: skip
        name = self.draw.choice(names)
        known = {"Content-Length": "-1", "Content-Encoding": "gzip", "Host": "elsewhere.example",
                 "Connection": "close", "Expect": "a miracle"}  # fmt: skip
        return replace(asked, headers=(*asked.headers, (name, known.get(name, odd))))

    def _other_path(self, asked: Asked) -> Asked:
        path = asked.path
        ways = (f"{path}/", f"/{path}", path.upper(), f"{path}/..", f"{path}%00", f"{path}%2e%2e",
                path[:-1] or "/", f"{path}/{'x' * 1500}", "/v1", "/%ff%fe")  # fmt: skip
        return replace(asked, path=self.draw.choice(ways))

    def _other_type(self, asked: Asked) -> Asked:
        other = self.draw.choice(
            (JSON, ARROW, "text/plain", "", "application/json; charset=utf-16")
        )
        headers = tuple((n, v) for n, v in asked.headers if n != "Content-Type")
        return replace(asked, headers=(*headers, ("Content-Type", other)))

    def _other_body(self, asked: Asked) -> Asked:
        assert asked.body is not None
        if dict(asked.headers).get("Content-Type") == ARROW:
            return replace(asked, body=self._other_arrow(asked.body))
        if self.draw.random() < 0.15:
            end = self.draw.randrange(len(asked.body))
            return replace(asked, body=asked.body[:end])
        tree = self._other_tree(json.loads(asked.body))
        return replace(asked, body=json.dumps(tree).encode())

    def _other_tree(self, tree: Any) -> Any:
        """Return JSON with one place changed: another value, none, one too many, one level more."""
        tree = deepcopy(tree)
        holder, place = self._place(tree)
        way = self.draw.choice(("odd", "odd", "gone", "twice", "wrapped", "unknown"))
        if way == "unknown" and isinstance(holder, dict):
            holder[self.draw.choice(("node", "Key", "", "__proto__", "rows"))] = "x"
        elif way == "gone":
            del holder[place]
        elif way == "twice" and isinstance(holder, list):
            holder.append(deepcopy(holder[place]))
        elif way == "wrapped":
            holder[place] = [holder[place]]
        else:
            holder[place] = self.draw.choice(ODD)
        return tree

    def _place(self, tree: Any) -> tuple[Any, Any]:
        """Return a list or an object within JSON, and a place in it."""
        places: list[tuple[Any, Any]] = []
        open_ = [tree]
        while open_:
            one = open_.pop()
            keys = list(one) if isinstance(one, dict) else range(len(one))
            places += [(one, key) for key in keys]
            open_ += [one[key] for key in keys if isinstance(one[key], dict | list)]
        return self.draw.choice(places)

    def _other_arrow(self, body: bytes) -> bytes:
        way = self.draw.choice(("bit", "cut", "twice", "tail", "column", "column", "type", "type"))
        if way == "bit":
            other = bytearray(body)
            other[self.draw.randrange(len(other))] ^= 1 << self.draw.randrange(8)
            return bytes(other)
        if way in ("cut", "twice", "tail"):
            cut = body[: self.draw.randrange(len(body))]
            return {"cut": cut, "twice": body * 2, "tail": body + b"\0" * 9}[way]
        table = pa.ipc.open_stream(body).read_all()
        place = self.draw.randrange(table.num_columns)
        name, rows = table.column_names[place], table.num_rows
        if way == "column":
            renamed = [*table.column_names]
            renamed[place] = self.draw.choice(("id", "source", "op", "labels", "x", ""))
            return _stream(table.rename_columns(renamed) if self._maybe() else table.drop([name]))
        values = self.draw.choice(
            (pa.nulls(rows), pa.array([b"\xff"] * rows), pa.array([1.5] * rows),
             pa.array([[["x"]]] * rows), pa.array([{"a": 1}] * rows), pa.array([True] * rows),
             pa.array(["x" * 2_000] * rows).dictionary_encode())
        )  # fmt: skip
        return _stream(table.set_column(place, name, values))

    def _wild(self, asked: Asked) -> Asked:
        """Return something that is hardly a request for this any more."""
        body = self.draw.randbytes(self.draw.choice((0, 1, 40, 2_000)))
        junk = (b"[" * 5_000, b'{"nodes":' * 500, b"\xff\xfe", b"null", b"[]", b'"a"', b"1e999",
                b'{"ids":[' + b"9" * 5_000 + b"]}", body, b"ARROW1\0\0" + body)  # fmt: skip
        odd = self._other_query(self._other_path(asked)) if self._maybe() else asked
        odd = replace(odd, method=self.draw.choice(("POST", asked.method)))
        return replace(self._other_type(odd), body=self.draw.choice(junk))


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def _from_schema(schema: dict[str, Any], draw: Random) -> Any:
    """Return JSON for a body that nothing more is known of."""
    if "example" in schema:
        return deepcopy(schema["example"])
    kinds = {"boolean": lambda: draw.random() < 0.5, "integer": lambda: draw.randrange(3),
             "number": lambda: draw.random(), "string": lambda: "x", "array": list}  # fmt: skip
    if schema.get("type") != "object":
        return kinds.get(schema.get("type", "string"), lambda: None)()
    parts = schema.get("properties", {}).items()
    return {name: _from_schema(part, draw) for name, part in parts if draw.random() < 0.7}
