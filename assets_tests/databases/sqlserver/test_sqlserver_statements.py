"""Every statement for SQL Server is T-SQL to a parser, and is the one that was reviewed. No server can run here to try them.

Belongs here: the text of statements. Does not belong: what becomes of their results (``test_sqlserver_values``), and the tests that need a
server (``test_sqlserver_sync`` and others).
"""

import inspect
import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError

from assets_tests import hostile
from assets_tests.databases.sqlserver.known import IDENTIFIERS, followed, statements_of, statements_of_the_server, whole
from incremental_assets.core.container import Container
from incremental_assets.databases.sqlserver import connection, hashed_rows, introspect, keys, session, statements, transactions, watch

PINNED = Path(__file__).parent / "statements.json"
UNKNOWN_TO_SQLGLOT = {connection.SNAPSHOT_ISOLATION}
"""Statements of T-SQL's own that sqlglot does not know."""


def made() -> dict[str, str]:
    """All statements by what they are about and the function that makes them."""
    found = {f"server: {name}{f' {text}' if name == 'a setting' else ''}": text for name, text in statements_of_the_server()}
    for by in IDENTIFIERS:
        found |= {f"by {by}: {name}": text for name, text in statements_of(followed(by))}
    return found | {f"whole: {name}": text for name, text in statements_of(whole(), ("7",))}


def parsed(text: str) -> Any:
    found = sqlglot.parse(text, read="tsql")
    assert len(found) == 1 and found[0] is not None, f"one statement and no more: {text}"
    return found[0]


def test_every_statement_is_the_one_that_was_reviewed() -> None:
    """A statement that changes by accident would be tried by a user first. ``PIN_STATEMENTS=1`` writes the file, to be reviewed."""
    found = made()
    if os.environ.get("PIN_STATEMENTS"):
        PINNED.write_text(json.dumps(found, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")
    assert found == json.loads(PINNED.read_text(encoding="utf-8"))


def test_no_function_that_makes_a_statement_is_left_out() -> None:
    """Its statement would be neither parsed nor reviewed."""
    names = {name.split(": ")[1].split(" ")[0] for name in made()}
    modules = hashed_rows, introspect, keys, session, statements, transactions, watch
    functions = [(module.__name__, one) for module in modules for _, one in inspect.getmembers(module, inspect.isfunction)]
    wanted = {one.__name__ for module, one in functions if one.__module__ == module and one.__name__.endswith("_query")}
    assert len(wanted) > 20
    assert wanted <= names


@pytest.mark.parametrize("text", [text for text in made().values() if text not in UNKNOWN_TO_SQLGLOT], ids=lambda text: text[:40])
def test_every_statement_is_one_of_tsql(text: str) -> None:
    """A statement that no parser accepts fails at the first user. An unknown one would be parsed as a command."""
    assert not isinstance(parsed(text), exp.Command), text


def test_what_sqlglot_does_not_know_is_listed() -> None:
    """Otherwise a statement may be left out of the parsing that could be parsed."""
    for text in UNKNOWN_TO_SQLGLOT:
        try:
            known = not isinstance(parsed(text), exp.Command)
        except (ParseError, AssertionError):
            known = False
        assert not known, text


def _names(tree: Any) -> set[str]:
    return {one.name for one in tree.find_all(exp.Identifier)}


@pytest.mark.parametrize("seed", range(8))
def test_hostile_names_stay_names(seed: int) -> None:
    """Otherwise whoever names a table or a column runs SQL with the rights of the lake's user."""
    chance = random.Random(seed)
    name, identifier, value, schema = hostile.names(chance, 4, without=".")  # a dot parts schema and table in the YAML
    by = list(IDENTIFIERS)[seed % len(IDENTIFIERS)]
    container = followed(by, name, identifier, value)
    plain = dict(statements_of(followed(by)))
    for function, text in statements_of(container, (hostile.text(chance),)):
        tree = parsed(text)
        assert _shape(tree) == _shape(parsed(plain[function])), text
        assert _names(tree) <= _names(parsed(plain[function])) | {name, identifier, value}, text
    for function, text in statements_of_the_server(schema, name):
        if text not in UNKNOWN_TO_SQLGLOT:
            assert _shape(parsed(text)) == _shape(parsed(dict(statements_of_the_server())[function])) or function == "a setting", text


def _shape(tree: Any) -> list[str]:
    """The kinds of a statement's parts in their order, which no name and no value changes."""
    return [type(node).__name__ for node in tree.walk()]


def test_the_shape_of_a_statement_shows_injected_sql() -> None:
    """Otherwise the test above may pass because it sees nothing."""
    assert _shape(parsed("select [a] from [b]")) != _shape(parsed("select [a], [c] from [b]"))
    assert _shape(parsed("select [a] from [b] where [a] = 'x'")) != _shape(parsed("select [a] from [b] where [a] = 'x' or 1 = 1"))


def test_the_yaml_condition_is_bound_to_each_read() -> None:
    """``where: a or b`` without parentheses would select rows of other windows."""
    container = followed("id")
    limited = _with_where(container, "[value] = 'x' or 1 = 1")
    texts = dict(statements_of(limited))
    for function in ("select_of", "count_query", "highest_query", "lowest_query", "by_partition"):
        assert "([value] = 'x' or 1 = 1)" in texts[function], function


def _with_where(container: Container, where: str) -> Container:
    return replace(container, options=replace(container.options, where=where))
