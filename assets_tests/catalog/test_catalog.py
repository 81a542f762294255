"""The catalog operation over a real PostgreSQL: it handles only differences, forgets nothing by itself, and keeps what a person has
decided.

Belongs here: the operation, its runs, its command. Elsewhere: what is proposed (``test_detect``), the syncs.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from psycopg import sql

from assets_tests.harness import Project, statements_sent
from incremental_assets.catalog.detect import Proposal
from incremental_assets.catalog.operation import CatalogOptions, CatalogResult, hide
from incremental_assets.catalog.state import Catalog, Known, Presence
from incremental_assets.core.container import Kind, Origin, SourceColumn, SourceTable
from incremental_assets.core.cursor_type import CursorType
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.grammar import Strategy
from incremental_assets.databases.postgres.cuts import ordering_cuts
from incremental_assets.databases.postgres.reader import PostgresReader
from incremental_assets.project import catalog_store
from incremental_assets.project.catalog_store import CatalogStore
from incremental_assets.runs.records.run_tags import PREFIX

MakeProject = Callable[..., Project]


class Looks:
    """Looks at a project's datastore, each against what the one before left."""

    def __init__(self, project: Project) -> None:
        self.project, self.catalog = project, None
        self.outcome: CatalogResult | None = None

    catalog: Catalog | None

    def __call__(self, prune: bool = False, recreate: bool = False, kinds: frozenset[Kind] = frozenset(Kind)) -> list[str]:
        """The differences, as people read them."""
        self.outcome = self.project.component.take_catalog(self.catalog, CatalogOptions(prune, recreate, kinds))
        self.catalog = self.outcome.catalog
        return [str(difference) for difference in self.outcome.differences]

    @property
    def containers(self) -> list[str]:
        assert self.catalog is not None
        return [definition.table.name for definition in self.project.component.definitions(self.catalog)]

    def presence(self, name: str) -> Presence:
        assert self.catalog is not None
        return self.catalog.by_name[name].presence


@pytest.fixture
def looks(project: MakeProject) -> Looks:
    made = project()
    made.execute("create table a (id int primary key, note text); create table b (id int); create view v as select * from a")
    return Looks(made)


def test_the_catalog_inspects_only_containers_that_have_changed(looks: Looks) -> None:
    """Each kind of difference is named as what it is; what is unchanged is not looked at, and its entry stays as it was."""
    assert looks() == ["a: new", "b: new", "v: new"]
    before = looks.catalog
    assert looks() == [] and looks.outcome is not None and looks.outcome.inspected == 0
    assert before is not None and looks.catalog is not None and looks.catalog.entries == before.entries
    looks.project.execute("""drop view v; alter table a add at timestamptz default now(), alter note type varchar(9);
        alter table a alter note set not null;
        create table c (x int); alter table b add primary key (id)""")
    assert looks() == [
        "a: changed: new field at (timestamp with time zone); note: type text → character varying(9); note: nulls nullable → not null",
        "b: changed: id: nulls nullable → not null; primary key none → id; indexes none → id",
        "c: new",
        "v: missing",
    ]
    assert looks.outcome is not None and looks.outcome.inspected == 3
    looks.project.execute("alter table a drop at; alter table b drop constraint b_pkey, add other int, add primary key (other)")
    assert looks()[0] == "a: changed: field gone: at (timestamp with time zone)"
    looks.project.execute("alter table a add at date")
    assert looks() == ["a: changed: field back: at (date)"]


def test_a_container_that_is_gone_is_kept_until_it_is_pruned(looks: Looks) -> None:
    """Without its asset, history and schedule of a container would vanish, also where a table is only renamed for an hour."""
    looks()
    looks.project.execute("alter table a rename to a_old; drop table b")
    assert looks() == ["a: missing", "a_old: new", "b: missing"]
    assert looks() == [] and looks.containers == ["a", "a_old", "b", "v"]
    assert [name for name in looks.containers if looks.presence(name) is Presence.MISSING] == ["a", "b"]
    looks.project.execute("alter table a_old rename to a")
    assert looks() == ["a: back", "a_old: missing"]
    assert looks(prune=True) == ["a_old: pruned", "b: pruned"]
    assert looks.containers == ["a", "v"] and looks() == []


def test_a_container_that_the_yaml_names_is_never_pruned(looks: Looks) -> None:
    """A project whose YAML names an unknown table does not load, so that none of its containers could be synced."""
    looks.project.configure(containers={"b": {"safety_lag": 0}})
    looks()
    looks.project.execute("drop table b")
    assert looks(prune=True) == ["b: missing"] and looks(prune=True) == []
    assert looks.outcome is not None and "the YAML names it" in looks.outcome.troubles["b"]
    assert "b" in looks.containers


def test_removed_containers_stay_hidden_until_they_are_recreated(looks: Looks) -> None:
    """A container that a person has removed must not come back with the next catalog."""
    looks()
    assert looks.catalog is not None
    looks.catalog = hide(looks.catalog, ["a"])
    looks.project.execute("alter table a add x int")
    assert looks() == [] and looks.containers == ["b", "v"]
    assert looks(recreate=True) == ["a: back: new field x (integer)"]
    assert looks.containers == ["a", "b", "v"]
    looks.project.configure(exclude=["a"])
    assert looks.catalog is not None
    looks.catalog = hide(looks.catalog, ["b"])
    assert looks(recreate=True) == ["b: back"] and looks.containers == ["b", "v"]
    with pytest.raises(ConfigurationError, match="'nothing' is not in the catalog"):
        hide(looks.catalog, ["nothing"])


def test_a_catalog_can_be_limited_to_tables_or_to_views(looks: Looks) -> None:
    """Tables or views that a run leaves out must stay as they are known, and what the YAML does not include is no container."""
    views = frozenset(kind for kind in Kind if kind.is_view)
    assert looks(kinds=views) == ["v: new"]
    looks.project.execute("drop view v; create view w as select 1 as x")
    assert looks(kinds=frozenset(Kind) - views) == ["a: new", "b: new"]
    assert looks.presence("v") is Presence.PRESENT
    assert looks() == ["v: missing", "w: new"]
    looks.project.configure(catalog={"include": ["table"]})
    assert looks.containers == ["a", "b"]


def test_excluded_tables_are_not_inspected(looks: Looks) -> None:
    """Differences of excluded tables are of no interest. Once a table is no longer excluded, it is new."""
    looks.project.configure(exclude=["b*"])
    assert looks() == ["a: new", "v: new"]
    looks.project.execute("alter table b add x int")
    assert looks() == []
    looks.project.configure(exclude=[])
    assert looks() == ["b: new"]


@pytest.mark.usefixtures("long_used")
def test_a_detected_identifier_is_used_with_auto_and_does_not_change(project: MakeProject) -> None:
    """A change of the identifier requires a load anew, so changed statistics must not change it. The YAML counts at once."""
    looks = Looks(project(containers={"log": {"identifiers": "auto"}}))
    looks.project.execute("""create table log (id bigserial primary key, at timestamptz not null default now(), day date);
        insert into log (day) select date '2024-01-01' + i % 7 from generate_series(1, 2000) i;
        create table other (id bigserial primary key); insert into other select from generate_series(1, 2000);
        select pg_stat_force_next_flush()""")
    looks.project.execute("analyze")
    looks()

    def container(name: str = "log") -> Any:
        assert looks.catalog is not None
        return next(d.container for d in looks.project.component.definitions(looks.catalog) if d.table.name == name)

    assert container().identifier.columns == ("id",) and container().partitioning.width == 10_000
    assert container("other").identifier is None  # nobody said auto of it
    looks.project.execute("create index on log (at); update log set day = '2024-02-01' where id < 9; select pg_stat_force_next_flush()")
    assert looks() == ["log: changed: indexes id → id, at"]
    assert container().identifier.columns == ("id",)
    assert looks.outcome is not None and "8 rows were updated or deleted" in looks.outcome.troubles["log"]
    assert looks() == [] and "8 rows were updated or deleted" in looks.outcome.troubles["log"]  # it does not heal by itself
    looks.project.configure(incremental=["public.log:day:date"])
    assert container().identifier.columns == ("day",)
    looks()
    assert container().identifier.columns == ("day",)
    looks.project.configure(incremental=["public.log:day:date:e"])
    looks()
    assert container().identifier is None


@pytest.mark.usefixtures("long_used")
def test_a_container_that_is_synced_whole_gets_no_identifier_by_itself(project: MakeProject) -> None:
    """Its table was built without an identifier, so every sync would fail from the day on which an identifier is detected."""
    looks = Looks(project(identifiers="auto", containers={"log": {"partition_by": 50}}))
    looks.project.execute("create table log (id bigserial primary key); insert into log select from generate_series(1, 500)")
    looks()
    assert looks.catalog is not None
    assert looks.project.component.definitions(looks.catalog)[0].container.identifier is None
    looks.project.execute("insert into log select from generate_series(1, 2000); select pg_stat_force_next_flush()")
    looks.project.execute("analyze")
    looks()
    (definition,) = looks.project.component.definitions(looks.catalog)
    assert definition.proposal.trusted and definition.container.identifier is None
    looks.catalog = hide(looks.catalog, ["log"])  # a person who wants it: taken out, and in again
    looks(recreate=True)
    (definition,) = looks.project.component.definitions(looks.catalog)
    assert (
        definition.container.identifier is not None
        and definition.container.partitioning is not None
        and definition.container.partitioning.width == 50
    )


@pytest.mark.usefixtures("long_used")
def test_a_missing_trigger_of_an_upsert_is_reported(project: MakeProject) -> None:
    """Without the trigger that sets the identifier, updates no longer reach the lake, so the catalog must report it."""
    looks = Looks(project(identifiers="auto"))
    looks.project.execute("""create table customer (id int primary key, updated_at timestamptz not null default now());
        create function touch() returns trigger language plpgsql as $$ begin new.updated_at = now(); return new; end $$;
        create trigger touch before update on customer for each row execute function touch()""")
    looks()
    assert looks.outcome is not None and looks.outcome.troubles == {}
    looks.project.execute("create or replace trigger touch before update of id on customer for each row execute function touch()")
    looks()
    assert "nothing in the source is known to set it at an update" in looks.outcome.troubles["customer"]


@pytest.mark.long
def test_a_container_that_the_yaml_no_longer_fits_does_not_stop_the_others(looks: Looks) -> None:
    """A renamed column of one table would keep all new tables from being found."""
    project = looks.project
    project.configure(incremental=["public.a:id:integer"])
    project.write()
    lines(project)
    project.execute("alter table a rename id to number; create table c (x int); drop table b")
    found = {record["container"]: record for record in lines(project)}
    assert "there is no column 'id'" in found["shop/a"]["trouble"]
    assert (found["shop/b"]["change"], found["shop/c"]["change"]) == ("missing", "new")


def test_a_catalog_does_not_undo_a_removal_during_its_run(looks: Looks, tmp_path: Path) -> None:
    """A catalog that has begun before somebody removes a container must not bring it back when it ends."""
    store = CatalogStore(looks.project.component.defs_state_config, tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(catalog_store, "get_local_state_path", lambda key, project: project / "state")
        patched.setattr(catalog_store, "LOCK_SECONDS", 0.2)
        with store.locked(), pytest.raises(ConfigurationError, match="another process is taking its catalog"), store.locked():
            pass


def test_a_table_that_was_created_anew_is_reported(looks: Looks) -> None:
    """The watermark says nothing about the rows of the new table."""
    looks()
    looks.project.execute("drop table b; create table b (id int)")
    assert looks() == ["b: changed: it was dropped and created anew"]


def test_a_renamed_sequence_is_reported_as_a_change(looks: Looks) -> None:
    """Its syncs ask the sequence for its last value, by the name that the catalog knows."""
    looks.project.execute("create table s (id bigint generated always as identity primary key, n serial)")
    looks()
    looks.project.execute("alter sequence s_id_seq rename to numbers; alter sequence s_n_seq rename to others")
    (difference,) = looks()
    assert "id: default" in difference and "public.numbers" in difference


def test_a_changed_comment_of_a_column_is_reported(looks: Looks) -> None:
    """Nobody would learn that a column means something else now, and Dagster would go on showing the old meaning."""
    looks()
    looks.project.execute("comment on column a.note is 'in words'; comment on column v.note is 'of the view'")
    assert looks() == ["a: changed: note: comment none → in words", "v: changed: note: comment none → of the view"]
    looks.project.execute("comment on column a.note is null")
    assert looks() == ["a: changed: note: comment in words → none"] and looks() == []
    assert looks.catalog is not None and looks.catalog.by_name["v"].table.columns[1].comment == "of the view"


@pytest.mark.long
def test_a_catalog_of_two_thousand_unchanged_tables_takes_few_queries(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of queries must not depend on the number of tables, as a query for each would take minutes on a remote database."""
    queries = """do $$ begin for i in 1..2000 loop
        execute format('create table t%s (id bigserial primary key, a int, b text)', i); end loop; end $$"""
    looks.project.execute(queries)
    assert len(looks()) == 2003
    assert looks.outcome is not None and looks.outcome.inspected == 2003
    sent = statements_sent(monkeypatch)
    assert looks() == []
    assert 0 < len(sent) < 10


def test_an_interrupted_catalog_keeps_the_old_one_and_the_next_goes_on(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog of thousands of tables that begins anew each time may never end."""
    from incremental_assets.catalog import inspect as look

    monkeypatch.setattr(look, "BATCH", 1)
    component = looks.project.component
    kept: dict[str, Any] = {}

    def keep(found: Any) -> None:
        kept.update(found)
        if len(kept) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        component.take_catalog(None, keep=keep)
    said: list[str] = []
    outcome = component.take_catalog(None, None, said.append, finished=kept)
    assert said[0] == "2 containers were finished by a run that did not end"
    assert [str(difference) for difference in outcome.differences] == ["a: new", "b: new", "v: new"]
    anew = component.take_catalog(None).catalog
    assert [dataclasses.replace(k, since="") for k in outcome.catalog.entries] == [dataclasses.replace(k, since="") for k in anew.entries]


@pytest.mark.long
def test_a_container_that_cannot_be_inspected_is_a_warning(looks: Looks) -> None:
    """The others must be catalogued, and somebody must see that one was not."""
    looks.project.configure(incremental=["public.a:id:integer", "public.broken:x:integer"])
    looks.project.execute("create table broken (x int); create table fine (x int)")
    with looks.project.source.transaction():
        looks.project.execute("lock table broken in access exclusive mode")
        differences = looks()
    assert differences == ["a: new", "b: new", "broken: new", "fine: new", "v: new"]
    assert looks.outcome is not None and list(looks.outcome.troubles) == ["broken"]
    assert "locked" in looks.outcome.troubles["broken"]
    assert looks() == [] and looks.outcome.troubles == {}


def test_the_first_read_of_a_partitioned_table_is_divided_by_its_key(looks: Looks) -> None:
    """Ranges of ``ctid`` do not work for partitioned tables, so one reader would read everything. The ranges of the key must cover each row
    once."""
    looks.project.execute("""create table parts (code text, at date not null, primary key (code, at)) partition by range (at);
        create table p1 partition of parts for values from ('2024-01-01') to ('2024-07-01');
        create table p2 partition of parts for values from ('2024-07-01') to ('2025-01-01');
        insert into parts select 'ü' || (i * 7919 % 5000), date '2024-01-01' + i % 360 from generate_series(1, 5000) i; analyze parts""")
    definition = looks.project.definition("parts")
    assert definition.proposal.primary_key == ("code", "at") and definition.proposal.type is None
    with PostgresReader(definition.settings.address, definition.container, timezone="UTC") as reader:
        cuts = ordering_cuts(reader, 4)
        counts = [reader.rows(sql.SQL("select count(*) from parts where {}").format(partitioning))[0][0] for partitioning in cuts]
    assert len(counts) == 4 and sum(counts) == 5000 and max(counts) < 1700, counts


@pytest.mark.long
def test_the_catalog_may_be_kept_in_dagsters_versioned_storage(project: MakeProject) -> None:
    """The folders of a pod do not survive it, so the next pod would have no catalog."""
    made = project(defs_state={"management_type": "VERSIONED_STATE_STORAGE"})
    made.execute("create table a (id int primary key)")
    made.write()
    assert [r["change"] for r in lines(made)] == ["new"]
    assert not list(made.path.glob("defs/.local_defs_state/*/state"))
    assert [r["change"] for r in lines(made)] == [None]
    assert [line["container"] for line in made.cli("watermarks", "--json", spark=False)[1]] == ["shop/a"]


def test_a_catalog_of_the_first_version_is_still_read(looks: Looks, tmp_path: Path) -> None:
    """After an upgrade the calendars must begin where they did before, as the history refers to the keys of their partitions."""
    looks()
    assert looks.catalog is not None
    tables = [{**dataclasses.asdict(known.table), "first": "2020-02-02"} for known in looks.catalog.entries]
    old = {"format": 1, "found_on": 18000, "found_at": "2020-01-01T00:00:00+00:00", "tables": tables}
    (tmp_path / "state").write_text(json.dumps(old))
    looks.catalog = Catalog.load(tmp_path / "state")
    assert looks() == [] and looks.outcome is not None and looks.outcome.inspected == 3
    assert looks.catalog.found_on == 18000 and {known.table.first for known in looks.catalog.entries} == {"2020-02-02"}
    (tmp_path / "state").write_text('{"format": 0}')
    with pytest.raises(ConfigurationError, match="cannot be read; delete that state"):
        Catalog.load(tmp_path / "state")


def test_a_stored_catalog_keeps_its_keys(tmp_path: Path) -> None:
    """After an upgrade a container whose identifier was detected would have none, and be loaded whole without a word."""
    origin = Origin(identity=True, in_turn=True, block=1, at_insert="now", at_update="now")
    column = SourceColumn("updated_at", "timestamptz", "timestamptz", True, "now()", "s", origin)
    table = SourceTable(
        "orders", Kind.TABLE, (column,), ("id",), ("id",), 5, 9, "all", "2026", "2027", 7, "*.csv", "csv", 3, True, ("day",)
    )
    proposal = Proposal(("updated_at",), CursorType.TIMESTAMP, Strategy.UPSERT, "month", ("id",), True, ("why",))
    catalog = Catalog(
        20_000,
        "2026-01-01",
        (Known(table, "f", "2026-01-01", 4, Presence.MISSING, (column,), proposal, proposal, "doubt", "1"),),
        left_out=("t",),
    )
    path = tmp_path / "state"
    catalog.save(path)
    assert Catalog.load(path) == catalog
    assert keys_in(json.loads(path.read_text())) == set(
        [
            "found_on",
            "found_at",
            "entries",
            "left_out",
            "missing_privileges",
            "format",
            "missing_privileges",
            "written_by",
            "table",
            "fingerprint",
            "since",
            "activity",
            "profiled",
            "presence",
            "dropped",
            "identity",
            "is_rowversion",
            "in_own_zone",
            "counts_down",
            "foreign_keys",
            "proposal",
            "pinned",
            "doubt",
            "name",
            "kind",
            "columns",
            "primary_key",
            "indexed",
            "rows",
            "bytes",
            "comment",
            "first",
            "last",
            "span",
            "spanned",
            "heirs",
            "glob",
            "files",
            "subscribed",
            "type",
            "base",
            "not_null",
            "default",
            "sequence",
            "origin",
            "identity",
            "in_turn",
            "block",
            "at_insert",
            "at_update",
            "axis",
            "strategy",
            "partition_by",
            "trusted",
            "reasons",
            "about",
            "waits",
            "is_small",
        ]
    )
    path.write_text(path.read_text().replace('"axis"', '"cursor_type"'))  # as some commits before a release had it
    assert Catalog.load(path) == catalog


def keys_in(value: Any) -> set[str]:
    """All keys of a JSON value, however deep."""
    if isinstance(value, dict):
        return {key for key, below in value.items() for key in (key, *keys_in(below))}
    return {key for below in value for key in keys_in(below)} if isinstance(value, list) else set()


# ---------------------------------------------------------------------- as runs of Dagster, and on the command line
def lines(project: Project, *arguments: str) -> list[dict[str, Any]]:
    return project.cli("catalog", *arguments, "--json", spark=False)[1]


@pytest.mark.long
def test_the_command_runs_as_an_ordinary_dagster_run(looks: Looks) -> None:
    """The UI must show later who ran the catalog, with which options, and what it found."""
    project = looks.project
    project.write()
    dry = lines(project, "--dry-run")
    assert [(r["container"], r["change"]) for r in dry] == [("shop/a", "new"), ("shop/b", "new"), ("shop/v", "new")]
    with project.instance() as instance:
        assert instance.get_runs() == []
    assert lines(project) == dry
    project.execute("drop table b; alter table a add x int")
    records = {r["container"]: r for r in lines(project)}
    assert records["shop/b"]["status"] == "missing" and records["shop/b"]["change"] == "missing"
    assert records["shop/a"]["fields"] == [{"field": "x", "change": "new", "before": None, "after": "integer"}]
    assert lines(project, "--prune")[-1] == {**lines_of_nothing(), "container": "shop/b"}
    assert "shop/a: removed from the catalog" in project.cli("catalog", "remove", "shop/a", spark=False)[2]
    assert [r["container"] for r in lines(project)] == ["shop/v"]
    assert [r["container"] for r in lines(project, "--recreate", "--include", "table")] == ["shop/a", "shop/v"]
    with project.instance() as instance:
        runs = instance.get_runs()
        key = dg.AssetKey(["shop", "catalog"])
        events = [r.asset_materialization for r in instance.fetch_materializations(key, limit=9).records]
    options = {name: runs[0].tags[f"{PREFIX}{name}"] for name in ("prune", "recreate", "include", "started_by", "result")}
    assert options == {"prune": "false", "recreate": "true", "include": "table", "started_by": "command line", "result": "success"}
    newest = events[0]
    assert newest is not None and newest.metadata["catalog/back"].value == 1 and newest.metadata["catalog/containers"].value == 2
    table = newest.metadata["catalog/differences"]
    assert isinstance(table, dg.TableMetadataValue) and table.records[0].data["container"] == "a"


def lines_of_nothing() -> dict[str, Any]:
    names = "missing_since kind strategy identifier partition_by rows bytes first last glob format files trouble proposal"
    names += " safety_lag safety_lag_is_auto safety_lag_reason row_security not_synced"
    return {
        **dict.fromkeys(names.split()),
        "primary_key": [],
        "columns": [],
        "fields": [],
        "left_out": [],
        "status": "pruned",
        "change": "pruned",
    }


@pytest.mark.long
def test_wrong_arguments_of_the_catalog_are_refused(looks: Looks) -> None:
    """Each message must say what would be right, and nothing may have run."""
    looks.project.write()
    for arguments, message in (
        (["nowhere"], "there is no datastore 'nowhere'"),
        (["--include", "tables"], "it is table or view"),
        (["remove"], "name what is to be removed"),
        (["remove", "shop"], "name a container, DATASTORE/CONTAINER"),
        (["remove", "shop/a"], "shop has no catalog yet"),
    ):
        said = looks.project.cli("catalog", *arguments, check=2, spark=False)[2]
        assert message in said, said


def test_a_table_with_a_generated_column_is_listed(project: MakeProject) -> None:
    """The expression of a generated column names other columns: PostgreSQL refused to show it, and with it the whole listing."""
    made = project()
    made.execute("create table t (id int primary key, double int generated always as (id * 2) stored); insert into t values (1)")
    made.one("t")
    made.one("t")
    made.assert_equal("t")
