"""A source's server that was set back or replaced while the lake went on: a volume's snapshot, a fail-over, foreign partitions.

Belongs here: fingerprints that are equal for other rows. Does not belong: sequences that fall back (``test_source_trouble``), gaps of the
log, and reading from a replica (``test_replica``).
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from assets_tests.databases.test_replica import replayed
from assets_tests.databases.test_replica import standby as standby
from assets_tests.harness import Project
from incremental_assets.core.history import HistoryPoint
from incremental_assets.core.plan import Mode
from incremental_assets.delta.properties import set_property_without_spark
from incremental_assets.delta.table import STATE_PROPERTY
from incremental_assets.demo.postgres import EmbeddedPostgres

MakeProject = Callable[..., Project]
FOUND = sorted(Path("/usr/share/postgresql").glob("*/extension/postgres_fdw.control"))
PROGRAMS = Path("/usr/lib/postgresql", FOUND[-1].parts[-3], "bin") if FOUND else None


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server that a test may stop and set back."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("own"))
    server.start()
    yield server
    server.remove()


@pytest.fixture
def other(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server of the machine's own programs, which have ``postgres_fdw``: the embedded ones have no foreign data wrapper."""
    assert PROGRAMS is not None
    server = EmbeddedPostgres(tmp_path_factory.mktemp("other"))
    server.folder.chmod(0o711)
    home = server._home = replace(server.home, binaries=PROGRAMS)
    done = home.account.run(
        [str(PROGRAMS / "initdb"), "-D", str(home.data), "-U", "postgres", "--auth=trust", "--encoding=UTF8"], timeout=120
    )
    assert done.returncode == 0, done.stdout
    with (home.data / "postgresql.conf").open("a", encoding="utf-8") as config:
        config.write("\ninclude_if_exists = 'embedded.conf'\n")
    (server.folder / "password").write_text("unused")
    server.start()
    yield server
    server.remove()


def at(project: Project, url: str) -> None:
    """Lets the project's address lead to another server, as a name in the network does after a fail-over."""
    project.source.close()
    project.url = url
    project.source = psycopg.connect(url, autocommit=True)


def _put(project: Project, name: str, point: HistoryPoint | None) -> None:
    """Stores another point with the container's table."""
    table, container = project.table(name), project.definition(name).container
    head = table.head()
    assert head is not None
    state = head.state(container)
    assert state is not None
    text = replace(state, point=point).to_json(container.cursor_type)
    assert set_property_without_spark(table, head.version, STATE_PROPERTY, text)


def point(project: Project, name: str) -> HistoryPoint:
    head, container = project.table(name).head(), project.definition(name).container
    assert head is not None
    state = head.state(container)
    assert state is not None and state.point is not None
    return state.point


@pytest.mark.long
def test_a_volume_that_is_set_back_is_not_skipped_though_its_fingerprint_is_equal(project: MakeProject, own: EmbeddedPostgres) -> None:
    """The same transaction number and the same place hold another row after a snapshot of the volume was put back: skipped, it would be
    missing in the lake for good."""
    made = project(incremental=["public.t:at:timestamp!upsert"], containers={"t": {"partition_by": "month"}})
    at(made, own.url())
    made.execute("""create table t (id int primary key, at timestamptz); create table whole (id int); create table noise (x text);
        insert into t select i, timestamptz '2024-11-01' + i * interval '1 day' from generate_series(1, 20) i; checkpoint""")
    own.stop()
    kept = own.home.data.with_name("kept")
    shutil.copytree(own.home.data, kept, symlinks=True)
    own.start()
    at(made, own.url())
    made.execute("insert into t values (21, '2024-11-21')")
    made.execute("insert into whole values (21)")
    made.execute("insert into noise select repeat('x', 1000) from generate_series(1, 2000)")
    assert {line["status"] for line in made.sync("t", "whole").values()} == {"synced"}
    before = made.source.execute("select xmin::text, ctid::text from t where id = 21").fetchone()

    made.source.close()
    own.stop()
    for path in kept.rglob("*"):
        into = own.home.data / path.relative_to(kept)
        if path.is_file() and not path.is_symlink():
            shutil.copyfile(path, into)
    for path in list(own.home.data.rglob("*")):
        if path.is_file() and not (kept / path.relative_to(own.home.data)).exists():
            path.unlink()
    own.start()
    at(made, own.url())
    made.execute("insert into t values (99, '2024-11-21')")
    made.execute("insert into whole values (99)")
    assert made.source.execute("select xmin::text, ctid::text from t where id = 99").fetchone() == before

    lines = made.sync("t", "whole")
    assert lines["t"]["status"] == "warning" and "its log is at" in lines["t"]["message"], lines["t"]
    assert "incremental-assets audit shop/t --repair" in lines["t"]["message"]
    assert lines["whole"]["status"] == "synced", lines["whole"]
    assert (99,) in made.rows("t", "id") and made.rows("whole", "id") == [(99,)]
    assert {line["status"] for line in made.sync("t", "whole").values()} == {"skipped"}


@pytest.mark.long
def test_after_a_fail_over_the_tail_is_read_and_an_audit_is_asked_for(project: MakeProject, standby: EmbeddedPostgres) -> None:
    """A replica that takes over may lack the newest transactions, which the lake has read from its primary."""
    made = project(incremental=["public.t:id:integer"], containers={"t": {"partition_by": 100}})
    primary = made.url
    made.execute("create table t (id bigserial primary key, note text); insert into t (note) select 'a' from generate_series(1, 50)")
    replayed(made.source, standby.url(Path(primary).name))
    assert made.one("t")["status"] == "synced" and made.one("t")["status"] == "skipped"
    at(made, standby.url(Path(primary).name))
    assert made.one("t")["status"] in ("skipped", "synced")
    made.source.execute("select pg_promote()")
    line = made.one("t")
    assert line["status"] == "warning" and "another timeline" in line["message"], line
    assert line["rows_read"] <= 1
    assert made.one("t")["status"] == "skipped"


def test_a_log_that_ends_before_what_was_read_is_no_skip_and_is_said_once(project: MakeProject) -> None:
    """A server that was set back gives the same transaction numbers again, so that equal fingerprints prove nothing any more."""
    made = project(incremental=["public.t:id:integer"], containers={"t": {"partition_by": 100}})
    made.execute("create table t (id bigserial primary key); insert into t select from generate_series(1, 50)")
    assert made.one("t")["status"] == "synced" and made.one("t")["status"] == "skipped"
    _put(made, "t", replace(point(made, "t"), lsn=1 << 60))
    line = made.one("t")
    assert line["status"] == "warning" and "audit shop/t --repair" in line["message"], line
    assert line["rows_read"] == 1 and line["watermark"]["new"] == 50, "nothing is loaded anew because of it"
    assert made.one("t")["status"] == "skipped" and point(made, "t").lsn < 1 << 60


def test_a_refresh_of_one_partition_leaves_the_others_doubted(project: MakeProject) -> None:
    """Only the tail's sync may take the doubt away: a refresh of one partition has not read the tail."""
    made = project(incremental=["public.t:id:integer"], containers={"t": {"partition_by": 100}})
    made.execute("create table t (id bigserial primary key); insert into t select from generate_series(1, 250)")
    made.one("t")
    _put(made, "t", replace(point(made, "t"), timeline="0000000A"))
    assert made.one("t", keys=("0", "0"), mode=Mode.REFRESH)["status"] == "synced"
    assert made.one("t")["status"] == "warning"


def test_a_table_with_a_foreign_partition_has_no_fingerprint(project: MakeProject) -> None:
    """The rows of a foreign partition have no transaction numbers of this server, so that no fingerprint sees that they change. A wrapper
    without handler cannot be read, so its partition is one that ``where`` leaves out here."""
    made = project(incremental=["public.t:id:integer"], containers={"t": {"partition_by": 100, "where": "id >= 100"}})
    made.execute("""create table t (id int not null, note text) partition by range (id);
        create table near partition of t for values from (100) to (200); insert into t values (101, 'a');
        create table part partition of t for values from (0) to (100) partition by range (id)""")
    assert made.one("t")["status"] == "synced" and made.one("t")["status"] == "skipped"
    made.execute("""create foreign data wrapper nothing; create server nowhere foreign data wrapper nothing;
        create foreign table far partition of part for values from (0) to (50) server nowhere""")
    assert [made.one("t")["status"] for _ in range(2)] == ["synced", "synced"]


@pytest.mark.long
@pytest.mark.skipif(PROGRAMS is None, reason="no PostgreSQL with postgres_fdw is installed on this machine")
@pytest.mark.parametrize("incremental", [["public.t:id:integer"], []])
def test_a_change_in_a_foreign_table_below_a_table_arrives(project: MakeProject, other: EmbeddedPostgres, incremental: list[str]) -> None:
    """As a partition, or as an heir, a foreign table changes without a trace in this server: skipped, its change would be missing."""
    made = project(incremental=incremental, containers={"t": {"partition_by": 100}} if incremental else {})
    made.configure(containers={**made.attributes["containers"], "u": {"inherited": "include"}, "v": {"inherited": "only"}})
    at(made, other.url())
    made.execute(f"""create extension postgres_fdw; create schema other; create table other.far (id int, note text);
        create server loop foreign data wrapper postgres_fdw options (host '127.0.0.1', port '{other.port}', dbname 'postgres');
        create user mapping for current_user server loop options (user 'postgres', password 'unused');
        insert into other.far values (150, 'a');
        create table t (id int, note text) partition by range (id); create table part partition of t for values from (0) to (100)
        partition by range (id); create table near partition of part for values from (0) to (50); insert into t values (1, 'a');
        create foreign table far partition of t for values from (100) to (200) server loop options (schema_name 'other', table_name 'far');
        create table u (id int, note text); insert into u values (1, 'a');
        create foreign table far_u () inherits (u) server loop options (schema_name 'other', table_name 'far');
        create table v (id int, note text); insert into v values (1, 'a');
        create foreign table far_v () inherits (v) server loop options (schema_name 'other', table_name 'far')""")
    assert {line["status"] for line in made.sync("t", "u", "v").values()} <= {"synced", "warning"}
    made.execute("update other.far set note = 'b'")
    lines = made.sync("t", "u", "v")
    assert (150, "b") in made.rows("t", "id, note") and (150, "b") in made.rows("u", "id, note"), lines
    assert lines["v"]["status"] == "skipped", "the foreign heir is not read, so it does not count"


def test_a_role_that_may_not_ask_for_the_log_is_synced_and_skipped_as_before(project: MakeProject) -> None:
    """Some servers that are compatible with PostgreSQL do not tell of their log, and some roles may not ask: no sync fails for it."""
    made = project(incremental=["public.t:id:integer"], containers={"t": {"partition_by": 100}})
    made.execute("""create table t (id bigserial primary key); insert into t select from generate_series(1, 50);
        revoke execute on function pg_walfile_name(pg_lsn) from public; drop role if exists blind; create role blind login password 'p';
        grant usage on schema public to blind; grant select on all tables in schema public to blind;
        grant select on all sequences in schema public to blind""")
    to = conninfo_to_dict(made.url)
    made.url = f"postgresql://blind:p@{to['host']}:{to['port']}/{to['dbname']}"
    assert made.one("t")["status"] == "synced"
    assert made.one("t")["status"] == "skipped"
    made.execute("insert into t default values")
    assert made.one("t")["rows_inserted"] == 1


def test_a_state_without_a_point_learns_it_without_a_read(project: MakeProject) -> None:
    """After an upgrade, a table that never changes must be protected, too, and must not be read for it."""
    made = project(incremental=["public.t:id:integer"], containers={"t": {"partition_by": 100}})
    made.execute("""create table t (id bigserial primary key); insert into t select from generate_series(1, 50);
        create table whole (id int); insert into whole values (1)""")
    made.sync()
    for name in ("t", "whole"):
        _put(made, name, None)
    lines = made.sync()
    assert {line["status"] for line in lines.values()} == {"skipped"}, lines
    assert all(point(made, name).timeline == "00000001" for name in ("t", "whole"))
