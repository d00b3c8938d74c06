"""``evergraph book`` and ``evergraph submit`` as a user meets them."""

from __future__ import annotations

from typing import Any

import pytest


def test_what_is_missing_is_listed(call: Any) -> None:
    out, err = call("book", "--only", "tem,slda,noise-2,actor,class-il", "--list")
    assert out.splitlines() == [
        "slda on noise-2, class-il",
        "tem on noise-2, class-il",
        "2 rows are missing, 0 are there",
    ]
    assert "left out: actor.npz: no folder was given with --data" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["book", "--only", "temm"], "error: unknown method, dataset or setting 'temm'"),
        (
            ["book", "--data", "nowhere"],
            "error: --data must be a folder that is there",
        ),
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
