"""Examples of the pages run in an empty folder and leave no component registered.

A plain block that begins with the name of a file, ``# name.py``, is run before the page's examples.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FILE = re.compile(r"^```python\n(# \w+\.py\n.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _clean_page(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not above: the process that hands tests out to workers reads this file, and needs no torch.
    from evergraph.memory.samplers import samplers
    from evergraph.methods import methods

    monkeypatch.chdir(tmp_path)
    for parts in (methods, samplers):
        monkeypatch.setattr(parts, "_classes", dict(parts._classes))
    for code in FILE.findall(request.path.read_text("utf-8")):
        exec(compile(code, str(request.path), "exec"), request.node.dtest.globs)
