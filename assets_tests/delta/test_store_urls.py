"""How programs are told where a lake on an object store is: the same place, by the URL that each of them knows.

Belongs here: the addresses. Does not belong: what is read and written there (``test_s3``, ``test_azure``).
"""

import pytest

from incremental_assets.delta.store import spark_url, storage_options
from incremental_assets.delta.table import LakeTable

ABFSS = "abfss://box@somebody.dfs.core.windows.net/lake/a/b"


@pytest.mark.parametrize(
    ("lake", "for_spark", "for_delta_rs"),
    [
        ("s3://bucket/lake", "s3a://bucket/lake/a/b", "s3://bucket/lake/a/b"),
        ("s3a://bucket/lake/", "s3a://bucket/lake/a/b", "s3://bucket/lake/a/b"),
        ("az://box/lake", ABFSS, ABFSS),
        ("azure://box/lake", ABFSS, ABFSS),
        ("abfss://box@other.dfs.core.chinacloudapi.cn/lake", *["abfss://box@other.dfs.core.chinacloudapi.cn/lake/a/b"] * 2),
        ("gs://bucket/lake", "gs://bucket/lake/a/b", "gs://bucket/lake/a/b"),
        ("/srv/az://box", "/srv/az://box/a/b", "/srv/az:/box/a/b"),
    ],
)
def test_spark_and_delta_rs_find_the_same_table(monkeypatch: pytest.MonkeyPatch, lake: str, for_spark: str, for_delta_rs: str) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "somebody")
    monkeypatch.delenv("AZURE_STORAGE_ENDPOINT", raising=False)
    table = LakeTable(lake, "a", "b")
    assert (table.url, table.address) == (for_spark, for_delta_rs)


def test_an_emulator_of_azure_is_spoken_to_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "somebody")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:10000/somebody")
    assert spark_url("az://box") == "abfs://box@somebody.dfs.core.windows.net"
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME")
    assert spark_url("az://box/lake") == "az://box/lake", "an account was invented"


def test_delta_rs_gets_the_credentials_of_all_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"AWS_REGION": "r", "AZURE_STORAGE_ACCOUNT_NAME": "a", "AZURE_STORAGE_SAS_TOKEN": "s", "GOOGLE_APPLICATION_CREDENTIALS": "f"}
    for name, value in (wanted | {"SHOP_URL": "postgresql://do-not-tell"}).items():
        monkeypatch.setenv(name, value)
    found = storage_options()
    assert wanted.items() <= found.items() and "SHOP_URL" not in found
