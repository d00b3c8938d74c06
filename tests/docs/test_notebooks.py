"""Pages become notebooks, cells are executed, and one that fails is named."""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

# Not pytest.importorskip: every worker reads this file, one runs it.
EXTRAS = ("nbclient", "ipykernel")
pytestmark = pytest.mark.skipif(not all(map(find_spec, EXTRAS)), reason="jupyter is an extra")
SCRIPTS = Path(__file__).parents[2] / "scripts"
PAGE = """\
# Title

```python
import os
os.listdir()
```

Text with a block that is no cell:

```text
>>> 1 / 0
```

```python
class Shown:
    def _repr_html_(self):
        return "<b>bold</b>"

print("<script>")
Shown()
```
"""


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import notebooks
    import notebooks_hook

    yield SimpleNamespace(notebooks=notebooks, hook=notebooks_hook)
    for name in ("notebooks", "notebooks_hook"):
        sys.modules.pop(name)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CI", raising=False)
    path = tmp_path / "page.md"
    path.write_text(PAGE, "utf-8")
    return path


def test_a_page_is_executed_once_and_shown(scripts, page, tmp_path, monkeypatch):
    made = scripts.notebooks.executed(page, cache=tmp_path / "kept")
    codes = [cell for cell in made.cells if cell.cell_type == "code"]
    assert len(codes) == 2
    assert codes[0].outputs[0].data["text/plain"] == "[]"  # in an empty folder
    second = scripts.hook.shown(codes[1].outputs)
    assert '<pre class="notebook-stdout">&lt;script&gt;\n</pre>' in second
    assert '<div class="notebook-html"><b>bold</b></div>' in second
    refuse = Mock(side_effect=AssertionError("executed again"))
    monkeypatch.setattr(scripts.notebooks, "_execute", refuse)
    assert scripts.notebooks.executed(page, cache=tmp_path / "kept") == made
    monkeypatch.setenv("CI", "true")
    with pytest.raises(AssertionError, match="executed again"):
        scripts.notebooks.executed(page, cache=tmp_path / "kept")
    monkeypatch.delenv("CI")
    page.write_text(PAGE.replace("bold", "bolder"), "utf-8")
    with pytest.raises(AssertionError, match="executed again"):
        scripts.notebooks.executed(page, cache=tmp_path / "kept")


def test_outputs_depend_on_the_library(scripts, tmp_path, monkeypatch):
    library = tmp_path / "src" / "evergraph"
    library.mkdir(parents=True)
    (library / "part.py").write_text("x = 1\n", "utf-8")
    monkeypatch.setattr(scripts.notebooks, "ROOT", tmp_path)
    monkeypatch.setattr(scripts.notebooks, "__file__", str(library / "part.py"))
    before = scripts.notebooks._fingerprint("# Page\n")
    assert before == scripts.notebooks._fingerprint("# Page\n")
    (library / "part.py").write_text("x = 2\n", "utf-8")
    assert before != scripts.notebooks._fingerprint("# Page\n")


def test_a_failing_cell_stops_the_build_with_one_sentence(scripts, page, monkeypatch):
    from mkdocs.exceptions import PluginError

    page.write_text("```python\nx = 1\n```\n\n```python\ny = 2\nx / 0\n```\n\n```python\n3\n```\n")
    monkeypatch.setattr(scripts.hook, "pages", lambda: [page])
    with pytest.raises(PluginError) as refusal:
        scripts.hook.on_files([], None)
    assert str(refusal.value) == (
        "docs/notebooks/page.md, code cell 2 ('y = 2') failed: ZeroDivisionError: division by zero"
    )


def test_every_cell_has_a_place_and_other_pages_are_left_alone(scripts):
    made = scripts.notebooks.notebook_of(PAGE)
    made.cells[3].outputs = [{"output_type": "stream", "name": "stdout", "text": "second"}]
    scripts.hook._notebooks["notebooks/page.md"] = made
    page = SimpleNamespace(file=SimpleNamespace(src_uri="notebooks/page.md"))
    text = scripts.hook.on_page_markdown(PAGE, page)
    assert text.startswith("# Title\n\n[Download this page as a notebook](page.ipynb)")
    content = scripts.hook.on_page_content(text, page)
    assert content.index("Shown()") < content.index("second")
    assert "data-cell" not in content
    other = SimpleNamespace(file=SimpleNamespace(src_uri="start.md"))
    assert scripts.hook.on_page_markdown(PAGE, other) == PAGE
