"""Installed packages: optional ones, their versions, TOML, and plug-ins.

A *plug-in* is a module that registers methods, samplers, ... when it is imported. It is given by
the path of a file or by its import name. An installed package lists its module in the entry point
group ``evergraph.parts`` and need not be given: it is imported when an otherwise unknown name is
looked up, or when all names are listed.
"""

from __future__ import annotations

import hashlib
import os
import sys
import traceback
from collections.abc import Iterable
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from evergraph.core.errors import ConfigurationError, EvergraphError, say

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

if sys.version_info >= (3, 11):  # part of Python since then, a package before
    import tomllib as tomllib
else:
    import tomli as tomllib  # noqa: F401

UNKNOWN = "0+unknown"


def require(package: str, *, extra: str, why: str) -> None:
    """Raise unless ``package`` is installed, naming the command that installs it.

    Called before work starts, so that a missing package is reported early; nothing is imported.
    package: its import name. extra: what of evergraph installs it. why: what needs it.

    >>> require("absent", extra="all", why="learning")
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: learning needs the package absent, which is missing: \
    pip install 'evergraph[all]'
    """
    if not installed(package):
        raise ConfigurationError(
            f"{why} needs the package {package}, which is missing: pip install 'evergraph[{extra}]'"
        )


def installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    return find_spec(package) is not None


def installed_version(name: str) -> str | None:
    """Return the version of a package; None if neither its metadata nor the package has it.

    A source tree on the path and a frozen program have no metadata.
    """
    return _recorded(name) or getattr(sys.modules.get(name.replace("-", "_")), "__version__", None)


def own_version() -> str:
    """Return the version of evergraph; ``0+unknown`` in a source tree that is not installed."""
    return _recorded("evergraph") or UNKNOWN


def _recorded(name: str) -> str | None:
    try:
        recorded: str | None = metadata.version(name)
    except (metadata.PackageNotFoundError, KeyError):
        return None
    return recorded


GROUP = "evergraph.parts"
PREFIX = "evergraph_plugin_"  # of the modules made from files

_files: dict[Path, tuple[bytes, ModuleType]] = {}  # content at the time of the import
_installed_loaded = False


def load_plugin(source: str | Path) -> ModuleType:
    """Import a plug-in, which registers its components: a ``.py`` file, or a module by name.

    A file is imported once, and again if its text has changed: its classes then replace the earlier
    ones. Its folder is searched last for its own imports.
    """
    if not is_file_plugin(source):
        return _import_module(str(source))
    path = Path(source).expanduser().resolve()
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"plugin {source}: no such file") from None
    except OSError as error:
        raise ConfigurationError(f"plugin {source}: cannot be read: {error.strerror}") from None
    if path not in _files or _files[path][0] != content:
        _files[path] = content, _import_file(path, content, str(source))
    return _files[path][1]


def load_plugins(sources: Iterable[str | Path]) -> None:
    """Import plug-ins in the order given."""
    for source in sources:
        load_plugin(source)


def is_file_plugin(source: str | Path) -> bool:
    """Return whether a plug-in is given by a path, not as a module.

    >>> is_file_plugin("my_method.py"), is_file_plugin("my_package.parts")
    (True, False)
    """
    text = str(source)
    return isinstance(source, Path) or text.endswith(".py") or os.sep in text or "/" in text


def located(source: str, folder: Path) -> str:
    """Return a plug-in's path or name, valid in every folder.

    folder: base of a relative path.

    >>> located("parts.py", Path("/home/me")), located("my_package.parts", Path("/home/me"))
    ('/home/me/parts.py', 'my_package.parts')
    """
    if not is_file_plugin(source):
        return source
    return str(folder.absolute() / Path(source).expanduser())


def file_plugins() -> list[ModuleType]:
    """Return the modules imported from files: other processes cannot import them by name."""
    return [module for _, module in _files.values()]


def installed_plugins() -> list[EntryPoint]:
    """Return the entry points of installed packages, sorted by name, without importing them."""
    from importlib.metadata import entry_points

    return sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))


def load_installed_plugins() -> None:
    """Import the entry points ``evergraph.parts`` of installed packages, once.

    A package that cannot be imported is skipped with a warning: it may not be needed.
    """
    global _installed_loaded
    if _installed_loaded:
        return
    _installed_loaded = True  # set first: an imported module may look up names itself
    for entry in installed_plugins():
        try:
            entry.load()
        except Exception as error:
            say(f"entry point {entry.name!r} of {GROUP}", f"left out: {_description(error)}")


def _import_file(path: Path, content: bytes, source: str) -> ModuleType:
    """Run a file as a module, under the same name in every process."""
    from importlib.util import module_from_spec, spec_from_file_location

    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"{PREFIX}{path.stem}_{digest}"
    spec = spec_from_file_location(name, path)
    if spec is None:
        raise ConfigurationError(f"plugin {source}: must be a Python file that ends in .py")
    module = module_from_spec(spec)
    earlier = sys.modules.get(name)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module
    try:
        # Compiled here: the loader's bytecode cache misses an edit within the same second.
        exec(compile(content, str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if earlier is not None:
            sys.modules[name] = earlier
        line = [number for file, number in _frames(error) if file == str(path)][-1:]
        where = f"{source}, line {line[0]}" if line else source
        raise ConfigurationError(f"plugin {where}: {_description(error)}") from error
    return module


def _import_module(name: str) -> ModuleType:
    hint = f"did you mean '{name}.py'? " if Path(f"{name}.py").is_file() else ""
    absent = ConfigurationError(
        f"plugin {name!r}: no such module: {hint}give the path of a .py file, or the name of an "
        "installed module"
    )
    if not all(part.isidentifier() for part in name.split(".")):
        raise absent
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise absent from None  # not another module that this one imports
        frames = _frames(error)
        file, line = [frame for frame in frames if not str(frame[0]).startswith("<frozen")][-1]
        raise ConfigurationError(
            f"plugin {name} ({file}, line {line}): {_description(error)}"
        ) from error


def _frames(error: BaseException) -> list[tuple[str | None, int | None]]:
    """Return file and line of every call that led to an error, and of bad syntax, the last."""
    calls: Any = traceback.walk_tb(error.__traceback__)
    frames = [(frame.f_code.co_filename, number) for frame, number in calls]
    return [*frames, (error.filename, error.lineno)] if isinstance(error, SyntaxError) else frames


def _description(error: BaseException) -> str:
    if isinstance(error, EvergraphError):
        return str(error)
    text = error.msg if isinstance(error, SyntaxError) else str(error).strip()
    kind = type(error).__name__
    return f"{kind}: {text.splitlines()[0]}" if text else kind
