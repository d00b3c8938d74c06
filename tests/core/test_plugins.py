"""Parts of one's own: files, modules and entry points that register when they are imported."""

import hashlib
import logging
import sys
from pathlib import Path

import pytest

from evergraph.core.errors import ConfigurationError
from evergraph.core.packages import load_installed_plugins, load_plugin
from evergraph.methods import methods

pytestmark = pytest.mark.usefixtures("own_parts")

METHOD = """\
from evergraph.methods import Finetune, methods

@methods.register
class Mine(Finetune):
    "{summary}"

    name = "mine"
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def installed(folder: Path, entries: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a distribution with entry points on the path, as pip would."""
    info = folder / "my_parts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-parts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[evergraph.parts]\n{entries}\n")
    monkeypatch.syspath_prepend(str(folder))


def test_a_file_is_imported_once_and_again_when_it_has_changed(tmp_path):
    path = write(tmp_path / "mine.py", METHOD.format(summary="As first written."))
    first = load_plugin(path)
    assert load_plugin(str(path)) is first
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    assert first.__name__ == f"evergraph_plugin_mine_{digest}"  # the same in every process
    assert methods.resolve("mine") is first.Mine
    assert sys.modules[first.Mine.__module__] is first
    write(path, METHOD.format(summary="As then written."))  # as long, and in the same second
    second = load_plugin(path)
    assert second.__name__ == first.__name__
    assert methods.summaries()["mine"] == "As then written."


def test_files_of_one_name_in_two_folders_are_two_modules(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "parts.py", f"WHERE = {folder!r}")
    found = [load_plugin(tmp_path / folder / "parts.py") for folder in ("a", "b", "a")]
    assert [module.WHERE for module in found] == ["a", "b", "a"]


def test_a_file_may_import_what_lies_beside_it(tmp_path):
    write(tmp_path / "beside_it_lies.py", "ANSWER = 42")
    path = write(tmp_path / "mine.py", "from beside_it_lies import ANSWER")
    assert load_plugin(path).ANSWER == 42


def test_a_module_is_imported_by_its_name(tmp_path, monkeypatch):
    write(tmp_path / "parts_by_name.py", METHOD.format(summary="By name."))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_plugin("parts_by_name") is sys.modules["parts_by_name"]
    assert methods.summaries()["mine"] == "By name."
    del sys.modules["parts_by_name"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n\ny = [x for\n", "plugin mine.py, line 3: SyntaxError: "),
        ("x = 1\n\nprint(z)\n", "plugin mine.py, line 3: NameError: name 'z' is not defined"),
        (
            "def deep():\n    raise ValueError('first\\nsecond')\ndeep()\n",
            "plugin mine.py, line 2: ValueError: first",
        ),
        ("import json\njson.loads('{')\n", "plugin mine.py, line 2: JSONDecodeError: "),
        ("import nowhere_at_all\n", "line 1: ModuleNotFoundError: No module named 'nowhere"),
        ("raise SystemExit\n", "plugin mine.py, line 1: SystemExit"),
        (
            METHOD.format(summary="Twice.").replace('"mine"', '"tem"'),
            "mine.py, line 3: two methods are called 'tem', evergraph.methods.tem.TEM and Mine of",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line_with_its_place(text, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine.py", text)
    known = set(sys.modules)
    with pytest.raises(ConfigurationError) as caught:
        load_plugin("mine.py")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not [name for name in set(sys.modules) - known if "plugin" in name]
    write(tmp_path / "mine.py", METHOD.format(summary="Mended."))
    load_plugin("mine.py")
    assert methods.summaries()["mine"] == "Mended."


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("absent.py", "plugin absent.py: no such file"),
        ("some/where", "plugin some/where: no such file"),
        (".", "plugin '.': no such module: give the path"),
        ("./", "plugin ./: cannot be read: Is a directory"),
        ("absent", "plugin 'absent': no such module: give the path of a .py file, or the name of"),
        ("mine", "no such module: did you mean 'mine.py'? give the path"),
        ("notes.txt/", "plugin notes.txt/: "),
        ("broken_module", "broken_module.py, line 2): ZeroDivisionError: "),
        ("needing_module", "line 1): ModuleNotFoundError: No module named 'absent_too'"),
        ("cut_module", "cut_module.py, line 1): SyntaxError: "),
    ],
)
def test_what_cannot_be_imported_is_said(source, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "modules").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    write(tmp_path / "modules" / "broken_module.py", "x = 0\n1 / x\n")
    write(tmp_path / "modules" / "needing_module.py", "import absent_too\n")
    write(tmp_path / "modules" / "cut_module.py", "x = [\n")
    write(tmp_path / "mine.py", "")
    write(tmp_path / "notes.txt", "")
    with pytest.raises(ConfigurationError) as caught:
        load_plugin(source)
    assert said in str(caught.value)


def test_a_cell_that_defines_parts_may_be_run_twice():
    cell = (Path(__file__).parents[2] / "examples" / "my_parts.py").read_text("utf-8")
    spaces = [{"__name__": "__main__"}, {"__name__": "__main__"}]
    for space in spaces:
        exec(compile(cell, "<ipython-input>", "exec"), space)
    assert methods.resolve("anchored") is spaces[1]["Anchored"]


def test_entry_points_are_imported_for_a_name_that_nothing_has(tmp_path, monkeypatch):
    write(tmp_path / "entered_parts.py", METHOD.format(summary="Installed."))
    installed(tmp_path, "parts = entered_parts", monkeypatch)
    methods.resolve("tem")
    assert "entered_parts" not in sys.modules  # for what is known nothing is imported
    assert methods.resolve("mine") is sys.modules["entered_parts"].Mine
    assert "mine" in methods.names()
    del sys.modules["entered_parts"]


def test_a_broken_package_is_left_out_and_the_others_are_not(tmp_path, monkeypatch, caplog):
    write(tmp_path / "sound_parts.py", METHOD.format(summary="Sound."))
    write(tmp_path / "unsound_parts.py", "1 / 0")
    installed(tmp_path, "a = unsound_parts\nb = sound_parts", monkeypatch)
    with caplog.at_level(logging.WARNING):
        load_installed_plugins()
    assert caplog.messages == [
        "entry point 'a' of evergraph.parts: left out: ZeroDivisionError: division by zero"
    ]
    assert methods.summaries()["mine"] == "Sound."
    del sys.modules["sound_parts"]
