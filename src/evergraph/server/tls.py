"""Certificates: the service's own, and those of authorities that a client believes."""

from __future__ import annotations

import ssl
from pathlib import Path

from evergraph.core.errors import ConfigurationError
from evergraph.server.private_file import read_private


class Tls:
    """The service's certificate and its key, as they were when they were last read.

    Args:
        cert: PEM file of the certificate, and of those between it and its authority.
        key: PEM file of its key, open to its owner alone.
        password_file: file whose first line is the key's password, if it has one.

    Attributes:
        context: what a connection that begins now is secured with.
    """

    def __init__(self, cert: Path, key: Path, password_file: Path | None = None) -> None:
        self.cert = cert
        self.key = key
        self.password_file = password_file
        self.context = self.read()

    def read(self) -> ssl.SSLContext:
        """Read the files again; raise one sentence where they do not fit."""
        read_private(self.key, "key of the certificate")
        password = b"" if self.password_file is None else self._password(self.password_file)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
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
