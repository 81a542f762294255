"""Connections: the server proves its name before it gets a password, and says why it refuses one. The server here only plays the begin of a
connection.

Belongs here: certificates, the handshake, and refused logins. Does not belong: what follows a login, for which no server is at hand.
"""

import ipaddress
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from incremental_assets.core.errors import SourceUnreachable
from incremental_assets.databases.sqlserver.connection import SQLServerAddress
from incremental_assets.databases.sqlserver.host_check import is_for_host

PRELOGIN, LOGIN = 0x12, 0x10


def certificate(names: list[x509.GeneralName], common: str = "other") -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate that has signed itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder().subject_name(own).issuer_name(own).public_key(key.public_key()).serial_number(x509.random_serial_number())
    )
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    if names:
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return made.sign(key, hashes.SHA256()), key


@pytest.mark.parametrize(
    ("names", "host", "fits"),
    [
        (["db.shop.example"], "DB.shop.example", True),
        (["db.shop.example"], "db.shop.example.evil", False),
        (["*.shop.example"], "db.shop.example", True),
        (["*.shop.example"], "a.db.shop.example", False),
        (["*.shop.example"], "shop.example", False),
        (["*.example"], "shop.example", False),
        (["other"], "10.0.0.1", False),
        ([], "other", True),
        (["a"], "other", False),
    ],
)
def test_a_certificate_is_for_the_names_that_it_has(names: list[str], host: str, fits: bool) -> None:
    """Otherwise whoever has any certificate of the authority can get the password; or nobody can connect."""
    from OpenSSL import crypto

    cert, _ = certificate([x509.DNSName(name) for name in names])
    assert is_for_host(crypto.X509.from_cryptography(cert), host.encode()) is fits


def _packet(kind: int, data: bytes) -> bytes:
    return struct.pack(">BBHHBB", kind, 1, 8 + len(data), 0, 1, 0) + data


def _received(line: socket.socket) -> bytes:
    """The data of the packets up to the last one of a message."""
    data, last = b"", 0
    while not last:
        head = line.recv(8, socket.MSG_WAITALL)
        if len(head) < 8:
            return data
        last = head[1] & 1
        data += line.recv(struct.unpack(">H", head[2:4])[0] - 8, socket.MSG_WAITALL)
    return data


@contextmanager
def server(folder: Path, name: x509.GeneralName) -> Iterator[tuple[int, list[bytes]]]:
    """A server that goes as far as the login. Yields its port, and the list of what it has received within TLS."""
    cert, key = certificate([name])
    (folder / "cert.pem").write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    received: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        line, _ = listener.accept()
        line.settimeout(10)
        with line:
            _received(line)
            # VERSION and ENCRYPTION (on), each as token, offset, length; then the end, and their data.
            options = struct.pack(">BHH", 0, 11, 6) + struct.pack(">BHH", 1, 17, 1) + b"\xff" + bytes([16, 0, 0, 0, 0, 0]) + b"\x01"
            line.sendall(_packet(4, options))
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            channel = context.wrap_bio(incoming, outgoing, server_side=True)
            while True:
                try:
                    channel.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    if outgoing.pending:
                        line.sendall(_packet(PRELOGIN, outgoing.read()))
                    data = _received(line)
                    if not data:
                        return
                    incoming.write(data)
                except ssl.SSLError:
                    return
            if outgoing.pending:
                line.sendall(_packet(PRELOGIN, outgoing.read()))
            incoming.write(line.recv(65536))
            received.append(channel.read(65536))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1], received
    thread.join(15)
    listener.close()


@pytest.mark.parametrize(("name", "trusted"), [("127.0.0.1", True), ("10.9.9.9", True), ("127.0.0.1", False)])
def test_the_password_is_sent_only_to_the_server_that_has_proved_its_name(name: str, trusted: bool, tmp_path: Path) -> None:
    """Somebody on the way to the server would learn it otherwise."""
    with server(tmp_path, x509.IPAddress(ipaddress.ip_address(name))) as (port, received):
        authority = tmp_path / "cert.pem"
        if not trusted:
            other, _ = certificate([])
            authority = tmp_path / "other.pem"
            authority.write_bytes(other.public_bytes(serialization.Encoding.PEM))
        address = SQLServerAddress.parse("shop", f"sqlserver://lake:s3cret@127.0.0.1:{port}/shop?ca={authority}")
        with pytest.raises(SourceUnreachable) as refused:
            address.connect()
    is_sent = name == "127.0.0.1" and trusted
    assert bool(received) is is_sent, str(refused.value)
    assert "s3cret" not in str(refused.value)
    if is_sent:
        assert received[0][0] == LOGIN
    else:
        assert "certificate" in str(refused.value).lower()
        assert ("check_host=no" in str(refused.value)) is trusted, "by another name, the authority is the right one"


def _error(number: int, text: str) -> bytes:
    """An error as the server sends it: number, state, severity, text, and the names of server and procedure, the line."""
    said = struct.pack("<iBBH", number, 1, 14, len(text)) + text.encode("utf-16-le") + b"\0\0" + struct.pack("<i", 1)
    return b"\xaa" + struct.pack("<H", len(said)) + said


DATABASE = (4060, 'Cannot open database "shop" requested by the login.')
LOGIN_ERROR = (18456, "Login failed for user 'lake'.")


@pytest.mark.parametrize(
    ("errors", "remedy"),
    [
        ([DATABASE, LOGIN_ERROR], "Check the database's name"),
        ([(911, "Database 'shop' does not exist.")], "Check the database's name"),
        ([LOGIN_ERROR], "Check user and password"),
        ([(40613, "Database 'shop' is not currently available.")], "Check the datastore's url."),
    ],
)
def test_a_refused_login_is_said_at_once_with_all_that_the_server_says(errors: list[tuple[int, str]], remedy: str) -> None:
    """The driver tries again for 15 seconds and then says that the time is over, or goes by the last message alone: the user would look for
    a firewall, or change a password that is right."""
    attempts: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            line, _ = listener.accept()
            with line:
                line.settimeout(10)
                _received(line)
                options = struct.pack(">BHH", 0, 11, 6) + struct.pack(">BHH", 1, 17, 1) + b"\xff" + bytes([16, 0, 0, 0, 0, 0]) + b"\x02"
                line.sendall(_packet(4, options))
                attempts.append(_received(line))
                done = b"\xfd" + struct.pack("<HHQ", 2, 0, 0)
                line.sendall(_packet(4, b"".join(_error(*one) for one in errors) + done))
                attempts.append(line.recv(1))  # until the driver hangs up

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = SQLServerAddress.parse("shop", f"sqlserver://lake:s3cret@127.0.0.1:{listener.getsockname()[1]}/shop?encrypt=no")
        with pytest.raises(SourceUnreachable) as refused:
            address.connect()
        thread.join(10)
    said = str(refused.value)
    assert all(text.rstrip(".") in said for _, text in errors) and remedy in said and "s3cret" not in said, said
    assert len(attempts) == 2 and attempts[0] and attempts[1] == b"", "one attempt, after which it hung up"
