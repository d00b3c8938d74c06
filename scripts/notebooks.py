"""Pages of docs/notebooks as Jupyter notebooks: made from Markdown, executed, and kept.

A page is Markdown. Every block of ```` ```python ```` is a cell of code, what stands between them
is a cell of text; other blocks are part of the text. Nothing that a cell prints is committed.

    python scripts/notebooks.py build/notebooks     write the notebooks, with outputs, into a folder
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "notebooks"
CACHE = ROOT / "build" / "notebooks"
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What an output depends on beside the page and the library.
PACKAGES = ("torch", "torch-geometric", "numpy", "scipy", "matplotlib", "ipykernel", "nbclient")
SECONDS = 300  # for one cell: it hangs if it takes longer


class CellError(Exception):
    """A cell of a notebook failed, or took too long; the message is one sentence."""


def pages(folder: Path = PAGES) -> list[Path]:
    """Return the pages that are notebooks, by name."""
    return sorted(path for path in folder.glob("*.md") if path.name != "index.md")


def notebook_of(markdown: str) -> NotebookNode:
    """Return a page as a notebook without outputs.

    >>> notebook = notebook_of("# Title\\n\\n```python\\n1 + 1\\n```\\n\\nThe end.\\n")
    >>> [(cell.cell_type, cell.source) for cell in notebook.cells]
    [('markdown', '# Title'), ('code', '1 + 1'), ('markdown', 'The end.')]
    """
    from nbformat import v4

    cells: list[NotebookNode] = []
    for place, text in enumerate(CODE.split(markdown)):  # text, code, text, ...
        make = v4.new_code_cell if place % 2 else v4.new_markdown_cell
        if text.strip():
            # Numbered, since the same page is to give the same bytes.
            cells.append(make(text.strip(), id=f"cell-{len(cells)}"))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def executed(page: Path, *, cache: Path = CACHE) -> NotebookNode:
    """Return the notebook of a page with its outputs, see ``all_executed``."""
    return all_executed([page], cache=cache)[0]


def all_executed(paths: Sequence[Path], *, cache: Path = CACHE) -> list[NotebookNode]:
    """Return the notebooks of pages with their outputs.

    They are taken from ``cache`` where page, library and versions are those they were made with;
    never in CI, which is to show that the cells run now.
    """
    import nbformat

    notebooks, missing = {}, {}
    for page in paths:
        markdown = page.read_text("utf-8")
        path = cache / f"{page.stem}-{_fingerprint(markdown)}.ipynb"
        if path.exists() and "CI" not in os.environ:
            notebooks[page] = nbformat.read(path, as_version=4)
        else:
            notebooks[page], missing[page] = notebook_of(markdown), path
    if missing:
        _execute({page.name: notebooks[page] for page in missing})
    for page, path in missing.items():
        cache.mkdir(parents=True, exist_ok=True)
        for older in cache.glob(f"{page.stem}-*.ipynb"):
            older.unlink()
        nbformat.write(notebooks[page], path)
    return [notebooks[page] for page in paths]


def _execute(notebooks: Mapping[str, NotebookNode]) -> None:
    """Run all cells of some pages in one process, which imports what they need once.

    Every page begins without names, in an empty folder of its own.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    from nbformat import v4
    from traitlets.config import Config

    with tempfile.TemporaryDirectory() as folder:
        # Files instead of ports: nobody else on the machine can listen.
        files = {"transport": "ipc", "connection_file": f"{folder}/kernel.json"}
        config = Config(AsyncKernelManager=files)
        combined = notebook_of("")
        for name, notebook in notebooks.items():
            page_folder = Path(folder, name)
            page_folder.mkdir()
            begin = f"%reset -f\n__import__('os').chdir({str(page_folder)!r})"
            combined.cells += [v4.new_code_cell(begin), *notebook.cells]
        client = NotebookClient(combined, config=config, timeout=SECONDS, record_timing=False)
        home = {"IPYTHONDIR": folder, "MPLCONFIGDIR": os.environ.get("MPLCONFIGDIR", folder)}
        # Two cores are shared with the tests, and steps this small gain nothing from a second.
        # tqdm, which draws PyG's bars, would warn that ipywidgets is not installed.
        quiet = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore:IProgress not found"}
        try:
            client.execute(env=quiet | os.environ | home)
        except CellExecutionError as error:
            raise CellError(_sentence(notebooks, f"{error.ename}: {error.evalue}")) from None
        except CellTimeoutError:
            raise CellError(_sentence(notebooks, f"no end within {SECONDS} s")) from None
        except DeadKernelError:
            raise CellError(_sentence(notebooks, "its process died")) from None
    for notebook in notebooks.values():
        for number, cell in enumerate(_codes(notebook), 1):
            for counted in (cell, *cell.outputs):
                if "execution_count" in counted:
                    counted.execution_count = number


def _codes(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _sentence(notebooks: Mapping[str, NotebookNode], why: str) -> str:
    """Say which cell failed: the last one that was begun."""
    begun = []
    for name, notebook in notebooks.items():
        for number, cell in enumerate(_codes(notebook), 1):
            if cell.execution_count:
                begun.append((name, number, cell.source.splitlines()[0]))
    if not begun:
        return f"docs/notebooks: no cell could be run: {why}"
    name, number, first = begun[-1]
    return f"docs/notebooks/{name}, code cell {number} ({first!r}) failed: {why}"


def _fingerprint(markdown: str) -> str:
    """Return a hash of all that outputs depend on."""
    digest = hashlib.sha256(markdown.encode())
    for path in (Path(__file__), *sorted((ROOT / "src" / "evergraph").rglob("*"))):
        # What compilers keep there comes while tests run.
        if path.is_file() and path.parent.name != "__pycache__":
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    digest.update(" ".join(version(package) for package in PACKAGES).encode())
    return digest.hexdigest()[:16]


def main(folder: str) -> None:
    """Write every notebook, executed, into a folder."""
    import nbformat

    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    for page, notebook in zip(pages(), all_executed(pages()), strict=True):
        nbformat.write(notebook, out / f"{page.stem}.ipynb")
        print(out / f"{page.stem}.ipynb")


if __name__ == "__main__":
    main(*sys.argv[1:])
