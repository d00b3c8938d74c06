"""The files for nginx and Caddy are taken by them, and a request passes through."""

import http.client
import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.learner import OnlineLearner
from evergraph.server.app import create_app
from evergraph.server.auth import Tokens
from served import served

DEPLOY = Path(__file__).parents[2] / "deploy"
WRITE = "w" * 20
FIRST = {"nodes": ["a", "b"], "features": [[1.0, 0.0], [0.0, 1.0]], "labels": ["x", "y"]}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[int]:
    """A service that believes a proxy on this machine, and its port."""
    folder = LearnerFolder.open(tmp_path / "learner", make=OnlineLearner)
    app = create_app(folder, tokens=Tokens((("write", WRITE),)))
    with served(app, proxies=["127.0.0.1"]) as (port, _):
        yield port


@contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield
    finally:
        process.send_signal(signal.SIGQUIT if "nginx" in command[0] else signal.SIGTERM)
        process.wait(30)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def ask(port: int, path: str, body: Any = None) -> tuple[int, Any, Any]:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Authorization": f"Bearer {WRITE}", "Content-Type": "application/json"}
    line.request("GET" if body is None else "POST", path, body and json.dumps(body), headers)
    answer = line.getresponse()
    told = answer.read()
    line.close()
    return answer.status, told, answer.headers


def passes(port: int) -> None:
    """Check that changes, questions, backups and the page come through."""
    assert ask(port, "/v1/deltas", FIRST)[0] == 200
    status, told, headers = ask(port, "/v1/predictions", {"ids": ["a"]})
    assert (status, json.loads(told)["predictions"][0]["label"]) == (200, "x")
    assert headers["x-request-id"]
    assert ask(port, "/v1/backup")[1][257:262] == b"ustar"
    assert ask(port, "/healthz")[0] == ask(port, "/")[0] == 200
    status, told, _ = ask(port, "/metrics")
    assert 'evergraph_requests_total{route="/v1/deltas",status="200"} 1.0' in told.decode()


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx(service, tmp_path):
    port = free_port()
    text = (DEPLOY / "nginx.conf").read_text("utf-8")
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{service}")
    text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    text = re.sub(r"^ +ssl_certificate.*\n", "", text, flags=re.MULTILINE)
    made = tmp_path / "nginx.conf"
    paths = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    made.write_text(
        f"daemon off;\npid {tmp_path}/pid;\nerror_log {tmp_path}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{paths}{text}}}\n"
    )
    command = [str(shutil.which("nginx")), "-p", str(tmp_path), "-c", str(made)]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    with running(command, port):
        passes(port)
        held = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(60)]
        for line in held:  # one address has its share
            line.sendall(b"POST /v1/deltas HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{")
        assert all(line.recv(12) == b"HTTP/1.1 503" for line in held[-5:])
        for line in held:
            line.close()


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_the_page_shows_how_to_try_nginx(service, tmp_path):
    page = (DEPLOY.parent / "docs" / "service.md").read_text("utf-8")
    block = re.split(r"^    (?=mkdir proxy$)", page, flags=re.MULTILINE)[1].split("\n\n")[0]
    began, stopped = block.replace("8443", str(port := free_port())).split("    evergraph predict")
    (tmp_path / "deploy").mkdir()
    text = (DEPLOY / "nginx.conf").read_text("utf-8")
    (tmp_path / "deploy" / "nginx.conf").write_text(text.replace(":8000", f":{service}"))
    try:
        subprocess.run(["bash", "-e", "-c", began], cwd=tmp_path, check=True, capture_output=True)
        believed = ssl.create_default_context(cafile=str(tmp_path / "proxy" / "cert.pem"))
        line = http.client.HTTPSConnection("localhost", port, timeout=30, context=believed)
        line.request("GET", "/v1/status", headers={"Authorization": f"Bearer {WRITE}"})
        assert line.getresponse().status == 200
        line.close()
    finally:
        stop = stopped.split("\n", 1)[1]
        subprocess.run(["bash", "-e", "-c", stop], cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("caddy") is None, reason="Caddy is not installed")
def test_caddy(service, tmp_path):
    port = free_port()
    text = (DEPLOY / "Caddyfile").read_text("utf-8")
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{service}")
    text = text.replace("evergraph.example {", f"http://127.0.0.1:{port} {{")
    text = text.replace("{\n\tservers {", "{\n\tadmin off\n\tservers {", 1)
    made = tmp_path / "Caddyfile"
    made.write_text(text)
    command = [str(shutil.which("caddy"))]
    checked = subprocess.run(
        [*command, "validate", "--adapter", "caddyfile", "--config", str(made)],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr
    run = [*command, "run", "--adapter", "caddyfile", "--config", str(made)]
    with running(run, port):
        passes(port)


@pytest.mark.parametrize("name", ["nginx.conf", "Caddyfile"])
def test_every_change_goes_to_the_process_that_writes(name, tmp_path):
    told = (DEPLOY / name).read_text()
    with LearnerFolder.open(tmp_path / "learner", make=OnlineLearner) as folder:
        paths = create_app(folder).openapi()["paths"]
    changes = {
        path for path, ways in paths.items() if ways.get("post", {}).get("tags") == ["learn"]
    }
    assert changes > {"/v1/deltas", "/v1/refit"}
    named = re.search(r"/v1/\(([a-z|]+)\)|@writer path (.+)", told)
    assert changes | {"/v1/compact", "/v1/keys"} <= {
        f"/v1/{word.removeprefix('/v1/')}" for word in re.split(r"[| ]", named[1] or named[2])
    }
    assert re.search(r"~\^DELETE/ +evergraph_writer;|@deletes method DELETE", told)
