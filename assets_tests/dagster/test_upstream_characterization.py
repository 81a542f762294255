"""What the product leans on in Dagster, Delta and Spark beyond their promises: previews, private modules, what nobody wrote down.

Belongs here: one test a thing, against the upstream's code alone, so that an upgrade that changes it fails here, loudly, and in words of
what it breaks. Does not belong: our own behaviour.
"""

import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationPlanned,
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.definitions.partitions.subset import DefaultPartitionsSubset
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.events import DagsterEvent
from dagster._core.execution.api import execute_run
from dagster._core.instance.ref import InstanceRef
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.secrets.env_file import get_env_var_dict
from dagster._core.workspace.load_target import PyProjectFileTarget
from dagster._grpc.impl import core_execute_run
from dagster._serdes import serialize_value
from dagster.components.utils.project_paths import get_local_state_path
from dagster_shared.utils.config import discover_config_file, load_toml_as_dict
from deltalake import DeltaTable

from assets_tests.harness import wait_for
from incremental_assets.runs.dagster_internals.event_batches import BATCH_VARIABLE, log_evaluations_together, store_events_in_batches
from incremental_assets.runs.ordinary_run import REPOSITORY
from incremental_assets.runs.records.metadata import add_metadata_of_partitions

RANGE = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "c"}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with dg.DagsterInstance.from_config(str(tmp_path)) as made:
        yield made


class Counting(dg.IOManager):
    """Gives each partition of a run a number of its own."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        context.add_output_metadata({"common": 1})
        add_metadata_of_partitions(context, {key: {"own": ord(key)} for key in context.asset_partition_keys})

    def load_input(self, context: dg.InputContext) -> Any: ...


def partitioned(name: str = "letters", keys: str = "abc") -> dg.AssetsDefinition:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        make = dg.asset(name=name, partitions_def=dg.StaticPartitionsDefinition(list(keys)), backfill_policy=dg.BackfillPolicy.single_run())
    return make(_some)


def _some() -> int:
    return 1


def implicit_job() -> dg.JobDefinition:
    definitions = dg.Definitions([partitioned()], resources={"io_manager": Counting()}, executor=dg.in_process_executor)
    return definitions.resolve_implicit_global_asset_job_def()


# ---------------------------------------------------------------------- Dagster: runs
def test_each_partition_of_a_range_run_may_have_metadata_of_its_own(instance: dg.DagsterInstance) -> None:
    """``OutputContext.add_output_metadata`` cannot; ``step_context.add_asset_metadata`` takes all keys' time for each of them."""

    result = implicit_job().execute_in_process(instance=instance, tags=RANGE)
    found = {m.partition: {k: v.value for k, v in m.metadata.items()} for m in result.asset_materializations_for_node("letters")}
    assert found == {key: {"common": 1, "own": ord(key)} for key in "abc"}


def with_single_events_and_with_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """An instance that stores events one by one, and then one that stores them in batches."""
    for size in ("0", "1000"):
        monkeypatch.setenv(BATCH_VARIABLE, size)
        store_events_in_batches()
        home = tmp_path / size
        home.mkdir()
        (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        with dg.DagsterInstance.from_config(str(home)) as instance:
            yield instance


def test_a_batch_of_events_leaves_what_single_events_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the UI shows of partitions, of the asset and of the run must not depend on how their events were written."""
    found: list[Any] = []
    for instance in with_single_events_and_with_batches(tmp_path, monkeypatch):
        result = implicit_job().execute_in_process(instance=instance, tags=RANGE)
        key = dg.AssetKey("letters")
        record = instance.get_asset_records([key])[0].asset_entry
        assert record.last_materialization is not None and record.last_materialization.asset_materialization is not None
        found.append(
            (
                sorted(instance.get_materialized_partitions(key)),
                [
                    (one.event_log_entry.dagster_event_type, one.partition_key, one.asset_materialization.metadata["own"].value)
                    for one in instance.fetch_materializations(key, limit=10).records
                    if one.asset_materialization
                ],
                [entry.dagster_event_type for entry in instance.all_logs(result.run_id)],
                record.last_materialization.asset_materialization.partition,
                record.last_run_id == result.run_id,
                sorted(
                    instance.event_log_storage.get_latest_tags_by_partition(
                        key, dg.DagsterEventType.ASSET_MATERIALIZATION, ["dagster/data_version"]
                    )
                ),
                len(instance.get_records_for_run(result.run_id).records),
            )
        )
    assert found[0] == found[1] and found[0][0] == ["a", "b", "c"]


def checked_job() -> dg.JobDefinition:
    """An asset of three partitions, with two checks that log an evaluation of each partition, one of them twice."""

    def log(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        found = [
            dg.AssetCheckEvaluation(
                asset_key=dg.AssetKey("letters"), check_name=name, passed=key != "b", partition=key, metadata={"of": key}, description=key
            )
            for name in ("one", "two")
            for key in (*"abc", None)
        ]
        log_evaluations_together(context.op_execution_context, [*found, found[0]])
        yield from ()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)
        partitions = dg.StaticPartitionsDefinition(list("abc"))
        specs = [dg.AssetCheckSpec(name, asset="letters", partitions_def=partitions) for name in ("one", "two")]
    checks = dg.multi_asset_check(name="checks", specs=specs, can_subset=True)(log)
    definitions = dg.Definitions(
        [partitioned()], asset_checks=[checks], resources={"io_manager": Counting()}, executor=dg.in_process_executor
    )
    return definitions.resolve_implicit_global_asset_job_def()


def test_a_batch_of_evaluations_leaves_what_single_ones_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The checks that the UI shows, of each partition and of the whole, are those that a run without batches would leave."""
    found: list[Any] = []
    for instance in with_single_events_and_with_batches(tmp_path, monkeypatch):
        result = checked_job().execute_in_process(instance=instance, tags=RANGE)
        storage = instance.event_log_storage
        history = [
            (name, one.status, one.partition, one.event.dagster_event_type if one.event else None, one.run_id == result.run_id)
            for name in ("one", "two")
            for one in storage.get_asset_check_execution_history(dg.AssetCheckKey(dg.AssetKey("letters"), name), limit=20)
        ]
        kinds = [entry.dagster_event_type for entry in instance.all_logs(result.run_id)]
        found.append(
            (
                history,
                kinds,
                len(result.get_asset_check_evaluations()),
                sorted(instance.get_materialized_partitions(dg.AssetKey("letters"))),
            )
        )
    assert found[0] == found[1] and len(found[0][0]) == 8 and found[0][2] == 9
    assert "event batch" not in capfd.readouterr().err  # where a batch fails, Dagster says so and writes single events


@pytest.mark.long
def test_a_check_may_be_planned_for_more_partitions_than_sqlite_has_variables(instance: dg.DagsterInstance) -> None:
    """A first load of 40,000 partitions with a rule would fail before it began, and each rule of 10,000 would take 100 MB of events."""
    store_events_in_batches()
    keys = {str(number) for number in range(40_000)}
    planned = AssetCheckEvaluationPlanned(
        asset_key=dg.AssetKey("letters"), check_name="one", partitions_subset=DefaultPartitionsSubset(keys)
    )
    run = instance.create_run_for_job(implicit_job(), tags=RANGE)
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED
    event = DagsterEvent(event_type_value=kind.value, job_name=run.job_name, message="planned", event_specific_data=planned)
    instance.report_dagster_event(event, run.run_id)
    storage = instance.event_log_storage
    found = storage.get_asset_check_execution_history(dg.AssetCheckKey(dg.AssetKey("letters"), "one"), limit=50_000)
    assert {one.partition for one in found} == keys
    assert found[0].event is not None and len(serialize_value(found[0].event)) < 1_000


def test_a_run_made_here_belongs_to_its_code_location(instance: dg.DagsterInstance) -> None:
    """``execute_in_process`` makes runs without origin, which the UI can neither link to their job nor run again."""
    job = implicit_job()
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), REPOSITORY), job.name)
    run = instance.create_run_for_job(job, tags=RANGE, remote_job_origin=origin)
    assert execute_run(InMemoryJob(job), run, instance).all_events[-1].is_job_success
    stored = instance.get_run_by_id(run.run_id)
    assert stored is not None and stored.is_success and stored.remote_job_origin == origin
    assert stored.tags["dagster/code_location"] == "here"
    assert dg.Definitions().get_repository_def().name == REPOSITORY
    assert job.execute_in_process(instance=instance, tags=RANGE).dagster_run.remote_job_origin is None


def test_the_implicit_job_takes_assets_of_differing_partitions_and_a_schedule_may_name_it(instance: dg.DagsterInstance) -> None:
    """A datastore's schedule asks for runs of containers that differ in their partitions; no job that one defines oneself may hold them."""
    assets = [partitioned(), partitioned("digits", "123")]

    @dg.schedule(name="all", job_name=IMPLICIT_ASSET_JOB_NAME, cron_schedule="0 0 * * *")
    def schedule() -> Iterator[dg.RunRequest]:
        yield dg.RunRequest(asset_selection=[dg.AssetKey("letters")], tags=RANGE)

    repository = dg.Definitions(assets, schedules=[schedule]).get_repository_def()
    with dg.build_schedule_context(instance=instance, repository_def=repository) as context:
        data = repository.get_schedule_def("all").evaluate_tick(context)
    assert data.run_requests is not None and data.run_requests[0].asset_selection == [dg.AssetKey("letters")]
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="resolve asset job both"):
        dg.Definitions(assets, jobs=[dg.define_asset_job("both", selection=["letters", "digits"])]).get_repository_def().get_all_jobs()


def test_an_asset_and_a_job_cannot_share_a_name(instance: dg.DagsterInstance) -> None:
    """Why a container's job is called ``sync_<asset>``. Once this does not raise any more, they might."""
    job = dg.define_asset_job("letters", selection="letters")
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="unique"):
        dg.Definitions([partitioned()], jobs=[job]).get_repository_def().get_all_jobs()


def test_an_interrupt_of_dagster_is_not_an_exception() -> None:
    """``except Exception`` anywhere between must not swallow *Terminate*."""
    assert not issubclass(DagsterExecutionInterruptedError, Exception)


def test_deleted_runs_leave_fetch_materializations(instance: dg.DagsterInstance) -> None:
    """The watermark of a wiped run must not come back; ``get_latest_materialization_event`` has returned it."""
    job = implicit_job()
    run = job.execute_in_process(instance=instance, tags=RANGE)
    assert len(instance.fetch_materializations(dg.AssetKey("letters"), limit=10).records) == 3
    instance.delete_run(run.run_id)
    assert instance.fetch_materializations(dg.AssetKey("letters"), limit=10).records == []


def test_dynamic_partitions_keep_the_order_they_were_added_in(instance: dg.DagsterInstance) -> None:
    """A range of integer partitions is what stands between two keys in this order: runs are cut by it, not by the numbers."""
    definition = dg.DynamicPartitionsDefinition(name="numbers")
    instance.add_dynamic_partitions("numbers", ["0", "100", "50"])
    assert list(definition.get_partition_keys(dynamic_partitions_store=instance)) == ["0", "100", "50"]


def test_backfill_policies_are_in_beta() -> None:
    """Once they are not, the filter around the assets of containers can go."""
    with pytest.warns(dg.BetaWarning, match="Parameter `backfill_policy`"):

        @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["a"]), backfill_policy=dg.BackfillPolicy.single_run())
        def made() -> None: ...


# ---------------------------------------------------------------------- Dagster: instance and project
def test_raw_output_need_not_be_captured(tmp_path: Path) -> None:
    """The capture redirects stdout of the whole process, which carries the lines of ``--json``."""
    silent = {"compute_logs": {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager", "config": {}}}
    with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(tmp_path), overrides=silent)) as made:
        assert type(made.compute_log_manager).__name__ == "NoOpComputeLogManager"
        assert made.is_persistent


def test_an_instance_without_home_keeps_what_dagster_yaml_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain ``dagster dev`` and ``dg dev`` in a project make a temporary home, but read dagster.yaml here: it names .dagster_home."""
    monkeypatch.chdir(tmp_path)
    own = Path(__file__).parent.parent.parent / "dagster.yaml"
    (tmp_path / "dagster.yaml").write_text(own.read_text())
    with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(tmp_path / "temporary"), config_dir=str(tmp_path))) as made:
        made.add_dynamic_partitions("kept", ["a"])
        assert made.file_manager_directory("run").startswith(".dagster_home")
    home = tmp_path / ".dagster_home"
    assert (home / "history" / "runs").is_dir() and (home / "schedules").is_dir()
    with dg.DagsterInstance.from_config(str(home)) as made:  # what a home without further words reads
        assert made.get_dynamic_partitions("kept") == ["a"]


def test_files_of_a_project_are_found_and_read_by_dagsters_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line reads .env, pyproject.toml and the components' state where ``dg`` does; they must mean the same file."""
    (tmp_path / ".env").write_text("SHOP_URL=postgresql://x\n")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "characterized"\ncode_location_name = "shop"\n'
        'code_location_target_module = "definitions"\n'
    )
    assert get_env_var_dict(str(tmp_path)) == {"SHOP_URL": "postgresql://x"}
    config = discover_config_file(tmp_path)
    assert config is not None and load_toml_as_dict(config)["tool"]["dg"]["project"]["root_module"] == "characterized"
    defs = tmp_path / "characterized" / "defs"
    defs.mkdir(parents=True)
    (defs.parent / "__init__.py").touch()
    (defs / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert get_local_state_path("PostgresDatastore[shop]", tmp_path).is_relative_to(defs / ".local_defs_state")
    (origin,) = PyProjectFileTarget(str(tmp_path / "pyproject.toml")).create_origins()
    assert origin.location_name == "shop"  # as workspace.yaml says: one name, or schedules and runs would be two locations'


def test_a_pyspark_resource_may_be_one_of_another_kind(instance: dg.DagsterInstance) -> None:
    """``spark`` is one that opens nothing by itself, made by a function that imports the class only then; who asks for a
    ``PySparkResource`` gets it all the same, and it is events when the run has ended."""
    from dagster_pyspark import PySparkResource

    events: list[str] = []

    class Quiet(PySparkResource):
        spark_config: dict[str, Any] = {}  # noqa: RUF012 pydantic gives each resource its own

        def setup_for_execution(self, context: dg.InitResourceContext) -> None:
            events.append(f"begins, with {context.resources.lake}")

        def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
            events.append("ends")

        @property
        def spark_session(self) -> str:
            return "a session of our own"

    @dg.resource(required_resource_keys={"lake"})
    def spark(context: dg.InitResourceContext) -> Iterator[PySparkResource]:
        with Quiet.from_resource_context_cm(context) as made:
            yield made

    @dg.asset
    def asks(spark: PySparkResource) -> None:
        events.append(spark.spark_session)

    assert dg.materialize([asks], instance=instance, resources={"spark": spark, "lake": "the lake"}).success
    assert events == ["begins, with the lake", "a session of our own", "ends"]
    for name in ("spark_session", "spark_context"):
        assert isinstance(vars(PySparkResource)[name], property), "what ours replaces"
    assert "setup_for_execution" in vars(PySparkResource), "where the base starts a JVM"


# ---------------------------------------------------------------------- Delta and Spark
def test_delta_spark_names_the_jars_that_are_fetched() -> None:
    """The coordinates are made by its rule, as importing it takes half a second; if the rule changes, other JARs are the published ones."""
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    from incremental_assets.spark.embedded.launch import own_coordinates

    configured: Any = configure_spark_with_delta_pip(SparkSession.builder, extra_packages=[own_coordinates()[1]])
    assert configured._options["spark.jars.packages"] == ",".join(own_coordinates())


def test_importing_delta_and_dagsters_spark_starts_nothing_and_harms_no_session(spark_home: Path) -> None:
    """They are installed beside everything: a JVM for an import, or a session that is not Connect's from then on, would be everybody's."""
    from incremental_assets.spark.session import ensure_server

    code = (
        "import sys, psutil, delta, dagster_pyspark; from delta.tables import DeltaTable; from pathlib import Path;"
        "from pyspark import SparkContext; from pyspark.sql import SparkSession as Classic;"
        "from incremental_assets.spark.session import open_session;"
        "from pyspark.sql.functions import col;"
        "assert not psutil.Process().children() and SparkContext._active_spark_context is None;"
        "stack = open_session(Path(sys.argv[1]), name='imports'); spark = stack.__enter__();"
        "print(type(spark).__module__, spark.range(3).where(col('id') > 0).count());"
        "stack.__exit__(None, None, None);"
        "assert not psutil.Process().children() and SparkContext._active_spark_context is None"
    )
    ensure_server(spark_home)
    done = subprocess.run([sys.executable, "-c", code, str(spark_home)], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["pyspark.sql.connect.session", "2"], done.stderr


@pytest.fixture
def table(spark_home: Path, tmp_path: Path) -> Iterator[tuple[Any, str]]:
    """A session, and a small table with deletion vectors and a property."""
    from incremental_assets.spark.session import open_session

    url = str(tmp_path / "table")
    with open_session(spark_home, name="characterization") as spark:
        spark.sql(
            f"create table delta.`{url}` (id int, name string) using delta "
            "tblproperties ('delta.enableDeletionVectors' = 'true', 'mine' = 'first')"
        )
        spark.sql(f"insert into delta.`{url}` select cast(id as int), 'x' from range(1000)")
        yield spark, url


def properties(url: str) -> dict[str, str]:
    return dict(DeltaTable(url).metadata().configuration)


@pytest.mark.long
def test_restore_takes_the_properties_back_too(table: tuple[Any, str]) -> None:
    """The watermark is a property: after RESTORE it must be that of the restored rows, or the rows between are never read again."""
    spark, url = table
    spark.sql(f"alter table delta.`{url}` set tblproperties ('mine' = 'second')")
    spark.sql(f"insert into delta.`{url}` values (1001, 'y')")
    spark.sql(f"restore table delta.`{url}` to version as of 1").collect()
    assert properties(url)["mine"] == "first"


@pytest.mark.long
def test_maintenance_keeps_the_properties(table: tuple[Any, str]) -> None:
    """OPTIMIZE and VACUUM commit without touching them, and leave names by which they are events from writes of rows."""
    spark, url = table
    spark.sql(f"delete from delta.`{url}` where id % 2 = 0")
    spark.sql(f"optimize delta.`{url}`").collect()
    spark.sql(f"vacuum delta.`{url}`").collect()
    assert properties(url)["mine"] == "first"
    assert [c["operation"] for c in DeltaTable(url).history(3)] == ["VACUUM END", "VACUUM START", "OPTIMIZE"]


@pytest.mark.long
def test_a_write_planned_before_a_change_of_properties_is_refused(table: tuple[Any, str], database: str) -> None:
    """What a killed sync left running commits after a later sync, if nothing refuses it: the later one's property commit fences it off."""
    import psycopg

    from incremental_assets.databases.postgres.connection import PostgresAddress

    spark, url = table
    options = PostgresAddress.parse("t", database).jdbc_options()
    late = spark.read.format("jdbc").options(**options).option("query", "select 1 as id, pg_advisory_xact_lock(7)::text as name").load()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            late.write.format("delta").mode("overwrite").option("replaceWhere", "id = 1").save(url)
        except Exception as error:  # noqa: BLE001 looked at below
            failed.append(error)

    thread = threading.Thread(target=write)
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("select pg_advisory_lock(7)")
        thread.start()
        waiting = "select 1 from pg_locks where locktype = 'advisory' and not granted"
        wait_for(lambda: other.execute(waiting).fetchone(), "the write stands at the lock", 60)
        spark.sql(f"alter table delta.`{url}` set tblproperties ('mine' = 'second')")
    thread.join(120)
    assert len(failed) == 1 and "DELTA_METADATA_CHANGED" in str(failed[0])


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        "set tblproperties ('delta.enableTypeWidening' = 'true')|alter column id type bigint",
        "set tblproperties ('delta.columnMapping.mode' = 'name')|rename column name to `a name`",
    ],
)
def test_metadata_of_tables_with_new_features_is_read_without_spark(table: tuple[Any, str], change: str) -> None:
    """The plan reads version, columns and properties through delta-rs, whatever features the rows need of a reader."""
    spark, url = table
    spark.sql(f"delete from delta.`{url}` where id = 7")
    for one in change.split("|"):
        spark.sql(f"alter table delta.`{url}` {one}")
    found = DeltaTable(url)
    assert found.metadata().configuration["mine"] == "first" and len(found.schema().fields) == 2
    assert found.history(1)[0]["version"] == found.version() == 4


@pytest.mark.long
def test_replace_where_refuses_rows_outside(table: tuple[Any, str]) -> None:
    """The last guard of "one commit replaces just what was read"."""
    spark, url = table
    with pytest.raises(Exception, match="DELTA_REPLACE_WHERE_MISMATCH"):
        spark.sql("select 5000 as id, 'z' as name").write.format("delta").mode("overwrite").option("replaceWhere", "id < 10").save(url)


# ---------------------------------------------------------------- partitioned asset checks (a preview)
def _checked(instance: dg.DagsterInstance, log: bool, job: str, target: bool = True, **tags: str) -> tuple[dict[Any, str], dict[Any, str]]:
    """After a run over two days: of each partition what is stored of the check, and what the UI's list of partitions shows."""
    days = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec = dg.AssetCheckSpec("good", asset="orders", partitions_def=days)

        @dg.asset(partitions_def=days, backfill_policy=dg.BackfillPolicy.single_run())
        def orders() -> None: ...

    @dg.multi_asset_check(specs=[spec], can_subset=True)
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        if not log:
            yield dg.AssetCheckResult(passed=True)
            return
        inner: Any = context.op_execution_context
        kind = dg.DagsterEventType.ASSET_MATERIALIZATION
        newest = inner.instance.event_log_storage.get_latest_storage_id_by_partition(orders.key, kind, {"2026-01-01", "2026-01-02"})
        for day in ("2026-01-01", "2026-01-02"):
            of = AssetCheckEvaluationTargetMaterializationData(storage_id=newest[day], run_id="", timestamp=0.0) if target else None
            inner.log_event(
                dg.AssetCheckEvaluation(asset_key=orders.key, check_name="good", passed=True, partition=day, target_materialization_data=of)
            )

    only = dg.define_asset_job("only_checks", selection=dg.AssetSelection.checks_for_assets(orders.key))
    both = dg.define_asset_job("both", selection=dg.AssetSelection.assets(orders.key))
    definitions = dg.Definitions(assets=[orders], asset_checks=[checks], jobs=[only, both], executor=dg.in_process_executor)
    assert definitions.resolve_job_def("only_checks").partitions_def is None, (
        "a selection of checks alone could be a job with partitions now"
    )
    range_ = {"dagster/asset_partition_range_start": "2026-01-01", "dagster/asset_partition_range_end": "2026-01-02"}
    assert definitions.resolve_job_def(job).execute_in_process(instance=instance, tags={**range_, **tags}).success
    storage, key = instance.event_log_storage, dg.AssetCheckKey(orders.key, "good")
    stored = {one.partition: one.status.value for one in storage.get_asset_check_execution_history(key, limit=20)}
    states = storage.get_asset_check_state([(key, days)])[key].subsets
    shown = {day: state.value for state, subset in states.items() for day in subset.value.get_partition_keys()}  # pyright: ignore[reportAttributeAccessIssue]
    return stored, shown


def test_a_check_that_yields_leaves_the_partitions_of_a_range_planned(instance: dg.DagsterInstance) -> None:
    """Why evaluations are logged, partition by partition, and nothing is yielded."""
    stored, _ = _checked(instance, log=False, job="both")
    assert stored == {None: "SUCCEEDED", "2026-01-01": "PLANNED", "2026-01-02": "PLANNED"}


def test_a_logged_evaluation_of_a_partition_takes_the_place_of_what_was_planned(instance: dg.DagsterInstance) -> None:
    """And the UI shows it, as it names the materialization that it is of."""
    stored, shown = _checked(instance, log=True, job="both")
    assert stored == shown == {"2026-01-01": "SUCCEEDED", "2026-01-02": "SUCCEEDED"}


def test_an_evaluation_that_names_no_materialization_is_not_shown(instance: dg.DagsterInstance) -> None:
    """Why each names it, at the price of a query."""
    stored, shown = _checked(instance, log=True, job="both", target=False)
    assert stored == {"2026-01-01": "SUCCEEDED", "2026-01-02": "SUCCEEDED"} and shown == {}


def test_dagster_asks_an_asset_job_itself_how_it_is_resolved_and_hands_over_all_assets() -> None:
    """``one_asset_job`` resolves from a few assets: without this, each job of a container would be resolved from all of them again."""
    asked: list[int] = []

    class Job(UnresolvedAssetJobDefinition):
        def resolve(self, asset_graph: AssetGraph, *args: Any, **kwargs: Any) -> dg.JobDefinition:
            asked.append(len(asset_graph.get_all_asset_keys()))
            return super().resolve(asset_graph, *args, **kwargs)

    @dg.asset
    def orders() -> None: ...

    specs = [dg.AssetSpec(f"source_{n}") for n in range(3)]
    job = Job("sync_orders", dg.AssetSelection.assets(orders.key))
    repository = dg.Definitions([orders, *specs], jobs=[job]).get_repository_def()
    assert repository.get_job("sync_orders").name == "sync_orders" and asked == [4]
    of_specs = [repository.asset_graph.get(spec.key).assets_def for spec in specs]
    assert len(set(of_specs)) == 1 and not of_specs[0].is_executable, "all plain specs are one definition"


def test_the_process_of_a_run_loads_the_project_where_its_run_can_be_seen(tmp_path: Path) -> None:
    """``run_of_this_process`` finds it there. Without it, each run of a large project would load the definitions of all containers."""
    code = tmp_path / "seen.py"
    code.write_text(
        "from pathlib import Path\nimport dagster as dg\nfrom dagster.components import definitions\n"
        "from incremental_assets.runs.own_run import run_of_this_process\n"
        "@dg.job\ndef job():\n    pass\n"
        "@definitions\ndef defs():\n"
        "    run = run_of_this_process()\n"
        "    Path(__file__).with_name('runs').open('a').write(f'{run and run.run_id}\\n')\n"
        "    return dg.Definitions(jobs=[job])\n"
    )
    repository = ReconstructableRepository.for_file(str(code), "defs", str(tmp_path))
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        run = instance.create_run_for_job(repository.get_definition().get_job("job"))
        list(core_execute_run(repository.get_reconstructable_job("job"), run, instance, inject_env_vars=False))
    assert (tmp_path / "runs").read_text().split() == ["None", run.run_id]
