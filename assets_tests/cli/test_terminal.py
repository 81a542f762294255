"""Tables on a terminal: a record is one line, and a name neither cut nor broken, however long it is and however many columns there are.

Belongs here: how records are printed. Does not belong: which records there are.
"""

import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console

from assets_tests.harness import Project
from incremental_assets.cli import app
from incremental_assets.cli.terminal import as_table, print_catalog, print_syncs, print_table, say_record
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.dagster.web.serve import serve
from incremental_assets.runs.loggers import warnings_once

MakeProject = Callable[..., Project]
LONG = "a_table_of_the_warehouse_whose_name_is_sixty_characters_long"
SHOW = """
from incremental_assets.cli.terminal import print_table
columns = ("container", "column", "previous", "new", "rows", "run_id", "completed_at")
record = dict.fromkeys(columns, "2026-03-02T10:00:00.123456Z") | {"container": "shop/" + NAME, "rows": 6_001_215, "run_id": "q" * 36}
print_table("watermarks", [record, {"container": "shop/b"}], columns)
"""


def printed(name: str, width: int | None) -> str:
    """What a process prints on a terminal of so many columns; None: into a file."""
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment |= {} if width is None else {"COLUMNS": str(width)}
    done = subprocess.run([sys.executable, "-c", f"NAME = {name!r}\n{SHOW}"], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("width", [40, 80, 120, 200, None])
@pytest.mark.parametrize("name", ["orders", LONG, LONG * 3])
def test_no_name_and_no_id_is_cut_or_broken(name: str, width: int | None) -> None:
    """What cannot be copied from one command has to be typed into the next one."""
    shown = printed(name, width)
    assert f"shop/{name}" in shown and "shop/b" in shown and "…" not in shown, shown
    assert shown.count("q") == 36 * shown.count("q" * 36) and shown.count(",001,") == shown.count("6,001,215"), shown


def test_a_file_has_all_columns_and_a_line_for_each_record() -> None:
    """`grep` finds a record and what is said of it in one line."""
    assert [line.count("q" * 36) for line in printed(LONG * 3, None).splitlines()] == [0, 0, 1, 0]


ARCHIVE = "rental/maintenance_events_archive"
SYNCED = {"container": ARCHIVE, "status": "synced", "strategy": "upsert", "rows_read": 120_000, "rows_inserted": 100_000,
          "rows_updated": 20_000, "rows_deleted": 0, "partitions": ["2026-03-02"], "seconds": 12.3,
          "watermark": {"previous": "2026-03-01T10:00:00.123456Z", "new": "2026-03-02T10:00:00.123456Z"}}  # fmt: skip


@pytest.mark.parametrize(("width", "lines"), [(60, 4), (80, 4), (100, 4), (140, 4), (200, 3)])
def test_a_container_is_one_line_of_the_table_of_sync(
    width: int, lines: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of values for each of forty containers is no overview. What is left out is named, in a line of its own."""
    monkeypatch.setenv("COLUMNS", str(width))
    print_syncs([SYNCED])
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == lines and max(map(len, shown[:3])) <= width, shown
    assert shown[2].split()[:2] == [ARCHIVE, "synced"]
    assert lines == 3 or shown[3].startswith("not shown, as the terminal is narrow: "), shown


def test_a_sentence_goes_on_within_its_column_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be done about a slot is in the last words of its message."""
    record = {"container": ARCHIVE, "status": "lost", "lsn": "0/16B3748", "message": "word " * 30 + "last.\nsecond line"}
    columns = ("container", "status", "message", "lsn")
    monkeypatch.setenv("COLUMNS", "100")
    print_table("containers", [record], columns)
    shown = capsys.readouterr().out
    assert shown.count(ARCHIVE) == 1 and "last. second line" in " ".join(shown.split()) and max(map(len, shown.splitlines())) <= 100, shown
    monkeypatch.delenv("COLUMNS")
    print_table("containers", [record], columns)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_rows_of_the_lake_are_shown_with_all_their_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is left out looks as if the table did not have it."""
    monkeypatch.setenv("COLUMNS", "40")
    print_table("shop/orders, version 3", [{"id": "1", "note": "n" * 30, "at": "2026-03-02"}], ("id", "note", "at"), whole=True)
    assert capsys.readouterr().out == f"shop/orders, version 3\n1\n  note: {'n' * 30}\n  at: 2026-03-02\n"


HOSTILE = """
import logging
from incremental_assets.cli.terminal import line, out, print_table, say
from incremental_assets.core.shown_text import PlainFormatter
name = "shop/a\\x1b]0;title\\x07\\x9b2J\\u202eb\\rc\\udcff"
out({"container": name})
print_table(name, [{"container": name, "message": name}], ("container", "message"))
line(name + "\\nsecond")
say(f"{name}\\nsecond")
handler = logging.StreamHandler()
handler.setFormatter(PlainFormatter("%(message)s"))
handler.handle(logging.makeLogRecord({"msg": name}))
"""


@pytest.mark.parametrize("width", ["30", "200"])
def test_a_terminal_obeys_no_name(width: str) -> None:
    """Who names a table or a file could hide lines of the terminal, or change what is copied from it. JSON still has the very name."""
    environment = {**os.environ, "COLUMNS": width}
    done = subprocess.run([sys.executable, "-c", HOSTILE], env=environment, capture_output=True, check=True)
    for printed in (done.stdout.decode(), done.stderr.decode()):
        assert not [c for c in printed if not c.isprintable() and c != "\n"], repr(printed)
    first, *_, last = done.stdout.decode().splitlines()
    assert json.loads(first) == {"container": "shop/a\x1b]0;title\x07\x9b2J\u202eb\rc\udcff"}
    assert last == r"shop/a\x1b]0;title\x07\x9b2J\u202eb\rc\udcff\nsecond"
    assert len(done.stderr.decode().splitlines()) == 3


def test_an_interrupted_command_says_so() -> None:
    """Otherwise the prompt is back without a word, and nobody knows whether the command has done its work."""
    code = "import sys\nfrom incremental_assets.cli import app, main\n@app.command()\ndef wait():\n  raise KeyboardInterrupt\n"
    done = subprocess.run([sys.executable, "-c", f"{code}sys.argv = ['x', 'wait']\nmain()"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("interrupted; what is committed stays")) == (130, 1), done.stderr


@pytest.mark.parametrize("command", ["dev", "api"])
def test_a_port_that_does_not_exist_is_refused(command: str) -> None:
    """The UI would start its processes, wait, and never answer."""
    done = subprocess.run(
        [sys.executable, "-m", "incremental_assets.cli", command, "--port", "99999"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2 and "--port" in done.stderr and "65535" in done.stderr, done.stderr


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    """The UI would end and the daemon would stay: schedules run, and nobody sees it."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigurationError, match="--port"):
        serve(tmp_path, taken.getsockname()[1])
    assert not list(tmp_path.iterdir()), "nothing was started"


def test_each_command_shows_examples_that_fit_80_columns() -> None:
    """A line that is broken cannot be copied, and the options alone do not say how they go together."""
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        first, *lines = command.epilog.split("\n\n")
        assert first == "Examples:" and lines, name
        for line in lines:
            assert line.startswith(f"incremental-assets {name}") and "  # " in line and len(line) <= 78, line
        assert command.rich_help_panel, "it is in one of the groups"


def test_a_command_says_each_warning_once(project: MakeProject, capsys: pytest.CaptureFixture[str]) -> None:
    """A repair of five partitions said that an index is missing six times, and what else had happened was hard to find among it."""
    shop = project(incremental=["public.rides:at:timestamp"], containers={"rides": {"partition_by": "day"}}, safety_lag_seconds="auto")
    shop.execute("create table rides (id int primary key, at timestamptz not null, km int)")
    shop.execute(
        "insert into rides select i, timestamptz '2026-01-01 00:00Z' + i * interval '5 minutes', i from generate_series(1, 11000) i"
    )
    shop.execute("analyze rides")
    with warnings_once():
        record = shop.one("rides")
        say_record(record)
    said = capsys.readouterr().err
    assert (said.count("leads no index"), said.count("safety_lag is auto")) == (1, 1), said
    assert "leads no index" in record["message"] and said.rstrip().endswith("\nshop/rides: synced"), said
    shop.execute("update rides set km = 0 where id in (10, 2000, 5000)")
    with warnings_once():
        say_record(shop.audit("rides", repair=True)["rides"])
    said = capsys.readouterr().err
    assert said.count("leads no index") == 1 and said.count("refreshes 1 partition") == 3, said
    assert "shop/rides: repaired: audit: source and lake differ in 3 of" in said, said


LARGE = {
    "columns": [],
    **dict.fromkeys(("identifier", "partition_by", "trouble", "missing_since", "not_synced", "change", "glob", "safety_lag_is_auto")),
    "container": ARCHIVE, "status": "present", "strategy": "snapshot", "row_security": "refuse", "left_out": [],
    "proposal": {"outgrown": True, "entry": "{table: public.maintenance_events_archive}", "why": ["an index leads with at"]},
}  # fmt: skip


def test_add_prints_a_line_for_each_table_and_catalog_what_has_become_large(capsys: pytest.CaptureFixture[str]) -> None:
    """The first thing that a new user sees is a line for each table; entries and reasons are in the YAML that `add` has written."""
    print_catalog("rental", [LARGE], is_first=True)
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 3 and not shown.err, shown
    print_catalog("rental", [LARGE])
    assert "this reads only what is new: {table: public.maintenance_events_archive}" in capsys.readouterr().err


def test_no_records_are_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """A table without a line looks like one that was cut off."""
    print_table("operations", [], ("id", "type"))
    assert capsys.readouterr().out == "operations: there is nothing to show.\n"


@pytest.mark.long
def test_the_commands_show_long_names_whole_on_80_columns(project: MakeProject) -> None:
    """The tables of real commands, over a source with a long name: a line for each of the two containers."""
    shop = project(incremental=[f"public.{LONG}:id:integer"])
    shop.execute(f"create table {LONG} (id int primary key); create table {LONG[:-1]}2 (id int primary key)")
    shop.write()
    command = [sys.executable, "-m", "incremental_assets.cli", "--project", str(shop.path)]
    environment = {**shop.environment(spark=False), "COLUMNS": "80"}
    for arguments in (["catalog"], ["status"], ["watermarks"], ["scan"]):
        done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, check=True)
        of_containers = [line for line in done.stdout.splitlines() if line.startswith("shop/")]
        assert len(of_containers) == 2 and f"shop/{LONG}" in done.stdout, done.stdout


@pytest.mark.parametrize("width", [80, 100])
def test_a_sentence_that_is_cut_leaves_the_other_columns_whole(width: int) -> None:
    """A reason of two lines would push names out of a terminal of usual width, and names are what is copied."""
    rows = [{"container": "shop/ticket_events", "rows": 120000, "why": "a long reason " * 20}, {"container": "shop/a", "rows": 1}]
    console = Console(width=width, file=io.StringIO())
    console.print(as_table("shop", rows, ("container", "rows", "why"), cut="why"), soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 4 and max(map(len, lines)) <= width, lines
    assert lines[2].startswith("shop/ticket_events 120,000 a long reason") and lines[2].rstrip().endswith("…")
