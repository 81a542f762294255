"""Glob patterns for paths: ``*`` and ``?`` match within a part of the path, ``**`` matches any number of parts, ``[…]`` one character."""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

_WILDCARD = re.compile(r"\[(?P<itself>[*?[])\]|\[(?:![^/]|[^!/])[^]/]*\]|[*?]")
"""Matches a wildcard. The group ``itself`` is set for a wildcard character in brackets (``[*]``), which stands for the character itself."""

_Parts = tuple[str | re.Pattern[str] | None, ...]
"""A compiled pattern, with one element for each part between slashes: a literal text, a regular expression, or None for ``**``."""


def matches(pattern: str, path: str) -> bool:
    """Whether a glob matches the whole path; case matters.

    ``*``, ``?`` and ``[…]`` match within one part of the path. ``**`` is any number of folders, also none; at the end of the pattern it is
    every file below. A wildcard in brackets stands for itself: ``[[]``.
    """
    wanted, parts = _compiled(pattern), path.split("/")
    at = position = 0
    # Backtracking goes to the last ** only, which is enough: if the rest does not match there, no earlier ** can make it match. ``folders``
    # is the index in the pattern after that **, and the index of the first part of the path that it has not taken so far.
    folders: tuple[int, int] | None = None
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
    """The deepest folder that is known to contain all matches; listing begins there. It is empty for the datastore's own folder."""
    fixed: list[str] = []
    for part in pattern.split("/")[:-1]:
        literal = literal_of(part)
        if literal is None:
            break
        fixed.append(literal)
    return "/".join(fixed)


class PatternReach:
    """The patterns, as far as they can match something below one folder. It is false if they cannot match anything there.

    A listing follows it down from folder to folder, so that each part of a path is compared once, and only with the patterns that can still
    match.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        """Begins at the folder to which the patterns are relative."""
        self._follow((parts, {0}) for parts in map(_compiled, patterns))

    def __bool__(self) -> bool:
        return bool(self._left)

    def below(self, folder: str) -> "PatternReach":
        """The reach for a folder below this one, given by its relative path; ``""`` is this folder."""
        reach = self
        for name in folder.split("/") if folder else ():
            reach = reach.within(name)
        return reach

    def within(self, name: str) -> "PatternReach":
        """The reach for a folder that is directly in this one."""
        reach = PatternReach()
        reach._follow((parts, _after(parts, at, name)) for parts, at in self._left)
        return reach

    def has(self, name: str) -> bool:
        """Whether a pattern matches a file of this name directly in this folder."""
        if name in self._names:
            return True
        for expression in self._expressions:  # noqa: SIM110 this is called for each file of a folder, and ``any`` takes twice as long
            if expression.match(name):
                return True
        return False

    def _follow(self, found: Iterable[tuple[_Parts, set[int]]]) -> None:
        """Sets the state. ``found``: compiled patterns, each with the indexes of its parts that can match the next part of a path."""
        self._left = [(parts, _with_none_taken(parts, at)) for parts, at in found if at]
        last = {parts[-1] for parts, at in self._left if len(parts) - 1 in at}
        self._names = {part for part in last if isinstance(part, str)}
        self._expressions = [part for part in last if isinstance(part, re.Pattern)]


def _after(parts: _Parts, at: set[int], name: str) -> set[int]:
    """The indexes of the parts that can come next after a folder ``name``. The last part of a pattern matches a file, never a folder."""
    following: set[int] = set()
    for index in at:
        one = parts[index]
        if one is None:
            following.add(index)
        elif index + 1 < len(parts) and (one == name if isinstance(one, str) else one.match(name)):
            following.add(index + 1)
    return following


def _with_none_taken(parts: _Parts, at: set[int]) -> set[int]:
    """Adds the parts after each ``**``, which may stand for no folder at all."""
    every = set(at)
    for index in at:
        while parts[index] is None:  # this ends, as ``_compiled`` adds ``*`` after a ``**`` at the end
            index += 1
            every.add(index)
    return every


def owner_of(path: str, patterns: Sequence[str]) -> int | None:
    """The index of the pattern that owns a path; None if no pattern matches.

    Of several that match it is the one with the highest ``rank``, so that every file has one owner, whatever the order of the patterns.
    """
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
        # ``fnmatch`` translates to an expression that takes no exponential time, whatever the name. It does not treat slashes specially,
        # which does not matter within one part.
        compiled.append(None if part == "**" else re.compile(fnmatch.translate(part)) if literal is None else literal)
    return tuple(compiled)


def literal_of(part: str) -> str | None:
    """The text that a pattern without wildcards matches; None if it has wildcards."""
    if any(not match["itself"] for match in _WILDCARD.finditer(part)):
        return None
    return _WILDCARD.sub(lambda match: match["itself"], part)


@lru_cache(maxsize=4096)
def rank(pattern: str) -> tuple[int, int, str]:
    """The sort key for ``owner_of``: the number of literal characters, then fewer wildcards, then the pattern itself as a tie-breaker."""
    wildcards = sum(not match["itself"] for match in _WILDCARD.finditer(pattern))
    return len(_WILDCARD.sub(lambda match: match["itself"] or "", pattern)), -wildcards, pattern


def escape(text: str) -> str:
    """A pattern that matches exactly this text."""
    return re.sub(r"([*?[])", r"[\1]", text)
