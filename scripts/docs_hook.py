"""Hook of mkdocs.yml: clean copies of examples, outside files as text, generated pages."""

from __future__ import annotations

import html
import logging
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from reference_pages import names_page, parts_page

from evergraph.reports.tables import Table
from evergraph.reports.tables import markdown as table_text

sys.path.append(str(Path(__file__).resolve().parents[1] / "book"))

from book_page import book_section, methods_table
from book_rows import check_book, read_plan
from protocols_page import protocols_table, published_table

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
DECISIONS = DOCS / "decisions"
BOOK, STUDIES = ROOT / "book", DOCS / "results"
SLOT = '<div id="{}"></div>'  # a place of a page that is filled in when the site is built
# In the order of the page; a study that is not named here comes last.
STUDY_TITLES = {
    "table1": "Table 1: datasets and tasks",
    "homophily": "Homophily, two ways to count",
    "table2": "Table 2: coverage by budget and sampler",
    "table3": "Table 3: every method in class-IL",
    "table5": "Table 5: every method in task-IL",
    "table4": "Table 4: what each method keeps",
    "fig4": "Figure 4: learning curves",
    "fig5": "Figure 5: accuracy matrices",
    "fig6": "Figure 6: hidden states of test nodes",
    "theorem": "The pseudo-training effect, measured",
    "strategies": "Topologies by number of hops",
    "protocols": "The same methods under seven protocols",
    "wordnet": "WordNet, all methods, one seed",
}
SESSION = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)
BLOCK = re.compile(r'<div class="(?=[^"]*\bhighlight\b)[^"]*">(?=<pre>)(.*?)</pre>', re.DOTALL)
INLINE = re.compile(r"(?<!</span>)<code>[^<]*--[^<]*</code>")  # not in a block
OPTION = re.compile(r"--[a-z][\w-]*")
TAG = re.compile(r"<[^>]+>")
LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)\)")

logger = logging.getLogger("mkdocs.hooks.evergraph")
rows_of = cache(check_book)  # two pages show them


def on_config(config: Any) -> Any:
    """Add the decisions to the menu, and warn of one that the index does not list."""
    pages = sorted(path.name for path in DECISIONS.glob("[0-9]*.md"))
    index = (DECISIONS / "index.md").read_text("utf-8")
    for name in pages:
        if f"({name})" not in index:
            logger.warning("docs/decisions/index.md does not list %s: add a line", name)
    for entry in config.nav:
        if isinstance(entry, Mapping) and "Decisions" in entry:
            entry["Decisions"].extend(f"decisions/{name}" for name in pages)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the two pages of the reference that are generated from the package."""
    for name, page in (("parts", parts_page), ("names", names_page)):
        files.append(File.generated(config, f"reference/{name}.md", content=page()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in tables and studies, mark sessions as such, show links that leave docs/ as text."""
    markdown = SESSION.sub("```pycon\n", markdown)
    for name, make in TEXTS.get(page.file.src_uri, {}).items():
        markdown = markdown.replace(SLOT.format(name), make())
    folder = (DOCS / page.file.src_uri).parent

    def unlinked(match: re.Match[str]) -> str:
        text, target = match.groups()
        path = (folder / target).resolve()
        if path.is_relative_to(DOCS):
            return match.group()
        if not path.exists():
            logger.warning("%s links to %s, which does not exist", page.file.src_uri, target)
        return text

    return LINK.sub(unlinked, markdown)


def on_page_content(content: str, page: Any = None, **_: Any) -> str:
    """Give the copy button the code of each session; keep options on one line; add the book.

    The theme copies a block's attribute ``data-copy``, where there is one, instead of its text.
    """
    content = INLINE.sub(
        lambda match: OPTION.sub(r'<span class="option">\g<0></span>', match.group()), content
    )
    if page is not None and page.file.src_uri == "results.md":
        content = content.replace(SLOT.format("the-book"), the_book())

    def with_copy(match: re.Match[str]) -> str:
        code = typed(html.unescape(TAG.sub("", match.group(1))))
        if code is None:
            return match.group()
        attribute = html.escape(code).replace("\n", "&#10;")
        return match.group().replace("<div ", f'<div data-copy="{attribute}" ', 1)

    return BLOCK.sub(with_copy, content)


def the_book() -> str:
    """Return the table of the committed rows: the page cannot say anything else than they do."""
    return book_section(rows_of(BOOK), read_plan())


def as_text(table: Table) -> str:
    """Return the rows of a table; its notes are the page's own words."""
    return table_text(table).rsplit("\n\n", 1)[0]


def studies() -> str:
    """Return every page that ``evergraph reproduce`` wrote, folded up under its title."""
    written = {path.stem: path.read_text("utf-8") for path in sorted(STUDIES.glob("*.md"))}
    order = [name for name in STUDY_TITLES if name in written]
    return "\n".join(study(name, written[name]) for name in dict.fromkeys([*order, *written]))


def study(name: str, text: str) -> str:
    """Return a page as a block that opens on a click, its headings below those of the page.

    >>> print(study("fig4", "# fig4\\n\\n## A\\n\\n![A](a.png)\\n"))
    ### Figure 4: learning curves
    <BLANKLINE>
    ??? note "Show"
    <BLANKLINE>
        #### A
    <BLANKLINE>
        ![A](results/a.png)
    <BLANKLINE>
    """
    body = re.sub(r"\A# .*\n+", "", text)
    body = re.sub(r"^(?=##+ )", "##", body, flags=re.MULTILINE)
    body = re.sub(r"\]\((?=[^)/:#]+\.png\))", "](results/", body)
    indented = "".join(f"    {line}" if line.strip() else line for line in body.splitlines(True))
    return f'### {STUDY_TITLES.get(name, name)}\n\n??? note "Show"\n\n{indented}'


def proxy_files() -> str:
    """Return the proxies' configurations, which are not in the wheel, folded up to be copied."""
    blocks = []
    for name, language in (("nginx.conf", "nginx"), ("Caddyfile", "text")):
        text = f"```{language}\n{(ROOT / 'deploy' / name).read_text('utf-8')}```\n"
        blocks.append(f'??? note "deploy/{name}"\n\n{textwrap.indent(text, "    ")}')
    return "\n".join(blocks)


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


# What fills the places of each page, as Markdown.
TEXTS: dict[str, dict[str, Callable[[], str]]] = {
    "methods.md": {"the-methods": lambda: methods_table(rows_of(BOOK))},
    "protocols.md": {
        "protocols-table": lambda: as_text(protocols_table()),
        "published-class-il": lambda: as_text(published_table("class-il")),
        "published-task-il": lambda: as_text(published_table("task-il")),
    },
    "results.md": {"the-studies": studies},
    "service.md": {"proxy-files": proxy_files},
}
