"""TLS and authentication are the same for plan and rows: every option of libpq, in the URL and as a ``PG*`` variable.

Belongs here: how each option reaches psycopg and the JDBC driver, and a real server with TLS. Does not belong: the limits of a connection
(``test_guest``).
"""

import contextlib
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from psycopg import pq

from assets_tests.harness import Project
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.databases.postgres.connection import PostgresAddress
from incremental_assets.databases.postgres.options import RULES, Use

URL = "postgresql://reader:secret@db.example/shop"
KNOWN = {o.keyword.decode(): o.envvar.decode() if o.envvar else None for o in pq.Conninfo.get_defaults()}
VALUES = {  # values that libpq accepts, for options that do not accept any word
    "sslmode": "verify-full", "channel_binding": "require", "require_auth": "scram-sha-256", "target_session_attrs": "standby",
    "sslnegotiation": "direct", "gssencmode": "disable", "connect_timeout": "7", "sslsni": "0", "gssdelegation": "1", "replication": "true",
    "ssl_min_protocol_version": "TLSv1.3", "min_protocol_version": "3.2", "sslcertmode": "disable", "options": "-c search_path=sales",
}  # fmt: skip
JDBC = {  # the property of the JDBC driver for each option, and its value
    "sslmode": ("sslmode", "verify-full"), "channel_binding": ("channelBinding", "require"),
    "require_auth": ("requireAuth", "scram-sha-256"), "target_session_attrs": ("targetServerType", "secondary"),
    "sslnegotiation": ("sslNegotiation", "direct"),
    "gssencmode": ("gssEncMode", "disable"), "connect_timeout": ("connectTimeout", "7"), "options": ("options", "-c search_path=sales"),
    "sslrootcert": ("sslrootcert", "word"), "sslcert": ("sslcert", "word"), "sslkey": ("sslkey", "word"),
    "krbsrvname": ("kerberosServerName", "word"), "gsslib": ("gsslib", "word"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without files of PostgreSQL. No environment variable of libpq is set."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in [*KNOWN.values(), "PGREQUIRESSL"]:
        monkeypatch.delenv(variable or "PGUSER", raising=False)
    return tmp_path


def of_jdbc(address: PostgresAddress) -> dict[str, str]:
    options = address.jdbc_options()
    return {k: v[0] for k, v in parse_qs(urlsplit(options["url"].removeprefix("jdbc:")).query).items()}


def test_every_option_of_libpq_has_a_rule() -> None:
    """A new version of libpq has new options, which would otherwise not apply to the rows, without a warning."""
    assert set(KNOWN) == set(RULES)


OPTIONS = sorted(set(RULES) - {"host", "port", "dbname", "user", "password"})


@pytest.mark.parametrize(("name", "place"), [(n, "url") for n in OPTIONS] + [(n, "environment") for n in OPTIONS if KNOWN.get(n)])
def test_an_option_applies_to_plan_and_rows_or_is_refused(name: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option that protects only the connection of the plan does not protect the rows."""
    value = VALUES.get(name, "word")
    url = f"{URL}?{name}={quote(value)}"
    if place == "environment":
        monkeypatch.setenv(str(KNOWN[name]), value)
        url = URL
    if RULES[name].use is Use.REFUSED:
        with pytest.raises(ConfigurationError) as refused:
            PostgresAddress.parse("shop", url)
        assert str(name if place == "url" else KNOWN[name]) in str(refused.value) and "JDBC" in str(refused.value)
        return
    address = PostgresAddress.parse("shop", url)
    assert (name in JDBC) or name == "sslpassword" or RULES[name].use is not Use.BOTH
    if name in JDBC:
        property_, wanted = JDBC[name]
        assert of_jdbc(address)[property_] == wanted and address.options[name] == value
    elif name == "sslpassword":
        assert address.jdbc_options()["sslpassword"] == "word" and "word" not in address.jdbc_options()["url"]
    elif RULES[name].use is Use.PLAN:
        assert address.options[name] == value
    else:
        assert name not in address.options
    assert "word" not in repr(address)


def test_certificates_in_the_home_folder_are_used_by_plan_and_rows(empty_home: Path) -> None:
    """The JDBC driver looks for these files elsewhere than libpq, and its process may have another home folder."""
    folder = empty_home / ".postgresql"
    folder.mkdir()
    for file in ("root.crt", "postgresql.crt", "postgresql.key"):
        (folder / file).touch()
    address = PostgresAddress.parse("shop", f"{URL}?sslmode=require")
    expected = {"sslrootcert": "root.crt", "sslcert": "postgresql.crt", "sslkey": "postgresql.key"}
    assert {n: address.options[n] for n in expected} == {n: str(folder / file) for n, file in expected.items()}
    assert {n: of_jdbc(address)[n] for n in expected} == {n: str(folder / file) for n, file in expected.items()}
    assert of_jdbc(address)["sslmode"] == "verify-ca", "libpq verifies the server where there is a root certificate"
    assert "sslcert" not in PostgresAddress.parse("shop", f"{URL}?sslmode=disable").options
    (folder / "root.crl").touch()
    with pytest.raises(ConfigurationError, match=r"root\.crl"):
        PostgresAddress.parse("shop", URL)


@pytest.mark.parametrize(("variable", "value", "wanted"), [("PGREQUIRESSL", "1", "require"), ("PGSSLMODE", "verify-ca", "verify-ca")])
def test_the_url_comes_before_the_environment(variable: str, value: str, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    assert of_jdbc(PostgresAddress.parse("shop", URL))["sslmode"] == wanted
    assert of_jdbc(PostgresAddress.parse("shop", f"{URL}?sslmode=verify-full"))["sslmode"] == "verify-full"


def test_the_systems_certificate_authorities_are_refused() -> None:
    """OpenSSL and Java have different lists of authorities, so that plan and rows would trust different servers."""
    with pytest.raises(ConfigurationError, match="ca-certificates"):
        PostgresAddress.parse("shop", f"{URL}?sslmode=verify-full&sslrootcert=system")


# ---------------------------------------------------------------- a server that accepts only TLS
def authority(folder: Path, name: str) -> Path:
    """Makes a certificate authority, ``<name>.crt``, and a certificate of it for 127.0.0.1, ``<name>-server.crt`` and ``.key``."""

    def openssl(*arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    new = ("req", "-new", "-newkey", "rsa:2048", "-nodes")
    openssl(*new, "-x509", "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.crt")
    openssl(*new, "-subj", "/CN=127.0.0.1", "-keyout", f"{name}-server.key", "-out", f"{name}-server.csr")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    by = ("-CA", f"{name}.crt", "-CAkey", f"{name}.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl("x509", "-req", "-in", f"{name}-server.csr", *by, "-out", f"{name}-server.crt")
    return folder / f"{name}.crt"


@pytest.fixture
def tls(tmp_path: Path, database: str) -> Iterator[tuple[str, Path, Path]]:
    """The database's URL behind a real TLS handshake, the authority of its certificate, and another authority.

    The PostgreSQL of the wheel is built without TLS. This proxy answers PostgreSQL's request for TLS, and forwards the decrypted bytes to
    the server. It refuses connections without TLS.
    """
    right, wrong = authority(tmp_path, "right"), authority(tmp_path, "wrong")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "right-server.crt", tmp_path / "right-server.key")
    to = urlsplit(database)

    class Secured(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            if self.request.recv(8)[4:] != (80877103).to_bytes(4, "big"):  # SSLRequest
                return
            self.request.sendall(b"S")
            try:
                client = context.wrap_socket(self.request, server_side=True)
            except OSError:
                return  # the client does not accept the certificate
            with client, socket.create_connection((str(to.hostname), int(to.port or 0))) as server:
                back = threading.Thread(target=copy, args=(server, client), daemon=True)
                back.start()
                copy(client, server)
                back.join()

    def copy(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):  # either side may close the connection
            while data := one.recv(65536):
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads, block_on_close = True, False

    with Server(("127.0.0.1", 0), Secured) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield database.replace(f":{to.port}/", f":{proxy.server_address[1]}/"), right, wrong
        proxy.shutdown()


@pytest.mark.long
def test_a_wrong_authority_is_refused_by_plan_and_rows(
    tls: tuple[str, Path, Path], project: Callable[..., Project], spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If only the plan verified the certificate, an attacker between Spark and the server could read every row. Spark is tested by itself
    as well, as a sync whose plan has failed does not use it."""
    from pyspark.errors import PySparkException

    from incremental_assets.spark.session import open_session

    url, right, wrong = tls
    shop = project(incremental=["public.orders:day:date"])
    shop.execute("create table orders (id int primary key, day date); insert into orders values (1, '2026-05-01')")
    shop.url = f"{url}?sslmode=verify-full&sslrootcert={quote(str(right))}"
    assert shop.one("orders")["rows_read"] == 1

    def rows(url: str) -> int:
        with open_session(spark_home, name="tls") as spark:
            options = PostgresAddress.parse("shop", url).jdbc_options()
            return spark.read.format("jdbc").options(**options).option("dbtable", "orders").load().count()

    monkeypatch.setenv("PGSSLROOTCERT", str(right))
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert rows(url) == 1
    monkeypatch.setenv("PGSSLROOTCERT", str(wrong))
    for mode in ("require", "verify-ca", "verify-full"):
        monkeypatch.setenv("PGSSLMODE", mode)
        with pytest.raises(PySparkException, match=r"SSL|PKIX|certificat"):
            rows(url)
    shop.url = f"{url}?sslmode=verify-full&sslrootcert={quote(str(wrong))}"
    refused = shop.one("orders", ok=False, stale=True)
    assert refused["status"] == "failed" and "certificate verify failed" in refused["message"], refused
    assert "sslrootcert" in refused["message"]
