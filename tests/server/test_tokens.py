"""Who may read and write."""

from __future__ import annotations

from pathlib import Path

import pytest

from evergraph.core.errors import ConfigurationError
from evergraph.server.tokens import Tokens, read_tokens

READ, WRITE = "r" * 20, "w" * 20


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_file_lists_scopes_and_secrets(tmp_path: Path) -> None:
    path = written(tmp_path, f"# ours\n\nread {READ}  # of the page\nwrite {WRITE}\n")
    tokens = read_tokens(path)
    assert len(tokens) == 2
    assert tokens.scope_of(READ) == "read"
    assert tokens.scope_of(WRITE) == "write"
    assert tokens.scope_of(READ[:-1]) is None
    assert tokens.scope_of("") is None
    assert tokens.scope_of("é") is None


def test_every_token_is_compared_whatever_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def counted(given: bytes, known: bytes) -> bool:
        compared.append(known)
        return given == known

    monkeypatch.setattr("hmac.compare_digest", counted)
    assert Tokens((("read", READ), ("write", WRITE))).scope_of(READ) == "read"
    assert compared == [READ.encode(), WRITE.encode()]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must list a token"),
        (f"admin {READ}\n", "line 1 must be 'read TOKEN', 'follow TOKEN' or 'write TOKEN'"),
        ("\nread\n", "line 2"),
        ("read short\n", "at least 16 ASCII characters, not 5"),
        (f"read {READ}\nwrite {READ}\n", "one is there twice"),
    ],
)
def test_what_is_no_token_file_is_refused_without_telling_secrets(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ConfigurationError, match="tokens: ") as refused:
        read_tokens(written(tmp_path, text))
    assert said in str(refused.value)
    assert READ not in str(refused.value)
    assert READ not in repr(Tokens((("read", READ),)))


def test_a_file_that_everyone_may_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"mode 0644 .*chmod 600"):
        read_tokens(written(tmp_path, f"read {READ}\n", 0o644))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_tokens(tmp_path / "nothing")
