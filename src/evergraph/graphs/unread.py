"""What of a PyG ``Data`` object is not used."""

from __future__ import annotations

from collections.abc import Iterable

from evergraph.core.notices import say_ignored

# The last three say nothing that the others do not.
READ = ("x", "edge_index", "y", "num_nodes", "ptr", "batch")
TIME = ("time", "node_year")


def say_unread(where: object, names: Iterable[str], *, timed: bool = True) -> None:
    """Say which attributes of a ``Data`` object, or of a dict like one, are not used.

    timed: whether it is known when nodes appeared; a learner that grows does not ask.
    """
    read = (*READ, *TIME) if timed else READ
    used = "x, edge_index, y and time" if timed else "x, edge_index and y"
    unread = sorted(name for name in names if name not in read)  # PyG's own order varies
    say_ignored(where, "attribute", unread, f"only {used} are used")
