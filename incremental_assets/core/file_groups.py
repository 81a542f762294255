"""Which files of a folder belong together: one container for those of a folder whose names differ only in dates, numbers and ids.

Belongs here: names → groups with their patterns. Does not belong: patterns' meaning (``globs``), or what is in a file.
"""

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from incremental_assets.core.files import EXTENSION, FileFormat, format_of, is_hidden
from incremental_assets.core.globs import escape, literal_of, matches, rank
from incremental_assets.core.names import encode_name

_LONGEST_NAME = 120

_UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_HEX = r"(?:[0-9a-f]{8,}|[0-9A-F]{8,})(?![0-9A-Za-z])"
_VARYING = re.compile(
    rf"(?<![0-9A-Za-z])(?:(?P<hash>{_UUID}(?![0-9A-Za-z])|(?=[A-Fa-f]*[0-9]+[A-Fa-f]){_HEX})|(?P<word>(?={_HEX})[A-Fa-f]+)[0-9]+)|[0-9]+"
)
"""``word``: the letters of what may be a hash, and may be a word of the letters a to f with a number."""
_JOINER = re.compile(r"[-_.T: ]*")
_ZULU = re.compile(r"\AZ(?![0-9A-Za-z])")

_BROKEN = "\udfff"
"""Stands for each character of a name that is no UTF-8. Nothing that is written down can hold those: in a pattern it is a ``?``."""
_SURROGATE = re.compile("[\ud800-\udfff]")

_Literals = tuple[str, ...]
"""The parts of a stem that stay the same, with a wildcard between each two."""


@dataclass(frozen=True)
class FileGroup:
    """Files of one container. ``pattern`` is a glob that owns (``owner_of``) just these files, and text that can be saved."""

    name: str
    pattern: str
    format: FileFormat
    files: tuple[str, ...]


@dataclass(frozen=True)
class _Kind:
    """What the files of a group have in common."""

    folder: str
    literals: _Literals
    extension: str

    @cached_property
    def glob(self) -> str:
        return _written(f"{self.folder}/" if self.folder else "") + "*".join(map(_written, self.literals)) + self.extension

    @cached_property
    def is_broken(self) -> bool:
        """Some of its characters are ``?`` in its pattern, which so matches other names too."""
        return _BROKEN in self.folder or any(_BROKEN in literal for literal in self.literals)

    @property
    def base_name(self) -> str:
        name = _readable(f"{self.folder}/{'_'.join(self.literals)}") or "files"
        if len(encode_name(name)) <= _LONGEST_NAME:
            return name
        digest = hashlib.sha256(self.glob.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        name = name[:_LONGEST_NAME]
        while len(encode_name(name)) > _LONGEST_NAME - len(digest) - 1:
            name = name[:-1]
        return f"{name}_{digest}"


def group_files(paths: Iterable[str], named: Mapping[str, str] | None = None) -> list[FileGroup]:
    """Same folder, same extension, similar names → one group. Hidden and unsupported files are left out. Ordered by name.

    Names are similar that differ in numbers, hashes and UUIDs only (and in what is no UTF-8, as no pattern can tell that apart).
    A file alone has itself as its pattern, until a second one, or another in its place, makes a glob of it, for good.

    ``named``: names that were given before, by pattern. They stay with files of the same kind, and no other group gets them.
    """
    before = named or {}
    once = {path: name for pattern, name in before.items() if (path := literal_of(pattern)) is not None}
    there: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(set(paths)):
        there[_SURROGATE.sub(_BROKEN, path)].append(path)
    # Files that once were there take part, so that what comes in their place is the same container.
    kinds = _kinds({*there, *once}, before, once)
    # Of a broken name there is no literal pattern, and with its numbers in it, it would outrank the globs of others.
    globbed = {kind for kind, own in kinds.items() if len(own) > 1 or kind.glob in before or kind.is_broken}
    patterns = {kind: kind.glob if kind in globbed else escape(own[0]) for kind, own in kinds.items()}
    owned = {kind: own for kind, own in _sorted_out(kinds, patterns).items() if any(path in there for path in own)}
    names = _names(owned, patterns, before, once, there)
    groups: list[FileGroup] = []
    for kind, own in owned.items():
        known = format_of(own[0])
        assert known is not None, "kinds are made of supported files"
        files = sorted(path for spelled in own for path in there.get(spelled, ()))
        groups.append(FileGroup(names[kind], patterns[kind], known, tuple(files)))
    return sorted(groups, key=lambda group: group.name)


def _written(text: str) -> str:
    """As a pattern."""
    return escape(text).replace(_BROKEN, "?")


def _kinds(paths: Iterable[str], before: Mapping[str, str], once: Mapping[str, str]) -> dict[_Kind, list[str]]:
    """Files by what their names have in common."""
    read: list[tuple[str, _Kind, _Kind]] = []
    hashed: set[_Kind] = set()
    numbered: set[_Kind] = set()
    worded: set[_Kind] = set()
    for path in sorted(paths):
        found = EXTENSION.search(path)
        if found is None or is_hidden(path):
            continue
        folder, _, stem = path[: found.start()].rpartition("/")
        varying = list(_VARYING.finditer(stem))
        kind = as_word = _Kind(folder, _literals(stem, [match.span() for match in varying]), found[0])
        if any(match["word"] for match in varying):
            as_word = _Kind(folder, _literals(stem, [(max(match.start(), match.end("word")), match.end()) for match in varying]), found[0])
        if any(match["hash"] for match in varying):
            hashed.add(kind)
        elif as_word == kind:
            numbered.add(kind)
        elif path in once:
            worded.add(as_word)
        read.append((path, kind, as_word))
    kinds: defaultdict[_Kind, list[str]] = defaultdict(list)
    for path, kind, as_word in read:
        if kind == as_word or as_word.glob in before:
            chosen = as_word
        elif kind in hashed:
            # ``fee20240101`` is a word and a date, unless its neighbours are hashes: then it is one as well.
            chosen = kind
        else:
            # Or unless they were: those of a glob that is known, and that no numbers are there to explain.
            were_hashed = kind.glob in before and kind not in numbered and as_word not in worded
            chosen = kind if were_hashed else as_word
        kinds[chosen].append(path)
    return kinds


def _literals(stem: str, spans: Iterable[tuple[int, int]]) -> _Literals:
    """What is around the spans; those that only separators lie between are one wildcard: a date, a time of day."""
    raw: list[str] = []
    end = 0
    for start, stop in spans:
        raw.append(stem[end:start])
        end = stop
    raw.append(stem[end:])
    kept, joined = [raw[0]], False
    for position, literal in enumerate(raw[1:], start=2):
        literal = _ZULU.sub("", literal) if joined else literal
        joined = _JOINER.fullmatch(literal) is not None
        if not joined or position == len(raw):
            kept.append(literal)
    return tuple(kept)


def _sorted_out(kinds: Mapping[_Kind, Sequence[str]], patterns: Mapping[_Kind, str]) -> dict[_Kind, tuple[str, ...]]:
    """Each file to the kind whose pattern owns it: ``orders_late_1.csv`` is matched by ``orders_*.csv`` too."""
    # Looked up by what a name begins and ends with, as a folder may hold thousands of kinds, and as many files of each.
    by_ends: defaultdict[tuple[str, str, str, str], list[_Kind]] = defaultdict(list)
    lengths: defaultdict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    owned: defaultdict[_Kind, list[str]] = defaultdict(list)
    for kind in kinds:
        first, last = kind.literals[0], kind.literals[-1]
        if not kind.is_broken and literal_of(patterns[kind]) is None:
            by_ends[kind.folder, kind.extension, first, last].append(kind)
            lengths[kind.folder, kind.extension].add((len(first), len(last)))
    by_broken = _matched_by_broken(kinds, patterns)
    for kind, paths in kinds.items():
        if literal_of(patterns[kind]) is not None:
            owned[kind] += paths
            continue
        for path in paths:
            stem = path[len(kind.folder) + 1 if kind.folder else 0 : len(path) - len(kind.extension)]
            ends = ((stem[:first], stem[len(stem) - last :]) for first, last in lengths[kind.folder, kind.extension])
            near = [other for first, last in ends for other in by_ends.get((kind.folder, kind.extension, first, last), ())]
            near = [other for other in near if other == kind or matches(patterns[other], path)]
            owned[max((*near, *by_broken.get(path, ())), key=lambda other: rank(patterns[other]))].append(path)
    return {kind: tuple(sorted(paths)) for kind, paths in owned.items()}


def _matched_by_broken(kinds: Mapping[_Kind, Sequence[str]], patterns: Mapping[_Kind, str]) -> dict[str, list[_Kind]]:
    """By path, the kinds with a ``?`` in their pattern that match it: neither its folder nor its ends need be theirs."""
    broken = [kind for kind in kinds if kind.is_broken]
    if not broken:
        return {}
    inside: defaultdict[str, list[str]] = defaultdict(list)
    for path in (path for paths in kinds.values() for path in paths):
        inside[path.rpartition("/")[0]].append(path)
    files = {folder: _ByEnds(paths) for folder, paths in inside.items()}
    folders = _ByEnds(files)
    matched: defaultdict[str, list[_Kind]] = defaultdict(list)
    for kind in broken:
        pattern, first, last = patterns[kind], kind.literals[0], kind.literals[-1]
        beginning, ending = first.partition(_BROKEN)[0], last.rpartition(_BROKEN)[2] + kind.extension
        for folder in folders.between(kind.folder.partition(_BROKEN)[0], kind.folder.rpartition(_BROKEN)[2]):
            if matches(pattern.rpartition("/")[0], folder):
                for path in files[folder].between(f"{folder}/{beginning}" if folder else beginning, ending):
                    if matches(pattern, path):
                        matched[path].append(kind)
    return matched


class _ByEnds:
    """Texts, to be looked up by what they begin and end with."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._forwards = sorted(texts)
        self._backwards = sorted(text[::-1] for text in self._forwards)

    def between(self, beginning: str, ending: str) -> Iterator[str]:
        by_beginning, by_ending = _span(self._forwards, beginning), _span(self._backwards, ending[::-1])
        if len(by_beginning) <= len(by_ending):
            near = (self._forwards[index] for index in by_beginning)
        else:
            near = (self._backwards[index][::-1] for index in by_ending)
        return (text for text in near if text.startswith(beginning) and text.endswith(ending))


def _span(ordered: Sequence[str], beginning: str) -> range:
    start = bisect_left(ordered, beginning)
    return range(start, bisect_right(ordered, beginning, start, key=lambda text: text[: len(beginning)]))


def _names(
    files: Mapping[_Kind, Sequence[str]],
    patterns: Mapping[_Kind, str],
    before: Mapping[str, str],
    once: Mapping[str, str],
    there: Mapping[str, object],
) -> dict[_Kind, str]:
    """A name for each. Where two would have the same one, the first by pattern has it, so that one that is added changes few others."""
    names: dict[_Kind, str] = {}
    ordered = sorted(files, key=lambda kind: kind.glob)
    # By the very pattern, by a file that is there, by one that was.
    claims = [(0, patterns[kind], kind, before[patterns[kind]]) for kind in ordered if patterns[kind] in before]
    claims += [(1 if path in there else 2, path, kind, once[path]) for kind in ordered for path in files[kind] if path in once]
    given: set[str] = set()
    for _, _, kind, name in sorted(claims, key=lambda claim: claim[:2]):
        if kind not in names and name not in given:
            given.add(name)
            names[kind] = name
    taken = {name.casefold() for name in before.values()}  # on some disks folders differ in more than case
    bases = {kind: kind.base_name for kind in ordered if kind not in names}
    for kind, base in bases.items():
        if base.casefold() not in taken:
            taken.add(base.casefold())
            names[kind] = base
    for kind, base in bases.items():
        if kind not in names:
            longer = f"{base}_{_readable(kind.extension)}"
            name, number = longer, 2
            while name.casefold() in taken:
                name, number = f"{longer}_{number}", number + 1
            taken.add(name.casefold())
            names[kind] = name
    return names


def _readable(text: str) -> str:
    return re.sub(r"[\W_]+", "_", text).strip("_")
