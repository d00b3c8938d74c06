"""Hold the size of the source: files and lines of each package, and import circles, only fall.

``scripts/ratchet.toml`` has the most that each package may have. ``make check`` runs this script,
which fails where something is above its mark. A mark is raised by hand, in the same commit as the
code that needs it, with a line under ``[raised]`` that says why::

    python scripts/ratchet.py           # compare, and say what is above its mark
    python scripts/ratchet.py --lower   # write down what has fallen

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
import tomli_w
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
MARKS = ROOT / "scripts" / "ratchet.toml"
HEAD = """\
# The most files and lines that each package may have, and modules in import circles;
# scripts/ratchet.py compares. Marks fall by `python scripts/ratchet.py --lower`; one that must rise
# is raised here by hand, with a line `package = "why"` under [raised].

"""
Sizes = dict[str, dict[str, int]]


def sizes() -> Sizes:
    """Files, lines and modules in circles of each package of src, and of the tests."""
    source = ROOT / "src" / "evergraph"
    folders = {
        path.name: path for path in sorted(source.iterdir()) if (path / "__init__.py").exists()
    }
    circular = Counter(name.split(".")[1] for circle in circles() for name in circle)
    found = {name: _size(folder) | {"circular": circular[name]} for name, folder in folders.items()}
    return found | {"tests": _size(ROOT / "tests") | {"circular": 0}}


def _size(folder: Path) -> dict[str, int]:
    texts = [file.read_text("utf8") for file in folder.rglob("*.py")]
    return {"files": len(texts), "lines": sum(len(text.splitlines()) for text in texts)}


def circles() -> list[list[str]]:
    """The strongly connected components of the import graph that have more than one module."""
    graph = grimp.build_graph("evergraph", cache_dir=None)
    modules = sorted(graph.modules)
    number = {name: i for i, name in enumerate(modules)}
    imports = np.array(
        [(number[name], number[other]) for name in modules
         for other in graph.find_modules_directly_imported_by(name)]
    ).T  # fmt: skip
    adjacency = csr_matrix((np.ones(imports.shape[1]), imports), shape=(len(modules), len(modules)))
    count, component = connected_components(adjacency, connection="strong")
    members = [[modules[i] for i in np.flatnonzero(component == c)] for c in range(count)]
    return [names for names in members if len(names) > 1]


def above(found: Sizes, marks: Sizes) -> list[str]:
    """One sentence for everything that is above its mark."""
    none = {"files": 0, "lines": 0, "circular": 0}
    return [
        f"{package} has {size} {_SAID[what]}, its mark is {marks.get(package, none)[what]}"
        for package, now in found.items()
        for what, size in now.items()
        if size > marks.get(package, none)[what]
    ]


def _as_toml(marks: Sizes) -> str:
    rows = ["[marks]"]
    for name, size in marks.items():
        rows.append(f"{name} = {{ {', '.join(f'{what} = {n}' for what, n in size.items())} }}")
    return "\n".join([*rows, "", ""])


_SAID = {"files": "files", "lines": "lines", "circular": "modules in import circles"}


def main() -> int:
    """Compare, or lower the marks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lower", action="store_true", help="write down what has fallen")
    lower = parser.parse_args().lower
    kept = tomllib.loads(MARKS.read_text("utf8"))
    marks: Sizes = kept["marks"]
    found = sizes()
    wrong = above(found, marks)
    for sentence in wrong:
        print(f"ratchet: {sentence}: take something out, or raise it in {MARKS.name} with a reason")
    if lower and not wrong:
        MARKS.write_text(HEAD + _as_toml(found) + tomli_w.dumps({"raised": kept["raised"]}), "utf8")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
