"""``evergraph submit`` as a user meets it."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["reproduce", "paper", "--from", "nowhere"],
            "error: --from must be a folder",
        ),
        (["submit", "nowhere"], "error: nowhere is no results folder: it has no config.toml"),
        (["submit", "nowhere", "--check"], "error: nowhere is no book: there is no such folder"),
    ],
)
def test_what_is_wrong_is_one_sentence(call: Any, arguments: list[str], sentence: str) -> None:
    _, err = call(*arguments, expect=2)
    assert err.splitlines()[-1].startswith(sentence)


def test_a_run_is_submitted_once(call: Any) -> None:
    run = ["run", "--dataset", "synthetic", "--set", "dataset.homophily=0.7", "--method", "slda"]
    run += ["--set", "stream.split_seed=run", "--seeds", "3", "--device", "cpu", "--out", "mine"]
    call(*run)
    out, _ = call("submit", "mine", "--check", "--commit", "abc")
    assert out == "mine: sound: it would be book/homophily-0.7/class-il/slda.json\n"
    call("submit", "mine", "--commit", "abc")
    out, _ = call("submit", "--check", "book")
    assert out == "book: 1 rows are sound, 0 of them say why they failed\n"
    _, err = call("submit", "mine", expect=2)
    assert "is there already" in err
