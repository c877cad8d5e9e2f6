"""What a server sees of the machine where tasks log in as they say: TLS and files."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from anabranch.kernel.values import Answer
from anabranch.work.kind_options import SqlOptions
from anabranch.work.sql.postgres import Postgres
from hangs import HANG_SECONDS

from ..support import fault_of, perform, task

pytest.importorskip("psycopg")
pytest.importorskip("cryptography")


def certificate(folder: Path) -> tuple[Path, Path]:
    """Of nobody, signed by itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "house")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    crt, own = folder / "postgresql.crt", folder / "postgresql.key"
    crt.write_bytes(made.public_bytes(pem))
    own.write_bytes(text)
    own.chmod(0o600)
    return crt, own


class Asking:
    """A server that asks for a certificate, and says goodbye."""

    def __init__(self, crt: Path, key: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(crt, key)
        self._context.load_verify_locations(crt)
        self._context.verify_mode = ssl.CERT_OPTIONAL
        self.shown: list[bool] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listening.accept()
                with plain, suppress(OSError):
                    plain.recv(8)
                    plain.sendall(b"S")
                    with self._context.wrap_socket(plain, server_side=True) as secured:
                        secured.recv(4096)
                        self.shown.append(secured.getpeercert(binary_form=True) is not None)
                        said = b"SFATAL\0C28000\0Mgoodbye\0\0"
                        secured.sendall(b"E" + struct.pack("!i", 4 + len(said)) + said)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@contextmanager
def asking(crt: Path, key: Path) -> Iterator[Asking]:
    server = Asking(crt, key)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(HANG_SECONDS)


def answer_to(dsn: str, **options: Any) -> Answer:
    async def scenario() -> Answer:
        performer = Postgres(SqlOptions(**options))
        try:
            async with asyncio.timeout(HANG_SECONDS):
                return await perform(performer, task("postgres", dsn=dsn, query="select 1"))
        finally:
            await performer.close()

    return asyncio.run(scenario())


@pytest.mark.parametrize("found", ["~/.postgresql", "PGSSLCERT"])
def test_no_certificate_of_the_machine_is_shown(
    found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crt, key = certificate(tmp_path / ".postgresql")
    monkeypatch.setenv("HOME", str(tmp_path))
    if found == "PGSSLCERT":
        monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
        monkeypatch.setenv("PGSSLCERT", str(crt))
        monkeypatch.setenv("PGSSLKEY", str(key))
    with asking(crt, key) as server:
        place = f"host=127.0.0.1 port={server.port} user=u dbname=d sslmode=require"
        for of_machine in (True, False):
            answer = answer_to(place, login_of_machine=of_machine)
            assert "goodbye" in fault_of(answer).message
        own = answer_to(f"{place} sslcert={crt} sslkey={key}", login_of_machine=False)
        assert "goodbye" in fault_of(own).message
        assert server.shown == [True, False, True]


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ("sslcert=/tmp/a.crt", "needs sslkey with it"),
        ("gssencmode=require", "the login of this machine"),
        ("require_auth=gss", "require_auth can be"),
        ("service=house", "names a service"),
    ],
)
def test_an_address_that_asks_for_the_login_of_the_machine_is_refused(part: str, why: str) -> None:
    fault = fault_of(answer_to(f"host=127.0.0.1 port=1 user=u {part}", login_of_machine=False))
    assert (fault.kind, why in fault.message) == ("config", True), fault


def test_a_key_is_a_file_and_no_library() -> None:
    dsn = "host=127.0.0.1 port=1 user=u sslcert=/tmp/a.crt sslkey=/tmp/library:key"
    assert "without a colon" in fault_of(answer_to(dsn)).message
