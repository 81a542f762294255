"""Every statement that the tests would send to SQL Server is T-SQL to a parser, and has no word of another server's SQL.

Belongs here: the statements of tests, which are found by playing the tests without a server (``servers.recorded``). Does not belong: the
statements of the product (``test_sqlserver_statements``).
"""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import TokenType

from assets_tests.databases.servers.recorded import SCHEME

pytestmark = pytest.mark.long  # it plays all tests that need a server
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PLAYED = (HERE.parent / "servers", HERE / "test_sqlserver_sync.py")
UNKNOWN_TO_SQLGLOT = (
    " with values",
    "waitfor delay ",
    "create login ",
    "drop login ",
    "create user ",
    "grant select, view definition on schema::dbo ",
)
"""Parts of statements of T-SQL's own that sqlglot does not know."""
_WORDS = """
add alter and as begin between cast check_policy column commit create default definition delay delete drop exec exists for from grant
identity if in index insert int into is key lock_timeout login not null off on password primary rollback schema select set sp_rename table
then to transaction truncate update user values view waitfor where with
bigint binary bit char date datetime datetime2 datetimeoffset decimal float hierarchyid image max money nchar ntext numeric nvarchar
real rowversion smalldatetime smallint smallmoney text time tinyint uniqueidentifier varbinary varchar xml
replicate suser_id sysutcdatetime trancount dbo
"""
WORDS = frozenset(_WORDS.split())
"""The words of T-SQL that the tests use. Whoever uses another one looks it up in the manual first."""
_NAMES = """
orders orders_by orders_changed orders2 names lists things changes changes_changed arrivals days shown incremental_assets_plain t
id at value created changed ordered name more old mark
"""
NAMES = frozenset(_NAMES.split())
"""The tables, columns and users of the tests, beside columns that are numbered (``c0``)."""
_LITERALS = {TokenType.STRING, TokenType.NATIONAL_STRING}


@pytest.fixture(scope="module")
def statements(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The statements by the test that sends them. The tests are played without their assertions, as no answer has anything in it."""
    file = tmp_path_factory.mktemp("recorded") / "statements.jsonl"
    # With `-O` Python leaves `assert` out, and with plain assertions pytest does not put it in again.
    command = [sys.executable, "-O", "-m", "pytest", "--assert=plain", "-q", "-p", "no:cacheprovider", "-k", "not mariadb"]
    environment = {**os.environ, "SQLSERVER_URL": f"{SCHEME}{file}"}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    command += map(str, PLAYED)
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, list[str]] = defaultdict(list)
    for line in file.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        found[one["test"]].append(one["statement"])
    return found


def fault(statement: str) -> str | None:
    """What is wrong with a statement as T-SQL."""
    try:
        words = list(unknown_words(statement))
        if words:
            return f"words that are not listed: {', '.join(words)}"
        if any(part in statement for part in UNKNOWN_TO_SQLGLOT):
            return None
        found = sqlglot.parse(statement, read="tsql")
    except (ParseError, TokenError) as error:
        return str(error).splitlines()[0]
    if len(found) != 1 or found[0] is None:
        return "it is not one statement"
    return None if is_known(statement) else "it is an unknown command"


def unknown_words(statement: str) -> Iterator[str]:
    """The words that are neither T-SQL's nor names of tables and columns. A key that is not the primary one is an index of MySQL's."""
    before = ""
    for token in sqlglot.tokenize(statement, read="tsql"):
        word = token.text.lower()
        is_word = token.token_type not in _LITERALS and word.replace("_", "").isalnum() and not word[0].isdigit()
        if is_word and word not in WORDS and not is_name(word):
            yield word
        if token.token_type is TokenType.IDENTIFIER and statement[token.start] == "`":
            yield token.text
        if word == "key" and before != "primary":
            yield f"{before} key"
        before = word


def is_name(word: str) -> bool:
    return word in NAMES or (word[:1] == "c" and word[1:].isdigit())


@pytest.mark.long
def test_each_statement_of_the_tests_is_one_of_tsql(statements: dict[str, list[str]]) -> None:
    """A typing error in a test that nobody has run would stop the first user who runs it."""
    sent = {statement: test for test, of_test in statements.items() for statement in of_test}
    assert [f"{test}: {said}: {statement}" for statement, test in sent.items() if (said := fault(statement))] == []


def test_each_test_that_needs_sql_server_was_played(statements: dict[str, list[str]]) -> None:
    """A test that sends nothing would be taken for one whose statements are right."""
    files = [file for place in PLAYED for file in (sorted(place.glob("test_*.py")) if place.is_dir() else [place])]
    names = {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)}
    assert {test.split("::")[1].split("[")[0] for test in statements} == names
    assert sum(map(len, statements.values())) > 1000


@pytest.mark.parametrize(
    "statement",
    [
        "creat table orders (id int primary key)",
        "create table orders (id int primary key auto_increment)",
        "create table orders (id int unsigned)",
        "create table orders (id int primary key, changed datetime2(6), key (changed))",
        "update orders set value = repeat('x', 5)",
        "insert into `orders` (id) values (1)",
        "rename table orders to orders2",
        "select id from orders where",
        "commit; drop table orders",
        "begin",
    ],
)
def test_a_typing_error_and_words_of_mysql_are_found(statement: str) -> None:
    """Otherwise the test above may pass because it sees nothing: sqlglot takes much of MySQL's SQL for T-SQL."""
    assert fault(statement) is not None


def test_what_sqlglot_does_not_know_is_listed(statements: dict[str, list[str]]) -> None:
    """Otherwise a statement may be left out of the parsing that could be parsed, or that no test sends any more."""
    sent = {statement for each in statements.values() for statement in each}
    for part in UNKNOWN_TO_SQLGLOT:
        of_part = [statement for statement in sent if part in statement]
        assert of_part, f"no test sends {part!r}"
        for statement in of_part:
            assert not is_known(statement), statement


def is_known(statement: str) -> bool:
    """Whether sqlglot parses a statement, and no part of it as an unknown command."""
    try:
        trees = sqlglot.parse(statement, read="tsql")
    except ParseError:
        return False
    return not any(isinstance(node, exp.Command) for tree in trees if tree for node in tree.walk())
