"""A Delta table seen without Spark: does it exist, whose is it, what state does it carry, has anybody else written to it.

Belongs here: reading a table's log through delta-rs in milliseconds, and its address. Does not belong: changing it (``write``).
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from incremental_assets.core.container import Container
from incremental_assets.core.errors import LakeError
from incremental_assets.core.names import backticked as quote
from incremental_assets.core.schema import Column
from incremental_assets.core.spark_types import UnknownType, type_text
from incremental_assets.core.watermark import TableState

STATE_PROPERTY = "incremental_assets.state"
CONTAINER_PROPERTY = "incremental_assets.container"
_QUIET_OPERATIONS = {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "ADD COLUMNS", "CHANGE COLUMN",
                     "CHANGE COLUMNS", "UPGRADE PROTOCOL", "COMPUTE STATS", "CLUSTER BY", "REORG"}  # fmt: skip
# By what an error of delta-rs contains. Most are of S3.
_REMEDIES = {
    "URL scheme is not allowed": "AWS_ENDPOINT_URL is an http:// address: AWS_ALLOW_HTTP=true permits that.",
    "NoSuchBucket": "Make the bucket, or correct INCREMENTAL_ASSETS_LAKE or AWS_ENDPOINT_URL.",
    "AccessDenied": "Allow the credentials in AWS_* to list, read, write and delete there.",
    "403 Forbidden": "Allow the credentials in AWS_* to list, read, write and delete there.",
    "Missing AccessKeyId": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    "169.254.169.254": "No credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    "error sending request": "Is that the store's address? AWS_ENDPOINT_URL names it.",
}


@dataclass(frozen=True)
class Head:
    """The newest version of a table. ``owner`` is None where the table was not made by this product.

    ``table_id``: Delta's; another table in its place has another one.
    """

    version: int
    columns: tuple[Column, ...]
    properties: Mapping[str, str] = field(repr=False)
    table_id: str = ""

    @property
    def owner(self) -> str | None:
        return self.properties.get(CONTAINER_PROPERTY)

    def signature(self) -> str | None:
        """The identifier the table was built with."""
        text = self.properties.get(STATE_PROPERTY)
        return str(json.loads(text)["identifier"]) if text else None

    def state(self, container: Container) -> TableState | None:
        text = self.properties.get(STATE_PROPERTY)
        return TableState.from_json(container.axis, text) if text else None


@dataclass(frozen=True)
class Commit:
    """One line of a table's history."""

    version: int
    operation: str
    metrics: Mapping[str, int] = field(repr=False)
    story: Mapping[str, Any] = field(repr=False)


class LakeTable:
    """The place of one table. ``url`` is a local path or any URL that Spark can write; s3:// is s3a:// to Spark."""

    def __init__(self, lake: str, *parts: str) -> None:
        self.url = re.sub(r"\As3://", "s3a://", "/".join((lake.rstrip("/"), *parts)))
        self._local = Path(self.url.removeprefix("file://")) if urlsplit(self.url).scheme in ("", "file") else None

    @property
    def sql_name(self) -> str:
        """How Spark SQL names it."""
        return f"delta.{quote(self.url)}"

    def head(self) -> Head | None:
        """The newest version; None where there is no table yet.

        Raises LakeError where the place cannot be read or holds something else.
        """
        table = self.opened()
        if table is None:
            return None
        fields = json.loads(table.schema().to_json())["fields"]
        try:
            columns = tuple(Column(f["name"], type_text(f["type"])) for f in fields)
        except UnknownType as error:
            raise LakeError(f"{self.url}: a column of this Delta table is {error}, which is not known here.") from error
        metadata = table.metadata()
        return Head(table.version(), columns, dict(metadata.configuration), str(metadata.id))

    def rows(self) -> int:
        """About how many rows it has, by the statistics of its files; deleted ones may be counted still."""
        table = self.opened()
        return int(table.count()) if table is not None else 0

    def is_written_by_delta_rs(self) -> bool:
        """Whether delta-rs can commit to it: it refuses tables with these features."""
        table = self.opened()
        features = set((table.protocol().writer_features or ()) if table is not None else ())
        return table is not None and not features & {"typeWidening", "inCommitTimestamp", "clustering"}

    def commits(self, newest: int) -> Sequence[Commit]:
        """The newest commits, newest first."""
        table = self.opened()
        return [_commit(entry) for entry in table.history(newest)] if table is not None else []

    def commit(self, version: int) -> Commit | None:
        return next((c for c in self.commits(10) if c.version == version), None)

    def is_as_left(self, data_version: int | None) -> bool:
        """Whether nobody has changed rows since the sync that wrote ``data_version``; maintenance does not count."""
        if data_version is None:
            return False
        for commit in self.commits(64):
            if commit.version <= data_version:
                return commit.version == data_version
            if commit.operation not in _QUIET_OPERATIONS:
                return False
        return False

    def data_commits_since(self, version: int) -> Sequence[Commit]:
        """The newest commits, after ``version``, that may have changed rows."""
        table = self.opened()
        newer = self.commits(table.version() - version) if table is not None and table.version() > version else []
        return [commit for commit in newer if commit.operation not in _QUIET_OPERATIONS]

    @property
    def address(self) -> str:
        """How delta-rs names it."""
        return str(self._local) if self._local is not None else re.sub(r"\As3a://", "s3://", self.url)

    def opened(self) -> DeltaTable | None:
        """The table for delta-rs; None where there is none yet. Raises LakeError as ``head``."""
        if self._local is not None:
            if not self._local.exists():
                return None
            if not (self._local / "_delta_log").is_dir():
                if self._local.is_dir() and not any(self._local.iterdir()):
                    return None
                if not (self._local / "_delta_log").is_dir():  # it may have been made since the look before
                    raise LakeError(f"{self.url} holds something that is not a Delta table; move it away, or choose another lake or name.")
        try:
            return DeltaTable(self.address, storage_options=storage_options())
        except TableNotFoundError:
            return None
        except (DeltaError, OSError, ValueError) as error:
            raise LakeError(f"{self.url}: the Delta table cannot be read: {reason(error)}") from error


def opened_or_made(
    table: LakeTable, schema: pa.Schema, properties: Mapping[str, str], *, partition_by: Sequence[str] = (), description: str = ""
) -> DeltaTable:
    """A small table that delta-rs alone writes; made where there is none, unless somebody else is quicker.

    Without retries: the slower of two would make it anew above the other's, whose first write then fails. Raises DeltaError.
    """
    delta = opened_while_made(table)
    if delta is not None:
        return delta
    try:
        return DeltaTable.create(
            table.address, schema, mode="error", partition_by=list(partition_by) or None, configuration=dict(properties),
            description=description or None, storage_options=storage_options() or None,
            commit_properties=CommitProperties(max_commit_retries=0),
        )  # fmt: skip
    except DeltaError:
        delta = opened_while_made(table)
        if delta is None:
            raise
        return delta  # somebody else was quicker


def opened_while_made(table: LakeTable) -> DeltaTable | None:
    """As ``opened``, where somebody else may be making the table: its folder was empty, and a moment later was not."""
    try:
        return table.opened()
    except LakeError:
        return table.opened()


def query(delta: DeltaTable, statement: str) -> pa.Table:
    """The answer of delta-rs' own engine; the table is called "rows" in the statement.

    Not by Arrow's readers: they call Python from threads of theirs, which now and then aborts a process that is about to end.
    Raises DeltaError.
    """
    try:
        return pa.table(QueryBuilder().register("rows", delta).execute(statement).read_all())
    except Exception as error:  # the engine raises nothing more special
        raise DeltaError(str(error)) from error


def read_rows(delta: DeltaTable, *filters: tuple[str, Sequence[str]], columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a small table, of those whose columns have one of the given texts. ``columns``: only these; None: all.

    Raises DeltaError.
    """
    wanted = [
        f"{double_quoted(name)} IN ({', '.join(_text(value) for value in values)})" if values else "false" for name, values in filters
    ]
    where = f" WHERE {' AND '.join(wanted)}" if wanted else ""
    chosen = "*" if columns is None else ", ".join(map(double_quoted, columns))
    found = query(delta, f'SELECT {chosen} FROM "rows"{where}')
    plain = [pa.field(f.name, pa.string(), f.nullable) if f.type == pa.string_view() else f for f in found.schema]
    return found.cast(pa.schema(plain))


def double_quoted(name: str) -> str:
    """A column's name for the engine of ``query``."""
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    """As that engine quotes it, for which a backslash is a character as any other."""
    return "'" + value.replace("'", "''") + "'"


def expect_owner(container: Container, table: LakeTable, head: Head) -> None:
    """Raises LakeError where the table is not the container's own."""
    if head.owner != container.label:
        what = f"the table of {head.owner}" if head.owner else "a Delta table that this product did not make"
        raise LakeError(f"{container.label}: {table.url} holds {what}; move it away, or choose another lake or name. Nothing was written.")


def storage_options() -> dict[str, str]:
    """Credentials of object stores, from the environment variables their own tools use."""
    wanted = ("AWS_", "AZURE_", "GOOGLE_")
    return {name: value for name, value in os.environ.items() if name.startswith(wanted)}


def reason(error: Exception) -> str:
    """An error of delta-rs in one line: those of object stores are trees of several, in colours, with the store's own words in XML."""
    text = re.sub(r"\x1b\[[\d;]*m|↳", "", str(error)) or type(error).__name__
    text = re.sub(r"<\?xml.*?<Code>(.*?)</Code>\s*<Message>(.*?)</Message>.*", r"\1: \2", text, flags=re.DOTALL)
    text = ": ".join(line.strip() for line in text.splitlines() if line.strip())[:500].rstrip(". ")
    return next((f"{text}. {remedy}" for mark, remedy in _REMEDIES.items() if mark in text), f"{text}.")


def _commit(entry: Mapping[str, Any]) -> Commit:
    metrics = {k: int(v) for k, v in (entry.get("operationMetrics") or {}).items() if str(v).lstrip("-").isdigit()}
    try:
        story = json.loads(entry.get("userMetadata") or "{}")
    except ValueError:
        story = {}
    return Commit(entry["version"], str(entry.get("operation")), metrics, story if isinstance(story, dict) else {})
