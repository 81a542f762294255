"""The examples in the help of the commands, each of them run, and the calls on the pages, each of them parsed with its values.

Belongs here: that what a user copies from the help or a page works. Does not belong: what the commands do otherwise, and that options of
the pages exist (``test_docs``).
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer

from incremental_assets.cli import app
from incremental_assets.spark.embedded.server import in_use
from incremental_assets.spark.session import ensure_server

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND_LINE: Any = typer.main.get_command(app)
TABLES = """
create table orders (id bigint generated always as identity primary key, seats int, at timestamptz not null default clock_timestamp());
insert into orders (seats, at) select i % 7, timestamptz '2026-01-01' + i * interval '3 hours' from generate_series(1, 700) i;
create table sales_days (day date primary key); insert into sales_days values ('2026-01-01'); analyze
"""
OTHERWISE = {
    "api": "serves until it ends: assets_tests/api",
    "demo": "`make demo`, which .ci/run calls",
    "dev": "serves until it ends: test_walks.py",
}
"""Commands whose examples are only parsed here, and where they run."""
REFUSED = {
    "adopt store": "Rename it in the YAML first",
    "capture": "none of these containers has capture: log",
    "publish": "Spark has no catalog 'unity'",
}
"""Commands whose examples cannot do anything for this project, and a word of the message that says why."""


def examples() -> Iterator[str]:
    """The examples of all commands, in the order of the help, without their comments."""

    def below(command: Any) -> Iterator[str]:
        for one in getattr(command, "commands", {}).values():
            yield from re.findall(r"^incremental-assets (.*?)(?=  # |$)", one.epilog or "", re.M)
            yield from below(one)

    return below(COMMAND_LINE)


def parse(words: list[str]) -> None:
    """Parses the words after `incremental-assets` as the command line does, and calls nothing. Raises click's errors."""
    command, name = COMMAND_LINE, "incremental-assets"
    context = command.make_context(name, words)
    while hasattr(command, "commands"):
        name, command, left = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, left, parent=context)


def calls(page: Path) -> Iterator[list[str]]:
    """The words of each call of the command line in the blocks of a page that are to be typed."""
    for block in re.findall(r"^```(?:sh|console)\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M):
        for line in block.replace("\\\n", " ").splitlines():
            found = re.search(r"(?:^|[\s$/])incremental-assets (?!\.)(.*)", line)
            if found is not None:
                words = shlex.split(found[1], comments=True)
                ends = [i for i, word in enumerate(words) if re.fullmatch(r"\|\|?|&&|>|;", word)]
                yield words[: min(ends, default=len(words))]


@pytest.mark.parametrize("page", [page for page in PAGES if any(calls(page))], ids=lambda page: str(page.relative_to(ROOT)))
def test_each_call_on_a_page_is_one_that_the_command_line_takes(page: Path) -> None:
    """A user copies it, and is told that a value is none, or that an argument is missing."""
    for words in calls(page):
        parse(words)


def test_each_example_of_the_help_is_one_that_the_command_line_takes() -> None:
    """As on the pages; and each command has an example."""
    found = [shlex.split(line.partition(" > ")[0]) for line in examples()]
    for words in found:
        parse(words)
    without = set(COMMAND_LINE.commands) - {words[0] for words in found}
    assert without == set()


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_each_example_of_the_help_does_what_it_says(tmp_path: Path, database: str, spark_home: Path) -> None:
    """The help would lead a user to a failure: these calls are what is copied first."""
    own = ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT")
    environment = {key: value for key, value in os.environ.items() if key not in own}
    environment |= {"SHOP_URL": database, "SPARK_REMOTE": ensure_server(spark_home), "COLUMNS": "200", "PYTHONPATH": str(ROOT)}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])

    def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", f"incremental-assets {line}"], cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLES.encode())
    project, failed, removed = tmp_path / "lake", list[str](), list[str]()
    with in_use(spark_home):
        _prepare(run, project)
        for line in examples():
            words = line.split()
            if words[0] in OTHERWISE or line == "init lake" or line.startswith("init lake --url"):
                continue
            if words[0] in ("add", "remove"):  # they are run below, as they change the project
                removed.append(line)
                continue
            failed += _failure(run, project, line)
        for line in sorted(removed, key=lambda line: line.split()[0], reverse=True):
            failed += _failure(run, project, line.replace("remove shop", "remove shop --yes"))
            run("remove shop --yes", project)
    assert not failed, "\n\n".join(failed)


def _prepare(run: Any, project: Path) -> None:
    """Runs the examples of `init`, and makes a project in which those of the other commands have something to do."""
    for line in ("init lake", "init lake --url SHOP_URL"):
        folder = project.parent / line.replace(" ", "_")
        folder.mkdir()
        done = run(line, folder)
        assert done.returncode == 0, done.stderr
    done = run("init lake --url SHOP_URL --name shop", project.parent)
    assert done.returncode == 0, done.stderr
    file = project / "defs" / "shop" / "defs.yaml"
    text = file.read_text(encoding="utf-8")
    entry = '  incremental: ["public.orders:at:timestamp!upsert", "public.sales_days:day:date"]\n  containers:\n'
    entry += "    orders: {partition_by: month, checks: [{rule: between, column: seats, min: 1, max: 9}]}\n"
    file.write_text(re.sub(r"^  incremental:(.|\n)*", lambda _: entry, text, flags=re.M), encoding="utf-8")
    for line in ("catalog", "sync", "sync --mode refresh shop/orders", "scan"):
        done = run(line, project)
        assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr


def _failure(run: Any, project: Path, line: str) -> list[str]:
    """What is wrong with what the example does: nothing, if it ends as the page about exit codes says of a success or of findings."""
    known = {
        "operations 3f2a": ("operations --limit 1 --json", r'"id": "(\w+)'),
        "acknowledge 3f2a91": ("anomalies --json", r'"id": "(\w+)'),
    }
    for words, (command, pattern) in known.items():
        if words in line:
            listed = run(command, project)
            found = re.search(pattern, listed.stdout)
            if found is None:
                return [f"{line}: {command} lists nothing\n{listed.stdout}{listed.stderr}"]
            line = line.replace(words.split()[-1], found[1])
    if "--watch" in line:
        line = "status shop --watch 5 & sleep 8; kill -INT $!; wait $!; [ $? -le 130 ]"
    done = run(line, project)
    refused = next((word for command, word in REFUSED.items() if line.startswith(command)), None)
    is_right = done.returncode in (0, 1) if refused is None else done.returncode > 0 and refused in done.stderr
    return [] if is_right and "Traceback" not in done.stderr else [f"{line}: {done.returncode}\n{done.stdout[-500:]}{done.stderr[-1500:]}"]
