"""The page at ``/docs``: the OpenAPI document for people, in HTML without scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

SUBJECTS = {"learn": "Change the learner", "ask": "Ask the learner", "upkeep": "Upkeep"}
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: HTTP interface</title>
<link rel="icon" href="icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="page.css">
</head>
<body class="api">
<div class="layout">
<header>
<p class="eyebrow">{title} {version}</p>
<h1>HTTP interface</h1>
{about}
<p>For programs: <a href="openapi.json">openapi.json</a>. The <a href="./">status page</a> shows
this learner.</p>
</header>
<nav class="card" aria-label="Routes">{menu}</nav>
<main>
{sections}
<section id="records"><h2>Records</h2>
{records}</section>
</main>
</div>
</body>
</html>
"""
Schema = Mapping[str, Any]


def api_page(document: Schema) -> str:
    """Return the OpenAPI document as one page: routes by subject, and the records they use."""
    by_subject: dict[str, list[tuple[str, str, Schema]]] = {tag: [] for tag in SUBJECTS}
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            by_subject[route["tags"][0]].append((method.upper(), path, route))
    menu, sections = "", ""
    for tag, routes in by_subject.items():
        links = "".join(
            f'<li><a href="#{_anchor(method, path)}">{_method(method)} {_path(path)}</a></li>'
            for method, path, _ in routes
        )
        menu += f"<div><h2>{SUBJECTS[tag]}</h2><ul>{links}</ul></div>"
        articles = "\n".join(_article(*route) for route in routes)
        sections += f'<section id="{tag}"><h2>{SUBJECTS[tag]}</h2>\n{articles}</section>\n'
    records = "\n".join(
        f'<details class="card" id="{name}"><summary>{name}</summary>'
        f"{_prose(schema.get('description', ''))}{_fields(schema)}</details>"
        for name, schema in document["components"]["schemas"].items()
    )
    info = document["info"]
    return PAGE.format(
        title=escape(info["title"]),
        version=escape(info["version"]),
        about=_prose(info["description"]),
        menu=menu,
        sections=sections,
        records=records,
    )


def _article(method: str, path: str, route: Schema) -> str:
    token = "needs a token, where the service has tokens" if "security" in route else "open to all"
    parts = [
        f'<article class="card" id="{_anchor(method, path)}">',
        f'<h3>{_method(method)} {_path(path)} <span class="soft">{token}</span></h3>',
        _prose(route.get("description", "")),
    ]
    if parameters := route.get("parameters"):
        rows = [
            (
                f"<code>{escape(each['name'])}</code> <small>in {each['in']}</small>",
                _type(each["schema"]),
                _inline(each.get("description", "") + _default(each["schema"])),
            )
            for each in parameters
        ]
        parts += ["<h4>Parameters</h4>", _table(rows)]
    for kind, content in route.get("requestBody", {}).get("content", {}).items():
        schema = content["schema"]
        parts += [f"<h4>Body: <code>{escape(kind)}</code></h4>", _fields(schema)]
        if "example" in schema:
            example = json.dumps(schema["example"], indent=1, ensure_ascii=False)
            parts.append(f"<pre>{escape(_compact(example))}</pre>")
    rows = [
        (f"<code>{status}</code>", _answer(reply), _inline(reply["description"]))
        for status, reply in route["responses"].items()
    ]
    open_ = "" if "parameters" in route or "requestBody" in route else " open"
    return "\n".join(
        [
            *parts,
            f"<details{open_}><summary>Answers</summary>{_table(rows)}</details>",
            "</article>",
        ]
    )


def _answer(reply: Schema) -> str:
    content = reply.get("content", {})
    return ", ".join(
        _type(each["schema"]) if kind == "application/json" else f"<code>{escape(kind)}</code>"
        for kind, each in content.items()
    )


def _fields(schema: Schema) -> str:
    required = schema.get("required", ())
    rows = [
        (
            f"<code>{escape(name)}</code>{' <small>required</small>' if name in required else ''}",
            _type(field),
            _inline(field.get("description", "") + _default(field)),
        )
        for name, field in schema.get("properties", {}).items()
    ]
    return _table(rows) if rows else ""


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table class="list">{lines}</table></div>'


def _type(schema: Schema) -> str:
    """Return the type of a value in words, with links to records.

    >>> _type({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]})
    'string or integer or null'
    >>> _type({"type": "array", "items": {"$ref": "#/components/schemas/Alarm"}})
    'list of <a href="#Alarm">Alarm</a>'
    """
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if "prefixItems" in schema:
        return f"[{', '.join(map(_type, schema['prefixItems']))}]"
    kind = schema.get("type", "any value")
    if kind == "array":
        inner = _type(schema.get("items", {}))
        several = " or " in inner and not inner.startswith("[")
        return f"list of ({inner})" if several else f"list of {inner}"
    least, most = schema.get("minimum"), schema.get("maximum")
    bounded = least is not None and most is not None and most < 2**53
    return f"{kind}, {least:,} to {most:,}" if bounded else str(kind)


def _default(schema: Schema) -> str:
    value = schema.get("default")
    return "" if value in (None, [], {}) else f" By default `{json.dumps(value)}`."


def _prose(text: str) -> str:
    paragraphs = filter(None, (part.strip() for part in text.split("\n\n")))
    return "".join(f"<p>{_inline(paragraph)}</p>" for paragraph in paragraphs)


def _inline(text: str) -> str:
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(text, quote=False))


def _compact(text: str) -> str:
    """Return indented JSON with its innermost lists and objects on one line each.

    >>> print(_compact(json.dumps({"ids": ["a", "b"]}, indent=1)))
    {
     "ids": ["a", "b"]
    }
    """

    def on_one_line(found: re.Match[str]) -> str:
        return f"{found[1]}{' '.join(found[2].split())}{found[3]}"

    return re.sub(r"([\[{])\n\s+([^\[\]{}]*?)\n\s*([\]}])", on_one_line, text)


def _method(method: str) -> str:
    return f'<b class="method {method.lower()}">{method}</b>'


def _path(path: str) -> str:
    return f"<code>{escape(path).replace('/', '/<wbr>')}</code>"


def _anchor(method: str, path: str) -> str:
    """Return the anchor of a route.

    >>> _anchor("GET", "/v1/nodes/{node}")
    'get-v1-nodes-node'
    """
    return "-".join([method.lower(), *re.findall(r"\w+", path)])
