"""Calls of ``dataclasses.replace`` name fields that exist. The type checker does not check these keywords, so it misses a renamed field.

Belongs here: that check of the package's source. Does not belong: what the type checker finds by itself.
"""

import ast
from pathlib import Path

import incremental_assets

MODULES = sorted(Path(incremental_assets.__file__).parent.rglob("*.py"))
OF_DATETIME = {"tzinfo", "day", "fold", "hour", "minute", "second", "microsecond"}
OF_DAGSTER = {"dagster_event", "event_specific_data", "partitions_subset"}


def fields(tree: ast.AST) -> set[str]:
    """The names of the fields of the module's dataclasses."""
    classes = [
        node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and "dataclass" in "".join(map(ast.unparse, node.decorator_list))
    ]
    annotated = [each for one in classes for each in one.body if isinstance(each, ast.AnnAssign)]
    return {each.target.id for each in annotated if isinstance(each.target, ast.Name)}


def test_replace_names_fields_that_exist() -> None:
    """A wrong name would only be noticed when a sync comes to that line and ends with a TypeError."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
    known = OF_DATETIME | OF_DAGSTER | {name for tree in trees.values() for name in fields(tree)}
    calls = [(path, node) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [(path, node) for path, node in calls if getattr(node.func, "attr", getattr(node.func, "id", "")) in ("replace", "_replace")]
    assert len(named) > 50
    wrong = [f"{path.name}:{node.lineno}: {key.arg}" for path, node in named for key in node.keywords if key.arg and key.arg not in known]
    assert wrong == []
