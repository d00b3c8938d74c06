"""TLS, and what is read again on SIGHUP."""

import http.client
import json
import logging
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from evergraph.cli.app import app
from evergraph.core.errors import ConfigurationError, DataError, ResourceError
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.app import create_app
from evergraph.server.auth import Tls, read_tokens, tls_of
from evergraph.server.client import Client
from evergraph.server.running import Reload, ignore_sighup
from forked import in_a_child
from served import served
from waiting import until

READ, WRITE, OTHER = "r" * 20, "w" * 20, "o" * 20


def certificate(folder: Path, name: str = "cert", *, password: str | None = None) -> Tls:
    """Make a certificate for this machine, signed by itself."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -days 2 -addext"
    words = ["openssl", *request.split(), "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    words += ["-nodes"] if password is None else ["-passout", f"pass:{password}"]
    words += ["-keyout", str(key), "-out", str(cert), "-subj", f"/CN={name}"]
    subprocess.run(words, check=True, capture_output=True)
    key.chmod(0o600)
    if password is None:
        return Tls(cert, key)
    file = folder / f"{name}.password"
    file.write_text(f"{password}\n")
    file.chmod(0o600)
    return Tls(cert, key, file)


async def status(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        return
    place = {"/elsewhere/v1/status": (302, [(b"location", b"http://127.0.0.1:9/v1/status")])}
    code, headers = place.get(scope["path"], (200, []))
    body = json.dumps({"scheme": scope["scheme"]}).encode()
    headers = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def name_of(port: int, ca: Path) -> str:
    context = ssl.create_default_context(cafile=str(ca))
    with (
        socket.create_connection(("127.0.0.1", port), 20) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        found = secured.getpeercert()
        return str(dict(part[0] for part in found["subject"])["commonName"])


def test_a_service_is_asked_through_tls_with_its_own_authority(tmp_path):
    tls = certificate(tmp_path, password="secret")
    assert tls.context.minimum_version == ssl.TLSVersion.TLSv1_2
    with served(status, tls=tls) as (port, _):
        url = f"https://127.0.0.1:{port}"
        assert Client(url, ca=tls.cert).status() == {"scheme": "https"}
        with pytest.raises(ResourceError, match="CERTIFICATE_VERIFY_FAILED"):
            Client(url).status()
        with pytest.raises(DataError, match="elsewhere"):
            Client(f"{url}/elsewhere", ca=tls.cert).status()  # the token must not go along
    with pytest.raises(ConfigurationError, match="https URL, not 'http://"):
        Client("http://127.0.0.1:1", ca=tls.cert)


def test_commands_believe_the_authority_that_is_named(tmp_path, learner):
    tls, made = certificate(tmp_path), tmp_path / "copy"
    folder = LearnerFolder.open(tmp_path / "learner", make=learner)
    folder.submit(Delta(nodes="ab", features=torch.eye(2), labels="xy", edges=(("a", "b"),)))
    with served(create_app(folder), tls=tls) as (port, _):
        url = f"https://127.0.0.1:{port}"
        for words in (["compact", url], ["backup", url, str(made)]):
            refused = CliRunner().invoke(app, words)
            assert "CERTIFICATE_VERIFY_FAILED" in str(refused.exception)
            done = CliRunner().invoke(app, [*words, "--ca", str(tls.cert)], catch_exceptions=False)
            assert done.exit_code == 0, done.output
    assert (made / "evergraph-learner.json").exists()
    with pytest.raises(ConfigurationError, match="--ca is for a service"):
        CliRunner().invoke(app, ["backup", str(made), "x", "--ca", "c"], catch_exceptions=False)


def test_certificates_that_do_not_do_are_one_sentence(tmp_path):
    tls = certificate(tmp_path, password="secret")
    with pytest.raises(ConfigurationError, match="belong together"):
        Tls(tls.cert, tls.key)  # which asks nobody at the terminal for the password
    for spoil, said in (
        (lambda: tls.key.chmod(0o640), "must be readable by its owner only, and mode 0640"),
        (lambda: tls.key.chmod(0o600) or tls.cert.write_text("nothing"), "must be PEM files that"),
        (tls.key.unlink, "cannot be read"),
    ):
        spoil()
        with pytest.raises(ConfigurationError, match=said):
            Tls(tls.cert, tls.key, tls.password_file)
    with pytest.raises(ConfigurationError, match="must be given together"):
        tls_of(tls.cert, None)


def test_what_is_wrong_changes_nothing(tmp_path, caplog):
    tls, path = certificate(tmp_path), tmp_path / "tokens"
    path.write_text(f"read {READ}\n")
    path.chmod(0o600)
    tokens = read_tokens(path)
    reload = Reload(path, tokens, tls)
    path.write_text(f"read {OTHER}\n")
    kept, good = tls.context, tls.cert.read_text()
    tls.cert.write_text("nothing")
    with caplog.at_level(logging.INFO, logger="evergraph"):
        reload()
        assert (tokens.scope_of(READ), tls.context) == ("read", kept)
        assert "nothing was reloaded: " in caplog.text
        tls.cert.write_text(good)
        reload()
        assert (tokens.scope_of(READ), tokens.scope_of(OTHER)) == (None, "read")
        assert "reloaded 1 tokens and the certificate" in caplog.text
        Reload()()
        assert "there is nothing to reload" in caplog.text


def ask(port: int, ca: Path, token: str) -> int:
    context = ssl.create_default_context(cafile=str(ca))
    line = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    line.request("GET", "/v1/ids", headers={"Authorization": f"Bearer {token}"})
    found = line.getresponse().status
    line.close()
    return found


@pytest.mark.slow
def test_a_process_takes_other_secrets_on_sighup(tmp_path):
    tls, path = certificate(tmp_path), tmp_path / "tokens"
    path.write_text(f"read {READ}\nwrite {WRITE}\n")
    path.chmod(0o600)
    arguments = [sys.executable, "-m", "evergraph.cli.app", "serve", str(tmp_path / "learner")]
    arguments += ["--port", "0", "--set", "head.width=32"]
    arguments += ["--token-file", str(path), "--tls-cert", str(tls.cert), "--tls-key", str(tls.key)]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    try:
        lines = iter(process.stderr)
        port = int(_found(lines, r"listening on https://127\.0\.0\.1:(\d+)/"))
        assert {ask(port, tls.cert, READ) for _ in range(6)} == {200}
        body = {"nodes": ["a"], "features": [[1.0]], "labels": ["x"]}
        line = Client(f"https://127.0.0.1:{port}", token=WRITE, ca=tls.cert)
        assert line._ask("/v1/upsert", json.dumps(body).encode())["seq"] == 1
        path.write_text(f"read {OTHER}\n")
        other = certificate(tmp_path, "other")
        other.cert.replace(tls.cert)
        other.key.replace(tls.key)
        process.send_signal(signal.SIGHUP)
        _found(lines, r"reloaded 1 tokens and (the) certificate")
        until(lambda: {ask(port, tls.cert, READ) for _ in range(8)} == {401})
        assert {ask(port, tls.cert, OTHER) for _ in range(8)} == {200}
        assert {name_of(port, tls.cert) for _ in range(8)} == {"other"}
        path.write_text("nonsense\n")
        process.send_signal(signal.SIGHUP)
        _found(lines, r"nothing was (reloaded): .*tokens: line 1 must be")
        assert ask(port, tls.cert, OTHER) == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_process_that_is_starting_outlives_sighup():
    def start():
        ignore_sighup()
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.05)

    assert in_a_child(start).code == 0


def _found(lines: Iterator[str], pattern: str) -> str:
    seen = []
    deadline = time.monotonic() + 90
    for line in lines:
        seen.append(line)
        if match := re.search(pattern, line):
            return match[1]
        assert time.monotonic() < deadline, seen
    raise AssertionError(f"{pattern} is not in {seen}")
