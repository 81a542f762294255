"""A server that speaks S3, and the same buckets behind ports at which something is amiss.

Belongs here: what is amiss at each port. Does not belong: the fixtures that start it (``conftest``).

``python -m assets_tests.delta.s3_server FOLDER`` is a process of its own: in that of the tests it would wait for the lock that a driver's
thread holds while it waits for an answer. It prints its ports in one line, in the order of ``PORTS``, and ends with its standard input.
"""

import datetime
import io
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

PORTS = ("plain", "careless", "forgetful", "beaten", "held", "expiring", "keys")
"""``careless`` knows no conditional put: it ignores If-None-Match. ``forgetful`` loses its first answer to each commit. At ``beaten``,
another writer (``OTHERS``) is there first with a version of each table, but not with 0. ``held`` keeps the commits of a container until
there is a file ``go`` in the folder, and makes a file ``arrived`` when the first one has come. ``expiring`` accepts no keys but those that
``keys`` hands out, as Amazon's containers and machines get theirs, and each for ``KEY_SECONDS`` only."""
KEY_SECONDS = 2
OTHERS = b'{"commitInfo":{"timestamp":0,"operation":"WRITE","operationParameters":{},"engineInfo":"another host"}}\n'
App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def _commit(environ: dict[str, Any]) -> str | None:
    """The path of the version that the request puts; None if it does something else."""
    path = str(environ["PATH_INFO"])
    return path if environ["REQUEST_METHOD"] == "PUT" and "/_delta_log/" in path and path.endswith(".json") else None


def careless(app: App) -> App:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return app(environ, start_response)

    return answer


def forgetful(app: App) -> App:
    answered = set[str]()

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        commit = _commit(environ)
        if commit is None or commit in answered:
            return app(environ, start_response)
        answered.add(commit)
        list(app(environ, lambda *_: None))
        start_response("500 Internal Server Error", [])
        return []

    return answer


def beaten(app: App) -> App:
    others = set[str]()

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        commit = _commit(environ)
        table = (commit or "").partition("/_delta_log/")[0]
        if commit is not None and not commit.endswith(f"{0:020}.json") and table not in others:
            others.add(table)
            plain = {key: value for key, value in environ.items() if not key.startswith(("HTTP_X_AMZ", "HTTP_CONTENT", "HTTP_IF"))}
            list(app({**plain, "wsgi.input": io.BytesIO(OTHERS), "CONTENT_LENGTH": str(len(OTHERS))}, lambda *_: None))
        return app(environ, start_response)

    return answer


def held(app: App, folder: Path) -> App:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        commit = _commit(environ)
        if commit is not None and "/lake/_" not in commit:
            (folder / "arrived").touch()
            while not (folder / "go").exists():
                time.sleep(0.05)
        return app(environ, start_response)

    return answer


def expiring(app: App) -> App:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        ends = re.search(r"Credential=([\d.]+)/", environ.get("HTTP_AUTHORIZATION", ""))
        if ends is None or float(ends[1]) < time.time():
            start_response("400 Bad Request", [])
            return [b"<?xml version='1.0'?><Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"]
        return app(environ, start_response)

    return answer


def keys(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """A key is the time at which it ends."""
    path, ends = environ["PATH_INFO"], time.time() + KEY_SECONDS
    until = datetime.datetime.fromtimestamp(ends, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    start_response("200 OK", [])
    if path.endswith(("/api/token", "/security-credentials", "/security-credentials/")):  # a machine asks for a token and a role before
        return [b"one"]
    key = {"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": until, "Expiration": until}
    return [json.dumps({**key, "AccessKeyId": str(ends), "SecretAccessKey": "secret", "Token": "token"}).encode()]


def main(folder: Path) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from moto.server import ThreadedMotoServer
    from werkzeug.serving import make_server

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    app = DomainDispatcherApplication(create_backend_app)
    apps = (careless(app), forgetful(app), beaten(app), held(app, folder), expiring(app), keys)
    others = [make_server("127.0.0.1", 0, one, threaded=True) for one in apps]
    for other in others:
        threading.Thread(target=other.serve_forever, daemon=True).start()
    sys.stdout.write(" ".join(map(str, (server.get_host_and_port()[1], *(other.server_port for other in others)))) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
