"""A lint of the tests: a test that passes has checked something, whatever way it has taken.

Belongs here: what the source of a test says about it. Does not belong: what the source of the product says (``test_sql_text``), and whether
a test finds a fault (``assets_tests.mutants``).
"""

import ast
import contextlib
import pkgutil
import re
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import incremental_assets

FOLDER = Path(__file__).resolve().parent
FILES = sorted(FOLDER.rglob("*.py"))
PACKAGE = Path(incremental_assets.__file__).parent
CHECKS = {"raises", "warns", "fail", "skip", "suppress"}
"""Functions of pytest that check something or end the test with a reason, and the one that lets no other error pass."""
Inner = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all below it, without the functions and classes that it defines: they run when somebody calls them."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Inner):
            yield from _own(child)


def _called(node: ast.AST) -> str:
    """The name of the function or the method that the node calls."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def _functions(paths: Iterable[Path]) -> Iterator[ast.FunctionDef]:
    for path in paths:
        yield from (node for node in ast.walk(_tree(path)) if isinstance(node, ast.FunctionDef))


@cache
def _checking() -> frozenset[str]:
    """The names of functions that check something: they assert, or call one that does. A name that the product has too is none of them."""
    products = {name for path in PACKAGE.rglob("*.py") for name in re.findall(r"\bdef (\w+)", path.read_text(encoding="utf-8"))}
    bodies = [(one.name, [node for part in one.body for node in _own(part)]) for one in _functions(FILES) if one.name not in products]
    found, more = set[str](), {*CHECKS, *(name for name, body in bodies if any(isinstance(node, ast.Assert) for node in body))}
    while not more <= found:
        found |= more
        more = {name for name, body in bodies if any(_called(node) in found for node in body)}
    return frozenset(found)


def _checks(*nodes: ast.AST) -> bool:
    return any(isinstance(one, ast.Assert | ast.Raise) or _called(one) in _checking() for node in nodes for one in _own(node))


def _ways(body: Iterable[ast.stmt]) -> set[str]:
    """How the statements may end: something was `checked`, they were gone `through` without that, or before it the test has `ended` or the
    pass of a loop was `left`. A loop counts as entered."""
    found = {"through"}
    for one in body:
        if "through" in found:
            found = found - {"through"} | _ways_of(one)
    return found


def _ways_of(one: ast.stmt) -> set[str]:
    if isinstance(one, ast.Return):
        return {"ended"}
    if isinstance(one, ast.Continue | ast.Break):
        return {"left"}
    if isinstance(one, ast.If) and not _checks(one.test):
        return _ways(one.body) | _ways(one.orelse)
    if isinstance(one, ast.Try) and not _checks(*one.finalbody):
        return _ways([*one.body, *one.orelse]).union(*(_ways(handler.body) for handler in one.handlers))
    if isinstance(one, ast.Match):
        return {"through"}.union(*(_ways(case.body) for case in one.cases))
    if isinstance(one, ast.With) and not _checks(*one.items):
        return _ways(one.body)
    if isinstance(one, ast.For | ast.While):
        return {"through" if way == "left" else way for way in _ways(one.body)}
    return {"checked"} if not isinstance(one, Inner) and _checks(one) else {"through"}


def _unchecked(test: ast.FunctionDef) -> bool:
    """Whether some way through the test checks nothing. A test without a check asks only that nothing is raised, to its end."""
    ways = _ways(test.body)
    return "ended" in ways or ("through" in ways and _checks(*test.body))


def test_no_way_through_a_test_ends_before_a_check() -> None:
    """Such a case counts as passed and says nothing. It is not to be generated, or skipped with a reason."""
    tests = [(path, one) for path in FILES for one in _functions([path]) if one.name.startswith("test_")]
    assert len(tests) > 1000
    assert [f"{path.name}:{one.lineno} {one.name}" for path, one in tests if _unchecked(one)] == []


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("if a: return\nassert b", True),
        ("for a in b:\n  if a: return\n  assert a", True),
        ("if a: assert b", True),
        ("for a in b:\n  if a: continue\n  assert a", True),
        ("try: assert a\nexcept KeyError: pass", True),
        ("def c():\n  assert a\nif b: return\nc()", True),
        ("c()\nif a: return\nc()", True),
        ("assert a\nif b: return\nassert c", False),
        ("if a:\n  with pytest.raises(KeyError): c()\nelse: assert b", False),
        ("if a: pytest.skip('why')\nassert b", False),
        ("try: a()\nexcept KeyError as e: assert e\nelse: assert b", False),
        ("for a in b:\n  assert a", False),
        ("def c(): return 1\nassert a(c)", False),
        ("c()", False),
    ],
)
def test_the_lint_finds_ways_that_check_nothing(body: str, found: bool) -> None:
    """Otherwise the test above may pass because it sees nothing."""
    test = ast.parse("def test_it():\n" + "\n".join(f"  {line}" for line in body.split("\n"))).body[0]
    assert isinstance(test, ast.FunctionDef) and _unchecked(test) is found


def _sleeps(node: ast.AST) -> Iterator[ast.Call]:
    """The calls of `time.sleep` that are not within a loop with a condition, as one that waits for something has."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and ast.unparse(child.func) == "time.sleep":
            yield child
        if not isinstance(child, ast.While):
            yield from _sleeps(child)


def test_a_sleep_outside_of_a_loop_has_its_reason_beside_it() -> None:
    """A sleep that waits for something fails on a busy machine, or makes each run longer; `wait_for`, an event or a clock of the test does
    not. What is left are moments of a kill, a server's clock, and that something does not happen."""
    lines = {path: path.read_text(encoding="utf-8").splitlines() for path in FILES}
    sleeps = [(path, one.lineno) for path in FILES for one in _sleeps(_tree(path))]
    assert [f"{path.name}:{number}" for path, number in sleeps if "#" not in lines[path][number - 1]] == []


def test_a_limit_of_seconds_says_how_long_the_work_would_take() -> None:
    """A limit that is near to the time of the work fails on a busy machine. How fast something is, `benchmarks` measure."""
    clocks = re.compile(r"time\.(monotonic|time|perf_counter)\(\) - \w+ <=? ")
    found = [(path, one) for path in FILES for one in ast.walk(_tree(path)) if isinstance(one, ast.Assert)]
    assert [f"{path.name}:{one.lineno}" for path, one in found if clocks.match(ast.unparse(one.test)) and one.msg is None] == []


def _imported(tree: ast.AST) -> dict[str, str]:
    """What names that are imported from the product stand for: the dotted names of modules, and of what is in them."""
    found = dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(incremental_assets.__name__):
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return found


def _replaced(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the dotted name of each attribute of the product that is replaced, also in programs that stand in a text."""
    imported = _imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) == "setattr" and len(node.args) == 3:
            owner, name = node.args[:2]
            if isinstance(owner, ast.Name) and owner.id in imported and isinstance(name, ast.Constant):
                yield node.lineno, f"{imported[owner.id]}.{name.value}"
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in imported:
                    yield node.lineno, f"{imported[target.value.id]}.{target.attr}"
        if isinstance(node, ast.JoinedStr | ast.Constant):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "pass" for part in parts)
            if f"from {incremental_assets.__name__}" in text:
                with contextlib.suppress(SyntaxError):
                    yield from ((node.lineno, name) for _, name in _replaced(ast.parse(textwrap.dedent(text))))


def _is_there(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_what_a_test_replaces_is_there() -> None:
    """A limit that was moved to another module keeps its value, and the test passes without the case that it is about; a function that is
    gone fails a test that only the longer suites run."""
    replaced = {(path, *one) for path in FILES for one in _replaced(_tree(path))}
    assert len(replaced) > 100
    assert [f"{path.name}:{number} {name}" for path, number, name in replaced if not _is_there(name)] == []


@pytest.mark.parametrize("text", ["patch.setattr(rows, 'GONE', 1)", "rows.GONE = 1", "program = f'IMPORT; rows.GONE = 1; {x}'"])
def test_the_lint_finds_what_is_not_there(text: str) -> None:
    """Otherwise the test above may pass because it sees nothing."""
    module = f"{incremental_assets.__name__}.databases"
    text = "IMPORT\n" + text
    tree = ast.parse(text.replace("IMPORT", f"from {module} import rows"))
    assert {name for _, name in _replaced(tree) if not _is_there(name)} == {f"{module}.rows.GONE"}


def test_the_lint_knows_the_functions_that_check() -> None:
    """Of all that the tests call, these do assert, themselves or through others; the last two never do."""
    assert {"assert_equal", "wait_for", "compare_odd_files"} <= _checking()
    assert not {"sync", "put"} & _checking()
