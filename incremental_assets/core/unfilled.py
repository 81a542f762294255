"""Rows that were written before their table had some of its columns: where they are, and what fills them.

A column that is added to a source may have values in old rows at once: a default, or an update that leaves the identifier as it was. A sync
does not read these rows, as nothing says that they have changed. In the lake they are NULL until their partitions are refreshed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from incremental_assets.core.comparison import Comparison
from incremental_assets.core.partitions import IntegerPartitions, Partitions
from incremental_assets.core.shown_text import counted
from incremental_assets.core.window import EVERYTHING, Window, merge, without


@dataclass(frozen=True)
class Unfilled:
    """The ``windows`` of the partitions in which the source had values of ``columns`` that the lake does not have, when they were added."""

    columns: tuple[str, ...]
    windows: tuple[Window, ...]

    def joined(self, other: "Unfilled | None") -> "Unfilled":
        """Both together."""
        if other is None:
            return self
        return Unfilled(tuple(dict.fromkeys((*self.columns, *other.columns))), merge((*self.windows, *other.windows)))

    def to_json(self, value: Callable[[int | None], Any]) -> dict[str, Any]:
        """The value as JSON. ``value`` converts an identifier's value to what JSON has."""
        return {"columns": list(self.columns), "windows": [[value(one.lower), value(one.upper)] for one in self.windows]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None, value: Callable[[Any], int | None]) -> "Unfilled | None":
        """The inverse of ``to_json``; None for None."""
        if data is None:
            return None
        return cls(tuple(data["columns"]), tuple(Window(value(lower), value(upper)) for lower, upper in data["windows"]))


def left(unfilled: Unfilled | None, windows: Sequence[Window]) -> Unfilled | None:
    """What is left once all rows of ``windows`` were read; None if nothing is."""
    if unfilled is None:
        return None
    rest = without(unfilled.windows, windows)
    return Unfilled(unfilled.columns, rest) if rest else None


def windows_of_values(partitions: Partitions, values: Sequence[int]) -> tuple[Window, ...]:
    """The windows of the partitions that the values belong to, whether these have a key yet or not."""
    return _windows_of(partitions, partitions.keys_of(values))


def _windows_of(partitions: Partitions, keys: Collection[str]) -> tuple[Window, ...]:
    """The windows of the keys, of which ranges of integers may not know all yet."""
    known = partitions.with_keys(keys) if isinstance(partitions, IntegerPartitions) else partitions
    return known.windows_of(keys)


def left_by_audit(unfilled: Unfilled | None, found: Comparison, partitions: Partitions | None) -> Unfilled | None:
    """What is left of it once an audit has compared rows: those that it has found equal need no refresh."""
    return left(unfilled, _equal_windows(found, partitions))


def _equal_windows(found: Comparison, partitions: Partitions | None) -> tuple[Window, ...]:
    """The windows in which an audit has found source and lake equal. Windows without any row are not among them."""
    if partitions is None:
        return (EVERYTHING,) if found.equal and found.following is None else ()
    different = {one.key for one in found.different}
    return _windows_of(partitions, [key for key in found.keys if key is not None and key not in different])


def keys_of(unfilled: Unfilled | None, partitions: Partitions | None) -> list[str]:
    """The keys of the partitions that have such rows, ascending; empty if there are none, or no partitions."""
    if unfilled is None or partitions is None:
        return []
    keys = (partitions.keys_between(one.lower, None if one.upper is None else one.upper - 1) for one in unfilled.windows)
    return list(dict.fromkeys(key for some in keys for key in some))


def message(label: str, unfilled: Unfilled, partitions: Partitions | None) -> str:
    """What is missing where, with the command that fills it. ``label``: of the container."""
    columns, keys = ", ".join(unfilled.columns), keys_of(unfilled, partitions)
    if not keys:
        return f"refresh needed: older rows lack values of {columns} that the source has: incremental-assets sync {label} --mode refresh"
    where = f"{counted(len(keys), 'partition')} ({keys[0]} to {keys[-1]})" if len(keys) > 1 else f"partition {keys[0]}"
    command = f"--from {keys[0]} --to {keys[-1]}" if len(keys) > 1 else f"--partition {keys[0]}"
    return f"refresh needed: older rows of {where} lack values of {columns} that the source has: incremental-assets sync {label} {command}"
