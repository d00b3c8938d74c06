"""A service of one's own to attack, to kill and to start again, and what it answers.

Its memory is bounded, so that an attack that fills it harms nobody else on the machine.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import http.client
import json
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from evergraph.server.http import ARROW, JSON

NGINX = Path(__file__).resolve().parents[2] / "deploy" / "nginx.conf"
OPERATOR = "operator-token-000000000"  # of who looks after the service
VICTIM = "victim-token-00000000000"
ATTACKER = "attacker-token-000000000"
WAIT = 300.0  # seconds for a start, recovery included


def write_tokens(path: Path) -> Path:
    """Write down who may do what, for all who take part."""
    rights = dict.fromkeys((OPERATOR, VICTIM, ATTACKER), "write")
    path.write_text("".join(f"{right} {token}\n" for token, right in rights.items()))
    path.chmod(0o600)
    return path


@contextlib.contextmanager
def behind_nginx(port: int, place: Path) -> Iterator[int]:
    """Have nginx listen in front of a service, as ``deploy/nginx.conf`` says; yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        front: int = free.getsockname()[1]
    text = NGINX.read_text("utf-8").replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{front};")
    text = re.sub(r"^ +ssl_certificate.*\n", "", text, flags=re.MULTILINE)
    place.mkdir()
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {place}/{kind};\n" for kind in kinds)
    made = place / "nginx.conf"
    made.write_text(
        # Its workers must be able to write below a temporary folder, which is ours alone.
        f"user {getpass.getuser()};\ndaemon off;\npid {place}/pid;\nerror_log {place}/error.log;\n"
        f"events {{ worker_connections 4096; }}\nhttp {{\naccess_log off;\n{paths}{text}}}\n"
    )
    process = subprocess.Popen(["nginx", "-p", str(place), "-c", str(made)])
    time.sleep(0.5)
    try:
        yield front
    finally:
        process.terminate()
        process.wait()


def started(script: str, *more: str, **options: object) -> subprocess.Popen[str]:
    """Start a client, a script of this folder, with these options."""
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, str(Path(__file__).with_name(script)), *words, *more]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


class OwnService:
    """``evergraph serve`` on a folder, in a process of its own.

    Args:
        folder: the learner's; new where there is none.
        options: of the command, besides folder and port.
        memory: bytes that it may hold.
    """

    def __init__(
        self, folder: Path, options: Sequence[str] = (), *, memory: int | None = None
    ) -> None:
        self.folder = folder
        self.log = folder.with_name(f"{folder.name}.log")
        self._memory = memory
        self._options = [*options, "--rate", "1000000"]
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]  # the same after every start
        self.start()

    def start(self, *, wait: bool = True) -> float:
        """Start it; return how many seconds passed until it was ready."""
        command = [
            sys.executable,
            "-m",
            "evergraph.cli.app",
            "serve",
            str(self.folder),
            "--port",
            str(self.port),
            "--token-file",
            str(write_tokens(self.log.with_suffix(".tokens"))),
            *self._options,
        ]
        begun = time.perf_counter()
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command, stderr=log, stdout=subprocess.DEVNULL, preexec_fn=self._bounded
            )
        self.watched = psutil.Process(self.process.pid)
        if wait:
            self.wait_until_ready()
        return time.perf_counter() - begun

    def _bounded(self) -> None:
        if self._memory is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (self._memory, self._memory))

    def wait_until_ready(self, seconds: float = WAIT) -> None:
        """Return when it has caught up with its journal and takes requests."""
        late = time.monotonic() + seconds
        while time.monotonic() < late and self.alive:
            if self.is_ready():
                return
            time.sleep(0.02)
        raise RuntimeError(f"the service did not start: {self.log.read_text()[-2000:]}")

    def is_ready(self) -> bool:
        """Whether it says so; where it has no way to say it, whether it tells its status."""
        try:
            status, _ = self.ask("/readyz")
            if status == 404:
                status, _ = self.ask("/v1/status")
            return status == 200
        except (OSError, http.client.HTTPException):
            return False

    def end(self, sig: int = signal.SIGTERM) -> float:
        """Send a signal and wait for the end; return how many seconds that took."""
        begun = time.perf_counter()
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        return time.perf_counter() - begun

    @property
    def alive(self) -> bool:
        """Whether its process is there."""
        return self.process.poll() is None

    def _pids(self) -> list[int]:
        """Return its processes, those that it has started too."""
        try:
            return [self.process.pid, *(c.pid for c in self.watched.children(recursive=True))]
        except psutil.NoSuchProcess:
            return []

    def reset_peak(self) -> None:
        """Count the highest resident size from here on."""
        for pid in self._pids():
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    def memory(self) -> tuple[int, int]:
        """Return the resident size now, and at its highest, of all its processes; 0 if it is gone.

        The highest of each counts, though they may not have been at the same time.
        """
        now = most = 0
        for pid in self._pids():
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text()
                found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", status, re.MULTILINE))
                now += 1024 * int(found.get("VmRSS", 0))
                most += 1024 * int(found.get("VmHWM", 0))
        return now, most

    def work(self) -> float:
        """Return the seconds of processor time that its processes have taken."""
        taken = 0.0
        for pid in self._pids():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = psutil.Process(pid).cpu_times()
                taken += times.user + times.system
        return taken

    def handles(self) -> tuple[int, int]:
        """Return how many files are open, and how many threads there are."""
        files = Path(f"/proc/{self.process.pid}/fd").iterdir()
        return len(list(files)), self.watched.num_threads()

    def ask(
        self,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        key: str | None = None,
        token: str = OPERATOR,
        seconds: float = 60.0,
    ) -> tuple[int, Any]:
        """Return status and answer of one request; bytes are sent as Arrow, others as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            headers = {"Authorization": f"Bearer {token}"}
            headers |= {} if key is None else {"Idempotency-Key": key}
            if body is None:
                connection.request("GET", path, headers=headers)
            else:
                kind = ARROW if isinstance(body, bytes) else JSON
                sent = body if isinstance(body, bytes) else json.dumps(body).encode()
                connection.request("POST", path, sent, headers | {"Content-Type": kind})
            answer = connection.getresponse()
            told = answer.read()
            is_json = answer.headers.get("content-type", "").startswith(JSON)
            return answer.status, json.loads(told) if is_json else told
        finally:
            connection.close()

    def fingerprint(self, ids: Sequence[int | str]) -> str:
        """Return what it knows and how it predicts some nodes, in a few characters."""
        status, known = self.ask("/v1/status")
        assert status == 200, known
        kept = {name: known[name] for name in ("seq", "nodes", "edges", "classes", "labelled")}
        predicted: list[Any] = []
        for start in range(0, len(ids), 50):
            asked = {"ids": list(ids[start : start + 50]), "all": True}
            status, told = self.ask("/v1/predictions", asked)
            assert status == 200, told
            predicted.append(told["predictions"])
        text = json.dumps([kept, predicted], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()
