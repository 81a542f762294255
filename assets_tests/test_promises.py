"""The pages that name tests are compared with the tests: each named test exists, and each mutant's fault can still be put in.

Belongs here: `docs/promises.md`, `docs/testing.md` and the list of mutants. Does not belong: running a mutant (``assets_tests.mutants``).
"""

import ast
import os
import re
from functools import cache
from pathlib import Path

import pytest

from assets_tests.mutants import MUTANTS, Mutant, outcome
from assets_tests.places import file_named
from assets_tests.rotation import commit_number, first_seed
from assets_tests.soak import ROOT
from incremental_assets.spark.session import ensure_server

NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
LONG = {"long", "s3"}


@cache
def named_tests(file: str) -> dict[str, bool]:
    """The tests of a file, by name, with whether each is marked as long as a whole: of all its parameters."""
    tree = ast.parse(file_named(file).read_text(encoding="utf-8"))
    long = {ast.unparse(node.targets[0]) for node in tree.body if isinstance(node, ast.Assign) and _marks(node.value) & LONG}

    def is_long(mark: ast.AST) -> bool:
        return bool(_marks(mark) & LONG) or (isinstance(mark, ast.Name) and mark.id in long)

    return {
        node.name: "pytestmark" in long or any(map(is_long, node.decorator_list))
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def _marks(node: ast.AST) -> set[str]:
    """The attributes that a decorator or an assignment names, without those of `pytest.param`: they mark one parameter, not the test."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "param":
        return set()
    own = {node.attr} if isinstance(node, ast.Attribute) else set()
    return own.union(*(_marks(child) for child in ast.iter_child_nodes(node)))


def test_each_test_that_a_promise_names_exists() -> None:
    """A promise must not name a test that does not exist, or that runs less often than the page says."""
    rows = [line for line in Path(ROOT, "docs", "promises.md").read_text(encoding="utf-8").splitlines() if NAMED.search(line)]
    assert len(rows) > 30
    for row in rows:
        for_each_commit, _, longer = row.partition("long: ")
        for part, long in ((for_each_commit, False), (longer, True)):
            for file, name in NAMED.findall(part):
                assert named_tests(file).get(name) is long, (
                    f"{file}::{name}: gone, or wrongly said to be {'long' if long else 'of each commit'}"
                )


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/failure-modes.md"])
def test_each_test_that_another_page_names_exists(page: str) -> None:
    """The tests that these pages name exist and run with each commit."""
    found = NAMED.findall(Path(ROOT, page).read_text(encoding="utf-8"))
    assert found or page != "README.md"
    for file, name in found:
        assert named_tests(file).get(name) is False, f"{page}: {file}::{name}: gone, or not one of each commit"


def test_each_row_of_promises_names_a_test() -> None:
    rows = [line for line in Path(ROOT, "docs", "promises.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert [row for row in rows if not NAMED.search(row) and row not in ("| promise | test |", "| --- | --- |")] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault)
def test_each_fault_can_be_put_in_and_has_a_fast_test(mutant: Mutant) -> None:
    """A mutant whose text is no longer in the code would not be noticed until somebody runs it."""
    text = Path(ROOT, "incremental_assets", mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1 and mutant.new != mutant.old
    file, name = mutant.test.split("::")
    assert named_tests(file).get(name) is False


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_some_faults_are_put_in_and_found(spark_home: Path) -> None:
    """The tests of the mutants still find their faults. Each commit tries three other mutants."""
    first, environment = first_seed(commit_number(ROOT)), {**os.environ, "SPARK_REMOTE": ensure_server(spark_home)}
    chosen = {MUTANTS[(first + step) % len(MUTANTS)] for step in (0, 7, 14)}
    outcomes = {mutant.fault: outcome(mutant, environment) for mutant in chosen}
    assert {fault: said for fault, said in outcomes.items() if said != "found"} == {}


def test_the_page_about_testing_lists_all_mutants() -> None:
    page = Path(ROOT, "docs", "testing.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (.+) \| `(test_\w+\.py::test_\w+)` \|$", page, flags=re.MULTILINE)
    assert listed == [(mutant.fault, mutant.test) for mutant in MUTANTS]
