"""What a cluster on this machine chooses at its first start and keeps: the ports, the keys of the store, the token of the Connect server.

Belongs here: choosing them, and the file that has them. Does not belong: the services that use them (``local``).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.cluster.processes import free_ports
from incremental_assets.spark.embedded.launch import write_private

PORTS: tuple[str, ...] = (
    "connect", "master", "worker-1", "worker-2", "code", "webserver",
    "s3", "s3-grpc", "filer", "filer-grpc", "volume", "volume-grpc", "store-master", "store-master-grpc",
)  # fmt: skip


@dataclass(frozen=True)
class Choices:
    """``ports``: by the names in ``PORTS``. The others are secrets."""

    ports: Mapping[str, int]
    access_key: str
    secret_key: str
    token: str

    @classmethod
    def kept(cls, path: Path) -> Choices:
        """Those in the file; new ones, which are then kept there, if there is no file."""
        if path.exists():
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        ports: dict[str, int] = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        made = cls(ports, secrets.token_hex(10), secrets.token_hex(20), secrets.token_urlsafe(24))
        write_private(path, json.dumps(asdict(made), indent=1) + "\n")
        return made
