"""Nested types that grow: which type has the values of two, and what a column of the one lacks of the other."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from incremental_assets.core.names import backticked

NESTED = ("struct<", "array<", "map<")
"""What the text of a nested type begins with."""
_STEPS = {"array": ("element",), "map": ("key", "value")}
"""How Delta calls the parts of a type in the path of a nested column."""


@dataclass(frozen=True)
class Type:
    """A type. ``kind``: its text, or ``struct``, ``array`` and ``map``. ``parts``: by name; the names of arrays and maps are Delta's."""

    kind: str
    parts: tuple[tuple[str, "Type"], ...] = ()

    @property
    def text(self) -> str:
        """The text as ``core.spark_types`` writes it."""
        if self.kind == "struct":
            return f"struct<{','.join(f'{backticked(name)}:{part.text}' for name, part in self.parts)}>"
        if self.kind in _STEPS:
            return f"{self.kind}<{','.join(part.text for _, part in self.parts)}>"
        return self.kind


def array_of(element: str) -> str:
    """The text of the type of arrays of such elements."""
    return f"array<{element}>"


def element_of(text: str) -> str | None:
    """The text of the type of the elements; None for a type that is no array."""
    return text.removeprefix("array<").removesuffix(">") if text.startswith("array<") else None


def parse(text: str) -> Type:
    """The type of a text that ``core.spark_types`` has written."""
    found, rest = _parsed(text)
    assert not rest, text
    return found


def _parsed(text: str) -> tuple[Type, str]:
    """The type at the beginning of a text, and what follows it."""
    kind = next((one for one in NESTED if text.startswith(one)), None)
    if kind is None:
        end = 0
        depth = 0
        while end < len(text) and (depth or text[end] not in ",>"):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        return Type(text[:end]), text[end:]
    parts: list[tuple[str, Type]] = []
    rest = text[len(kind) :]
    while not rest.startswith(">"):
        rest = rest.removeprefix(",")
        name = ""
        if kind == "struct<":
            end = 1
            while rest[end] != "`" or rest[end : end + 2] == "``":
                end += 2 if rest[end] == "`" else 1
            name, rest = rest[1:end].replace("``", "`"), rest[end + 2 :]
        else:
            name = _STEPS[kind[:-1]][len(parts)]
        part, rest = _parsed(rest)
        parts.append((name, part))
    return Type(kind[:-1], tuple(parts)), rest[1:]


def grown(old: str, new: str, widens: Callable[[str, str], bool]) -> str | None:
    """The type that has every value of two nested types: the fields of ``old``, then those that only ``new`` has. None if there is none."""
    found = _grown(parse(old), parse(new), widens) if old.startswith(NESTED) and new.startswith(NESTED) else None
    return None if found is None else found.text


def _grown(old: Type, new: Type, widens: Callable[[str, str], bool]) -> Type | None:
    if not old.parts and not new.parts:
        if old == new or widens(new.kind, old.kind):
            return old
        return new if widens(old.kind, new.kind) else None
    if old.kind != new.kind:
        return None
    others = {name.lower(): part for name, part in new.parts}
    parts: list[tuple[str, Type]] = []
    for name, part in old.parts:
        other = others.pop(name.lower(), None)
        both = part if other is None else _grown(part, other, widens)
        if both is None:
            return None
        parts.append((name, both))
    return replace(old, parts=(*parts, *((name, part) for name, part in new.parts if name.lower() in others)))


@dataclass(frozen=True)
class AddedField:
    """A field that a nested column has grown by. ``sql_name``: its path from the column on, with quoted names."""

    sql_name: str
    type: str


def added_fields(column: str, old: str, new: str) -> Sequence[AddedField]:
    """The fields that a column's type has grown by. ``new``: what ``grown`` has made of ``old``."""
    return list(_added(backticked(column), parse(old), parse(new))) if old.startswith(NESTED) else []


def _added(path: str, old: Type, new: Type) -> Iterator[AddedField]:
    for at, (name, part) in enumerate(new.parts):
        step = f"{path}.{backticked(name) if new.kind == 'struct' else name}"
        if at < len(old.parts):
            yield from _added(step, old.parts[at][1], part)
        else:
            yield AddedField(step, part.text)


def only_adds_fields(old: str, new: str) -> bool:
    """Whether a type has grown by fields alone, and no part of it has become another type. ``new``: as of ``added_fields``."""
    return _without_added(parse(old), parse(new)) == parse(old)


def _without_added(old: Type, new: Type) -> Type:
    kept = zip(old.parts, new.parts, strict=False)
    return replace(new, parts=tuple((name, _without_added(part, other)) for (name, part), (_, other) in kept))
