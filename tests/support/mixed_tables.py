"""A table with a column of every kind, and edges, written as CSV and held as pandas has it."""

import json
from pathlib import Path
from typing import Any

import numpy as np

WORDS = {
    "art": ["paint", "museum", "canvas"],
    "music": ["song", "guitar", "choir"],
    "sport": ["ball", "race", "team"],
}
COLUMNS = ("title", "venue", "published", "score", "tags", "open")


def mixed_rows(start: int, stop: int) -> list[dict[str, Any]]:
    """Return rows; a third of the scores is missing, and every fourth label."""
    rows = []
    for node in range(start, stop):
        draw = np.random.default_rng(node)
        topic = list(WORDS)[node % 3]
        words = [*draw.choice(WORDS[topic], 3), *draw.choice(["the", "of", "old"], 2)]
        tags = [topic[0], *draw.choice(["x", "y", "z"], node % 3, replace=False)]
        rows.append(
            {
                "id": f"n{node}",
                "label": topic if node % 4 else None,
                "title": " ".join(words),
                "venue": f"v{draw.integers(5)}",
                "published": f"202{draw.integers(6)}-0{draw.integers(1, 10)}-1{draw.integers(10)}",
                "score": round(float(draw.normal(node % 3)), 3) if draw.random() > 0.3 else None,
                "tags": [str(tag) for tag in tags],
                "open": bool(draw.integers(2)),
            }
        )
    return rows


def mixed_edges(start: int, stop: int) -> list[tuple[str, str]]:
    pairs = []
    for node in range(max(start, 1), stop):
        draw = np.random.default_rng(1_000 + node)
        pairs += [(f"n{node}", f"n{other}") for other in draw.integers(node, size=2)]
    return [*dict.fromkeys(pairs)]


def write_mixed(folder: Path, start: int, stop: int, name: str = "") -> tuple[Path, Path]:
    """Write the rows and edges of some nodes; return both files, nodes first."""
    folder.mkdir(exist_ok=True)
    nodes, edges = folder / f"{name}nodes.csv", folder / f"{name}edges.csv"
    rows = mixed_rows(start, stop)
    lines = [",".join(rows[0]), *(",".join(map(_cell, row.values())) for row in rows)]
    nodes.write_text("\n".join(lines) + "\n")
    pairs = [f"{a},{b}" for a, b in mixed_edges(start, stop)]
    edges.write_text("\n".join(["source,target", *pairs]) + "\n")
    return nodes, edges


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ";".join(value)
    return json.dumps(value) if isinstance(value, bool) else str(value)
