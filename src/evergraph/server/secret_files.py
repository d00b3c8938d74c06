"""Files that hold secrets, and certificates: one's own, and those that a client believes."""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path

from evergraph.core.errors import ConfigurationError

LARGEST = 1_000_000  # bytes


def read_private(path: Path, called: str) -> bytes:
    """Return what a file of secrets holds; refuse one that others could have read.

    Its group may read it only where it belongs to root and this process does not run as root: that
    is how systemd and Kubernetes hand secrets to a service. A link is followed, and what it leads
    to is looked at.

    called: what the file is, for a sentence.
    """
    try:
        # A pipe would keep us waiting for whoever writes to it.
        opened = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(opened, "rb") as file:
            found = os.fstat(file.fileno())
            _check_plain(path, called, found)
            _check_mode(path, called, found)
            return file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: the {called} cannot be read ({error})") from error


def _check_plain(path: Path, called: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigurationError(f"{path}: the {called} must be a plain file")
    if found.st_size > LARGEST:
        raise ConfigurationError(
            f"{path}: the {called} must have at most {LARGEST} bytes, not {found.st_size}"
        )


def _check_mode(path: Path, called: str, found: os.stat_result) -> None:
    if os.name != "posix":
        return
    mode = stat.S_IMODE(found.st_mode)
    handed_out = found.st_uid == 0 and os.geteuid() != 0
    if mode & (0o037 if handed_out else 0o077):
        who = "everyone" if mode & stat.S_IRWXO else "its group"
        raise ConfigurationError(
            f"{path}: the {called} must be open to its owner alone, and mode {mode:04o} opens it "
            f"to {who}: chmod 600 {path}"
        )


class Tls:
    """The service's certificate and its key, as they were when they were last read.

    Args:
        cert: PEM file of the certificate, and of those between it and its authority.
        key: PEM file of its key, open to its owner alone.
        password_file: file whose first line is the key's password, if it has one.

    Attributes:
        context: what connections are secured with; the same object for good.
    """

    def __init__(self, cert: Path, key: Path, password_file: Path | None = None) -> None:
        self.cert = cert
        self.key = key
        self.password_file = password_file
        self.context = self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def renew(self) -> None:
        """Read the files again, for connections that begin from now on.

        Where they do not fit one sentence is raised, and nothing has changed.
        """
        self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        self._loaded(self.context)

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        read_private(self.key, "key of the certificate")
        password = b"" if self.password_file is None else self._password(self.password_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        try:
            # A password is always given: without one, OpenSSL would ask for it at the terminal.
            context.load_cert_chain(self.cert, self.key, password)
        except (OSError, ValueError) as error:  # ssl.SSLError is one
            raise ConfigurationError(
                f"{self.cert}, {self.key}: the certificate and its key must be PEM files that "
                f"belong together ({error})"
            ) from None
        return context

    def _password(self, path: Path) -> bytes:
        lines = read_private(path, "password of the certificate's key").splitlines()
        return lines[0].strip() if lines else b""


def tls_of(cert: Path | None, key: Path | None, password_file: Path | None = None) -> Tls | None:
    """Return what was asked for: None without a certificate.

    >>> tls_of(None, None) is None
    True
    """
    if cert is not None and key is not None:
        return Tls(cert, key, password_file)
    if cert is not None or key is not None or password_file is not None:
        raise ConfigurationError("--tls-cert and --tls-key must be given together")
    return None


def believing(ca: Path | None) -> ssl.SSLContext:
    """Return how a client checks certificates.

    ca: PEM file of the authority that it believes in place of the system's; None: those.
    """
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(
            f"{ca}: the file of the authority must hold certificates as PEM ({error})"
        ) from None
