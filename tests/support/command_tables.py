"""Two tables for ``evergraph ingest``, and what commands print of them."""

NODES = "id,label,f,g\n" + "".join(
    f"n{i},{'' if i % 5 == 4 else 'xy'[i % 2]},{i % 2},{1 - i % 2}\n" for i in range(25)
)
EDGES = "source,target\n" + "".join(f"n{i},n{i - 2}\n" for i in range(2, 25))
TABLES = ("--nodes", "nodes.csv", "--edges", "edges.csv", "--batch", "10")


def summary(out: str) -> str:
    """Return the last line, which comes after the table of columns."""
    return out.rstrip("\n").rpartition("\n")[2]


def predicted(text: str) -> dict[str, str]:
    rows = [line.split(",") for line in text.splitlines()]
    assert rows[0] == ["id", "label", "probability", "known"]
    assert all(0.5 <= float(row[2]) <= 1 for row in rows[1:])
    return {row[0]: row[1] for row in rows[1:]}
