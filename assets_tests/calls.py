"""Records which functions of the package a piece of code calls, and in which order.

Belongs here: the recording, and the command line that records a command of the product in a process of its own. Does not belong: what is
expected of the order (``test_walks``).
"""

import ast
import json
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGE = Path(__file__).resolve().parent.parent / "incremental_assets"


class RecordedCalls:
    """The calls within a ``with`` block, in all threads: for each, ``path/below/the/package.py::Class.function``, in their order."""

    def __init__(self) -> None:
        self._codes: list[CodeType] = []

    def __enter__(self) -> "RecordedCalls":
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType] None ends it

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and "incremental_assets" in frame.f_code.co_filename and frame.f_code not in self._codes[-1:]:
            self._codes.append(frame.f_code)

    @property
    def names(self) -> list[str]:
        named = (_name(code) for code in self._codes)
        return [name for name in named if name is not None]


@cache
def _name(code: CodeType) -> str | None:
    """The function's name. Python 3.10 does not tell a function's class, so it is found by the line in which the definition begins."""
    path = Path(code.co_filename)
    defined = _definitions(path).get(code.co_firstlineno) if path.is_relative_to(PACKAGE) else None
    return None if defined is None else f"{path.relative_to(PACKAGE).as_posix()}::{defined}"


@cache
def _definitions(path: Path) -> dict[int, str]:
    """The names of the module's functions and methods, by the line in which their decorators or they themselves begin."""

    def below(node: ast.AST, prefix: str) -> Iterator[tuple[int, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                yield min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)]), prefix + child.name
            if isinstance(child, ast.ClassDef):
                yield from below(child, f"{prefix}{child.name}.")

    return dict(below(ast.parse(path.read_text(encoding="utf-8")), ""))


def _record_command(file: Path, arguments: list[str]) -> None:
    """Runs a command of the product, and writes the names of the functions that it has called to the file, as JSON."""
    # What is imported before is not recorded, which makes the command a few times faster.
    from incremental_assets.cli import main
    from incremental_assets.runs import loading, parallel_sync, runner

    assert loading and parallel_sync and runner
    sys.argv = ["incremental-assets", *arguments]
    calls = RecordedCalls()
    try:
        with calls:
            main()
    finally:
        file.write_text(json.dumps(calls.names), encoding="utf-8")


if __name__ == "__main__":
    _record_command(Path(sys.argv[1]), sys.argv[2:])
