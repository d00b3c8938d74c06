"""Hook of mkdocs.yml: pages of docs/notebooks are executed and shown with their outputs."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from notebooks import CODE, PAGES, CellError, all_executed, pages

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDER = PAGES.name
SLOT = '<div class="notebook-output" data-cell="{}"></div>'
SLOTS = re.compile(re.escape(SLOT).replace(r"\{\}", r"(\d+)"))
ANSI = re.compile(r"\x1b\[[0-9;]*m")

_notebooks: dict[str, NotebookNode] = {}  # by the name of the page, for the build that goes on


def on_files(files: Any, config: Any) -> Any:
    """Execute every notebook, and add it to the site as a file to be downloaded."""
    import nbformat

    _notebooks.clear()
    paths = pages()
    try:
        notebooks = all_executed(paths)
    except CellError as error:
        raise PluginError(str(error)) from None
    for page, notebook in zip(paths, notebooks, strict=True):
        _notebooks[f"{FOLDER}/{page.name}"] = notebook
        target = f"{FOLDER}/{page.stem}.ipynb"
        files.append(File.generated(config, target, content=nbformat.writes(notebook)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leave a place for outputs behind every cell, and say where the notebook is."""
    uri = page.file.src_uri
    if uri not in _notebooks:
        return markdown
    numbers = iter(range(len(CODE.findall(markdown))))
    markdown = CODE.sub(
        lambda match: f"{match.group()}\n\n{SLOT.format(next(numbers))}\n", markdown
    )
    name = uri.rsplit("/", 1)[1].removesuffix(".md")
    title, rest = markdown.split("\n", 1)
    return f"{title}\n\n[Download this page as a notebook]({name}.ipynb)\n{rest}"


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Put the outputs of each cell into its place."""
    notebook = _notebooks.get(page.file.src_uri)
    if notebook is None:
        return content
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return SLOTS.sub(lambda match: shown(cells[int(match.group(1))].outputs), content)


def shown(outputs: list[Mapping[str, Any]]) -> str:
    """Return the outputs of a cell as HTML, nothing where it has none."""
    parts = [part for output in outputs if (part := _output_html(output))]
    return f'<div class="notebook-output">{"".join(parts)}</div>' if parts else ""


def _output_html(output: Mapping[str, Any]) -> str:
    if output["output_type"] == "stream":
        return _text(output["text"], output["name"])
    data = output["data"]
    if "text/html" in data:
        return f'<div class="notebook-html">{data["text/html"]}</div>'
    if "image/png" in data:
        source = f"data:image/png;base64,{data['image/png'].strip()}"
        about = html.escape(data.get("text/plain", "a figure"), quote=True)
        return f'<img alt="{about}" src="{source}">'
    return _text(data["text/plain"], "result")


def _text(text: str, kind: str) -> str:
    return f'<pre class="notebook-{kind}">{html.escape(ANSI.sub("", text))}</pre>'
