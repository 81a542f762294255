"""Counts how large the product is and how far a reader has to go in it: ``python -m benchmarks.house``.

All figures are read from the files as they are; nothing of the product is run.
"""

import ast
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "incremental_assets"
GENERATED = ("cli.md", "soak.md")
"""Pages of ``docs/`` that programs write."""
_STEP = re.compile(r"^\d+\. .*(?:\n   .*)*", re.M)
_NAMED = re.compile(r"`([\w/]+\.py)::([\w.]+)`")


@dataclass(frozen=True)
class Module:
    """A file of the product."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def name(self) -> str:
        """Its dotted name within the product, without ``__init__``."""
        return ".".join(self.path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    def functions(self) -> Iterator[int]:
        """The lines of each function."""
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield (node.end_lineno or node.lineno) - node.lineno + 1

    def imports(self) -> Iterator[str]:
        """The dotted names that it imports, each ``from module import name`` as ``module.name``."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (one.name for one in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (f"{node.module}.{one.name}" for one in node.names)


def modules() -> list[Module]:
    """All files of the product."""
    return [Module(path, path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))]


def floors(found: Sequence[Module], folder: str) -> int:
    """How many files or folders of a folder stand above one another, each importing one below it; a folder in it counts as one."""

    def entry(name: str) -> str | None:
        parts = name.removeprefix(f"{folder}.").split(".")
        return parts[0] if name.startswith(f"{folder}.") else None

    names = {one.name for one in found}
    below: dict[str, set[str]] = {}
    for module in found:
        here = entry(module.name)
        if here is None:
            continue
        for one in module.imports():
            target = one.removeprefix("incremental_assets.")
            there = entry(target if target in names else target.rpartition(".")[0])
            if there is not None and there != here:
                below.setdefault(here, set()).add(there)
    heights: dict[str, int] = {}

    def height(one: str) -> int:
        if one not in heights:
            heights[one] = 0  # an import within a function may lead back here
            heights[one] = 1 + max((height(each) for each in below.get(one, ())), default=0)
        return heights[one]

    return max((height(one) for one in below), default=1)


def walk(number: int) -> tuple[int, int, int]:
    """Of a walk of CONTRIBUTING.md: the functions that its steps name, their files, and how often the next one is in another folder."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = re.search(rf"^## Walk {number}:.*?(?=^## )", text, re.M | re.S)
    assert section is not None, f"there is no walk {number}"
    named = [match for step in _STEP.findall(section[0]) for match in _NAMED.findall(step)]
    folders = [file.partition("/")[0] for file, _ in named]
    switches = sum(1 for before, after in pairwise(folders) if before != after)
    return len(set(named)), len({file for file, _ in named}), switches


def members(found: Sequence[Module], protocols: Mapping[str, Sequence[str]]) -> str:
    """How many members each protocol has, by the name of its module."""
    counts: list[str] = []
    for module in found:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and node.name in protocols.get(module.name, ()):
                number = sum(1 for one in node.body if isinstance(one, (ast.FunctionDef, ast.AnnAssign)))
                counts.append(f"{node.name} {number}")
    return ", ".join(counts)


def main() -> None:
    """Prints the figures."""
    found = modules()
    lengths = [length for one in found for length in one.functions()]
    private = {one.path: [name for name in one.imports() if name.startswith(("dagster.", "dagster_")) and "._" in name] for one in found}
    documents = [path for path in (ROOT / "docs").rglob("*.md") if path.name not in GENERATED]
    protocols = {"databases.dialect": ["Dialect"], "databases.source": ["SourceDatabase", "SourceSnapshot", "OpenTransactionsQuery"]}
    variables = set(re.findall(r"^\| `(INCREMENTAL_ASSETS_\w+)`", (ROOT / "docs/configuration.md").read_text(encoding="utf-8"), re.M))
    in_dagster = sum(1 for one in found if one.name.split(".")[0] == "dagster")
    table = Table("what", "now")
    for what, now in {
        "product: lines; files": f"{sum(one.lines for one in found):,}; {len(found)}",
        "functions; their mean lines": f"{len(lengths):,}; {statistics.mean(lengths):.1f}",
        "dagster/: files; floors": f"{in_dagster}; {floors(found, 'dagster')}",
        "walk of a table: functions; files; folder switches": "; ".join(map(str, walk(1))),
        "walk of a file: functions; files; folder switches": "; ".join(map(str, walk(2))),
        "members that a kind of database must write": members(found, protocols),
        "environment variables": str(len(variables)),
        "private names of Dagster; files that use them": f"{sum(map(len, private.values()))}; {sum(1 for n in private.values() if n)}",
        "words of docs/, without generated pages": f"{sum(len(path.read_text(encoding='utf-8').split()) for path in documents):,}",
    }.items():
        table.add_row(what, now)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
