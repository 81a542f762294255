"""``check``: what an engineer sees before a commit, and a CI that has neither credentials nor a source.

Belongs here: which mistakes are found, where, and what the command leaves alone. Does not belong: the words of each message (the tests of
what the attribute is about), and the fields of a line (``test_json``).
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from assets_tests.harness import Folder, Project
from assets_tests.test_tutorial import blocks, expect
from incremental_assets.operations.check import check_lines
from incremental_assets.project.folders import read_project
from incremental_assets.project.scaffold import write_project

HEAD = 'type: incremental_assets.PostgresDatastore\nattributes:\n  name: shop\n  url: "{{ env.SHOP_URL }}"\n'
ALERTS = "type: incremental_assets.Alerts\nattributes:\n"
MYSQL = 'type: incremental_assets.MySQLDatastore\nattributes:\n  name: my\n  url: "{{ env.MY_URL }}"\n'


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A new project, without any of the variables that its YAML refers to."""
    for name in ("definitions", "defs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("DAGSTER_HOME", "INCREMENTAL_ASSETS_LAKE", "INCREMENTAL_ASSETS_PROJECT", "SHOP_URL", "MY_URL", "ALERTS_URL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_project(tmp_path / "p")
    yield tmp_path / "p"
    for name in ("definitions", "defs"):
        sys.modules.pop(name, None)


def write(project: Path, folder: str, text: str) -> None:
    (project / "defs" / folder).mkdir(exist_ok=True)
    (project / "defs" / folder / "defs.yaml").write_text(text, encoding="utf-8")


def checked(project: Path) -> list[dict[str, Any]]:
    read_project(project)
    return check_lines(project)


def problems(project: Path) -> list[str]:
    found = [one for record in checked(project) for one in record["problems"]]
    return [f"{one['file']}:{one['line']}: {one['text']}" for one in found]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (HEAD + "  load_rows: 0\n", 5, "load_rows is 0; it is at least 1"),
        (HEAD + "  load_rows: many\n", 5, "load_rows is 'many'; write a whole number"),
        (HEAD + '  schedule: "0 25 * * *"\n', 5, "schedule is '0 25 * * *', which is no cron expression"),
        (HEAD + "  maintenance: nightly\n", 5, "maintenance is 'nightly', which is no cron expression"),
        (HEAD + "  catalog:\n    prune: true\n    schedule: hourly\n", 7, "catalog: schedule is 'hourly', which is no cron"),
        (HEAD + "  audit:\n    repair: true\n    schedule: weekly\n", 7, "audit: schedule is 'weekly', which is no cron"),
        (HEAD + "  profile:\n    looks: full\n    schedule: weekly\n", 7, "profile: schedule is 'weekly', which is no cron"),
        (HEAD + "  containers:\n    a: {}\n    b:\n      tags: {x: y}\n      schedule: x\n", 9, "shop/b: schedule is 'x'"),
        (HEAD + "  containers:\n    a: {}\n    b:\n      tags: {x: y}\n      partition_by: year\n", 9, "shop/b: partition_by is one of"),
        (HEAD + "  containers:\n    b:\n      tags: {x: y}\n      partiton_by: day\n", 8, "Nearest: partition_by"),
        (HEAD + "  containers:\n    b:\n      audit:\n        partitions: oldest 3\n", 8, "shop/b: audit: partitions is 'oldest 3'"),
        (HEAD + "  containers:\n    b:\n      tags: {x: y}\n      every: soon\n", 8, "shop/b: every"),
        (HEAD + '  incremental:\n    - "a:x:date"\n    - "b:x:dat"\n', 7, "unknown type 'dat'"),
        (HEAD + "  incremental:\n    - {table: a, column: x, type: date}\n    - {table: b, column: x, type: dat}\n", 7, "shop/b: inc"),
        (HEAD + '  incremental: ["b:x:integer"]\n  containers:\n    b:\n      partition_by: day\n', 8, "of an integer identifier is"),
        (HEAD + "  containers:\n    b:\n      checks:\n        - {rule: not_nul, columns: [a]}\n", 8, "there is no rule 'not_nul'"),
        (f"{ALERTS}  to: [json://localhost]\n  every_seconds: 1\n", 4, "every_seconds is at least 10"),
    ],
)  # fmt: skip
def test_a_mistake_is_found_without_a_source_and_named_with_its_line(fresh: Path, text: str, line: int, what: str) -> None:
    """Otherwise the first run in production finds it, or a person searches a file of a thousand lines for it."""
    write(fresh, "shop", text)
    [found] = problems(fresh)
    assert found.startswith(f"defs/shop/defs.yaml:{line}: ") and what in found, found


def test_one_mistake_hides_no_other(fresh: Path) -> None:
    """Else a CI says one thing each time, and a change takes as many runs of it as it has mistakes."""
    entries = '  load_rows: 0\n  schedule: x\n  containers:\n    a: {schedule: x}\n    b: {every: soon}\n  incremental: ["a:x:dat"]\n'
    write(fresh, "shop", HEAD + entries)
    write(fresh, "broken", "a: [")
    write(fresh, "unknown", HEAD.replace("Postgres", "Postgre"))
    write(fresh, "two", f"{MYSQL}---\n{MYSQL}  urll: x\n")
    found = problems(fresh)
    assert [each.partition(": ")[0].removeprefix("defs/").partition("/")[0] for each in found] == [
        "broken", *["shop"] * 5, "two", "unknown",
    ], found  # fmt: skip
    assert "defs/two/defs.yaml:10: there is no attribute 'urll'" in found[6]


def test_variables_of_addresses_need_not_be_set(fresh: Path) -> None:
    """A CI has no credentials. What it could not look at is named, and all else is checked."""
    write(fresh, "shop", HEAD.replace('"{{ env.SHOP_URL }}"', '"postgresql://u:{{ env.PW }}@{{ env.HOST }}:{{ env.PORT }}/shop"'))
    write(fresh, "my", MYSQL + '  incremental: ["shopdb.orders:id:integer"]\n')
    write(fresh, "landing", 'type: incremental_assets.FileDatastore\nattributes: {name: landing, path: "{{ env.PLACE }}"}\n')
    write(fresh, "told", ALERTS + '  to: ["{{ env.ALERTS_URL }}"]\n')
    records = {record["name"]: record for record in checked(fresh)}
    assert not [record for record in records.values() if record["problems"]], records
    assert "PW, HOST, PORT is not set" in records["shop"]["message"] and "MY_URL is not set" in records["my"]["message"]
    assert "incremental-assets catalog landing" in records["landing"]["message"]
    assert "ALERTS_URL" in records["alerts"]["message"] and "MY_URL" not in os.environ


def test_another_variable_that_is_not_set_is_a_problem(fresh: Path) -> None:
    """Only addresses may be missing: a schema or a schedule that depends on an unset variable is another project in production."""
    write(fresh, "shop", HEAD + '  load_rows: "{{ env.NO_SUCH_NUMBER }}"\n')
    [found] = problems(fresh)
    assert "shop/defs.yaml:5: " in found and "load_rows is None" in found, found


def test_datastores_that_collide_are_both_named(fresh: Path) -> None:
    """Two files may be changed by two people; each is right alone, and Dagster would load neither."""
    write(fresh, "a", HEAD)
    write(fresh, "b", HEAD)
    found = problems(fresh)
    assert [each.partition(": ")[0] for each in found] == ["defs/a/defs.yaml:3", "defs/b/defs.yaml:3"]
    assert all("two datastores are called 'shop'" in each for each in found)


def test_what_dagster_itself_refuses_is_found(fresh: Path) -> None:
    """Such as an owner or the project's own code. Without it ``check`` says that all is well, and the code location does not load."""
    write(fresh, "shop", HEAD)
    (fresh / "defs" / "own.py").write_text("import dagster as dg\n\nx = nowhere\n")
    [found] = problems(fresh)
    assert "own.py:3: NameError" in found, found


# ---------------------------------------------------------------------- with a catalog
@pytest.fixture
def shop(project: Callable[..., Project]) -> Project:
    made = project(incremental=["public.orders:id:integer"], containers={"orders": {"partition_by": 1000}})
    made.execute("create table orders (id bigint primary key, total int); create table events (id bigint primary key, at date)")
    made.write()
    made.cli("catalog", "shop", spark=False)
    return made


def files_of(folder: Path) -> dict[str, tuple[float, int]]:
    """Each file below the folder, but those of Dagster's own home, with its time and size."""
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def test_it_writes_nothing_and_asks_nobody(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in a read-only checkout, before each commit. A file that it leaves would be committed."""
    before = files_of(shop.path)
    monkeypatch.setattr(Project, "variables", {"SHOP_URL": "", "PYTHONDONTWRITEBYTECODE": ""})
    code, [record], said = shop.cli("check", "--json", spark=False)
    assert code == 0 and files_of(shop.path) == before, said
    assert (record["containers"], record["problems"]) == (2, []) and record["catalogued_at"] and "SHOP_URL is not set" in record["message"]
    monkeypatch.setattr(Project, "variables", {"SHOP_URL": "postgresql://nobody@127.0.0.1:1/nowhere"})
    code, [record], _ = shop.cli("check", "--json", spark=False)
    assert code == 0 and not record["message"]


def test_names_that_the_catalog_does_not_have_are_all_found(shop: Project) -> None:
    """A column that was renamed in the source is found before a sync fails, each with the line that names it."""
    shop.configure(
        incremental=["public.orders:idd:integer", "public.event:id:integer"],
        containers={
            "events": {"exclude_columns": ["att"], "partition_by": "month"},
            "nation": {"tags": {"tier": "gold"}},
            "orders": {"partition_by": 1000, "checks": [{"rule": "positive", "column": "totl"}]},
        },
    )
    shop.write()
    code, [record], _ = shop.cli("check", "--json", spark=False, check=None)
    text = (shop.path / "defs" / "shop" / "defs.yaml").read_text().splitlines()
    found = {one["text"]: text[one["line"] - 1].strip() for one in record["problems"]}
    assert code == 2 and len(found) == 4, found
    expected = {
        "incremental names 'event'": "- public.event:id:integer",
        "containers names 'nation'": "nation:",
        "shop/events: exclude_columns: there is no column 'att'": "- att",
        "shop/orders: incremental: there is no column 'idd'": "- public.orders:idd:integer",
    }
    for what, line in expected.items():
        assert [there for message, there in found.items() if what in message] == [line], (what, found)
    shop.configure(incremental=["public.orders:id:integer"], containers={**shop.attributes["containers"], "nation": {}, "events": {}})
    shop.configure(containers={name: one for name, one in shop.attributes["containers"].items() if name != "nation"})
    shop.write()
    _, [record], _ = shop.cli("check", "--json", spark=False, check=None)
    [one] = record["problems"]
    assert "totl" in one["text"] and one["file"] == "defs/shop/defs.yaml", one


def test_a_sync_names_the_line_too(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has not run ``check`` reads the same message in the log of a run."""
    shop.configure(containers={"orders": {"partition_by": 1000, "exclude_columns": ["totl"]}})
    shop.write()
    _, _, said = shop.cli("sync", "--dry-run", spark=False, check=2)
    assert "defs.yaml:" in said and "there is no column 'totl'" in said, said


def test_people_see_a_line_for_each_datastore_and_then_the_problems(folder: Callable[..., Folder]) -> None:
    """What it prints is read in the log of a CI, which is no terminal."""
    made = folder(containers={"all": {"glob": "*.csv", "schedule": "x"}})
    made.write()
    command = made.cli("check", spark=False, check=2)
    assert f"defs/{made.store}/defs.yaml:" in command[2] and "no cron expression" in command[2], command


def test_the_page_about_testing_does_what_it_says(fresh: Path, database: str) -> None:
    """Its commands are copied into the files of a CI, where nobody looks at what they print as long as they are green."""
    page = Path(__file__).resolve().parent.parent.parent / "docs" / "testing-your-project.md"
    [(_, yaml)] = [block for block in blocks(page) if block[0] == "yaml"]
    with_default = """schedule: "{{ env('SHOP_SCHEDULE', '0 * * * *') }}\""""
    assert with_default in page.read_text(encoding="utf-8") and 'schedule: "0 * * * *"' in yaml
    write(fresh, "shop", yaml.replace('schedule: "0 * * * *"', with_default))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table orders (id bigint primary key)")
    own = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]), "COLUMNS": "300"}
    environment = {**os.environ, **own, "PYTHONPATH": str(page.parent.parent), "SPARK_REMOTE": "sc://127.0.0.1:1"}
    calls = [line for kind, text in blocks(page) if kind == "sh" for line in text.splitlines()]
    assert len(calls) == 4 and calls[3].startswith("SHOP_SCHEDULE=") and calls[0] == "incremental-assets check"
    for number, call in enumerate(calls):
        url = {} if number in (0, 3) else {"SHOP_URL": database}
        done = subprocess.run(
            ["/bin/sh", "-c", call], cwd=fresh, env=environment | url, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{call}\n{done.stdout}{done.stderr}"
        if number == 0:
            expect(dict(blocks(page))["text"], done.stdout + done.stderr)
        assert "sync" not in call or "shop/orders" in done.stdout + done.stderr
