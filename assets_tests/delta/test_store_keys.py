"""Credentials of S3 that expire, and those that are not read.

Belongs here: whose keys a process uses, and until when. Does not belong: what it does with them (``test_s3``).
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assets_tests.delta.s3_server import KEY_SECONDS
from assets_tests.harness import Project, wait_for
from incremental_assets.core.errors import ConfigurationError, LakeError, SourceUnreachable
from incremental_assets.delta.scope import LakeScope
from incremental_assets.delta.table import LakeTable
from incremental_assets.files.listing import FolderAddress
from incremental_assets.project.folders import LAKE_VARIABLE, lake_root


@pytest.mark.s3
@pytest.mark.parametrize("given_to", ["container", "machine"])
def test_keys_that_expire_are_renewed_before_each_use(
    project: Callable[..., Project], s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given_to: str
) -> None:
    """Otherwise a process that lives longer than an hour, such as Dagster's daemon, fails at each sync until it is started anew."""
    monkeypatch.setattr(LakeScope, "spark", property(lambda _: pytest.fail("Spark was asked for")))
    s3.put_object(Bucket=bucket, Key="in/a.csv", Body=b"id\n1\n")
    monkeypatch.setenv("AWS_ENDPOINT_URL", os.environ["S3_EXPIRING"])
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    if given_to == "container":
        (tmp_path / "token").write_text("token")
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{os.environ['S3_KEYS']}/keys")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    else:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", os.environ["S3_KEYS"])
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", os.environ["S3_KEYS"])
    shop, landing = project(incremental=["public.orders:id:integer!upsert"]), FolderAddress.parse("landing", f"s3://{bucket}/in")
    shop.lake = f"s3://{bucket}/lake"
    shop.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
    for number in range(3):
        shop.execute(f"INSERT INTO orders VALUES ({number}, 'one')")
        assert shop.one("orders")["status"] == "synced" and shop.one("orders")["status"] == "skipped"
        assert sorted(shop.rows("orders", "id")) == [(one,) for one in range(number + 1)]
        assert [path for path, _ in landing.list()] == ["a.csv"] and landing.head("a.csv", 9) == b"id\n1\n"
        ended = time.time() + KEY_SECONDS
        wait_for(lambda ended=ended: time.time() > ended, "all keys that were used have expired", 10)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", str(ended))  # the store refuses an old one
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with pytest.raises(LakeError, match=r"ExpiredToken: .*Set new keys in AWS_\*"):
        LakeTable(shop.lake, "shop", "orders").head()
    with pytest.raises(SourceUnreachable, match=r"ExpiredToken: .*Set new keys in AWS_\*"):
        list(landing.list())


def test_a_profile_that_would_be_ignored_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the role of the machine is used in its place, which may read and write other buckets."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "the one")
    monkeypatch.setenv(LAKE_VARIABLE, "s3://bucket/lake")
    with pytest.raises(
        ConfigurationError, match=r"^AWS_PROFILE is 'the one', .* for s3://bucket/lake\. .*--profile 'the one' --format env"
    ):
        lake_root()
    with pytest.raises(ConfigurationError, match=r"^landing: AWS_PROFILE is 'the one', .* for s3://bucket/in\. "):
        list(FolderAddress.parse("landing", "s3://bucket/in").list())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    assert lake_root() == "s3://bucket/lake"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv(LAKE_VARIABLE, "/srv/lake")
    assert lake_root() == "/srv/lake", "where nothing is on S3, the profile concerns nobody"
