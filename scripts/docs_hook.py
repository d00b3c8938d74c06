"""Hook of mkdocs.yml: clean copies of examples, outside files as text, decisions, the book."""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from book_page import book_section

from evergraph.studies.book_rows import check_book, read_plan

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
DECISIONS = DOCS / "decisions"
BOOK, BOOK_PAGE, BOOK_PLACE = ROOT / "book", "book.md", '<div id="the-book"></div>'
SESSION = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)
BLOCK = re.compile(r'<div class="(?=[^"]*\bhighlight\b)[^"]*">(?=<pre>)(.*?)</pre>', re.DOTALL)
TAG = re.compile(r"<[^>]+>")
LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)\)")

logger = logging.getLogger("mkdocs.hooks.evergraph")


def on_config(config: Any) -> Any:
    """Add each page of docs/decisions to the menu, and ask that its index names it."""
    pages = sorted(path.name for path in DECISIONS.glob("[0-9]*.md"))
    index = (DECISIONS / "index.md").read_text("utf-8")
    for name in pages:
        if f"({name})" not in index:
            logger.warning("docs/decisions/index.md does not list %s: add a line", name)
    for entry in config.nav:
        if isinstance(entry, Mapping) and "Decisions" in entry:
            entry["Decisions"].extend(f"decisions/{name}" for name in pages)
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Mark sessions as such; show links that leave docs/ as text, since the site lacks the file."""
    markdown = SESSION.sub("```pycon\n", markdown)
    folder = (DOCS / page.file.src_uri).parent

    def as_text(found: re.Match[str]) -> str:
        text, target = found.groups()
        path = (folder / target).resolve()
        if path.is_relative_to(DOCS):
            return found.group()
        if not path.exists():
            logger.warning("%s links to %s, which does not exist", page.file.src_uri, target)
        return text

    return LINK.sub(as_text, markdown)


def on_page_content(content: str, page: Any = None, **_: Any) -> str:
    """Give the copy button the code of each session, without prompts and output; add the book.

    The theme copies a block's attribute ``data-copy``, where there is one, instead of its text.
    """
    if page is not None and page.file.src_uri == BOOK_PAGE:
        content = content.replace(BOOK_PLACE, the_book())

    def with_copy(found: re.Match[str]) -> str:
        code = typed(html.unescape(TAG.sub("", found.group(1))))
        if code is None:
            return found.group()
        attribute = html.escape(code).replace("\n", "&#10;")
        return found.group().replace("<div ", f'<div data-copy="{attribute}" ', 1)

    return BLOCK.sub(with_copy, content)


def the_book() -> str:
    """Return the table of the committed rows: the page cannot say anything else than they do."""
    return book_section(check_book(BOOK), read_plan())


def typed(session: str) -> str | None:
    """Return what was typed in a Python session, or None where the text is not a session.

    >>> print(typed(">>> for n in range(2):\\n...     n\\n0\\n...\\n>>> n + 1\\n2\\n"), end="")
    for n in range(2):
        n
    n + 1
    >>> typed("make run") is None
    True
    """
    if not session.startswith(">>> "):
        return None
    code: list[str] = []
    typing = True
    for line in session.splitlines():
        # An ellipsis among the output stands for more output.
        typing = line.startswith(">>>") or (typing and line.startswith("..."))
        if typing:
            code.append(line[4:])
    return "\n".join(code)
