"""The documentation is compared with the code: commands, options, attributes of the YAML, environment variables, links, names of functions.

Belongs here: statements of the pages that a machine can check. Does not belong: the pages' wording, and the tests that they name
(``test_promises``).
"""

import ast
import dataclasses
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from incremental_assets.cli import app, reference
from incremental_assets.core.grammar import parse_incremental
from incremental_assets.dagster.components.alerts import Alerts
from incremental_assets.dagster.components.datastore import CatalogEntry
from incremental_assets.dagster.components.files import FileDatastore, FilesEntry
from incremental_assets.dagster.components.jdbc import JdbcDatastore
from incremental_assets.dagster.components.mysql import MySQLDatastore
from incremental_assets.dagster.components.postgres import PostgresDatastore
from incremental_assets.dagster.components.sqlserver import SQLServerDatastore
from incremental_assets.dagster.components.tables import ContainerEntry, IncrementalEntry, TableDatastore

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "incremental_assets"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = [ROOT / "README.md", CONTRIBUTING, *sorted((ROOT / "docs").rglob("*.md"))]
CONFIGURATION = ROOT / "docs" / "configuration.md"
COMMANDS: dict[str, Any] = dict(getattr(typer.main.get_command(app), "commands"))  # noqa: B009 typer's group is not typed
GLOBAL_OPTIONS = {"--project", "--help"}
DATABASES: dict[str, tuple[Any, str]] = {
    "PostgresDatastore": (PostgresDatastore, "postgresql://user:password@db:5432/shop"),
    "MySQLDatastore": (MySQLDatastore, "mysql://user:password@db:3306/shop"),
    "SQLServerDatastore": (SQLServerDatastore, "sqlserver://user:password@db:1433/shop"),
    "JdbcDatastore": (JdbcDatastore, "jdbc:h2:tcp://db:9092/shop"),
}
"""The component of each kind of database, and a URL for it."""
FROM_DAGSTER = {"defs_state"}  # an attribute of every StateBackedComponent, which Dagster documents

page = pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def _options(command: str) -> set[str]:
    return {name for parameter in COMMANDS[command].params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


def _calls(text: str) -> Iterator[tuple[str, list[str]]]:
    """The command and the options of each ``incremental-assets …`` in a code span or in a line of a code block."""
    blocks = re.findall(r"^```(?:sh|console|text)?\n(.*?)^```", text, re.S | re.M)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))
    for line in [*(line for block in blocks for line in block.splitlines()), *spans]:
        found = re.search(r"(?<![\w./@-])incremental-assets (.*)", line.partition(" #")[0])
        if found is None:
            continue
        words = found[1].split()
        while words and words[0] == "--project":
            words = words[2:]
        if words and re.fullmatch(r"[a-z]+", words[0]):
            yield words[0], re.findall(r"(?<![\w-])--?[a-z][a-z-]*", " ".join(words[1:]))


@page
def test_every_command_and_option_exists(path: Path) -> None:
    """A page must not show a call that the command line refuses."""
    for command, options in _calls(path.read_text(encoding="utf-8")):
        assert command in COMMANDS, f"{path.name}: there is no command {command!r}"
        assert set(options) <= _options(command), f"{path.name}: {command} has no {sorted(set(options) - _options(command))}"


def test_the_readme_names_every_command() -> None:
    """A command that the README does not name would stay unknown to readers."""
    named = re.findall(r"^\| `([a-z]+)[ `]", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    assert sorted(named) == sorted(COMMANDS)


def test_the_page_of_the_command_line_is_what_its_generator_makes() -> None:
    """The page must not describe an older command line. ``python -m incremental_assets.cli.reference`` writes it."""
    assert reference.PAGE == ROOT / "docs" / "cli.md"
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page()


def test_the_page_of_the_command_line_explains_every_command_and_option() -> None:
    """The page must have a text for each option, also for those that its generator may have left out."""
    sections = re.split(r"^## ([a-z]+)$", reference.PAGE.read_text(encoding="utf-8"), flags=re.M)
    explained = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert explained.keys() == COMMANDS.keys()
    for command, text in explained.items():
        found = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \| (.+) \|$", text, re.M)
        documented = {name for names, _ in found for name in re.findall(r"`(--?[a-z][a-z-]*)", names)}
        wanted = {name for name in _options(command) if name.startswith("-")} - {"--help"}
        assert documented == wanted, f"docs/cli.md: the options of {command}"
        assert all(meaning.strip() for _, meaning in found), f"docs/cli.md: an option of {command} has no help text"


def test_messages_name_no_option_that_there_is_not() -> None:
    """A user does what the message says, and is told that there is no such option."""
    options, of_others = {option for command in COMMANDS for option in _options(command)}, {"--recursive", "--profile", "--version"}
    found = set[str]()
    for file in PACKAGE.rglob("*.py"):
        if not {"demo", "embedded"} & set(file.parts):  # which call other programs
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found |= {
                        f"{file.name}: {one}"
                        for one in re.findall(r"(?<![\w-])--[a-z][a-z-]*", node.value)
                        if one not in options | of_others
                    }
    assert found == set()


def test_calls_of_commands_are_found_on_the_pages() -> None:
    """If the pages' form changed so that no call is found, the tests above would pass without checking anything."""
    assert len([call for path in PAGES for call in _calls(path.read_text(encoding="utf-8"))]) > 20


def _documented(section: str) -> set[str]:
    """The names in the first column of the section's table of attributes."""
    text = CONFIGURATION.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(section)}\n(?:(?!^## ).)*?^\| attribute \|(.*?)\n\n", text, re.S | re.M)
    assert found is not None, f"docs/configuration.md has no table of attributes below {section!r}"
    return set(re.findall(r"^\| `([A-Za-z_]+)`", found[1], re.M))


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ("A datastore", {f.name for f in dataclasses.fields(PostgresDatastore)} - FROM_DAGSTER),
        (
            "A database of MySQL or MariaDB",
            {f.name for f in dataclasses.fields(MySQLDatastore)} - {f.name for f in dataclasses.fields(TableDatastore)},
        ),
        (
            "A database of SQL Server",
            {f.name for f in dataclasses.fields(SQLServerDatastore)} - {f.name for f in dataclasses.fields(TableDatastore)},
        ),
        (
            "A database by JDBC",
            {f.name for f in dataclasses.fields(JdbcDatastore)} - {f.name for f in dataclasses.fields(TableDatastore)},
        ),
        ("An entry of `incremental`", set(IncrementalEntry.model_fields)),
        ("An entry of `catalog`", set(CatalogEntry.model_fields)),
        ("An entry of `containers`", set(ContainerEntry.model_fields)),
        ("A folder of files", {f.name for f in dataclasses.fields(FileDatastore)} - FROM_DAGSTER),
        ("A container of files", set(FilesEntry.model_fields)),
    ],
)
def test_every_attribute_is_documented_and_none_other(section: str, names: set[str]) -> None:
    """The reference must not leave out an attribute, nor keep one that no longer exists."""
    assert _documented(section) == names


def _datastores(text: str) -> Iterator[dict[str, Any]]:
    for block in re.findall(r"^```yaml\n(.*?)^```", text, re.S | re.M):
        data = yaml.safe_load(block)
        if isinstance(data, dict) and "attributes" in data:
            yield data


@page
def test_yaml_examples_are_accepted(path: Path) -> None:
    """An example that a reader copies must be accepted."""
    for data in _datastores(path.read_text(encoding="utf-8")):
        attributes = dict(data["attributes"])
        if data["type"] == "incremental_assets.FileDatastore":
            files = {name: FilesEntry(**entry) for name, entry in attributes.get("containers", {}).items()}
            made: Any = FileDatastore(**{**attributes, "path": "/landing", "containers": files})
        elif data["type"] == "incremental_assets.Alerts":
            made = Alerts(**{**attributes, "to": ["json://localhost" for _ in attributes["to"]]})
        else:
            entries = [e if isinstance(e, str) else IncrementalEntry(**e) for e in attributes.get("incremental", [])]
            containers = {name: ContainerEntry(**entry) for name, entry in attributes.get("containers", {}).items()}
            looks = CatalogEntry(**attributes.get("catalog", {}))
            component, url = DATABASES[data["type"].removeprefix("incremental_assets.")]
            made = component(**{**attributes, "url": url, "incremental": entries, "containers": containers, "catalog": looks})
        assert made.settings()


def test_every_attribute_of_alerts_is_documented_and_none_other() -> None:
    table = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8").partition("| attribute |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z_]+)`", table, re.M)) == {f.name for f in dataclasses.fields(Alerts)}


@page
def test_entries_of_incremental_on_the_pages_are_accepted(path: Path) -> None:
    """Each entry of ``incremental`` that a page shows must be one that the product accepts."""
    text = path.read_text(encoding="utf-8")
    for entry in re.findall(r'[`"](\w+\.\w+:\w+:(?:date|datetime|timestamp|integer)[^`"\s]*)[`"]', text):
        parse_incremental(entry)


@page
def test_relative_links_lead_somewhere(path: Path) -> None:
    """A link must not lead to a page or a heading that was moved or renamed."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    for target in re.findall(r"\]\((?!mailto:|[^)\s]*://)([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{path.name}: {target} leads nowhere"
        if anchor and file.suffix == ".md":
            assert anchor in _anchors(file), f"{path.name}: {target}: no such heading"


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_environment_variables_are_those_of_the_code() -> None:
    """The reference must name each variable that the code reads, and no other."""
    code = "\n".join(p.read_text(encoding="utf-8") for p in sorted((ROOT / "incremental_assets").rglob("*.py")))
    read = set(re.findall(r'"(INCREMENTAL_ASSETS_[A-Z_]+)"', code))
    documented = set(re.findall(r"^\| `(INCREMENTAL_ASSETS_[A-Z_]+)`", CONFIGURATION.read_text(encoding="utf-8"), re.M))
    assert documented == read
    for path in PAGES:
        named = set(re.findall(r"INCREMENTAL_ASSETS_[A-Z_]+", path.read_text(encoding="utf-8")))
        assert named <= read, f"{path.name}: nothing reads {sorted(named - read)}"


# ---------------------------------------------------------------------- CONTRIBUTING.md
@cache
def _defined(path: Path) -> frozenset[str]:
    """Functions, classes and methods of a module: ``function``, ``Class``, ``Class.method``."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return frozenset(found)


def _file(name: str) -> Path | None:
    """The file or folder of that name: below the root, below the package, or anywhere among the tests."""
    places = (ROOT / name, PACKAGE / name, *(ROOT / "assets_tests").rglob(name))
    return next((place for place in places if place.exists()), None)


def test_each_file_and_function_that_contributing_names_exists() -> None:
    """A walk must not name a function that was moved or renamed."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)(?:::([\w.]+))?`", text)
    named += re.findall(r"(assets_tests/[\w/]+\.py)::(\w+)$", text, re.M)
    assert len([function for _, function in named if function]) > 60
    for name, function in named:
        path = _file(name)
        assert path is not None, f"CONTRIBUTING.md: there is no {name}"
        assert not function or function in _defined(path), f"CONTRIBUTING.md: {name} has no {function}"


def test_each_folder_that_contributing_names_exists() -> None:
    """The tree on the page must name all folders of the package, and no other."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    for name in re.findall(r"`([a-z_/]+/)`", text):
        below = [one for one in PACKAGE.glob(f"*/{name}") if one.is_dir()]
        assert _file(name) is not None or below, f"CONTRIBUTING.md: there is no folder {name}"
    for folder in PACKAGE.iterdir():
        assert not (folder / "__init__.py").exists() or f"`incremental_assets/{folder.name}/`" in text, f"CONTRIBUTING.md: {folder.name}"


def test_the_messages_of_the_limits_are_those_that_are_printed() -> None:
    """Whoever searches the pages for the words of a message must find it, and the page must not promise words that nobody prints."""
    quoted = [
        text
        for line in (ROOT / "docs" / "limits.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
        for text in re.findall(r"`([^`]+)`", line)
    ]
    said = re.sub(r'"\s*\n\s*f?"', "", "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")))
    messages = [text for text in quoted if text.count(" ") > 1]
    assert len(messages) > 12 and not [text for text in messages if text not in said]
