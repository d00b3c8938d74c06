"""The configuration of each run, folded away."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import tomli_w

from evergraph.reports.page.section import Section
from evergraph.reports.runs import Entry, Group

LEAD = "Everything a run was told, as TOML: saved to a file, evergraph run --preset repeats it."


def configurations(groups: Sequence[Group]) -> Section:
    """Return a fold a group that holds a fold a run."""
    folds = "\n".join(
        f'<details><summary>{escape(group.title)}</summary><div class="inside">\n'
        + "\n".join(_fold(entry) for entry in group.entries)
        + "\n</div></details>"
        for group in groups
    )
    return Section("configurations", "Configurations", LEAD, folds)


def _fold(entry: Entry) -> str:
    text = tomli_w.dumps(_told(entry.run.result["config"]))
    return (
        f"<details><summary>{escape(entry.name)}</summary>"
        f"<pre><code>{escape(text)}</code></pre></details>"
    )


def _told(value: Any) -> Any:
    """Return a configuration without what was left open, which TOML cannot say.

    >>> _told({"a": None, "b": {"c": 1, "d": None}})
    {'b': {'c': 1}}
    """
    if isinstance(value, dict):
        return {name: _told(part) for name, part in value.items() if part is not None}
    return value
