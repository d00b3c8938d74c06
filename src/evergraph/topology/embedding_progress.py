"""How far the embeddings of a folder have come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from evergraph.core.mapped import disk_is_enough
from evergraph.core.written_aside import written_aside

PROGRESS = "embedding.json"


@dataclass(frozen=True)
class Progress:
    """How far embeddings have come, kept beside them; columns are those of the features.

    Attributes:
        made: of what and how they are made; other embeddings begin again.
        parts: in how many parts the rows are cut.
        columns: how many are through, in every part.
        stop: where the block under way ends.
        written: the parts that have written that block.
    """

    made: Mapping[str, Any]
    parts: int
    columns: int = 0
    stop: int = 0
    written: tuple[int, ...] = ()

    def save(self, folder: Path) -> Progress:
        """Keep it, and return it."""
        with disk_is_enough(folder), written_aside(folder / PROGRESS) as file:
            file.write(json.dumps(asdict(self)).encode())
        return self

    @classmethod
    def load(cls, folder: Path, made: Mapping[str, Any], parts: int) -> Progress | None:
        """Return how far these embeddings have come, None if they were not begun."""
        try:
            found = json.loads((folder / PROGRESS).read_text("utf-8"))
            known = cls(**found | {"written": tuple(found["written"])})
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if known.made != made:
            return None
        # Cut in another way, what some parts have of a block is of no use.
        return known if known.parts == parts else cls(made, parts, known.columns)

    def blocks(self, wide: int, widest: int) -> list[tuple[int, int]]:
        """Cut the columns that are left into blocks of nearly one width, the one under way first.

        >>> Progress({}, 1, columns=2, stop=3, written=(0,)).blocks(9, widest=4)
        [(2, 3), (3, 6), (6, 9)]
        """
        under_way = self.written and self.columns < self.stop <= self.columns + widest
        start = self.stop if under_way else self.columns
        left = wide - start
        count = -(-left // widest)
        ends = [start + left * block // count for block in range(count + 1)] if count else []
        return [*([(self.columns, start)] if under_way else []), *pairwise(ends)]
