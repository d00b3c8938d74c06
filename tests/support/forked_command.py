"""``evergraph ...`` in a fork of this process, to be sent signals: a new one takes seconds."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from evergraph.cli.app import main
from forked import begun
from waiting import until


class Forked:
    """A command that runs on its own, with what ``subprocess.Popen`` has of the same names.

    Args:
        arguments: of the command.
        cwd: where it runs.
        before: called in the fork before the command.
        session: whether it leads a session of its own.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path | None = None,
        before: Callable[[], object] = lambda: None,
        session: bool = False,
    ) -> None:
        def work() -> None:
            # A job in the background of a shell inherits SIGINT ignored, and would never see it.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if session:
                os.setsid()
            os.chdir(cwd or ".")
            before()
            sys.argv = ["evergraph", *arguments]
            main()

        read, write = os.pipe()
        with Path(os.devnull).open("w") as nowhere:
            self.pid = begun(work, out=nowhere.fileno(), err=write)
        os.close(write)
        self.stderr = os.fdopen(read, encoding="utf-8")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, timeout: float = 60) -> int | None:
        until(lambda: self.poll() is not None, seconds=timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
        self.wait()
