"""Numbers with their nouns: ``counted``, and a lint that finds a number whose noun does not go by it.

Belongs here: how a number is said. Does not belong: what is counted.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import incremental_assets
from incremental_assets.core.shown_text import counted

PACKAGE = Path(incremental_assets.__file__).parent
NOUN = re.compile(r" (rows|partitions|files|containers|columns|passes|rules|keys|runs|windows|ranges|changes)\b")


def many_of_one(source: str) -> Iterator[str]:
    """The numbers in f-strings of a source that stand before a noun of several, except constants, numbers with digits after the point, and
    lists."""
    for node in ast.walk(ast.parse(source)):
        for value, text in zip(node.values, node.values[1:], strict=False) if isinstance(node, ast.JoinedStr) else ():
            if not (isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant) and NOUN.match(str(text.value))):
                continue
            expression, spec = ast.unparse(value.value), "" if value.format_spec is None else ast.unparse(value.format_spec).strip("'")
            if not expression.isupper() and not spec.endswith("f") and not isinstance(value.value, ast.ListComp):
                yield f"line {value.lineno}: {expression}{text.value}"


def test_a_number_goes_with_its_noun() -> None:
    assert (counted(1, "row"), counted(0, "row"), counted(2_000, "row")) == ("1 row", "0 rows", "2,000 rows")
    assert (counted(1, "pass", "passes"), counted(3, "pass", "passes")) == ("1 pass", "3 passes")


def test_the_lint_finds_a_number_before_a_noun_of_several() -> None:
    found = list(
        many_of_one("f\"{len(rows):,} rows of {parts} partitions by {counted(n, 'rule')}, {MOST} files, {pace:.0f} rows a second\"")
    )
    assert found == ["line 1: len(rows) rows of ", "line 1: parts partitions by "]


@pytest.mark.parametrize("folder", sorted({path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py")}))
def test_no_message_says_1_rows(folder: str) -> None:
    """Messages are read by people, and a text such as *1 rows in 1 passes* looks as if nobody had."""
    paths = sorted((PACKAGE / folder).rglob("*.py")) if (PACKAGE / folder).is_dir() else [PACKAGE / folder]
    found = [f"{path.relative_to(PACKAGE)}, {one}" for path in paths for one in many_of_one(path.read_text(encoding="utf-8"))]
    assert not found, "write counted(number, 'row')"
