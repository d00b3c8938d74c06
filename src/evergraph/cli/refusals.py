"""What the command line answers to words that it cannot read: one sentence, as all our errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evergraph.core.errors import ConfigurationError, did_you_mean
from evergraph.core.resolver import declared_parts


def is_refusal(error: Exception) -> bool:
    """Whether an error is typer's own; by its looks, for newer typers have a click of their own."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def refusal(error: Any) -> str:
    """Return one sentence for an error of typer's."""
    context = getattr(error, "ctx", None)
    where = "evergraph" if context is None else context.command_path
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        known = [] if context is None else [o for p in context.command.params for o in p.opts]
        said = f"no such option {error.option_name!r}: {did_you_mean(error.option_name, known)}"
        return f"{said}{where} --help lists all"
    # Typer writes lists over several lines, and says of some sentences what raised them.
    said = " ".join(error.format_message().split()).replace("Value error, ", "").rstrip(".")
    return f"{said[:1].lower()}{said[1:]}; {where} --help tells more"


def extra_arguments(command: str, extra: Sequence[str]) -> ConfigurationError:
    """Return what to say to arguments for which a command has no place.

    >>> str(extra_arguments("run", ["tem"]))
    "run takes no argument 'tem': did you mean --method tem? evergraph run --help lists all options"
    """
    hint = f"did you mean {_option(extra[0])} {extra[0]}? " if command == "run" else ""
    return ConfigurationError(
        f"{command} takes no {'further ' if command != 'run' else ''}argument {extra[0]!r}: "
        f"{hint}evergraph {command} --help lists all options"
    )


def _option(word: str) -> str:
    """Return the option of ``run`` that a word was probably meant for."""
    from evergraph.experiments.presets import presets

    if word.endswith(".toml") or word in presets():
        return "--preset"
    if word.endswith(".py"):
        return "--plugin"
    names = set(declared_parts("methods", "methods"))
    return "--method" if names & set(word.split(",")) else "--dataset"
