"""Who may read and write, and how often."""

import os
from pathlib import Path

import pytest

from evergraph.core.errors import ConfigurationError
from evergraph.server import auth as module
from evergraph.server.auth import Buckets, Tokens, read_tokens

READ, WRITE = "r" * 20, "w" * 20


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_file_lists_scopes_and_secrets(tmp_path, monkeypatch):
    path = written(tmp_path, f"# ours\n\nread {READ}  # of the page\nwrite {WRITE}\n")
    tokens = read_tokens(path)
    assert len(tokens.listed) == 2
    found = [tokens.scope_of(token) for token in (READ, WRITE, READ[:-1], "", "é")]
    assert found == ["read", "write", None, None, None]
    compared = []

    def counted(given, known):
        compared.append(known)
        return given == known

    monkeypatch.setattr("hmac.compare_digest", counted)
    assert tokens.scope_of(READ) == "read"
    assert compared == [READ.encode(), WRITE.encode()]  # whatever is found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must list a token"),
        (f"admin {READ}\n", "line 1 must be 'read TOKEN', 'follow TOKEN' or 'write TOKEN'"),
        ("\nread\n", "line 2"),
        ("read short\n", "at least 16 ASCII characters, not 5"),
        (f"read {READ}\nwrite {READ}\n", "every token must be listed once"),
    ],
)
def test_what_is_no_token_file_is_refused_without_telling_secrets(tmp_path, text, said):
    with pytest.raises(ConfigurationError, match="tokens: ") as refused:
        read_tokens(written(tmp_path, text))
    assert said in str(refused.value)
    assert READ not in str(refused.value)
    assert READ not in repr(Tokens((("read", READ),)))


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o640, 0o660, 0o610, 0o602])
def test_a_file_that_others_may_read_is_refused(tmp_path, mode):
    with pytest.raises(ConfigurationError, match=rf"mode {mode:04o} .*chmod 600"):
        read_tokens(written(tmp_path, f"read {READ}\n", mode))


def test_a_group_may_read_what_root_hands_to_a_service(tmp_path, monkeypatch):
    """As systemd does with credentials, and Kubernetes with secrets and an fsGroup."""
    path = written(tmp_path, f"read {READ}\n", 0o440)
    monkeypatch.setattr("os.geteuid", lambda: path.stat().st_uid + 1)
    if path.stat().st_uid == 0:
        assert len(read_tokens(path).listed) == 1
    for mode in (0o460, 0o444):
        path.chmod(mode)
        with pytest.raises(ConfigurationError, match="must be readable by its owner only"):
            read_tokens(path)


def test_what_is_no_plain_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "link").symlink_to(written(tmp_path, f"read {READ}\n"))
    for name in ("pipe", "."):
        with pytest.raises(ConfigurationError, match=r"must be a plain file|cannot be read"):
            read_tokens(tmp_path / name)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_tokens(tmp_path / "nothing")
    assert len(read_tokens(tmp_path / "link").listed) == 1  # as Kubernetes lays them


def test_a_burst_then_the_rate(monkeypatch):
    now = [100.0]
    buckets = Buckets(rate=2.0, burst=3, clock=lambda: now[0])
    assert [buckets.take("me") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("you") == 0.0
    now[0] += 0.25
    assert buckets.take("me") == 0.25
    now[0] += 0.25
    assert [buckets.take("me"), buckets.take("me")] == [0.0, 0.5]
    now[0] += 1000  # a bucket holds no more than a burst
    assert [buckets.take("me") > 0 for _ in range(4)] == [False, False, False, True]
    monkeypatch.setattr(module, "MAX_CALLERS", 3)  # callers that went are forgotten
    for caller in ("a", "me", "you", "d"):
        buckets.take(caller)
    assert set(buckets._left) == {"me", "you", "d"}
    assert buckets.take("me") > 0
