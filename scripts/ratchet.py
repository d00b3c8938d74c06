"""Hold the size of the source: files and lines of each package, and import circles.

``scripts/ratchet.toml`` has the mark of each package. ``make check`` runs this script, which fails
where a package is more than its slack above its mark, 100 lines or 2 % and one file, so that most
changes need no word about it. Tests have no mark. The failure names the command that raises a mark;
its reason is a file of its own in ``scripts/raised``, so that two changes never meet in one line::

    python scripts/ratchet.py                           # compare
    python scripts/ratchet.py --raise online "why"      # set the mark of a package to its size
    python scripts/ratchet.py --lower                   # write down what has fallen

A circle is a set of modules that import each other, also through imports inside functions or under
``TYPE_CHECKING``: it is counted by its modules, so that taking one out of a circle counts.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import grimp
import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
MARKS = ROOT / "scripts" / "ratchet.toml"
RAISED = ROOT / "scripts" / "raised"
HEAD = """\
# Files and lines of each package, and modules in import circles; see scripts/ratchet.py.

"""
SLACK_LINES, SLACK_SHARE, SLACK_FILES = 100, 0.02, 1
Sizes = dict[str, dict[str, int]]


def sizes() -> Sizes:
    """Files, lines and modules in circles of each package of src."""
    source = ROOT / "src" / "evergraph"
    folders = {
        path.name: path for path in sorted(source.iterdir()) if (path / "__init__.py").exists()
    }
    circular = Counter(name.split(".")[1] for circle in circles() for name in circle)
    return {name: _size(folder) | {"circular": circular[name]} for name, folder in folders.items()}


def _size(folder: Path) -> dict[str, int]:
    texts = [file.read_text("utf8") for file in folder.rglob("*.py")]
    return {"files": len(texts), "lines": sum(len(text.splitlines()) for text in texts)}


def circles() -> list[list[str]]:
    """The strongly connected components of the import graph that have more than one module."""
    graph = grimp.build_graph("evergraph", cache_dir=None)
    modules = sorted(graph.modules)
    number = {name: i for i, name in enumerate(modules)}
    imports = np.array(
        [
            (number[name], number[other])
            for name in modules
            for other in graph.find_modules_directly_imported_by(name)
        ]
    ).T
    adjacency = csr_matrix((np.ones(imports.shape[1]), imports), shape=(len(modules), len(modules)))
    count, component = connected_components(adjacency, connection="strong")
    members = [[modules[i] for i in np.flatnonzero(component == c)] for c in range(count)]
    return [names for names in members if len(names) > 1]


def above(sizes: Sizes, marks: Sizes) -> list[str]:
    """One sentence for everything that is further above its mark than the slack."""
    none = {"files": 0, "lines": 0, "circular": 0}
    sentences = []
    for package, current in sizes.items():
        for measure, size in current.items():
            mark = marks.get(package, none)[measure]
            if size > mark + slack(measure, mark):
                sentences.append(
                    f"{package} has {size} {_IN_WORDS[measure]}, its mark is {mark}: take "
                    f'something out, or `python scripts/ratchet.py --raise {package} "why"`'
                )
    return sentences


def slack(measure: str, mark: int) -> int:
    """How far a package may be above a mark.

    >>> slack("lines", 1_000), slack("lines", 10_000), slack("files", 5), slack("circular", 0)
    (100, 200, 1, 0)
    """
    if measure == "lines":
        return max(SLACK_LINES, int(SLACK_SHARE * mark))
    return SLACK_FILES if measure == "files" else 0


def _as_toml(marks: Sizes) -> str:
    rows = ["[marks]"]
    for name, size in marks.items():
        rows.append(f"{name} = {{ {', '.join(f'{what} = {n}' for what, n in size.items())} }}")
    return "\n".join([*rows, "", ""])


_IN_WORDS = {"files": "files", "lines": "lines", "circular": "modules in import circles"}


def main(arguments: list[str] | None = None) -> int:
    """Compare, or lower or raise marks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lower", action="store_true", help="write down what has fallen")
    parser.add_argument("--raise", dest="raised", nargs=2, metavar=("PACKAGE", "WHY"))
    options = parser.parse_args(arguments)
    marks: Sizes = tomllib.loads(MARKS.read_text("utf8"))["marks"]
    current = sizes()
    if options.raised:
        package, why = options.raised
        if package not in current or not why.strip():
            parser.error(f"--raise needs a package and a reason, not {package!r} and {why!r}")
        marks[package] = current[package]
        RAISED.mkdir(exist_ok=True)
        size = current[package]["lines"]
        (RAISED / f"{package}-{size}.md").write_text(f"{why.strip()}\n", "utf8")
    complaints = above(current, marks)
    for sentence in complaints:
        print(f"ratchet: {sentence}")
    if options.lower:
        marks = {
            name: {what: min(size, marks.get(name, each)[what]) for what, size in each.items()}
            for name, each in current.items()
        }
    if options.lower or options.raised:
        MARKS.write_text(HEAD + _as_toml(marks), "utf8")
    return len(complaints) > 0


if __name__ == "__main__":
    sys.exit(main())
