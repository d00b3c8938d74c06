"""Work in a child of this process, which has imported what it needs: a new one takes seconds."""

import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from tempfile import TemporaryFile


@dataclass(frozen=True)
class Ended:
    """How a child ended, and what it wrote."""

    code: int
    out: str
    err: str


def in_a_child(work: Callable[[], object]) -> Ended:
    """Do something in a fork of this process, and wait for its end."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        child = begun(work, out=out.fileno(), err=err.fileno())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        return Ended(code, out.read(), err.read())


def begun(work: Callable[[], object], *, out: int = 1, err: int = 2) -> int:
    """Begin something in a fork that writes to these files; return the number of its process."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = (os.fdopen(file, "w", closefd=False) for file in (1, 2))
        work()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
