"""The unit of systemd: what it starts is started, killed, started again and stopped."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

import pytest
import torch

from evergraph.online.delta import Delta
from evergraph.online.folder.recovery import Replaying
from evergraph.server.client import Client
from evergraph.server.startup import Notifier, Starting
from forked_command import Forked
from served import served

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT, TEMPLATE = DEPLOY / "evergraph.service", DEPLOY / "evergraph@.service"
EXECUTABLE = "/opt/evergraph/bin/evergraph"
TOKEN = "w" * 24


def directives(path: Path) -> dict[str, str]:
    pairs = re.findall(r"^(\w+)=(.*)$", path.read_text("utf-8"), re.MULTILINE)
    assert len(dict(pairs)) == len(pairs), "a directive is there twice"
    return dict(pairs)


class Manager:
    """The part of systemd that starts a service: its command, its environment, its socket."""

    def __init__(self, folder: Path) -> None:
        self.said = directives(UNIT)
        self.folder = folder
        for name in ("state", "credentials"):
            (folder / name).mkdir()
        tokens = folder / "credentials" / "tokens"
        tokens.write_text(f"write {TOKEN}\n")
        tokens.chmod(0o400)  # as systemd hands credentials over
        self.port = 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / "notify"))
        self.socket.settimeout(120)

    @property
    def command(self) -> list[str]:
        """The unit's own command, with files and a port of this test."""
        own = {
            "${STATE_DIRECTORY}": str(self.folder / "state"),
            "${CREDENTIALS_DIRECTORY}": str(self.folder / "credentials"),
            "/etc/evergraph/evergraph.toml": str(DEPLOY / "evergraph.toml"),
        }
        line = self.said["ExecStart"]
        for name, value in own.items():
            assert name in line, line
            line = line.replace(name, value)
        first, *others = shlex.split(line)
        assert first == EXECUTABLE
        return [*others, "--port", "0", "--set", "head.width=32"]

    @contextmanager
    def started(self) -> Iterator[Forked]:
        """Start it in a fork, and wait until it says that it is ready."""
        environment = dict(pair.split("=") for pair in self.said["Environment"].split())
        del environment["NUMBA_CACHE_DIR"]  # an empty one would take half a minute to fill
        environment["NOTIFY_SOCKET"] = str(self.folder / "notify")
        environment["WATCHDOG_USEC"] = "3000000"
        process = Forked(*self.command, before=lambda: os.environ.update(environment))
        try:
            self.wait_for("READY=1")
            found = None
            while found is None:  # it has said so before
                found = re.search(r"listening on http://[\d.]+:(\d+)/", process.stderr.readline())
            self.port = int(found[1])
            yield process
        finally:
            process.kill()
            process.wait()

    def wait_for(self, line: str) -> list[str]:
        heard = []
        while line not in heard:
            heard += self.socket.recv(4096).decode().splitlines()
        return heard

    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self.port}", token=TOKEN)


def test_it_starts_is_killed_starts_again_and_stops(tmp_path):
    manager = Manager(tmp_path)
    assert manager.said["Type"] == "notify"
    delta = Delta(nodes=("a", "b"), features=torch.eye(2), labels=("x", "y"), key="first")
    with manager.started() as process:
        assert manager.client().submit(delta)["seq"] == 1
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    assert manager.said["Restart"] == "on-failure"  # so it is started again
    with manager.started() as process:
        assert manager.client().status()["seq"] == 1
        assert manager.client().predict(["a"])[0]["label"] == "x"
        assert manager.client().submit(delta)["seq"] == 1  # it knows the key
        manager.wait_for("WATCHDOG=1")
        process.send_signal(signal.SIGTERM)
        manager.wait_for("STOPPING=1")
        assert process.wait(60) == 0  # which is no failure: it stays stopped
        assert '"message":"stopped: everything acknowledged is on disk"' in (process.stderr.read())


def test_a_long_recovery_is_waited_for(tmp_path):
    over, heard = Event(), []

    def make(progress):
        progress(Replaying(1, 4, 1.0))
        over.wait(30)
        raise ValueError

    waiting = "WATCHDOG=1\nEXTEND_TIMEOUT_USEC=60000000\nSTATUS=recovering: 1 of 4 deltas applied"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        notifier = Notifier(str(tmp_path / "notify"), watchdog=0.12)
        with served(Starting(make, notifier=notifier)):
            while heard.count(waiting) < 3:
                heard.append(manager.recv(4096).decode())
            over.set()
            while not heard[-1].startswith("STOPPING=1"):  # the socket holds few of them
                heard.append(manager.recv(4096).decode())
        manager.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                heard.append(manager.recv(4096).decode())
    after = heard[heard.index("STOPPING=1\nSTATUS=stopping") + 1 :]
    assert set(after) <= {"WATCHDOG=1"}  # it lives until the end
    assert not any("READY" in line for line in heard)


def test_the_unit_reloads_protects_and_never_gives_up_and_the_template_has_a_name():
    said, template = directives(UNIT), directives(TEMPLATE)
    differ = {name for name in said | template if said.get(name) != template.get(name)}
    own = {"Description", "ExecStart", "StateDirectory", "CacheDirectory", "Environment"}
    assert differ == own
    assert all("%i" in template[name] for name in differ)
    assert said["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert said["LoadCredential"] == "tokens:/etc/evergraph/tokens"
    assert (said["ProtectSystem"], said["StateDirectory"]) == ("strict", "evergraph")
    assert said["StartLimitIntervalSec"] == "0"
    assert int(said["TimeoutStopSec"].rstrip("s")) > 60


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", [UNIT, TEMPLATE], ids=["unit", "template"])
def test_systemd_understands_it(unit, tmp_path):
    text = unit.read_text("utf-8").replace(EXECUTABLE, "/bin/true")
    (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / unit.name], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
