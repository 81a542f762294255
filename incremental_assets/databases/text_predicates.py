"""Builds conditions from windows for databases whose SQL is plain text, of typed values alone."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from incremental_assets.core.container import Container, Identifier
from incremental_assets.core.cursor_type import CursorType, days_from_civil, format_value
from incremental_assets.core.window import Window

_FIRST_DAY, _END = days_from_civil(1, 1, 1), days_from_civil(10000, 1, 1)
"""The days between which there are literals, in MySQL and in JDBC. MySQL's zero dates lie below all of them."""


class TextPredicates(ABC):
    """The conditions in one database's SQL. ``true`` and ``false``: the conditions for all rows, and for none."""

    true, false = "true", "false"

    @abstractmethod
    def quoted(self, name: str) -> str:
        """A quoted name."""

    @abstractmethod
    def time_literal(self, cursor_type: CursorType, text: str) -> str:
        """A literal for a date, or for a date and time, of the years 1 to 9999. ``text``: as in ISO 8601, with a space before the time."""

    @abstractmethod
    def greater(self, one: str, other: str) -> str:
        """The greater of two columns, whose names are quoted; a NULL is ignored."""

    def literal(self, cursor_type: CursorType, value: int) -> str | None:
        """A literal for a value of the identifier's cursor type; None for a time that has none, before the year 1 or after 9999."""
        if cursor_type is CursorType.INTEGER:
            return str(int(value))
        days = value if cursor_type is CursorType.DATE else value // cursor_type.steps_per_day
        if not _FIRST_DAY <= days < _END:
            return None
        return self.time_literal(cursor_type, format_value(cursor_type, value).replace("T", " ").removesuffix("Z"))

    def identifier_expression(self, identifier: Identifier) -> str:
        """The identifier's column, or the greater of its two columns, where a NULL is ignored."""
        names = [self.quoted(name) for name in identifier.columns]
        return names[0] if len(names) == 1 else self.greater(*names)

    def window(self, identifier: Identifier, window: Window) -> str:
        """A condition for the rows of one window. It is not true for rows without identifier, even if the window has no bounds."""
        cursor_type, names = identifier.cursor_type, [self.quoted(name) for name in identifier.columns]
        lower = None if window.lower is None else self.literal(cursor_type, window.lower)
        upper = None if window.upper is None else self.literal(cursor_type, window.upper)
        # A bound that has no literal lies beyond all values of the column, on one side or on the other.
        if window.lower is not None and lower is None and window.lower > 0:
            return self.false
        if window.upper is not None and upper is None and window.upper < 0:
            return self.false
        parts: list[str] = []
        if lower is not None:  # each column is compared by itself, so that its index can be used
            parts.append(f"({' or '.join(f'{name} >= {lower}' for name in names)})")
        if upper is not None:  # both columns must lie below the bound; a column that is NULL is ignored
            parts.append(f"{self.identifier_expression(identifier)} < {upper}")
        if not parts:
            return f"({' or '.join(f'{name} is not null' for name in names)})"
        return f"({' and '.join(parts)})"

    def nulls(self, identifier: Identifier) -> str:
        """A condition for the rows without identifier: all of its columns are NULL."""
        return f"({' and '.join(f'{self.quoted(name)} is null' for name in identifier.columns)})"

    def scope(self, container: Container, windows: Sequence[Window], include_nulls: bool) -> str:
        """A condition for the rows of the windows and, with ``include_nulls``, those without identifier, limited by the YAML's ``where:``.

        For a container without identifier it selects the whole container.
        """
        parts: list[str] = []
        identifier = container.identifier
        if identifier is not None:
            everything = any(w.lower is None and w.upper is None for w in windows)
            if not (everything and (include_nulls or container.identifier_is_required)):
                either = [self.window(identifier, window) for window in windows]
                if include_nulls:
                    either.append(self.nulls(identifier))
                parts.append(f"({' or '.join(either)})" if either else self.false)
        return " and ".join([*parts, *self.where(container), *self.placed(container)]) or self.true

    def domain(self, container: Container) -> str:
        """A condition for all rows that belong to the container: those in its domain and, if they are carried, those without identifier."""
        return self.scope(container, [container.identifier.domain] if container.identifier else [], container.has_null_identifiers)

    def placed(self, container: Container) -> list[str]:
        """Conditions for the rows whose identifier and partition a window can hold. Most databases have no other values."""
        return []

    def where(self, container: Container) -> list[str]:
        """The condition in the YAML's ``where:``, as a list that is empty or has one element."""
        return [f"({container.options.where})"] if container.options.where else []
