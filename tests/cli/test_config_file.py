"""``evergraph serve --config``: options from a file."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from evergraph.cli.app import _load
from evergraph.cli.serve_command import option_names, options_in

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Call = Callable[..., tuple[str, str]]
EXAMPLE = Path(__file__).parents[2] / "deploy" / "evergraph.toml"


def checked(call: Call, text: str, *typed: str, expect: int = 0) -> tuple[str, str]:
    Path("c.toml").write_text(text, "utf-8")
    return call("serve", "l", "--config", "c.toml", "--check-config", *typed, expect=expect)


def test_what_is_typed_wins_over_the_file_and_the_file_over_the_default(call):
    text = 'port = 8123\nbody_limit = "1MB"\nset = ["head.width=32"]\naccess-log = true\nrate = 5\n'
    out, err = checked(call, text, "--rate", "7")
    used = tomllib.loads(out)  # what it says can be given again
    assert err == ""
    assert (used["port"], used["body-limit"], used["rate"]) == (8123, "1MB", 7)
    assert (used["set"], used["access-log"], used["timeout"]) == (["head.width=32"], True, 30.0)
    assert "scratch" not in used
    assert not Path("l").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 1", "unknown option in c.toml 'prot': did you mean 'port'?"),
        ('port = "x"', "--port"),
        ("port = 70000", "--port"),
        ("timeout = []", "--timeout"),
        ('set = "head.width=32"', "--set"),
        ("key-age = 1\nkey_age = 2", "c.toml: key-age must be given once, not twice"),
        ("[serve]\nport = 1", "unknown option in c.toml 'serve'"),
        ('config = "d.toml"', "unknown option in c.toml 'config'"),
        ("port", "c.toml: cannot be read as TOML"),
        ("rate = 0", "rate must be a number"),
    ],
)
def test_what_is_wrong_is_one_sentence(call, text, said):
    out, err = checked(call, text, expect=2)
    assert said in err
    assert (out, err.count("\n")) == ("", 1)


def test_a_file_that_is_not_there_is_one_sentence(call):
    _, err = call("serve", "l", "--config", "nowhere.toml", expect=2)
    assert err.startswith("error: nowhere.toml: cannot be read")


def test_the_example_names_every_option_and_no_other():
    serve = _load("serve")
    text = EXAMPLE.read_text("utf-8")
    assert options_in(EXAMPLE, serve)["log_format"] == "json"
    every = tomllib.loads(re.sub(r"^# (?=[a-z-]+ = )", "", text, flags=re.MULTILINE))
    assert set(every) == set(option_names(serve))


def test_the_example_shows_defaults(call, tmp_path):
    def used(*typed):
        return tomllib.loads(call("serve", "l", *typed, "--check-config")[0])

    with_file, without = used("--config", str(EXAMPLE)), used()
    assert {k: v for k, v in with_file.items() if without[k] != v} == {"log-format": "json"}
