"""Describes the differences between a container and its entry in the catalog."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from incremental_assets.core.container import SourceColumn, SourceTable


class Change(str, Enum):
    """The kind of difference of a container.

    ``NEW``: it has become a container. ``ANNOUNCED``: it is new in the source, and not synced (``Presence``). ``BACK``: it was missing or
    hidden, and is there again. ``PRUNED``: it is gone from the source, and its entry was removed.
    """

    NEW = "new"
    ANNOUNCED = "announced"
    CHANGED = "changed"
    MISSING = "missing"
    BACK = "back"
    PRUNED = "pruned"


class Field(str, Enum):
    """The kind of change of a column (``NEW`` to ``DEFAULT``), or of the container as a whole; ``COMMENT``: of either.

    ``BACK``: a column that was dropped earlier is there again. ``TABLE``: the table was dropped and created anew. ``INDEXES``: the columns
    that lead an index.
    """

    NEW = "new"
    BACK = "back"
    GONE = "gone"
    TYPE = "type"
    NULLS = "nulls"
    DEFAULT = "default"
    PRIMARY_KEY = "primary key"
    KIND = "kind"
    TABLE = "table"
    INDEXES = "indexes"
    COMMENT = "comment"
    PATTERN = "pattern"
    FORMAT = "format"


@dataclass(frozen=True)
class FieldChange:
    """One change within a container. ``str()`` gives it in words.

    ``field``: the name of the column; None: the change is of the container as a whole. ``before``, ``after``: as text; None: none.
    """

    what: Field
    field: str | None
    before: str | None
    after: str | None

    def __str__(self) -> str:
        name = self.field or ""
        if self.what in (Field.NEW, Field.BACK):
            return f"{'new field' if self.what is Field.NEW else 'field back:'} {name} ({self.after})"
        if self.what is Field.GONE:
            return f"field gone: {name} ({self.before})"
        if self.what is Field.TABLE:
            return "it was dropped and created anew"
        return f"{name + ': ' if name else ''}{self.what.value} {self.before or 'none'} → {self.after or 'none'}"


@dataclass(frozen=True)
class Difference:
    """The difference of one container, with the changes of its fields. ``str()`` gives it in words."""

    container: str
    change: Change
    fields: tuple[FieldChange, ...] = ()

    def __str__(self) -> str:
        return f"{self.container}: {self.change.value}" + (f": {'; '.join(map(str, self.fields))}" if self.fields else "")

    def record(self) -> dict[str, Any]:
        """The difference as JSON values, for ``--json`` and for Dagster's metadata."""
        fields = [{"field": f.field, "change": f.what.value, "before": f.before, "after": f.after} for f in self.fields]
        return {"container": self.container, "change": self.change.value, "fields": fields}


def field_changes(before: SourceTable, after: SourceTable, dropped: Sequence[SourceColumn]) -> tuple[FieldChange, ...]:
    """Compares two states of a container. ``dropped``: columns that it had before ``before``.

    A column that was renamed is a column gone and a new one.
    """
    old, new = {c.name: c for c in before.columns}, {c.name: c for c in after.columns}
    earlier = {c.name for c in dropped}
    found = [FieldChange(Field.BACK if n in earlier else Field.NEW, n, None, c.type) for n, c in new.items() if n not in old]
    found += [FieldChange(Field.GONE, n, c.type, None) for n, c in old.items() if n not in new]
    for name, column in new.items():
        was = old.get(name)
        if was is None:
            continue
        if was.type != column.type:
            found.append(FieldChange(Field.TYPE, name, was.type, column.type))
        if was.not_null != column.not_null:
            found.append(FieldChange(Field.NULLS, name, _nulls(was), _nulls(column)))
        if (was.default, was.sequence) != (column.default, column.sequence):
            found.append(FieldChange(Field.DEFAULT, name, was.default or was.sequence, column.default or column.sequence))
        if (was.comment or None) != (column.comment or None):
            found.append(FieldChange(Field.COMMENT, name, was.comment or None, column.comment or None))
    for what, one, other in (
        (Field.PRIMARY_KEY, ", ".join(before.primary_key), ", ".join(after.primary_key)),
        (Field.KIND, before.kind.value, after.kind.value),
        (Field.INDEXES, ", ".join(before.indexed), ", ".join(after.indexed)),
        (Field.COMMENT, before.comment, after.comment),
        (Field.PATTERN, before.glob, after.glob),
        (Field.FORMAT, before.format, after.format),
    ):
        if one != other:
            found.append(FieldChange(what, None, one, other))
    return tuple(found)


def _nulls(column: SourceColumn) -> str:
    return "not null" if column.not_null else "nullable"
