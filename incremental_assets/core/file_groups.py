"""Groups the files of a folder into containers: files of one folder whose names differ only in dates, numbers and ids form one group."""

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from incremental_assets.core.files import EXTENSION, HIVE_FOLDER, FileFormat, format_of, is_hidden
from incremental_assets.core.globs import escape, literal_of, matches, rank
from incremental_assets.core.names import encode_name

_LONGEST_NAME = 120

_UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_HEX = r"(?:[0-9a-f]{8,}|[0-9A-F]{8,})(?![0-9A-Za-z])"
_VARYING = re.compile(
    rf"(?<![0-9A-Za-z])(?:(?P<hash>{_UUID}(?![0-9A-Za-z])|(?=[A-Fa-f]*[0-9]+[A-Fa-f]){_HEX})|(?P<word>(?={_HEX})[A-Fa-f]+)[0-9]+)|[0-9]+"
)
"""Matches a part of a name that varies: a UUID or hash (group ``hash``), a run of digits, or an ambiguous text such as ``fee20240101``.

The last may be a hash, or a word of the letters a to f followed by a number; the group ``word`` then has the letters."""
# Separators between two varying parts that count as one, as in a date and a time of day; ``_ZULU`` is the Z that ends an ISO 8601 time.
_JOINER = re.compile(r"[-_.T: ]*")
_ZULU = re.compile(r"\AZ(?![0-9A-Za-z])")

_BROKEN = "\udfff"
"""The placeholder for each byte of a name that is not UTF-8. Such bytes cannot be saved as text, so that they become ``?`` in a pattern."""
_ANY = "\udffe"
"""The placeholder for the value of a column that a folder names: ``month=01``."""
_SURROGATE = re.compile("[\ud800-\udfff]")

_Literals = tuple[str, ...]
"""The parts of a stem (the name without extension) that do not vary. A wildcard stands between each two of them."""


@dataclass(frozen=True)
class FileGroup:
    """The files of one container.

    ``pattern``: a glob that owns (``globs.owner_of``) exactly these files. It is valid UTF-8, also if the names of the files are not.
    """

    name: str
    pattern: str
    format: FileFormat
    files: tuple[str, ...]


@dataclass(frozen=True)
class _Kind:
    """What the names of the files of one group have in common: folder, literal parts of the stem, and extension (with its dot).

    ``folder``: the outermost one that names a column, with ``_ANY`` for its value, where there is such.
    """

    folder: str
    literals: _Literals
    extension: str

    @cached_property
    def glob(self) -> str:
        below = "**/" if self.is_tree else ""
        return _written(f"{self.folder}/" if self.folder else "") + below + "*".join(map(_written, self.literals)) + self.extension

    @property
    def is_tree(self) -> bool:
        """Whether its folder names a column, so that all files of the same extension below are one group."""
        return _ANY in self.folder

    @cached_property
    def is_broken(self) -> bool:
        """Whether the names have bytes that are not UTF-8. They are ``?`` in the pattern, which therefore matches other names too."""
        return _BROKEN in self.folder or any(_BROKEN in literal for literal in self.literals)

    @property
    def base_name(self) -> str:
        """The name of the group before it is made unique: folder and literal parts. A long one is cut and gets a hash."""
        above = "/".join(part for part in self.folder.split("/") if _ANY not in part)
        name = _readable(f"{above}/{'_'.join(self.literals)}") or (_readable(self.folder) if self.is_tree else "") or "files"
        if len(encode_name(name)) <= _LONGEST_NAME:
            return name
        digest = hashlib.sha256(self.glob.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        name = name[:_LONGEST_NAME]
        while len(encode_name(name)) > _LONGEST_NAME - len(digest) - 1:
            name = name[:-1]
        return f"{name}_{digest}"


def group_files(paths: Iterable[str], named: Mapping[str, str] | None = None) -> list[FileGroup]:
    """Groups files with the same folder, the same extension and similar names. The groups are ordered by name.

    Names are similar if they differ only in numbers, hashes and UUIDs, and in bytes that are not UTF-8, which no pattern can distinguish.
    All files below folders that differ only in the value of a column (``month=01``) are one group, unless one of those folders had a group
    of its own before. Hidden files and files with an unsupported extension are left out. The pattern of a single file is its own path. Once
    a second similar file is there, or another one in its place, the pattern becomes a glob, and stays one.

    ``named``: the names that groups were given before, by pattern (None: there are none). A name stays with the files of the same kind, and
    no other group gets it.
    """
    before = named or {}
    once = {path: name for pattern, name in before.items() if (path := literal_of(pattern)) is not None}
    there: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(set(paths)):
        there[_SURROGATE.sub(_BROKEN, path)].append(path)
    # Single files that were there before take part too, so that a file which replaces one of them belongs to the same container.
    kinds = _kinds({*there, *once}, before, once)
    # A name with bytes that are not UTF-8 has no literal pattern. If its pattern kept its digits, it would rank above the globs of others.
    globbed = {kind for kind, own in kinds.items() if len(own) > 1 or kind.glob in before or kind.is_broken or kind.is_tree}
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
    """The pattern for a literal text, in which ``?`` replaces the placeholders."""
    return escape(text).replace(_BROKEN, "?").replace(_ANY, "*")


def _kinds(paths: Iterable[str], before: Mapping[str, str], once: Mapping[str, str]) -> dict[_Kind, list[str]]:
    """The files by kind. ``before`` and ``once``: see ``group_files``, where ``once`` are the patterns that are the path of a single file.

    A name such as ``fee20240101`` can be read as a hash (``kind``) or as a word and a number (``as_word``). The other files decide.
    """
    read: list[tuple[str, _Kind, _Kind]] = []
    hashed: set[_Kind] = set()
    numbered: set[_Kind] = set()
    worded: set[_Kind] = set()
    kinds: defaultdict[_Kind, list[str]] = defaultdict(list)
    apart = {_tree(folder) for pattern in before if not _is_tree_pattern(folder := pattern.rpartition("/")[0])}
    for path in sorted(paths):
        found = EXTENSION.search(path)
        if found is None or is_hidden(path):
            continue
        folder, _, stem = path[: found.start()].rpartition("/")
        tree = _tree(folder)
        if tree is not None and tree not in apart:
            kinds[_Kind(tree, ("", ""), found[0])].append(path)
            continue
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
    for path, kind, as_word in read:
        if kind == as_word or as_word.glob in before:
            chosen = as_word
        elif kind in hashed:
            # If files that are similar otherwise have a hash at this place, it is a hash as well.
            chosen = kind
        else:
            # The files of a glob that is known from before are hashes too, unless that glob can come from files with plain numbers, or from
            # a single file of before that is read as a word and a number.
            were_hashed = kind.glob in before and kind not in numbered and as_word not in worded
            chosen = kind if were_hashed else as_word
        kinds[chosen].append(path)
    return kinds


def _tree(folder: str) -> str | None:
    """The outermost folder that names a column, with ``_ANY`` for its value: all files below are one group. None: there is none."""
    above: list[str] = []
    for part in folder.split("/"):
        match = HIVE_FOLDER.fullmatch(part)
        if match is not None:
            return "/".join([*above, f"{match[1]}={_ANY}"])
        above.append(part)
    return None


def _is_tree_pattern(folder: str) -> bool:
    """Whether the folder of a pattern stands for all values of the columns that it names. An older version had a group for each value."""
    return all(match is None or match[2] == "*" for match in map(HIVE_FOLDER.fullmatch, folder.split("/")))


def _literals(stem: str, spans: Iterable[tuple[int, int]]) -> _Literals:
    """The literal parts of a stem around its varying ``spans``.

    Spans with nothing but separators between them become one wildcard: the parts of a date, or a date and a time of day.
    """
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
    """The files of each kind whose pattern owns them: ``orders_*.csv`` matches ``orders_late_1.csv`` as well, but does not own it.

    The result is that of ``globs.owner_of`` for every file.
    """
    # Comparing every file with every pattern would be quadratic: a folder can have thousands of kinds with as many files each. Patterns are
    # therefore looked up by the literal texts with which a name has to begin and to end.
    by_ends: defaultdict[tuple[str, str, str, str], list[_Kind]] = defaultdict(list)
    lengths: defaultdict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    owned: defaultdict[_Kind, list[str]] = defaultdict(list)
    for kind in kinds:
        first, last = kind.literals[0], kind.literals[-1]
        if not kind.is_broken and not kind.is_tree and literal_of(patterns[kind]) is None:
            by_ends[kind.folder, kind.extension, first, last].append(kind)
            lengths[kind.folder, kind.extension].add((len(first), len(last)))
    by_broken = _matched_by_broken(kinds, patterns)
    for kind, paths in kinds.items():
        if literal_of(patterns[kind]) is not None or kind.is_tree:
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
    """For each path, the kinds with a ``?`` for a byte that is not UTF-8 whose pattern matches it.

    The ``?`` can be in the folder, or in the texts with which a name begins and ends, so that these kinds cannot be looked up by them.
    """
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
    """A set of texts that can be looked up by a prefix and a suffix, without comparing all of them."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._forwards = sorted(texts)
        self._backwards = sorted(text[::-1] for text in self._forwards)

    def between(self, beginning: str, ending: str) -> Iterator[str]:
        """The texts that begin and end so. It scans whichever of the two ranges, by prefix or by suffix, is the smaller one."""
        by_beginning, by_ending = _span(self._forwards, beginning), _span(self._backwards, ending[::-1])
        if len(by_beginning) <= len(by_ending):
            near = (self._forwards[index] for index in by_beginning)
        else:
            near = (self._backwards[index][::-1] for index in by_ending)
        return (text for text in near if text.startswith(beginning) and text.endswith(ending))


def _span(ordered: Sequence[str], beginning: str) -> range:
    """The indexes of the texts in ``ordered`` (sorted) that begin with ``beginning``."""
    start = bisect_left(ordered, beginning)
    return range(start, bisect_right(ordered, beginning, start, key=lambda text: text[: len(beginning)]))


def _names(
    files: Mapping[_Kind, Sequence[str]],
    patterns: Mapping[_Kind, str],
    before: Mapping[str, str],
    once: Mapping[str, str],
    there: Mapping[str, object],
) -> dict[_Kind, str]:
    """A name for each group. Names that groups had before come first; the others are made of folder and literal parts.

    If two groups would get the same name, the first one by pattern gets it, and the others get the extension and a number in addition. So a
    group that is added changes few names of others.
    """
    names: dict[_Kind, str] = {}
    ordered = sorted(files, key=lambda kind: kind.glob)
    # A name from before goes to the group with the same pattern; if there is none, to the group that owns a file which was a group by
    # itself: first to one whose file is still there (1), then to one whose file is gone (2).
    claims = [(0, patterns[kind], kind, before[patterns[kind]]) for kind in ordered if patterns[kind] in before]
    claims += [(1 if path in there else 2, path, kind, once[path]) for kind in ordered for path in files[kind] if path in once]
    given: set[str] = set()
    for _, _, kind, name in sorted(claims, key=lambda claim: claim[:2]):
        if kind not in names and name not in given:
            given.add(name)
            names[kind] = name
    taken = {name.casefold() for name in before.values()}  # on some file systems, folders whose names differ only in case are the same
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
