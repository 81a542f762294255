"""Which files of a folder belong together: one container for those of a folder whose names differ only in dates, numbers and ids.

Belongs here: names → groups with their patterns. Does not belong: patterns' meaning (``globs``), or what is in a file.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from incremental_assets.model.files import EXTENSION, FileFormat, format_of, is_hidden
from incremental_assets.model.globs import escape, literal_of, matches, rank
from incremental_assets.model.names import encode_name

_LONGEST_NAME = 120

_UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_HEX = r"(?:[0-9a-f]{8,}|[0-9A-F]{8,})(?![0-9A-Za-z])"
_VARYING = re.compile(
    rf"(?<![0-9A-Za-z])(?:(?P<hash>{_UUID}(?![0-9A-Za-z])|(?=[A-Fa-f]*[0-9]+[A-Fa-f]){_HEX})|(?P<word>(?={_HEX})[A-Fa-f]+)[0-9]+)|[0-9]+"
)
"""``word``: the letters of what may be a hash, and may be a word of the letters a to f with a number."""
_JOINER = re.compile(r"[-_.T: ]*")
_ZULU = re.compile(r"\AZ(?![0-9A-Za-z])")

_Literals = tuple[str, ...]
"""The parts of a stem that stay the same, with a wildcard between each two."""


@dataclass(frozen=True)
class FileGroup:
    """Files of one container. ``pattern`` is a glob that owns (``owner_of``) just these files."""

    name: str
    folder: str
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
        return escape(f"{self.folder}/" if self.folder else "") + "*".join(map(escape, self.literals)) + self.extension

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

    Names are similar that differ in numbers, hashes and UUIDs only. ``named``: names that were given before, by pattern; they stay with
    their files, and no other group gets them.
    """
    files = _sorted_out(_kinds(paths))
    names = _names(files, named or {})
    groups: list[FileGroup] = []
    for kind, own in files.items():
        known = format_of(own[0])
        assert known is not None, "kinds are made of supported files"
        groups.append(FileGroup(names[kind], kind.folder, _pattern(kind, own), known, own))
    return sorted(groups, key=lambda group: group.name)


def _kinds(paths: Iterable[str]) -> dict[_Kind, list[str]]:
    """Files by what their names have in common."""
    read: list[tuple[str, _Kind, _Kind]] = []
    hashed: set[_Kind] = set()
    for path in sorted(set(paths)):
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
        read.append((path, kind, as_word))
    kinds: defaultdict[_Kind, list[str]] = defaultdict(list)
    for path, kind, as_word in read:
        # ``fee20240101`` is a word and a date, unless its neighbours are hashes: then it is one as well.
        kinds[kind if kind in hashed else as_word].append(path)
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


def _sorted_out(kinds: Mapping[_Kind, list[str]]) -> dict[_Kind, tuple[str, ...]]:
    """Each file to the kind whose pattern owns it: ``orders_late_1.csv`` is matched by ``orders_*.csv`` too."""
    # Looked up by what a name begins and ends with, as a folder may hold thousands of kinds, and as many files of each.
    by_ends: defaultdict[tuple[str, str, str, str], list[_Kind]] = defaultdict(list)
    lengths: defaultdict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    owned: defaultdict[_Kind, list[str]] = defaultdict(list)
    for kind, paths in kinds.items():
        first, last = kind.literals[0], kind.literals[-1]
        if len(paths) > 1:
            by_ends[kind.folder, kind.extension, first, last].append(kind)
            lengths[kind.folder, kind.extension].add((len(first), len(last)))
    for kind, paths in kinds.items():
        if len(paths) == 1:
            owned[kind] += paths
            continue
        for path in paths:
            stem = path[len(kind.folder) + 1 if kind.folder else 0 : len(path) - len(kind.extension)]
            ends = ((stem[:first], stem[len(stem) - last :]) for first, last in lengths[kind.folder, kind.extension])
            near = [other for first, last in ends for other in by_ends.get((kind.folder, kind.extension, first, last), ())]
            owned[max((other for other in near if other == kind or matches(other.glob, path)), key=_kind_rank)].append(path)
    return {kind: tuple(sorted(paths)) for kind, paths in owned.items()}


def _kind_rank(kind: _Kind) -> tuple[int, int, str]:
    return rank(kind.glob)


def _pattern(kind: _Kind, files: Sequence[str]) -> str:
    return kind.glob if len(files) > 1 else escape(files[0])


def _names(files: Mapping[_Kind, Sequence[str]], named: Mapping[str, str]) -> dict[_Kind, str]:
    """A name for each. Where two would have the same one, the first by pattern has it, so that one that is added changes few others."""
    names: dict[_Kind, str] = {}
    ordered = sorted(files, key=lambda kind: kind.glob)
    # A second file may have made a pattern of what was one file, or the other way round.
    by_file = {path: name for pattern, name in named.items() if (path := literal_of(pattern)) is not None}
    for kind in ordered if named else ():
        before = named.get(kind.glob) or next((by_file[path] for path in files[kind] if path in by_file), None)
        if before is not None:
            names[kind] = before
    taken = {name.casefold() for name in (*named.values(), *names.values())}  # on some disks folders differ in more than case
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
