"""Patterns over paths: ``*`` and ``?`` within a part of a path, ``**`` over any number of parts, ``[…]`` one of some characters.

Belongs here: whether a pattern matches, where it can, and which of several does so best. Does not belong: making one (``file_groups``).
"""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

_WILDCARD = re.compile(r"\[(?P<itself>[*?[])\]|\[(?:![^/]|[^!/])[^]/]*\]|[*?]")
"""A wildcard, or (``itself``) one in brackets, which stands for itself."""

_Parts = tuple[str | re.Pattern[str] | None, ...]
"""Of a pattern: a literal text, an expression, or None for ``**``."""


def matches(pattern: str, path: str) -> bool:
    """Whether a glob matches a whole path, case by case. ``*``, ``?`` and ``[…]`` stay within a part, ``**`` is any number of folders.

    At the end ``**`` is every file below. A wildcard in brackets stands for itself: ``[[]``.
    """
    wanted, parts = _compiled(pattern), path.split("/")
    at = position = 0
    folders: tuple[int, int] | None = None  # where the last ** stands, and the part after the ones that it has taken so far
    while position < len(parts):
        one = wanted[at] if at < len(wanted) else ""
        if one is None:
            at += 1
            folders = at, position
        elif at < len(wanted) and (one == parts[position] if isinstance(one, str) else one.match(parts[position])):
            at, position = at + 1, position + 1
        elif folders is not None:
            at, position = folders[0], folders[1] + 1
            folders = at, position
        else:
            return False
    return at == len(wanted)


def fixed_part(pattern: str) -> str:
    """The folder that all matches lie in, as deep as it can be told: listing begins there. Empty for the datastore's own."""
    fixed: list[str] = []
    for part in pattern.split("/")[:-1]:
        literal = literal_of(part)
        if literal is None:
            break
        fixed.append(literal)
    return "/".join(fixed)


class Reach:
    """What some patterns can match below a folder. False where that is nothing, whatever is there.

    Followed down folder by folder, so that each part of a path is looked at once, and only by patterns that can match there.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        """Below the folder that the patterns are relative to."""
        self._follow((parts, {0}) for parts in map(_compiled, patterns))

    def __bool__(self) -> bool:
        return bool(self._left)

    def below(self, folder: str) -> "Reach":
        """What they can match below a folder in this one; ``""`` is itself."""
        reach = self
        for name in folder.split("/") if folder else ():
            reach = reach.within(name)
        return reach

    def within(self, name: str) -> "Reach":
        """As ``below``, for a folder that is in this very one."""
        reach = Reach()
        reach._follow((parts, _after(parts, at, name)) for parts, at in self._left)
        return reach

    def has(self, name: str) -> bool:
        """Whether a file in this very folder is matched."""
        return name in self._names or any(expression.match(name) for expression in self._expressions)

    def _follow(self, found: Iterable[tuple[_Parts, set[int]]]) -> None:
        """``found``: parts, and which of them may be next."""
        self._left = [(parts, _with_none_taken(parts, at)) for parts, at in found if at]
        last = {parts[-1] for parts, at in self._left if len(parts) - 1 in at}
        self._names = {part for part in last if isinstance(part, str)}
        self._expressions = [part for part in last if isinstance(part, re.Pattern)]


def _after(parts: _Parts, at: set[int], name: str) -> set[int]:
    """Which parts may be next after a folder's name; the last one is a file's."""
    following: set[int] = set()
    for index in at:
        one = parts[index]
        if one is None:
            following.add(index)
        elif index + 1 < len(parts) and (one == name if isinstance(one, str) else one.match(name)):
            following.add(index + 1)
    return following


def _with_none_taken(parts: _Parts, at: set[int]) -> set[int]:
    """``**`` may be no folder at all."""
    every = set(at)
    for index in at:
        while parts[index] is None:  # the last part is never one
            index += 1
            every.add(index)
    return every


def owner_of(path: str, patterns: Sequence[str]) -> int | None:
    """Which of the patterns a path belongs to: the matching one with the most literal characters, so that no file has two owners."""
    matching = (index for index, pattern in enumerate(patterns) if matches(pattern, path))
    return max(matching, key=lambda index: rank(patterns[index]), default=None)


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> _Parts:
    parts = pattern.split("/")
    if parts[-1] == "**":
        parts.append("*")
    compiled: list[str | re.Pattern[str] | None] = []
    for part in parts:
        literal = literal_of(part)
        # The standard library's translation takes no exponential time over hostile names; within a part it is all that is needed.
        compiled.append(None if part == "**" else re.compile(fnmatch.translate(part)) if literal is None else literal)
    return tuple(compiled)


def literal_of(part: str) -> str | None:
    """What a part without wildcards stands for."""
    if any(not match["itself"] for match in _WILDCARD.finditer(part)):
        return None
    return _WILDCARD.sub(lambda match: match["itself"], part)


@lru_cache(maxsize=4096)
def rank(pattern: str) -> tuple[int, int, str]:
    """Literal characters, then fewer wildcards; the pattern itself makes it independent of the order."""
    wildcards = sum(not match["itself"] for match in _WILDCARD.finditer(pattern))
    return len(_WILDCARD.sub(lambda match: match["itself"] or "", pattern)), -wildcards, pattern


def escape(text: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", text)
