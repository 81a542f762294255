"""The demo's source: the database ``shop``, made of TPC-H and a few tables and a view of its own.

The product does not know this module.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import IO, Any

import psycopg
import pyarrow as pa
import pyarrow.compute
from pyarrow import csv

from incremental_assets.core.shown_text import counted
from incremental_assets.demo.server_home import EmbeddedPostgresError

pc: Any = pyarrow.compute  # its functions are made at run time: type checkers know none of them

EVENTS = 50_000
LATE_EVENT_ID = 49_990  # an id that an application draws from the sequence and inserts much later
PROFILES_PER_SCALE = 150_000  # one for each TPC-H customer
FIRST_ORDER, LAST_SHIPMENT = date(1992, 1, 1), date(1998, 12, 1)
"""The days on which TPC-H begins and ends."""
BUSINESS_DAYS = timedelta(days=4)
"""What happens in the demo's business day is dated this many days, of which yesterday is the last."""
CHUNK = 1 << 20
"""How many bytes are passed to COPY at a time."""


@dataclass(frozen=True)
class Table:
    """A table of TPC-H: its columns, and the statements that build its indexes once it is filled.

    ``dates``: the columns that are dates.
    """

    name: str
    columns: str
    afterwards: tuple[str, ...]
    dates: tuple[str, ...] = ()


# The largest table comes first, because ``load`` streams it while the others are loaded.
TPCH = (
    Table(
        "lineitem",
        """l_orderkey bigint NOT NULL, l_partkey bigint NOT NULL, l_suppkey bigint NOT NULL, l_linenumber integer NOT NULL,
        l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL, l_discount numeric(15,2) NOT NULL,
        l_tax numeric(15,2) NOT NULL, l_returnflag char(1) NOT NULL, l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL,
        l_commitdate date NOT NULL, l_receiptdate date NOT NULL, l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL,
        l_comment varchar(44) NOT NULL""",
        (
            "ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber)",
            "CREATE INDEX lineitem_l_shipdate_idx ON lineitem (l_shipdate)",
        ),
        ("l_shipdate", "l_commitdate", "l_receiptdate"),
    ),
    Table(
        "orders",
        """o_orderkey bigint NOT NULL, o_custkey bigint NOT NULL, o_orderstatus char(1) NOT NULL,
        o_totalprice numeric(15,2) NOT NULL, o_orderdate date NOT NULL, o_orderpriority char(15) NOT NULL,
        o_clerk char(15) NOT NULL, o_shippriority integer NOT NULL, o_comment varchar(79) NOT NULL""",
        (
            "ALTER TABLE orders ADD PRIMARY KEY (o_orderkey)",
            "CREATE INDEX orders_o_orderdate_idx ON orders (o_orderdate)",
            "CREATE INDEX orders_o_custkey_idx ON orders (o_custkey)",
        ),
        ("o_orderdate",),
    ),
    Table(
        "partsupp",
        """ps_partkey bigint NOT NULL, ps_suppkey bigint NOT NULL, ps_availqty integer NOT NULL,
        ps_supplycost numeric(15,2) NOT NULL, ps_comment varchar(199) NOT NULL""",
        ("ALTER TABLE partsupp ADD PRIMARY KEY (ps_partkey, ps_suppkey)",),
    ),
    Table(
        "part",
        """p_partkey bigint NOT NULL, p_name varchar(55) NOT NULL, p_mfgr char(25) NOT NULL, p_brand char(10) NOT NULL,
        p_type varchar(25) NOT NULL, p_size integer NOT NULL, p_container char(10) NOT NULL, p_retailprice numeric(15,2) NOT NULL,
        p_comment varchar(23) NOT NULL""",
        ("ALTER TABLE part ADD PRIMARY KEY (p_partkey)",),
    ),
    Table(
        "customer",
        """c_custkey bigint NOT NULL, c_name varchar(25) NOT NULL, c_address varchar(40) NOT NULL, c_nationkey integer NOT NULL,
        c_phone char(15) NOT NULL, c_acctbal numeric(15,2) NOT NULL, c_mktsegment char(10) NOT NULL,
        c_comment varchar(117) NOT NULL""",
        ("ALTER TABLE customer ADD PRIMARY KEY (c_custkey)",),
    ),
    Table(
        "supplier",
        """s_suppkey bigint NOT NULL, s_name char(25) NOT NULL, s_address varchar(40) NOT NULL, s_nationkey integer NOT NULL,
        s_phone char(15) NOT NULL, s_acctbal numeric(15,2) NOT NULL, s_comment varchar(101) NOT NULL""",
        ("ALTER TABLE supplier ADD PRIMARY KEY (s_suppkey)",),
    ),
    Table(
        "nation",
        "n_nationkey integer NOT NULL, n_name char(25) NOT NULL, n_regionkey integer NOT NULL, n_comment varchar(152)",
        ("ALTER TABLE nation ADD PRIMARY KEY (n_nationkey)",),
    ),
    Table(
        "region",
        "r_regionkey integer NOT NULL, r_name char(25) NOT NULL, r_comment varchar(152)",
        ("ALTER TABLE region ADD PRIMARY KEY (r_regionkey)",),
    ),
)

# A table with a serial id, JSON and a time zone. The ids have no gaps, except for one that was drawn and not used yet.
EVENTS_SQL = """
CREATE TABLE events (
    id bigserial PRIMARY KEY, kind text NOT NULL, payload jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now());
INSERT INTO events (id, kind, payload, created_at)
SELECT id, (ARRAY['view', 'search', 'basket', 'order', 'return'])[1 + id * 7 % 5],
       jsonb_build_object('customer', 1 + id * 7919 % {customers}, 'amount', (id * 31 % 10000) / 100.0,
                          'tags', jsonb_build_array('t' || id % 3, NULL), 'text', E'gr\\u00fc\\u00dfe "' || id || '"'),
       date_trunc('day', now()) - ({events} - id) * interval '52 seconds 123457 us'
FROM generate_series(1, {events}) AS id WHERE id <> {late};
SELECT setval('events_id_seq', {events});
"""

# A table for the strategy upsert: its rows change, and say when. Their times are spread over the last six months.
PROFILES_SQL = """
CREATE TABLE customer_profile (
    customer_id integer PRIMARY KEY, name text NOT NULL, email text, segment text NOT NULL, updated_at timestamptz NOT NULL);
INSERT INTO customer_profile
SELECT id, 'Customer ' || id, CASE WHEN id % 11 <> 0 THEN 'customer' || id || '@shop.example' END,
       (ARRAY['new', 'regular', 'gold'])[1 + id * 13 % 3],
       date_trunc('day', now()) - id::bigint * 7919 % (180 * 24 * 3600) * interval '1 second' - id % 1000 * interval '1 us'
FROM generate_series(1, {profiles}) AS id;
CREATE INDEX ON customer_profile (updated_at);
"""

VIEW_SQL = """
CREATE VIEW orders_by_nation AS
SELECT n.n_name, count(*) AS orders, sum(o.o_totalprice) AS total, max(o.o_orderdate) AS last_order
FROM orders o JOIN customer c ON c.c_custkey = o.o_custkey JOIN nation n ON n.n_nationkey = c.c_nationkey
GROUP BY n.n_name
"""


def load(url: str, scale: float, progress: Callable[[str], None] = lambda line: None, *, until: date = LAST_SHIPMENT) -> dict[str, int]:
    """Fill an empty database with TPC-H at this scale and the shop's own tables. Return the number of rows of each table.

    The data are the same each time, except for the times in ``events`` and ``customer_profile``, which end at the last midnight.
    ``progress`` is called with a line of text for each table. ``until``: the last day of shipments; all dates of TPC-H are moved by as many
    days. Raises ValueError for a scale that is out of range.
    """
    expect_scale(scale)
    largest, *others = TPCH
    with ThreadPoolExecutor(2, thread_name_prefix="load") as workers:
        parts = [
            workers.submit(_load_streaming, url, scale, largest, progress, until),
            workers.submit(_load_from_files, url, scale, others, progress, until),
        ]
        rows = parts[0].result() | parts[1].result()
    rows |= _load_own_tables(url, scale, progress)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")
    return rows


def last_day() -> date:
    """The last day of shipments in the demo's data.

    It is in the month before the business day that follows, which ends yesterday. The first order is dated the first of a month: a rule
    about the numbers of rows would otherwise find that the first two months differ.
    """
    history = LAST_SHIPMENT - FIRST_ORDER
    return (datetime.now(timezone.utc).date() - BUSINESS_DAYS - history).replace(day=1) + history


def expect_scale(scale: float) -> None:
    """Raises ValueError for a scale that is out of range."""
    if not 0 < scale <= 100:
        raise ValueError(f"scale {scale} is out of range: 0.01 is a toy, 0.1 the demo, 1 makes 6 million line items, 100 is the most")


def _load_streaming(url: str, scale: float, table: Table, progress: Callable[[str], None], until: date) -> dict[str, int]:
    """Load the largest table directly from the generator's output.

    Generator and PostgreSQL work at the same time, and no file is written.
    """
    command = [
        _generator(),
        "csv",
        "--quiet",
        "--scale-factor",
        repr(scale),
        "--tables",
        table.name,
        "--stdout",
        "--num-threads",
        "1",
    ]
    with psycopg.connect(url) as connection, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            rows = _fill(connection, table, process.stdout, progress, until)
        except BaseException:
            process.kill()
            raise
        _expect_success(process.wait(), process.stderr.read().decode("utf-8", errors="replace"))
    return {table.name: rows}


def _load_from_files(url: str, scale: float, tables: Sequence[Table], progress: Callable[[str], None], until: date) -> dict[str, int]:
    """Load the other tables through files. Each start of the generator takes a second, so it runs once for all of them."""
    rows: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="tpch-") as folder, psycopg.connect(url) as connection:
        for table, path in generated(Path(folder), scale, tables):
            with path.open("rb") as file:
                rows[table.name] = _fill(connection, table, file, progress, until)
            path.unlink()
    return rows


def generated(folder: Path, scale: float, tables: Sequence[Table]) -> list[tuple[Table, Path]]:
    """Write tables of TPC-H into the folder, as CSV with a header. Return their files."""
    names = ",".join(table.name for table in tables)
    command = [_generator(), "csv", "--quiet", "--scale-factor", repr(scale), "--tables", names, "--output-dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    _expect_success(done.returncode, done.stderr)
    return [(table, folder / f"{table.name}.csv") for table in tables]


def moved(data: IO[bytes], table: Table, until: date) -> Iterator[bytes]:
    """The CSV of a table of TPC-H, in pieces, with all dates moved by as many days as ``until`` is after its last shipment."""
    days = (until - LAST_SHIPMENT).days
    if not days or not table.dates:
        yield from iter(lambda: data.read(CHUNK), b"")
        return
    types = {name: pa.date32() if name in table.dates else pa.string() for name in _names(table)}
    options = csv.ConvertOptions(column_types=types, strings_can_be_null=False, quoted_strings_can_be_null=False)
    buffer = io.BytesIO()
    with csv.open_csv(data, convert_options=options) as batches, csv.CSVWriter(buffer, batches.schema) as writer:
        for batch in batches:
            columns = [
                pc.add(column.cast(pa.int32()), pa.scalar(days, pa.int32())).cast(pa.date32()) if name in table.dates else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            writer.write_batch(pa.record_batch(columns, schema=batch.schema))
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()


def _names(table: Table) -> list[str]:
    """The names of a table's columns."""
    return [column.split()[0] for column in re.split(r",(?![^(]*\))", table.columns)]


def _fill(connection: psycopg.Connection, table: Table, data: IO[bytes], progress: Callable[[str], None], until: date) -> int:
    """Create, copy and index one table in one transaction. Return the number of rows.

    COPY can only freeze rows of a table that the same transaction has created; frozen rows need not be rewritten by VACUUM later.
    """
    started = time.monotonic()
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL maintenance_work_mem = '256MB'")
        cursor.execute(f"CREATE TABLE {table.name} ({table.columns})".encode())
        with cursor.copy(f"COPY {table.name} FROM STDIN WITH (FORMAT csv, HEADER, FREEZE)".encode()) as copy:
            for piece in moved(data, table, until):
                copy.write(piece)
        copied = cursor.rowcount
        for statement in table.afterwards:
            cursor.execute(statement.encode())
    progress(f"{table.name}: {counted(copied, 'row')} in {time.monotonic() - started:.1f} s")
    return copied


def _load_own_tables(url: str, scale: float, progress: Callable[[str], None]) -> dict[str, int]:
    """Create the shop's own tables and the view. Return the number of rows of each table."""
    started = time.monotonic()
    profiles = max(1000, int(PROFILES_PER_SCALE * scale))
    with psycopg.connect(url) as connection:
        connection.execute(EVENTS_SQL.format(events=EVENTS, late=LATE_EVENT_ID, customers=profiles).encode())
        connection.execute(PROFILES_SQL.format(profiles=profiles).encode())
        connection.execute(VIEW_SQL.encode())
    progress(f"events, customer_profile, orders_by_nation (a view) in {time.monotonic() - started:.1f} s")
    return {"events": EVENTS - 1, "customer_profile": profiles}


def _expect_success(code: int, output: str) -> None:
    if code != 0:
        raise RuntimeError(f"tpchgen-cli failed (exit code {code}): {output.strip() or 'it printed nothing'}")


def _generator() -> str:
    """Return the path of the program ``tpchgen-cli``. Raises EmbeddedPostgresError if it is not installed."""
    beside = [Path(sysconfig.get_path("scripts")), Path(sys.executable).parent]
    found = next((str(f / "tpchgen-cli") for f in beside if (f / "tpchgen-cli").exists()), None) or shutil.which("tpchgen-cli")
    if found is None:
        raise EmbeddedPostgresError(
            "TPC-H data come from the package 'tpchgen-cli', which is not installed here. "
            "Run `make install`, or `pip install 'incremental-assets[demo]'`."
        )
    return found
