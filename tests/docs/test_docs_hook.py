"""Copied code runs when it is pasted, and generated parts of pages are there."""

import re
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, SimpleNamespace

import markdown
import pytest

from evergraph.core.errors import ResultsError
from from_file import module_of

HOOK = Path(__file__).parents[2] / "scripts" / "docs_hook.py"
PAGE = '''\
# Title

```python
>>> def twice(n):
...     """Say "2n" & <more>."""
...     return 2 * n
>>> print(f"{twice(2)}\\\\n...")
4
...
>>> twice(3)
6

```

    make run

```python
plain = 1
```
'''


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    return module_of(HOOK)


class Copies(HTMLParser):
    """Collects what the copy button of each block would copy, None for its text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if "highlight" in (values.get("class") or "").split():
            self.found.append(values.get("data-copy"))


def test_a_session_is_copied_without_prompts_and_output(hook):
    text = hook.on_page_markdown(PAGE, page("start.md"))
    html = markdown.markdown(text, extensions=["pymdownx.highlight", "pymdownx.superfences"])
    copies = Copies()
    copies.feed(hook.on_page_content(html))
    code, *others = copies.found
    assert code == (
        'def twice(n):\n    """Say "2n" & <more>."""\n    return 2 * n\n'
        'print(f"{twice(2)}\\\\n...")\ntwice(3)'
    )
    assert others == [None, None]  # shell commands and plain code are copied as they stand
    # Sessions are highlighted as such.
    assert "```pycon\n>>> def twice" in text
    assert "```python\nplain = 1" in text


def test_an_option_is_not_broken_after_its_hyphens(hook):
    text = hook.on_page_markdown("`--seed 5`\n\n    evergraph run --seed 5\n", page("start.md"))
    html = markdown.markdown(text, extensions=["pymdownx.highlight", "pymdownx.superfences"])
    html = hook.on_page_content(html)
    assert '<code><span class="option">--seed</span> 5</code>' in html
    assert html.count('class="option"') == 1  # a block is left as it is


def page(name: str) -> SimpleNamespace:
    return SimpleNamespace(file=SimpleNamespace(src_uri=name))


@pytest.fixture
def rows(hook, tmp_path, monkeypatch) -> list[Path]:
    """Some of the committed rows: checking all of them takes seconds."""
    chosen = sorted(hook.BOOK.glob("*/*/t*.json"))
    for row in chosen:
        copy = tmp_path / "some" / row.relative_to(hook.BOOK)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(row.read_bytes())
    monkeypatch.setattr(hook, "BOOK", tmp_path / "some")
    return chosen


def test_the_results_are_made_of_the_committed_rows(hook, rows, tmp_path, monkeypatch):
    slot = hook.SLOT.format("the-book")
    place = f"<p>before</p>{slot}<p>after</p>"
    html = hook.on_page_content(place, page=page("results.md"))
    assert html.count("<td><details>") == len(rows) > 0
    assert html.startswith("<p>before</p><div class=")
    assert slot in (hook.DOCS / "results.md").read_text()
    assert hook.on_page_content(place, page=page("start.md")) == place
    monkeypatch.setattr(hook, "BOOK", tmp_path / "wrong")
    (tmp_path / "wrong" / "d" / "class-il").mkdir(parents=True)
    (tmp_path / "wrong" / "d" / "class-il" / "m.json").write_text("{}")
    with pytest.raises(ResultsError, match="has no 'dataset'"):  # a wrong row stops the build
        hook.on_page_content(place, page=page("results.md"))


@pytest.mark.parametrize("name", ["methods.md", "protocols.md", "results.md", "service.md"])
def test_every_place_of_a_page_is_filled(hook, rows, name):
    text = (hook.DOCS / name).read_text("utf-8")
    for place in hook.TEXTS[name]:
        assert hook.SLOT.format(place) in text
    filled = hook.on_page_markdown(text, page(name))
    assert re.findall(r'<div id="(?!the-book)', filled) == []


def test_every_study_is_on_the_page_and_shows_its_pictures(hook):
    filled = hook.studies()
    for path in hook.STUDIES.glob("*.md"):
        assert f"### {hook.STUDY_TITLES[path.stem]}\n" in filled
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", filled)
    assert pictures
    assert all((hook.DOCS / each).exists() for each in pictures)
