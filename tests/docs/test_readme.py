"""The README's first example runs as it is pasted, and prints what its comments say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def test_the_first_example_prints_what_its_comments_say(capsys: pytest.CaptureFixture[str]) -> None:
    code = README.read_text("utf-8").split("```python\n")[1].split("```")[0]
    assert ">>>" not in code  # it is copied from pages that strip no prompts
    exec(compile(code, "README.md", "exec"), {})
    said = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert said == ["art", "art music chess"]
    assert capsys.readouterr().out.splitlines() == said
