"""What is to be read and how: the values that the reading of files is asked with.

Belongs here: files, options and types as the caller says them, and the few SQL pieces that all formats share. Does not belong: reading.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.files import FILE, MODIFIED, FileFormat, Limits, shown_path

RESERVED = frozenset((FILE.name, MODIFIED.name))
NAME, LINE, WRONG = "_incremental_assets_name", "_incremental_assets_line", "_incremental_assets_wrong"
"""Of each row on its way: which file Spark says it is from, its text, and why it is no good."""

_OURS = ("header", "sep", "delimiter", "encoding", "charset", "schema", "inferschema", "enforceschema", "mode", "columnnameofcorruptrecord")
_REFUSED = {
    "ignorecorruptfiles": "it cuts rows off without a word; a file that cannot be read is left out and named",
    "ignoremissingfiles": "a file that is not there any more is left out and named",
    **dict.fromkeys(
        ("pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter", "basepath", "path"),
        "which files are read is said by the container's pattern",
    ),
    **dict.fromkeys(("wholetext", "singlevariantcolumn", "rowtag"), "it makes other columns than those of the table"),
}


@dataclass(frozen=True)
class ReadFile:
    """One file to read: the key of its partition, its path within the folder, its modification time in microseconds, its stored bytes."""

    key: str
    path: str
    modified: int
    size: int = 0


@dataclass(frozen=True)
class Reading:
    """How the files of a container are read. ``options``: Spark's, for the format. ``types``: of columns, where the YAML says them."""

    format: FileFormat
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name in self.options:
            if name.lower() in _REFUSED:
                raise ConfigurationError(f"options: {name} cannot be used here: {_REFUSED[name.lower()]}. Take it out.")

    def option(self, *names: str) -> str | None:
        """An option's text, whatever the case its name is written in."""
        return next((_as_text(value) for name, value in self.options.items() if name.lower() in names), None)

    def says(self, name: str) -> bool:
        return (self.option(name) or "").lower() == "true"

    @property
    def header(self) -> bool:
        return (self.option("header") or "true").lower() == "true"

    @property
    def separator(self) -> str:
        given = self.option("sep", "delimiter")
        return (given or ("\t" if self.format is FileFormat.TSV else ",")).replace("\\t", "\t")

    @property
    def encoding(self) -> str | None:
        """Where it is another one than UTF-8."""
        given = self.option("encoding", "charset")
        return None if given is None or given.lower().replace("_", "-") in ("utf-8", "utf8", "us-ascii", "ascii") else given

    @property
    def passed_on(self) -> dict[str, str]:
        """The options that are Spark's own business, by their names in lower case."""
        return {name.lower(): _as_text(value) for name, value in self.options.items() if name.lower() not in _OURS}


@dataclass(frozen=True)
class Group:
    """Files that are read alike: ``names`` are their columns, in the files' order where that counts. ``whole``: not line by line."""

    files: tuple[ReadFile, ...]
    names: tuple[str, ...] = ()
    whole: bool = False


def is_packed(file: ReadFile) -> bool:
    """Whether its stored bytes say nothing of how many there are when it is unpacked."""
    return file.path.lower().endswith((".gz", ".bz2", ".zst"))


def refusal(file: ReadFile, reason: str) -> str:
    return f"{shown_path(file.path)}: {reason}"


def shortened(text: str, length: int = 200) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
