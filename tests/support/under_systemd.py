"""A systemd of one's own: runs a unit in namespaces that end with this process.

``python under_systemd.py UNIT COMMAND CONFIG TOKEN``, as root, in a mount and a pid namespace.
Prints what happened as JSON. The manager is that of a user, since a system has one already; what it
cannot do is left out of the unit.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

HOME = Path("/run/own")
LOG = HOME / "log"
# Another user, a home that Python may lie in, and what mounts over /proc, /sys and /dev, which
# a machine that is itself a sandbox does not let us do.
LEFT_OUT = re.compile(
    "^(User|Group|Wants|After|LimitNOFILE|LoadCredential|ProtectHome|ProtectProc|PrivateDevices|"
    "ProtectKernelTunables|ProtectKernelLogs|ProtectControlGroups)=.*\n",
    re.MULTILINE,
)


def main() -> None:
    """Start the unit, kill it, see it come back, stop it."""
    unit, command, config, token = sys.argv[1:]
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    for folder in ("/run/systemd/system", "/run/user/0", f"{HOME}/units", f"{HOME}/config"):
        Path(folder).mkdir(parents=True)
    tokens = HOME / "tokens"
    tokens.write_text(f"write {token}\n")
    tokens.chmod(0o600)
    text = LEFT_OUT.sub("", Path(unit).read_text("utf-8"))
    text = text.replace("/opt/evergraph/bin/evergraph", command)
    text = text.replace("/etc/evergraph/evergraph.toml", f"{config} --port 0")
    text = text.replace("${CREDENTIALS_DIRECTORY}/tokens", str(tokens))
    text = re.sub(r"NUMBA_CACHE_DIR=\S+", f"PYTHONPATH={os.environ['PYTHONPATH']}", text)
    text = text.replace("[Service]", f"[Service]\nStandardError=append:{LOG}")
    (HOME / "units" / "evergraph.service").write_text(text)
    os.environ.update(
        XDG_RUNTIME_DIR="/run/user/0",
        XDG_CONFIG_HOME=f"{HOME}/config",
        XDG_CACHE_HOME=f"{HOME}/cache",
        SYSTEMD_UNIT_PATH=f"{HOME}/units:",
        SYSTEMD_LOG_TARGET="console",
    )
    manager = subprocess.Popen(["/lib/systemd/systemd", "--user", "--unit=basic.target"])
    try:
        sys.stdout.write(json.dumps(_lived(token)) + "\n")
    finally:
        manager.kill()
        manager.wait()


def _lived(token: str) -> dict[str, object]:
    def ask(path: str, body: object = None) -> dict[str, object]:
        data = None if body is None else json.dumps(body).encode()
        url = re.findall(r"listening on (http://[\d.:]+)/", LOG.read_text())[-1]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        with urlopen(Request(url + path, data, headers)) as answer:
            told: dict[str, object] = json.loads(answer.read())
            return told

    until(lambda: ctl("is-system-running") in ("running", "degraded"))
    started = ctl("start", "evergraph.service")  # returns when the service says READY=1
    if started:
        raise RuntimeError(f"{started}{ctl('status', 'evergraph.service')}{LOG.read_text()}")
    facts: dict[str, object] = {"ready": ask("/readyz")["status"]}
    node = {"nodes": ["a"], "features": [[1.0, 0.0]], "labels": ["x"]}
    facts["acknowledged"] = ask("/v1/deltas", node)["seq"]
    facts["status"] = shown("StatusText")
    before = shown("MainPID")
    os.kill(int(before), 9)
    until(lambda: shown("NRestarts") == "1" and shown("ActiveState") == "active")
    facts["kept"] = ask("/v1/status")["seq"]
    facts["another"] = shown("MainPID") != before
    ctl("stop", "evergraph.service")
    names = ("ActiveState", "Result", "ExecMainStatus")
    return facts | {name: shown(name) for name in names}


def ctl(*words: str) -> str:
    done = subprocess.run(["systemctl", "--user", *words], capture_output=True, text=True)
    return (done.stdout + done.stderr).strip()


def shown(name: str) -> str:
    return ctl("show", "evergraph.service", "-p", name, "--value")


def until(true: object, seconds: float = 120.0) -> None:
    late = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        if time.monotonic() > late:
            raise TimeoutError(ctl("status", "evergraph.service"))
        time.sleep(0.2)


if __name__ == "__main__":
    main()
