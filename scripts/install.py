"""Install evergraph with some extras, editable, into .venv: ``python scripts/install.py report``.

uv takes less than a fifth of pip's processor time, mostly because it compiles nothing that is not
imported. It reads none of pip's settings, so they are handed over. Where uv cannot be had, or
fails, pip installs the same versions.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
CONSTRAINTS = ROOT / "constraints.txt"
# Pip's settings, and where uv reads the same. Values with spaces are lists, of which only these two
# are separated by spaces in uv as well.
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "cert": "SSL_CERT_FILE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}


def settings(listed: Iterable[str]) -> dict[str, str]:
    """Return what uv should find in its environment, from the lines of ``pip config list``.

    >>> settings(["global.find-links='/a /b'", ":env:.no-index='1'", "global.quiet='1'"])
    {'UV_FIND_LINKS': '/a,/b', 'UV_NO_INDEX': '1'}
    """
    environment: dict[str, str] = {}
    # Files come first, "install" after "global", and variables of the environment win.
    for line in sorted(listed, key=lambda line: (line.startswith(":env:"), line)):
        name, _, value = line.partition("=")
        setting = SETTINGS.get(name.rpartition(".")[2])
        if setting is not None:
            separator = "," if setting == "UV_FIND_LINKS" else " "
            environment[setting] = separator.join(str(ast.literal_eval(value)).split())
    return environment


def requirements(extras: str) -> list[str]:
    """Return what is installed: torch as pinned, and evergraph from here with these extras."""
    (torch,) = (
        line for line in CONSTRAINTS.read_text("utf-8").splitlines() if line.startswith("torch==")
    )
    # An unpinned request for torch pulls a build for CUDA of several gigabytes.
    return ["--constraint", str(CONSTRAINTS), torch, "--editable", f"{ROOT}[{extras}]"]


def main(extras: str) -> int:
    """Install; the exit code is that of whoever did it."""
    if not PYTHON.exists():
        # Unpacking a pip into a new environment takes longer than all that uv does.
        _run(sys.executable, "-m", "venv", "--without-pip", str(VENV))
    packages = requirements(extras)
    uv = _find_uv()
    if uv is not None:
        environment = {"UV_INDEX_STRATEGY": "unsafe-best-match", **_pip_settings(), **os.environ}
        command = (uv, "pip", "install", "--quiet", "--python", str(PYTHON), *packages, "pip")
        if not _run(*command, environment=environment):
            return 0
        print("uv has failed, so pip is tried instead ...", file=sys.stderr)
    _add_pip()
    return _run(str(PYTHON), "-m", "pip", "install", "--quiet", "--quiet", *packages)


def _find_uv() -> str | None:
    """Return a uv of the environment or of the user, or None where none can be installed."""
    own_uv = VENV / "bin" / "uv"
    if not own_uv.exists() and (user_uv := shutil.which("uv")) is not None:
        return user_uv
    options = ("install", "--quiet", "--no-compile", "--constraint", str(CONSTRAINTS), "uv")
    if not own_uv.exists():
        _run(sys.executable, "-m", "pip", "--python", str(PYTHON), *options, quiet=True)
    if not own_uv.exists():  # a pip that is too old for --python, or none
        _add_pip()
        _run(str(PYTHON), "-m", "pip", *options, quiet=True)
    return str(own_uv) if own_uv.exists() else None


def _add_pip() -> None:
    if _run(str(PYTHON), "-m", "pip", "--version", quiet=True):
        _run(str(PYTHON), "-m", "ensurepip", quiet=True)


def _pip_settings() -> dict[str, str]:
    listed = subprocess.run(
        (sys.executable, "-m", "pip", "config", "list"), capture_output=True, text=True
    )
    return settings(listed.stdout.splitlines())


def _run(*command: str, environment: Mapping[str, str] | None = None, quiet: bool = False) -> int:
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, env=environment, stdout=output, stderr=output).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
