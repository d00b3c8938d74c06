"""Hook of mkdocs.yml: files outside docs/ as plain text, and every decision in the menu."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
DECISIONS = DOCS / "decisions"
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
    """Show links that leave docs/ as text: the site does not hold what they point to."""
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
