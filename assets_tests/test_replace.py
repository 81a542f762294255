"""``dataclasses.replace`` names fields that exist: the type checker does not look at its keywords, so that a renamed field goes unseen.

Belongs here: that one question of the source. Does not belong: what the type checker finds by itself.
"""

import ast
from pathlib import Path

import incremental_assets

MODULES = sorted(Path(incremental_assets.__file__).parent.rglob("*.py"))
OF_DATETIME = {"tzinfo", "fold", "hour", "minute", "second", "microsecond"}
OF_DAGSTER = {"dagster_event", "event_specific_data", "partitions_subset"}


def fields(tree: ast.AST) -> set[str]:
    """Names that a dataclass of the module annotates."""
    classes = [
        node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and "dataclass" in "".join(map(ast.unparse, node.decorator_list))
    ]
    annotated = [each for one in classes for each in one.body if isinstance(each, ast.AnnAssign)]
    return {each.target.id for each in annotated if isinstance(each.target, ast.Name)}


def test_replace_names_fields_that_exist() -> None:
    """Else a sync that comes to that line ends with a TypeError, and no check before has said so."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
    known = OF_DATETIME | OF_DAGSTER | {name for tree in trees.values() for name in fields(tree)}
    calls = [(path, node) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [(path, node) for path, node in calls if getattr(node.func, "attr", getattr(node.func, "id", "")) in ("replace", "_replace")]
    assert len(named) > 50
    wrong = [f"{path.name}:{node.lineno}: {key.arg}" for path, node in named for key in node.keywords if key.arg and key.arg not in known]
    assert wrong == []
