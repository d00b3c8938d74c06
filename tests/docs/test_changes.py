"""The changes that CONTRIBUTING shows fit the tree, and do what their own tests say."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENTRY = "tests/docs/test_pages.py::test_every_registered_part_has_one_entry_in_the_reference"
CHANGES = sorted((ROOT / "docs" / "changes").glob("*.diff"))


def applied(change: Path, folder: Path, *options: str) -> list[str]:
    """Apply a change to the tree in a folder, and return the files that it touches."""
    command = ("git", "apply", *options, str(change))
    subprocess.run(command, cwd=folder, check=True, env=os.environ | {"GIT_DIR": os.devnull})
    return re.findall(r"^\+\+\+ b/(\S+)", change.read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.stem)
def test_a_change_fits_the_tree_and_touches_three_files(change):
    assert f"docs/changes/{change.name}" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    files = applied(change, ROOT, "--check")
    assert len(files) <= 3
    assert any(file.startswith("tests/") for file in files)


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.stem)
def test_the_tests_of_a_change_pass_where_it_is_applied(change, tmp_path):
    for name in ("src", "tests", "docs", "scripts", "book"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    for name in ("pyproject.toml", "conftest.py", "README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    files = [file for file in applied(change, tmp_path) if file.endswith(".py")]
    command = (sys.executable, "-m", "pytest", "-q", *files, ENTRY)
    env = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=env, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout[-3000:]
