"""Which column the catalog proposes, for labelled tables of a real PostgreSQL: some are plain, some are made to mislead.

A wrong proposal loses rows without a word where ``identifiers: auto`` lets it be used; a missing one only costs time. So of each table the
test says what is proposed, and whether it may be used unasked (``trusted``).
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from assets_tests.harness import Project
from incremental_assets.catalog.detect import Proposal

MakeProject = Callable[..., Project]
pytestmark = pytest.mark.usefixtures("long_used")
NOW = "timestamptz not null default now()"
FILL = "insert into {t} ({columns}) select {values} from generate_series(1, 3000) i"
TOUCH = """create function touch_{t}() returns trigger language plpgsql as $$ begin
  -- new.id := now(); if ever
  new.{column} := clock_timestamp(); return new; end $$;
  create trigger touch before insert or update on {t} for each row execute function touch_{t}()"""


@dataclass(frozen=True)
class Label:
    """A table, and what is to be proposed for it: the grammar's entry (None: nothing), trusted or not; ``says``: a part of the reasons."""

    name: str
    create: str
    fill: str
    entry: str | None
    trusted: bool = False
    says: str = ""
    partition_by: str | int | None = None


def filled(table: str, columns: str, values: str) -> str:
    return FILL.format(t=table, columns=columns, values=values)


OLD = "'2020-01-01'::timestamptz + i * interval '1 hour'"
MIXED = "'2020-01-01'::timestamptz + (i * 7919 % 3000) * interval '1 hour'"
LABELS = [
    Label(
        "customer",
        f"create table customer (id int primary key, name text, updated_at {NOW}); " + TOUCH.format(t="customer", column="updated_at"),
        filled("customer", "id, name", "i, 'n'"),
        '"public.customer:updated_at:timestamp!upsert"',
        trusted=True,
        says="the trigger touch sets it at each change",
    ),
    Label(
        "framework",
        f"create table framework (id bigserial primary key, created_at {NOW}, updated_at {NOW}); create index on framework (updated_at)",
        filled("framework", "updated_at", OLD),
        # Only the application can know whether it keeps it.
        "{table: public.framework, column: updated_at, type: timestamp, strategy: upsert, partition_by: {column: created_at, every: day}}",
        says="an index leads with updated_at",
    ),
    Label(  # the trigger's name for it wins over a column that is only named well
        "renamed",
        "create table renamed (id int primary key, modified timestamptz, stamp timestamptz not null); "
        + TOUCH.format(t="renamed", column="stamp"),
        filled("renamed", "id, modified", f"i, {MIXED}"),
        '"public.renamed:stamp:timestamp!upsert"',
        trusted=True,
    ),
    Label(
        "event",
        "create table event (id bigserial primary key, kind text)",
        filled("event", "kind", "'k'"),
        '"public.event:id:integer"',
        trusted=True,
        says="no row was updated or deleted so far, while 3,000 came",
        partition_by=10_000,
    ),
    Label(
        "log",
        f"create table log (id bigserial primary key, logged_at {NOW}); create index on log (logged_at)",
        filled("log", "logged_at", OLD),
        '"public.log:logged_at:timestamp"',
        trusted=True,
        partition_by="month",
    ),
    Label(  # rows that are written once, says the sequence; but they are not
        "basket",
        "create table basket (id bigserial primary key, items int)",
        filled("basket", "items", "i") + "; update basket set items = 0 where id % 3 = 0; delete from basket where id = 1",
        '"public.basket:id:integer"',
        says="rows were updated or deleted so far, which append misses",
    ),
    Label(  # times of people and of contracts
        "person",
        """create table person (id uuid primary key default gen_random_uuid(), birth_date date not null, valid_from timestamptz,
             last_login_at timestamptz); create index on person (birth_date)""",
        filled("person", "birth_date, valid_from, last_login_at", f"date '1950-01-01' + i, {OLD}, {OLD}"),
        None,
        says="birth_date: its name (birth) speaks of what the row is about",
    ),
    Label(  # neither is a time
        "names_only",
        "create table names_only (code text primary key, updated_by int, updated text, created_count bigint)",
        filled("names_only", "code, updated_by, updated", "'c' || i, i % 7, 'x'"),
        None,
    ),
    Label(  # who is deleted when: NULL for nearly all
        "soft_deleted",
        "create table soft_deleted (code text primary key, deleted_at timestamptz, archived_on date)",
        filled("soft_deleted", "code, archived_on", "'c' || i, case when i % 100 = 0 then date '2024-01-01' + i end"),
        None,
    ),
    Label(  # no key: nothing to merge by
        "keyless",
        f"create table keyless (name text, updated_at {NOW}); " + TOUCH.format(t="keyless", column="updated_at"),
        filled("keyless", "name", "'n'"),
        None,
        says="without a key that is never NULL its rows cannot be merged",
    ),
    Label(  # prices
        "fractions",
        "create table fractions (id numeric(10,2) primary key, total numeric(12,2))",
        filled("fractions", "id, total", "i, i"),
        None,
    ),
    Label(  # ids that were made elsewhere, in no order
        "scattered",
        "create table scattered (id int primary key, note text)",
        filled("scattered", "id", "(i * 7919) % 100003"),
        None,
        says="its values do not come in their order",
    ),
    Label(  # in order so far, but nobody promises that
        "in_order",
        "create table in_order (id int primary key, note text)",
        filled("in_order", "id", "i"),
        '"public.in_order:id:integer"',
        says="its values grow with the table",
    ),
    Label(  # NULL until the first change: the greater of both
        "pair",
        f"""create table pair (id int primary key, created_at {NOW}, updated_at timestamptz);
            create function t_pair() returns trigger language plpgsql as $$ begin new.updated_at = now(); return new; end $$;
            create trigger t before update on pair for each row execute function t_pair()""",
        filled("pair", "id", "i"),
        "{table: public.pair, column: [created_at, updated_at], type: timestamp, strategy: upsert, partition_by: {column: created_at,"
        " every: day}}",
        trusted=True,
        says="the greater of both",
    ),
    Label(  # a condition on a column is no assignment to it, and a trigger after the change sets nothing
        "conditions",
        """create table conditions (code text primary key, changed_at timestamptz, seen_at timestamptz);
           create function t_conditions() returns trigger language plpgsql as
             $$ begin if new.changed_at = old.changed_at then return null; end if; return new; end $$;
           create trigger t before update on conditions for each row execute function t_conditions()""",
        filled("conditions", "code, changed_at", f"'c' || i, {MIXED}"),
        '"public.conditions:changed_at:timestamp!upsert"',
        says="though nothing in the source is known to set it at an update",
    ),
    Label(  # a date, changed by a trigger; its key is a unique index over two columns
        "daily",
        "create table daily (id int not null, part int not null, modification date not null, unique (id, part)); "
        + TOUCH.format(t="daily", column="modification"),
        filled("daily", "id, part", "i, 1"),
        '"public.daily:modification:date!upsert"',
        trusted=True,
    ),
    Label(
        "loads",
        "create table loads (batch_id int not null, payload text); create index on loads (batch_id)",
        "insert into loads select i / 1500, 'p' from generate_series(0, 5999) i",
        '"public.loads:batch_id:integer"',
        partition_by="batch",
    ),
    # Triggers that only seem to keep a time of change, and counters that only seem to tell of rows that are written once.
    *(
        Label(
            name,
            f"create table {name} (id int primary key, price int, c timestamptz, {column} timestamptz not null default now());"
            f" create function t_{name}() returns trigger language plpgsql as $$ begin {body} return new; end $$;"
            f" create trigger t before {when} for each row {condition} execute function t_{name}()",
            filled(name, "id, price", "i, i"),
            f'"public.{name}:{column}:timestamp{strategy}"',
            trusted=not strategy,
        )
        for name, column, body, when, condition, strategy in (
            ("guarded", "created_at", "new.created_at := old.created_at;", "update on guarded", "", ""),
            ("of_column", "updated_at", "new.updated_at := now();", "update of price on of_column", "", "!upsert"),
            ("when_price", "updated_at", "new.updated_at := now();", "update on when_price", "when (old.price <> new.price)", "!upsert"),
            ("if_price", "updated_at", "if new.price <> 3 then new.updated_at := now(); end if;", "update on if_price", "", "!upsert"),
            ("derived", "updated_at", "new.updated_at := new.c;", "update on derived", "", "!upsert"),
            ("compared", "updated_at", "if (new.updated_at = now()) then raise 'no'; end if;", "update on compared", "", "!upsert"),
            ("message", "updated_at", "raise debug 'x; new.updated_at := now() ;';", "update on message", "", "!upsert"),
        )
    ),
    Label(  # the application's own time at inserts
        "half_set",
        """create table half_set (id int primary key, changed timestamptz not null);
           create function t_half() returns trigger language plpgsql as $$ begin new.changed := now(); return new; end $$;
           create trigger t before update on half_set for each row execute function t_half()""",
        filled("half_set", "id, changed", f"i, {OLD}"),
        '"public.half_set:changed:timestamp!upsert"',
        says="though not when a row arrives",
    ),
    Label(
        "reloaded",
        "create table reloaded (id bigserial primary key, x int)",
        filled("reloaded", "x", "i") + "; truncate reloaded; " + filled("reloaded", "x", "i"),
        '"public.reloaded:id:integer"',
        says="6,000 rows came and 3,000 are there",
    ),
    Label(
        "cached",
        "create sequence cached_ids cache 100; create table cached (id bigint primary key default nextval('cached_ids'), x int);"
        " alter sequence cached_ids owned by cached.id",
        filled("cached", "x", "i"),
        '"public.cached:id:integer"',
        says="which does not give them out one by one",
    ),
    Label(
        "countdown",
        "create table countdown (id int generated always as identity (increment -1) primary key, x int)",
        filled("countdown", "x", "i"),
        None,
        says="id: it is drawn from public.countdown_id_seq, which counts down",
    ),
    Label(
        "restarted",
        "create table restarted (id bigserial primary key, created_at timestamptz)",
        filled("restarted", "created_at", OLD) + "; alter sequence restarted_id_seq restart",
        '"public.restarted:created_at:timestamp"',
        says="id: its sequence public.restarted_id_seq is at 0, below rows that reach 3,000",
    ),
    Label(  # a clock on a wall is set back once a year
        "zoneless",
        "create table zoneless (x int, at timestamp not null default now()); create index on zoneless (at)",
        filled("zoneless", "x", "i"),
        '"public.zoneless:at:timestamp"',
    ),
    Label(  # "backfill March" means the orders of March, whenever they were changed last
        "sold",
        f"""create table sold (id int primary key, shipped date, last_order_on date not null, ordered_on date not null, updated_at {NOW});
            {TOUCH.format(t="sold", column="updated_at")}""",
        filled("sold", "id, last_order_on, ordered_on", "i, now(), '2024-01-01'::date + i % 700"),
        "{table: public.sold, column: updated_at, type: timestamp, strategy: upsert, partition_by: {column: ordered_on, every: month}}",
        trusted=True,
        says="partitions: a month of ordered_on each",
        partition_by="month",
    ),
    Label("seen", "create view seen as select id, updated_at from customer", "", None),  # a view has no key
]


@pytest.fixture(scope="module")
def proposals(postgres: object, long_used: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Project, Proposal]]:
    """One datastore with all tables, analyzed; its statistics have been told."""
    from incremental_assets.demo.postgres import EmbeddedPostgres

    assert isinstance(postgres, EmbeddedPostgres)
    path = tmp_path_factory.mktemp("detect")
    project = Project(path / "p", postgres.create_database("detect", drop=True), path / "spark")
    for label in LABELS:
        project.execute(label.create)
        for statement in filter(None, label.fill.split("; ")):  # each commits by itself
            project.execute(statement)
    for statement in ("select pg_stat_force_next_flush()", "analyze"):  # counted first: ANALYZE sets the rows that there are
        project.execute(statement)
    project.catalog()
    found = {d.table.name: (project, d.proposal) for d in project.catalog()}
    project.source.close()
    return found


@pytest.mark.parametrize("label", LABELS, ids=lambda label: label.name)
def test_the_right_identifier_is_proposed_for_each_table(label: Label, proposals: dict[str, tuple[Project, Proposal]]) -> None:
    """A column that only looks like an identifier would lose rows; one that is overlooked makes each sync read the whole table."""
    _, proposal = proposals[label.name]
    assert (proposal.entry("public", label.name), proposal.trusted) == (label.entry, label.trusted), proposal.reasons
    assert label.says in "\n".join(proposal.reasons)
    if label.partition_by is not None:
        assert proposal.partition_by == label.partition_by, proposal.reasons


@pytest.mark.parametrize("drawn", [True, False])
def test_ids_that_no_sequence_has_drawn_are_not_followed_by_themselves(project: MakeProject, drawn: bool) -> None:
    """After a restore that left the sequence behind, the watermark would stay at its value, and each sync would read the whole table."""
    made = project(identifiers="auto")
    columns = "x" if drawn else "x, id"
    made.execute(f"create table t (id bigserial primary key, x int); insert into t ({columns}) select {columns.replace('id', 'x')} from "
                 "generate_series(1, 3000) x")  # fmt: skip
    for statement in ("select pg_stat_force_next_flush()", "analyze t"):
        made.execute(statement)
    assert (made.definition("t").container.identifier is not None) is drawn
    assert made.definition("t").proposal.trusted is drawn
