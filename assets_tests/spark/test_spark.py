"""Sessions and the embedded Spark Connect server, with real servers: sharing, secrets, cancelling, dying, ending.

Each test says what breaks for a user when it fails. What Delta or a strategy does with a session belongs to the lake's tests.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import grpc
import psutil
import pyarrow as pa
import pytest
from pyspark.errors.exceptions.connect import SparkConnectException
from pyspark.sql import functions as F
from pyspark.sql.connect.client.core import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy

from incremental_assets.spark.embedded import environment, launch, server
from incremental_assets.spark.progress import TaskProgress
from incremental_assets.spark.session import (
    SparkSession,
    SparkUnavailable,
    ensure_server,
    open_session,
    running_servers,
    server_id,
    stop_server,
)

ENDLESS = "select count_if(sha2(cast(id as string), 256) = 'x') from range(100000000000)"
# The optimizer computes the constant, in a thread that no interrupt reaches.
ENDLESS_PLANNING = "select aggregate(sequence(1, 1000000), 0L, (a, x) -> a + aggregate(sequence(1, 1000000), 0L, (b, y) -> b + x * y % 7))"


@pytest.fixture(autouse=True)
def _own_server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that a test starts has the settings that users have, and little memory."""
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    if "state" not in request.fixturenames:
        for name in (launch.CONF, server.IDLE):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(launch.MEMORY, "1g")


@pytest.fixture
def state(spark_home: Path) -> Path:
    """The state folder of the server that all tests share, for tests that do not harm it."""
    return spark_home


@pytest.fixture(scope="module")
def expendable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder whose server is killed."""
    folder = tmp_path_factory.mktemp("expendable")
    yield folder
    stop_server(folder)


def record_of(folder: Path) -> server.Record:
    record = server.Home(folder).record()
    assert record is not None
    return record


def busy(jvm: psutil.Process, seconds: float = 0.5) -> float:
    """How many cores the server keeps busy, within so many seconds."""

    def spent() -> float:
        times = jvm.cpu_times()
        return times.user + times.system

    before = spent()
    time.sleep(seconds)  # the time that is measured
    return (spent() - before) / seconds


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def client(code: str, folder: Path, **env: str) -> subprocess.Popen[str]:
    """Another command: a process that opens a session on the folder's server and runs the code with it."""
    program = f"""
from pathlib import Path
from incremental_assets.spark.session import open_session
with open_session(Path({str(folder)!r}), name="another command") as spark:
    print("open", flush=True)
    {code}
"""
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | env
    )


# ------------------------------------------------------------------------------------------------ sessions
@pytest.mark.long
def test_a_python_worker_begins_with_the_packages_of_our_functions(state: Path) -> None:
    """Spark's setting ``spark.python.daemon.module`` is documented nowhere. Without it each load begins a second later."""

    def imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = "pyarrow.parquet", "adbc_driver_postgresql"
        there = [name for name in names if name in sys.modules]
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"name": there})

    with open_session(state, name="packages") as spark:
        assert len(spark.range(0, 1, 1, 1).mapInArrow(imported, "name string").collect()) == 2


def test_a_session_counts_in_utc_with_ansi_arithmetic(state: Path) -> None:
    """Otherwise timestamps shift by the machine's time zone, and overflow turns into NULL instead of an error."""
    with open_session(state, name="settings") as spark:
        row = spark.sql("select current_timezone() as zone, typeof(timestamp '2020-01-01 00:00:00') as type").collect()[0]
        assert (row.zone, row.type) == ("UTC", "timestamp")
        assert spark.range(10).where(F.col("id") > 5).count() == 4  # functions belong to Connect without more ado
        with pytest.raises(SparkConnectException, match="CAST_INVALID_INPUT"):
            spark.sql("select cast('x' as int)").collect()


def test_sessions_of_several_threads_do_not_share_settings(state: Path) -> None:
    """Otherwise two containers synced at once swap what they write into their commits (userMetadata of a MERGE is a setting)."""
    met = threading.Barrier(3)

    def one(number: int) -> tuple[str, str]:
        with open_session(state, name=f"shop/container {number} ü") as spark:
            spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", f"mine-{number}")
            met.wait(30)
            kept = spark.conf.get("spark.databricks.delta.commitInfo.userMetadata")
            return spark.session_id, str(kept)

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(one, range(3)))
    assert [kept for _, kept in answers] == ["mine-0", "mine-1", "mine-2"]
    assert len({session for session, _ in answers}) == 3


@pytest.mark.long
def test_delta_tables_can_be_written_and_merged(state: Path, tmp_path: Path) -> None:
    """Otherwise no container can be synced: the server lacks Delta's JARs or its SQL extension."""
    table = f"delta.`{tmp_path / 'table'}`"
    with open_session(state, name="delta") as spark:
        spark.range(10).write.format("delta").save(str(tmp_path / "table"))
        spark.sql(f"merge into {table} t using (select 10L id) s on t.id = s.id when not matched then insert *").collect()
        assert spark.sql(f"select count(*) n from {table}").collect()[0].n == 11
        assert spark.sql(f"describe history {table}").count() == 2


def test_a_second_session_starts_no_server(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise every sync pays for a JVM: the server is not kept, or is not found again."""
    ensure_server(state)
    first = record_of(state)
    monkeypatch.setattr(server, "_start", lambda home: pytest.fail(f"a second server is started for {home.folder}"))
    with open_session(state, name="quick") as spark:
        assert spark.range(3).count() == 3
    assert record_of(state) == first and psutil.pid_exists(first.jvm_pid)


def test_progress_is_reported_from_time_to_time(state: Path) -> None:
    """Otherwise a first load of an hour looks like a program that hangs."""
    reported: list[TaskProgress] = []
    with open_session(state, name="progress", on_progress=reported.append) as spark:
        with pytest.raises(SparkConnectException, match=r"(?i)cancel"):
            threading.Thread(target=lambda: (wait_for(lambda: bool(reported), 25), spark.interruptAll())).start()
            spark.sql(ENDLESS).collect()
    assert reported and all(one.tasks > 0 and "0 B" not in one.text() for one in reported)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGALRM])
def test_leaving_by_an_exception_cancels_the_query(expendable: Path, number: signal.Signals) -> None:
    """Otherwise Ctrl-C, SIGTERM or Terminate leave a query that burns the machine, and may write after the next sync did."""

    class Terminated(BaseException):
        pass

    def raise_it(*_: object) -> None:
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated

    ensure_server(expendable)
    jvm = psutil.Process(record_of(expendable).jvm_pid)
    before = signal.signal(number, raise_it)
    runs: list[TaskProgress] = []
    try:
        with (
            pytest.raises((KeyboardInterrupt, Terminated)),
            open_session(expendable, name="cancelled", on_progress=runs.append) as spark,
            ThreadPoolExecutor(1) as other,
        ):
            other.submit(lambda: (wait_for(lambda: bool(runs), 25), os.kill(os.getpid(), number)))
            spark.sql(ENDLESS).collect()
    finally:
        signal.signal(number, before)
    assert wait_for(lambda: busy(jvm) < 0.3, 10)


@pytest.mark.long
def test_a_query_that_was_left_while_it_was_planned_does_not_run_for_ever(tmp_path: Path) -> None:
    """Spark does not stop such a query. Ctrl-C in the first seconds of a sync would leave a core busy until the machine is restarted."""
    ensure_server(tmp_path)
    jvm = psutil.Process(record_of(tmp_path).jvm_pid)
    with pytest.raises(KeyboardInterrupt), open_session(tmp_path, name="cancelled") as spark:
        spark.range(3).count()  # so that what a first query loads is not taken for the planning
        threading.Thread(
            target=lambda: (wait_for(lambda: busy(jvm, 3) > 0.5 < busy(jvm, 3), 30), os.kill(os.getpid(), signal.SIGINT))
        ).start()
        spark.sql(ENDLESS_PLANNING).collect()
    assert busy(jvm, 5) > 0.5, "Spark has stopped the query: ``supervisor._WorkForNobody`` may not be needed any more"
    assert wait_for(lambda: not jvm.is_running() or jvm.status() == psutil.STATUS_ZOMBIE, 60)
    with open_session(tmp_path, name="the next command") as spark:
        assert spark.range(3).count() == 3
    stop_server(tmp_path)


@pytest.mark.long
def test_a_killed_clients_query_is_abandoned(expendable: Path) -> None:
    """Otherwise `kill -9` of a sync leaves its query running for minutes, in the way of the next one."""
    ensure_server(expendable)
    jvm = psutil.Process(record_of(expendable).jvm_pid)
    with client(f"spark.sql({ENDLESS!r}).collect()", expendable) as other:
        assert other.stdout and other.stdout.readline() == "open\n"
        assert wait_for(lambda: busy(jvm) > 0.5, 20)
        other.kill()
    assert wait_for(lambda: busy(jvm) < 0.3, 60)


def test_a_proxy_of_the_environment_is_not_used(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise nothing works in a company's network, where http_proxy is set for everybody."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    with open_session(state, name="proxy") as spark:
        assert spark.range(3).count() == 3


# ------------------------------------------------------------------------------------------------ another server
def test_a_store_that_was_never_tried_is_named_before_the_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who puts a lake there would take it for tried, as the one on S3 is."""
    monkeypatch.setenv(launch.CONF, "no setting")
    for lake, named in (("s3://bucket/lake", False), ("gs://bucket/lake", True)):
        monkeypatch.setenv(launch.LAKE, lake)
        with pytest.raises(SparkUnavailable):
            ensure_server(tmp_path)
        assert ("A lake on Google Cloud Storage was not tried" in caplog.text) is named


def test_spark_remote_is_used_when_it_is_set(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a project that has outgrown one machine cannot be moved to a cluster."""
    monkeypatch.setenv("SPARK_REMOTE", ensure_server(state))
    with open_session(tmp_path, name="remote") as spark:
        assert spark.range(3).count() == 3
    assert not (tmp_path / "spark").exists()


def test_a_remote_that_is_not_there_is_named_without_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a typo in SPARK_REMOTE is ten minutes of silence, or a token in a log."""
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost:1/;token=do-not-tell")
    began = time.monotonic()
    with pytest.raises(SparkUnavailable, match=r"SPARK_REMOTE names sc://localhost:1,") as reported, open_session(tmp_path, name="x"):
        pass
    assert "do-not-tell" not in str(reported.value)
    assert time.monotonic() - began < 15, "Spark's own client tries for ten minutes"


# ------------------------------------------------------------------------------------------------ secrets
@pytest.mark.parametrize("token", ["", "wrong"])
def test_another_user_of_the_machine_is_refused(state: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise anybody with an account here reads the lake, and runs code as this user."""
    ensure_server(state)
    monkeypatch.delenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", raising=False)
    url = f"sc://localhost:{record_of(state).port}" + (f"/;token={token}" if token else "")
    with pytest.raises((SparkConnectException, grpc.RpcError), match=r"(?i)UNAUTHENTICATED|authentication token"):
        intruder = SparkSession(connection=DefaultChannelBuilder(url))
        intruder.client.set_retry_policies([DefaultPolicy(max_retries=0)])
        intruder.range(1).count()


def test_secrets_are_in_private_files_and_not_in_the_process_list(state: Path) -> None:
    """Otherwise `ps` shows every user of the machine the token, or an object store's keys."""
    ensure_server(state)
    record = record_of(state)
    for pid in (record.pid, record.jvm_pid):
        words = " ".join(psutil.Process(pid).cmdline())
        assert record.token not in words and "spark.driver.memory" not in words
    assert len(record.token) > 30
    folder = state / "spark"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "server.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "launch.properties").stat().st_mode) == 0o600


@pytest.mark.long
def test_the_server_gets_no_variables_that_it_does_not_need(expendable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise whoever can run SQL or code on the server reads the datastores' passwords."""
    stop_server(expendable)
    monkeypatch.setenv("SHOP_URL", "postgresql://shop:do-not-tell@db/shop")
    monkeypatch.setenv("DAGSTER_CLOUD_API_TOKEN", "do-not-tell")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the store")
    monkeypatch.setenv("LICENCE_FILE", "/licence")
    monkeypatch.setenv("UDF_ONE", "1")
    monkeypatch.setenv(environment.PASSED_ON, "LICENCE_FILE, UDF_*")
    with open_session(expendable, name="variables") as spark:
        assert spark.range(3).count() == 3
    found = psutil.Process(record_of(expendable).jvm_pid).environ()
    assert not [name for name, value in found.items() if "do-not-tell" in value]
    assert (found["AWS_SECRET_ACCESS_KEY"], found["LICENCE_FILE"], found["UDF_ONE"]) == ("of the store", "/licence", "1")
    before = launch.fingerprint()
    monkeypatch.setenv("UDF_ONE", "2")
    assert launch.fingerprint() != before  # a running server has the old one


def test_the_server_listens_on_loopback_only(state: Path) -> None:
    """Otherwise it can be reached from other machines."""
    ensure_server(state)
    addresses = {
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in psutil.Process(record_of(state).jvm_pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert addresses == {"127.0.0.1"}


# ------------------------------------------------------------------------------------------------ starting
@pytest.mark.long
def test_two_commands_at_once_share_one_server(expendable: Path) -> None:
    """Otherwise two syncs started together each take a JVM's memory, and one of them is never ended."""
    commands = [client("pass", expendable) for _ in range(2)]
    outcomes = [command.communicate(timeout=120) for command in commands]
    assert [command.returncode for command in commands] == [0, 0], outcomes
    record = record_of(expendable)
    jvms = [p.pid for p in psutil.process_iter(["cmdline"]) if str(expendable) in " ".join(p.info["cmdline"] or []) and "java" in p.name()]
    assert jvms == [record.jvm_pid]


@pytest.mark.long
def test_a_server_that_is_killed_during_a_query_is_named_and_replaced(expendable: Path) -> None:
    """Otherwise an out-of-memory kill is a page of gRPC, or ten minutes of retries, and needs a person to clean up."""
    ensure_server(expendable)
    killed = record_of(expendable)
    began = time.monotonic()
    with pytest.raises(SparkUnavailable, match="INCREMENTAL_ASSETS_SPARK_MEMORY"), open_session(expendable, name="x") as spark:
        threading.Timer(2, os.kill, (killed.jvm_pid, signal.SIGKILL)).start()
        spark.sql(ENDLESS).collect()
    assert time.monotonic() - began < 30, "Spark's own client tries for ten minutes, and the query would take days"
    with open_session(expendable, name="next") as spark:
        assert spark.range(3).count() == 3
    assert record_of(expendable).jvm_pid != killed.jvm_pid


@pytest.mark.long
def test_a_command_that_meets_a_server_that_is_ending_starts_the_next_one(expendable: Path) -> None:
    """Otherwise a command that comes in the second in which an unused server ends, fails with *could not start*."""
    stop_server(expendable)
    home = server.Home(expendable)
    home.prepare()
    with home.lock("alive.lock", fcntl.LOCK_EX) as ending:
        assert ending is not None
        os.ftruncate(ending, 0)
        os.write(ending, str(os.getpid()).encode())
        starting = ThreadPoolExecutor(1).submit(ensure_server, expendable)
        assert not wait_for(starting.done, 2)
    assert starting.result(60).startswith("sc://")


@pytest.mark.long
def test_the_servers_that_are_running_are_known_without_starting_one(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has ended must not count as running, and one that runs must be reported apart from all others that ever ran."""
    others = tmp_path / "apart"
    assert running_servers(tmp_path / "none", others) == set()
    assert not (tmp_path / "none").exists()
    with open_session(state, name="one") as one, open_session(others / "b", name="other") as other:
        ids = server_id(one), server_id(other)
    assert None not in ids and running_servers(state, others) == set(ids)
    monkeypatch.setenv("SPARK_REMOTE", record_of(state).url)
    assert running_servers(tmp_path / "none", others) == {ids[0]}
    monkeypatch.delenv("SPARK_REMOTE")
    stop_server(others / "b")
    assert running_servers(state, others) == {ids[0]}


@pytest.mark.long
def test_a_killed_supervisor_takes_its_jvm_along_and_is_replaced(expendable: Path) -> None:
    """Otherwise a JVM with gigabytes stays for ever and nobody knows of it; or a record that names a dead server stops every sync."""
    ensure_server(expendable)
    killed = record_of(expendable)
    os.kill(killed.pid, signal.SIGKILL)
    assert wait_for(lambda: not psutil.pid_exists(killed.jvm_pid) or psutil.Process(killed.jvm_pid).status() == "zombie", 10)
    assert (expendable / "spark" / "server.json").exists()
    assert wait_for(lambda: server.Home(expendable).record() is None, 10), "the lock is held until its last thread has ended"
    assert stop_server(expendable) is False
    with open_session(expendable, name="next") as spark:
        assert spark.range(3).count() == 3


def test_a_process_number_used_again_is_not_taken_for_the_server(tmp_path: Path) -> None:
    """Otherwise `stop` ends a stranger's process, after a reboot for example."""
    home = server.Home(tmp_path)
    home.prepare()
    alive = dict(pid=os.getpid(), jvm_pid=os.getpid(), port=1, token="t", started="", master="", java="", fingerprint="")
    launch.write_private(home.record_file, json.dumps(alive))
    (home.folder / "alive.lock").write_text(str(os.getpid()))
    assert home.record() is None
    assert stop_server(tmp_path) is False


def test_a_stop_signals_no_process_that_is_not_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that containers share, the supervisor's number is another process's here; the lock, which is the kernel's, is held all
    the same. So it is while a supervisor that has just begun has not written its own."""
    monkeypatch.setattr(server, "WRITTEN_SECONDS", 0.2)
    home = server.Home(tmp_path)
    home.prepare()
    code = "import time; time.sleep(600)"
    for words in ([], [str(tmp_path)], [server.SUPERVISOR, str(tmp_path / "spark")]):
        stranger = subprocess.Popen([sys.executable, "-c", code, *words])
        try:
            with home.lock("alive.lock", fcntl.LOCK_EX):
                (home.folder / "alive.lock").write_text(str(stranger.pid))
                with pytest.raises(SparkUnavailable, match="another container"):
                    stop_server(tmp_path)
            assert stranger.poll() is None
        finally:
            stranger.kill()
            stranger.wait()


@pytest.mark.long
def test_a_server_ends_when_it_is_unused_and_not_before(expendable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it takes memory for ever, or ends under a client that reads a slow source for a while."""
    stop_server(expendable)
    monkeypatch.setenv(server.IDLE, "1")
    with open_session(expendable, name="slow") as spark:
        time.sleep(3)  # the supervisor looks once a second, and would end it at the second look
        assert spark.range(3).count() == 3
    jvm = record_of(expendable).jvm_pid
    assert server.wait_until_gone(expendable, 15)
    assert not psutil.pid_exists(jvm)
    assert not (expendable / "spark" / "server.json").exists()


def test_a_server_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the user gets a time-out, and has to find the reason alone."""
    monkeypatch.setenv(launch.CONF, "spark.master=nonsense")
    with pytest.raises(SparkUnavailable, match=r"(?s)could not start.*server\.out ends with:.*Master must"):
        ensure_server(tmp_path)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        (launch.CONF, "memory=4g", "write spark.some.setting=value"),
        (launch.MEMORY, "much", "write for example 4g"),
        (server.IDLE, "soon", "no number of seconds"),
        (environment.PASSED_ON, "SHOP_URL=x", "write names of variables"),
    ],
)
def test_invalid_settings_of_spark_are_refused(
    variable: str, value: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a typo in the environment is silently ignored, or ends in a stack trace of the JVM."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(SparkUnavailable, match=says):
        ensure_server(tmp_path)


def test_a_user_setting_reaches_the_server_but_not_past_what_results_depend_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a cluster cannot be tuned, or a setting quietly changes what is written."""
    monkeypatch.setenv(
        launch.CONF, "spark.sql.shuffle.partitions=7; spark.sql.session.timeZone=Asia/Tokyo;spark.sql.variable.substitute=true"
    )
    settings = launch.settings(tmp_path)
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert settings["spark.sql.variable.substitute"] == "false"
    assert "spark.jars.packages" not in settings  # fetched once, then no network is needed
    monkeypatch.setenv(launch.CONF, "spark.master=spark://cluster:7077")
    settings = launch.settings(tmp_path)
    assert "delta-spark" in settings["spark.jars"] and "spark.driver.host" not in settings


def test_the_version_of_delta_spark_determines_the_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a constant of ours and the installed package name two Delta Lakes; and one that nobody has pinned is fetched and run."""
    delta, _ = launch.own_coordinates()
    assert delta == f"io.delta:delta-spark_4.2_2.13:{version('delta-spark')}"
    real = launch.version
    monkeypatch.setattr(launch, "version", lambda name: "4.4.1" if name == "delta-spark" else real(name))
    with pytest.raises(SparkUnavailable, match=r"delta-spark 4\.4\.1 is installed .* io\.delta_delta-spark_4\.2_2\.13-4\.4\.0\.jar"):
        ensure_server(tmp_path)

    def none(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(launch, "version", none)
    with pytest.raises(SparkUnavailable, match="delta-spark is not installed in this environment"):
        launch.jars()


def test_packages_of_the_user_are_fetched_once_with_the_products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an object store's connector is resolved by each server anew, within the time it has to start, and copied for each
    session."""
    ours = launch.jar_folder()
    monkeypatch.setattr(launch, "jars", lambda: [launch.jar_folder() / "a.jar"])
    monkeypatch.setenv(launch.CONF, "spark.jars.packages=org.example:one:1, org.example:two:2;spark.jars.excludes=org.example:three")
    assert launch.coordinates() == (*launch.own_coordinates(), "org.example:one:1", "org.example:two:2")
    assert launch.jar_folder() != ours
    settings = launch.settings(tmp_path)
    assert not {"spark.jars.packages", "spark.jars.excludes"} & set(settings)
    assert settings["spark.driver.extraClassPath"].endswith(f"{launch.jar_folder().name}/a.jar")
    before = launch.fingerprint()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    assert launch.fingerprint() != before  # a running server has the old one
    monkeypatch.delenv(launch.CONF)
    assert launch.jar_folder() == ours


def test_the_connector_for_s3_comes_where_something_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a lake on S3 begins with finding out which packages of Hadoop and of Amazon's SDK fit each other. And nobody else fetches
    them."""
    monkeypatch.delenv(launch.CONF, raising=False)
    monkeypatch.delenv(launch.LAKE, raising=False)
    plain, before = launch.jar_folder(), launch.fingerprint()
    assert launch.connector() == () and list((launch.spark_home() / "jars").glob("hadoop-client-api-3.5.0.jar"))
    for name, value in ((launch.STORES, "s3"), (launch.LAKE, "s3://bucket/lake"), (launch.LAKE, "s3a://bucket/lake")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert launch.coordinates() == (*launch.own_coordinates(), *launch.S3_CONNECTOR) and launch.jar_folder() != plain
            assert launch.fingerprint() not in (before, f"{before}+s3"), "the server keeps the credentials that it was started with"
            patch.setenv(launch.CONF, "spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.1,software.amazon.awssdk:s3:2.36.0")
            assert not {*launch.S3_CONNECTOR} & {*launch.coordinates()}, "the user has brought another one"
    monkeypatch.setenv(launch.LAKE, "/mnt/s3://x")
    assert launch.jar_folder() == plain


def test_the_connector_for_azure_comes_where_something_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(launch.CONF, raising=False)
    monkeypatch.delenv(launch.LAKE, raising=False)
    before = launch.fingerprint()
    account = "abfss://box@somebody.dfs.core.windows.net/lake"
    for name, value in ((launch.STORES, "azure"), (launch.LAKE, "az://box/lake"), (launch.LAKE, account)):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert (
                launch.connector() == launch.AZURE_CONNECTOR and launch.fingerprint().endswith("+azure") and launch.fingerprint() != before
            )
            patch.setenv(launch.CONF, "spark.jars.packages=org.apache.hadoop:hadoop-azure:3.5.1")
            assert launch.connector() == (), "the user has brought another one"
    monkeypatch.setenv(launch.STORES, "azure,s3")
    assert launch.stores() == ["s3", "azure"] and launch.fingerprint().endswith("+s3+azure")
    monkeypatch.setenv(launch.STORES, "")
    monkeypatch.setenv(launch.LAKE, "gs://bucket/lake")
    assert launch.connector() == ()


def test_no_setting_of_the_server_has_a_secret_of_azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may run SQL can list the settings, and Spark masks only some of them. Hadoop reads the variable that a setting names."""
    for name in ("AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_ACCOUNT_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "do-not-tell")
    by_signature = launch.settings(tmp_path)
    assert by_signature["spark.hadoop.fs.azure.sas.fixed.token"] == "${env.AZURE_STORAGE_SAS_TOKEN}"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "do-not-tell")
    by_key = launch.settings(tmp_path)
    assert by_key["spark.hadoop.fs.azure.account.key"] == "${env.AZURE_STORAGE_ACCOUNT_KEY}"
    assert "spark.hadoop.fs.azure.sas.fixed.token" not in by_key and "spark.hadoop.fs.azure.abfs.endpoint" not in by_key
    assert not [value for value in (*by_signature.values(), *by_key.values()) if "do-not-tell" in value]


@pytest.mark.long
@pytest.mark.s3
def test_a_server_without_the_connector_is_replaced(expendable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was started before the lake was moved to S3, and would end each run with a class that is not found."""
    first = server.ensure(expendable)
    monkeypatch.setenv(launch.LAKE, "s3://bucket/lake")
    with open_session(expendable, name="test") as spark:
        assert spark.sql("SELECT java_method('java.lang.Class', 'forName', 'org.apache.hadoop.fs.s3a.S3AFileSystem')").collect()
    second = server.ensure(expendable)
    assert second.pid != first.pid and second.fingerprint.endswith("+s3")
    monkeypatch.delenv(launch.LAKE)
    assert server.ensure(expendable).pid == second.pid, "one that has more than is needed stays"
