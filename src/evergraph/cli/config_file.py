"""Options of a command from a TOML file; what is typed wins."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import typer

from evergraph.core.errors import ConfigurationError, UnknownNameError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TYPED_ONLY = ("config", "check_config", "help")  # these make no sense in a file


def use_file(context: typer.Context, path: Path | None) -> Path | None:
    """Take the options of a file for defaults: the callback of an eager option ``--config``."""
    if path is not None and not context.resilient_parsing:
        context.default_map = options_in(path, context.command)
    return path


def options_in(path: Path, command: Any) -> dict[str, Any]:
    """Return the values of a file by the names of a command's parameters."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read as TOML ({error})") from error
    names, kinds = option_names(command), get_type_hints(inspect.unwrap(command.callback))
    found: dict[str, Any] = {}
    for key, value in values.items():
        plain = key.replace("_", "-")
        if plain not in names:
            raise UnknownNameError(f"option in {path}", key, names)
        if names[plain] in found:
            raise ConfigurationError(f"{path}: {plain} must be there once, not twice")
        _check_kind(path, key, value, kinds[names[plain]])
        found[names[plain]] = value
    return found


def option_names(command: Any) -> dict[str, str]:
    """Return what options are called in a file, and the parameters that they are."""
    return {
        option.removeprefix("--"): parameter.name
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--") and parameter.name not in TYPED_ONLY
    }


def _check_kind(path: Path, key: str, value: object, kind: Any) -> None:
    """Raise unless a value is of the kind that its option takes."""
    rule, fits = _rule(kind, value)
    if not fits:
        raise ConfigurationError(
            f"{path}: {key} must be {rule}, not {json.dumps(value, default=str)}"
        )


def _rule(kind: Any, value: object) -> tuple[str, bool]:
    """Return what an option takes, for a sentence, and whether a value is that.

    >>> _rule(int | None, "8000"), _rule(list[str], ["a=1"])
    (('a whole number', False), ('a list of strings', True))
    """
    kinds = {each for each in get_args(kind) if each is not type(None)} or {kind}
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if get_origin(kind) is list:
        is_list = isinstance(value, list) and all(isinstance(part, str) for part in value)
        return "a list of strings", is_list
    if bool in kinds:
        return "true or false", isinstance(value, bool)
    if float in kinds:
        return "a number", number
    if int in kinds:
        return "a whole number", number and isinstance(value, int)
    return "a string", isinstance(value, str)


def shown(context: typer.Context) -> str:
    """Return all options as a file would have them; those that are not set as comments."""
    values = context.params
    return "\n".join(
        _line(option, values[name]) for option, name in option_names(context.command).items()
    )


def _line(option: str, value: Any) -> str:
    """Return a line of TOML.

    >>> _line("host", "127.0.0.1"), _line("scratch", None)
    ('host = "127.0.0.1"', '# scratch is not set')
    """
    if value is None:
        return f"# {option} is not set"
    if isinstance(value, (list, tuple)):
        return f"{option} = {json.dumps([*map(str, value)], ensure_ascii=False)}"
    if isinstance(value, (bool, int, float)):
        return f"{option} = {json.dumps(value)}"
    return f"{option} = {json.dumps(str(value), ensure_ascii=False)}"
