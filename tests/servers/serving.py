"""A server of the standard library, in a thread of the tests."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from socketserver import BaseServer, TCPServer
from typing import TypeVar

Server = TypeVar("Server", bound=BaseServer)


@contextmanager
def serving(server: Server) -> Generator[Server]:
    """Serve until the end of the block, then close."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def encrypt(server: TCPServer, home: Path) -> Path:
    """Let a server speak TLS as 127.0.0.1 and 0.0.0.0; return its certificate, which a client has to trust."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a server of the tests")])
    hosts = [x509.IPAddress(ipaddress.ip_address(host)) for host in ("127.0.0.1", "0.0.0.0")]
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    trusted, private = home / "trusted.pem", home / "private.pem"
    trusted.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(trusted, private)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return trusted
