"""The demo's shop in the embedded MariaDB: the same tables as in PostgreSQL, filled and changed in the same way.

Belongs here: ``demo.shops`` for MariaDB, what its database has at the beginning, and the project in which its demo is played. Does not
belong: the server (``mariadb``), TPC-H itself (``source``), and the comparison (``compare_mariadb``).
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from incremental_assets.dagster.scaffold import write_project
from incremental_assets.demo.compare import Comparison
from incremental_assets.demo.compare_mariadb import compare_mariadb
from incremental_assets.demo.mariadb import EmbeddedMariaDB, MariaDBUnavailable
from incremental_assets.demo.server_home import write_private
from incremental_assets.demo.shops import Session
from incremental_assets.demo.source import (
    EVENTS,
    LATE_EVENT_ID,
    PROFILES_PER_SCALE,
    TPCH,
    VIEW_SQL,
    expect_scale,
    generated,
    last_day,
    moved,
)

DATABASE = "shop"
FOLDER = Path(".demo") / "mariadb"
"""The folder of the demo's own project, in the project from which it is started."""
_SESSION = "SET time_zone = '+00:00', sql_mode = 'STRICT_TRANS_TABLES,PIPES_AS_CONCAT', tx_isolation = 'READ-COMMITTED'"
_OWN_TABLES = (
    """CREATE TABLE events (id bigint AUTO_INCREMENT PRIMARY KEY, kind varchar(20) NOT NULL, payload json NOT NULL,
        created_at timestamp(6) NOT NULL DEFAULT current_timestamp(6))""",
    """INSERT INTO events
        SELECT id, elt(1 + id * 7 % 5, 'view', 'search', 'basket', 'order', 'return'),
          json_object('customer', 1 + id * 7919 % {customers}, 'amount', (id * 31 % 10000) / 100, 'tags',
            json_array('t' || (id % 3), NULL), 'text', 'grüße "' || id || '"'),
          timestampadd(microsecond, -({events} - id) * 52123457, timestamp(current_date))
        FROM (SELECT CAST(seq AS signed) AS id FROM seq_1_to_{events}) AS numbers WHERE id <> {late}""",
    """CREATE TABLE customer_profile (customer_id integer PRIMARY KEY, name varchar(100) NOT NULL, email varchar(200),
        segment varchar(20) NOT NULL, updated_at timestamp(6) NOT NULL DEFAULT current_timestamp(6))""",
    """INSERT INTO customer_profile
        SELECT id, 'Customer ' || id, CASE WHEN id % 11 <> 0 THEN 'customer' || id || '@shop.example' END,
          elt(1 + id * 13 % 3, 'new', 'regular', 'gold'),
          timestampadd(microsecond, -(id * 7919 % (180 * 24 * 3600)) * 1000000 - id % 1000, timestamp(current_date))
        FROM (SELECT CAST(seq AS signed) AS id FROM seq_1_to_{profiles}) AS numbers""",
    "CREATE INDEX customer_profile_updated_at_idx ON customer_profile (updated_at)",
    VIEW_SQL,
)
_PROJECT = """\
# The datastore of `incremental-assets demo --source mariadb`: TPC-H in an embedded MariaDB, whose URL is in .env.
type: incremental_assets.MySQLDatastore
attributes:
  name: shop
  url: "{{ env.INCREMENTAL_ASSETS_DEMO_URL }}"
  settle_seconds: 1
  safety_lag_seconds: 0   # the demo's values are made by the statements that write the rows: what it shows is the watermark rule alone
  schedule: "*/15 * * * *"
  incremental:
    - "orders:o_orderdate:date"                      # orders arrive by date and hardly change afterwards
    - "lineitem:l_shipdate:date"
    - "customer_profile:updated_at:timestamp!upsert" # rows that change, and say when
    - "events:id:integer"                            # AUTO_INCREMENT
  containers:
    orders:
      partition_by: month
      safety_lag: 86400   # entered up to a day late: each sync looks one day further back
      auto_resolve: true
      checks:             # asked of the partitions that a run wrote, right after the write
        - {rule: not_null, columns: [o_orderkey, o_custkey]}
        - {rule: between, column: o_totalprice, min: 0, max: 1000000}
        - {rule: exists_in, column: o_custkey, container: customer, field: c_custkey}
    lineitem: {partition_by: month}
    customer_profile:
      partition_by: month
      auto_resolve: true
      checks:
        - {rule: contains_email, column: email}
    events: {partition_by: 10000, safety_lag: 1000}   # ids may be drawn long before they are inserted
"""


class MariaDBShop:
    """The ``Shop`` in MariaDB. ``project``: the folder of the project that has the server's data. The server ends with ``close``."""

    name, origin = "MariaDB", "MariaDB from Maven Central"
    has_log = has_files = False
    now = "now(6)"

    def __init__(self, project: Path) -> None:
        self.afterwards = f"MariaDB ends with the demo. `incremental-assets --project {FOLDER} dev` shows all of this in Dagster."
        self._project = project
        self._server = EmbeddedMariaDB(project / ".demo" / "server")
        self.url = ""

    def close(self) -> None:
        self._server.stop()

    def fill(self, scale: float) -> dict[str, int]:
        expect_scale(scale)
        if importlib.util.find_spec("pymysql") is None:
            raise MariaDBUnavailable("The driver of MariaDB is not installed here. Run: pip install 'incremental-assets[mysql]'")
        self._server.start()
        self.url = self._server.create_database(DATABASE)
        write_private(self._project / ".env", f"INCREMENTAL_ASSETS_DEMO_URL={self.url}\n")
        profiles = max(1000, int(PROFILES_PER_SCALE * scale))
        rows: dict[str, int] = {}
        with tempfile.TemporaryDirectory(prefix="tpch-") as folder, self.session() as session:
            for table, made in generated(Path(folder), scale, TPCH):
                path = Path(folder) / f"{table.name} moved.csv"
                with made.open("rb") as file, path.open("wb") as copy:
                    copy.writelines(moved(file, table, last_day()))
                made.unlink()
                session.change(f"CREATE TABLE {table.name} ({table.columns})")
                for statement in table.afterwards:
                    session.change(statement)
                # The file's path has no character that would have to be escaped: it is one of ``tempfile``.
                rows[table.name] = session.change(
                    f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE {table.name} CHARACTER SET utf8mb4 FIELDS TERMINATED BY ',' "
                    "OPTIONALLY ENCLOSED BY '\"' ESCAPED BY '' LINES TERMINATED BY '\\n' IGNORE 1 LINES"
                )
                path.unlink()
            for statement in _OWN_TABLES:
                given = statement.format(events=EVENTS, late=LATE_EVENT_ID, customers=profiles, profiles=profiles)
                session.change(given.replace("%", "%%"))
            session.rows(f"ANALYZE TABLE {', '.join(sorted(rows))}, events, customer_profile")
        return rows | {"events": EVENTS - 1, "customer_profile": profiles}

    @contextmanager
    def session(self, application: str = "shop") -> Iterator[Session]:
        from pymysql.constants import CLIENT

        # An update counts the rows that it has found, as in PostgreSQL, also those that have the values already.
        connection = self._server.connect(DATABASE, client_flag=CLIENT.FOUND_ROWS, local_infile=True, program_name=application)
        with closing(connection):
            connection.autocommit(False)
            with connection.cursor() as cursor:
                cursor.execute(_SESSION)
            try:
                yield _Session(connection)
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    def containers(self) -> list[str]:
        with self.session() as session:
            found = session.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = database() ORDER BY 1")
        return [name for (name,) in found]

    def compare(self, container: str, lake: Path) -> Comparison:
        # Without converters, each value is the text that MariaDB itself has sent.
        with closing(self._server.connect(DATABASE, conv={})) as connection:
            return compare_mariadb(connection, container, lake)

    # ------------------------------------------------------------------
    def numbers(self, name: str, most: int) -> str:
        # MariaDB's numbers are unsigned, and so would be all that is calculated with them.
        return f"(SELECT CAST(seq AS signed) AS {name} FROM seq_1_to_{most}) AS of_{name}"

    def json_object(self, key: str, value: str) -> str:
        return f"json_object('{key}', {value})"


class _Session:
    """The ``Session`` of one connection of PyMySQL's."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def pid(self) -> int:
        return self._connection.thread_id()

    def change(self, statement: str, values: Mapping[str, object] | None = None) -> int:
        with self._connection.cursor() as cursor:
            return cursor.execute(statement, values or {})

    def rows(self, query: str) -> Sequence[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()


def mariadb_project(project: Path) -> Path:
    """The folder of the project in which the demo on MariaDB is played; it is written the first time."""
    folder = project / FOLDER
    if not (folder / "definitions.py").exists():
        write_project(folder)
    datastore = folder / "defs" / "shop"
    datastore.mkdir(exist_ok=True)
    (datastore / "defs.yaml").write_text(_PROJECT, encoding="utf-8")
    return folder
