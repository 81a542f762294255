"""Files of a folder as partitions: their keys, what has changed since they were read, globs, and which files belong together.

Belongs here: decisions over paths and stamps, as plain values. A path is relative to the datastore's folder, with ``/`` between its parts.
Does not belong: listing a folder or opening a file (``sources.files``), or what is in a file.
"""

import fnmatch
import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from urllib.parse import unquote_to_bytes

from incremental_assets.model.names import encode_name

LONGEST_KEY = 400
"""Dagster keeps a partition key in a VARCHAR(512) on PostgreSQL and MySQL."""
_KEPT_OF_A_LONG_KEY = 300
_LONGEST_NAME = 120


# ---------------------------------------------------------------- formats
class FileFormat(str, Enum):
    CSV = "csv"
    TSV = "tsv"
    JSON = "json"
    PARQUET = "parquet"
    AVRO = "avro"
    TEXT = "text"


_EXTENSION = re.compile(r"(?<=[^/])\.(?:(csv|tsv|json|jsonl|ndjson|txt)(?:\.(?:gz|bz2|zst))?|(parquet|avro))\Z", re.IGNORECASE | re.ASCII)
_FORMATS = {"jsonl": FileFormat.JSON, "ndjson": FileFormat.JSON, "txt": FileFormat.TEXT}


def format_of(name: str) -> FileFormat | None:
    """What the extension says, in any case; None for one that is not supported."""
    found = _EXTENSION.search(name)
    if found is None:
        return None
    extension = (found[1] or found[2]).lower()
    return _FORMATS.get(extension) or FileFormat(extension)


def is_hidden(path: str) -> bool:
    """A part of the path begins with ``.`` or ``_``: ``_SUCCESS``, ``_temporary/…``, ``.orders.csv.part``. Spark skips these too."""
    return any(part.startswith((".", "_")) for part in path.split("/"))


# ---------------------------------------------------------------- partition keys
# Lookbehinds see the path as it was: of several dots, and of several slashes, only the first one stays as it is.
_NOT_AS_IT_IS = re.compile(r"[^A-Za-z0-9_\-./=+,@]|(?<![^./])\.|\.\Z|(?<![^/])/|/\Z")
_TORN = re.compile(r"%[0-9A-F]?\Z")


def encode_path(path: str) -> str:
    """The partition key of a file: ``sales/order 1.csv`` → ``sales/order%201.csv``. Two files never share one.

    Made of ``A-Za-z0-9_-./=+,@`` and ``%XX``, without ``..``: in Dagster ``...`` joins the two ends of a range. Names that are no UTF-8 are
    taken as Python has them. A long one ends in ``~`` and a hash, and cannot be decoded.
    """
    # As Latin-1 each byte is one character.
    raw = path.encode("utf-8", "surrogateescape").decode("latin-1")
    key = _NOT_AS_IT_IS.sub(lambda match: f"%{ord(match[0]):02X}", raw)
    if len(key) <= LONGEST_KEY:
        return key
    return f"{_TORN.sub('', key[:_KEPT_OF_A_LONG_KEY])}~{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def decode_path(key: str) -> str | None:
    """The path that ``encode_path`` made ``key`` from; None for a shortened one, and for a text that is no file's key."""
    if not key.isascii():
        return None
    path = unquote_to_bytes(key).decode("utf-8", "surrogateescape")
    return path if encode_path(path) == key else None


# ---------------------------------------------------------------- what there is to read
@dataclass(frozen=True)
class FileStamp:
    """By what a change of a file is known. ``modified``: microseconds since 1970 UTC."""

    modified: int
    size: int
    etag: str | None = None

    def same(self, other: "FileStamp") -> bool:
        tags = {self.etag, other.etag} - {None}
        return (self.modified, self.size) == (other.modified, other.size) and len(tags) < 2


@dataclass(frozen=True)
class FilePlan:
    """What is to be done, each by modification time and path. ``left``: how many more are to be read, by the next sync."""

    new: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    waiting: tuple[str, ...]
    left: int

    @property
    def read(self) -> tuple[str, ...]:
        return self.changed + self.new


def plan_files(
    found: Mapping[str, FileStamp],
    known: Mapping[str, FileStamp],
    now: int,
    settle: int,
    asked: Collection[str] | None = None,
    most: int | None = None,
) -> FilePlan:
    """Compares file by file what is in the folder with what was read, so that one that arrives late with an old time is found.

    ``settle``: a file modified less than so many microseconds from ``now`` may still be written and waits; not so one from a clock that
    is far ahead, which would wait for long. ``asked`` (a refresh): just these are read, changed or not, and at once: one that is still
    being written gets another stamp by that, and is read again. ``most``: at most so many are read, the oldest first.
    """
    due: list[str] = []
    waiting: list[str] = []
    chosen = None if asked is None else frozenset(asked)
    for path, stamp in found.items():
        before = known.get(path)
        if chosen is not None:
            if path in chosen:
                due.append(path)
        elif before is None or not stamp.same(before):
            (waiting if abs(now - stamp.modified) < settle else due).append(path)
    due = _by_age(due, found)
    reading = due[:most]
    return FilePlan(
        new=tuple(path for path in reading if path not in known),
        changed=tuple(path for path in reading if path in known),
        removed=tuple(_by_age((path for path in known if path not in found), known)),
        waiting=tuple(_by_age(waiting, found)),
        left=len(due) - len(reading),
    )


def watermark_of(known: Mapping[str, FileStamp]) -> int | None:
    """The newest modification time seen. For people: what is to be read is decided file by file."""
    return max((stamp.modified for stamp in known.values()), default=None)


def _by_age(paths: Iterable[str], stamps: Mapping[str, FileStamp]) -> list[str]:
    return sorted(paths, key=lambda path: (stamps[path].modified, path))


# ---------------------------------------------------------------- globs
_WILDCARD = re.compile(r"\[(?P<itself>[*?[])\]|\[(?:![^/]|[^!/])[^]/]*\]|[*?]")
"""A wildcard, or (``itself``) one in brackets, which stands for itself."""


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
        literal = _literal(part)
        if literal is None:
            break
        fixed.append(literal)
    return "/".join(fixed)


def owner_of(path: str, patterns: Sequence[str]) -> int | None:
    """Which of the patterns a path belongs to: the matching one with the most literal characters, so that no file has two owners."""
    matching = (index for index, pattern in enumerate(patterns) if matches(pattern, path))
    return max(matching, key=lambda index: _rank(patterns[index]), default=None)


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> tuple[str | re.Pattern[str] | None, ...]:
    """Part by part: a literal text, an expression, or None for ``**``."""
    parts = pattern.split("/")
    if parts[-1] == "**":
        parts.append("*")
    compiled: list[str | re.Pattern[str] | None] = []
    for part in parts:
        literal = _literal(part)
        # The standard library's translation takes no exponential time over hostile names; within a part it is all that is needed.
        compiled.append(None if part == "**" else re.compile(fnmatch.translate(part)) if literal is None else literal)
    return tuple(compiled)


def _literal(part: str) -> str | None:
    """What a part without wildcards stands for."""
    if any(not match["itself"] for match in _WILDCARD.finditer(part)):
        return None
    return _WILDCARD.sub(lambda match: match["itself"], part)


@lru_cache(maxsize=4096)
def _rank(pattern: str) -> tuple[int, int, str]:
    """Literal characters, then fewer wildcards; the pattern itself makes it independent of the order."""
    wildcards = sum(not match["itself"] for match in _WILDCARD.finditer(pattern))
    return len(_WILDCARD.sub(lambda match: match["itself"] or "", pattern)), -wildcards, pattern


def _escape(text: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", text)


# ---------------------------------------------------------------- files that belong together
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
        return _escape(f"{self.folder}/" if self.folder else "") + "*".join(map(_escape, self.literals)) + self.extension

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
        found = _EXTENSION.search(path)
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
    return _rank(kind.glob)


def _pattern(kind: _Kind, files: Sequence[str]) -> str:
    return kind.glob if len(files) > 1 else _escape(files[0])


def _names(files: Mapping[_Kind, Sequence[str]], named: Mapping[str, str]) -> dict[_Kind, str]:
    """A name for each. Where two would have the same one, the first by pattern has it, so that one that is added changes few others."""
    names: dict[_Kind, str] = {}
    ordered = sorted(files, key=lambda kind: kind.glob)
    # A second file may have made a pattern of what was one file, or the other way round.
    by_file = {path: name for pattern, name in named.items() if (path := _literal(pattern)) is not None}
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
