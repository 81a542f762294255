"""Defines the parameters of reading files: which files, and with which options, types and limits."""

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from incremental_assets.core.container import Engine
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.files import FILE, MODIFIED, FileFormat, Limits, shown_path
from incremental_assets.files.readers.options import expect_options

RESERVED = frozenset((FILE.name, MODIFIED.name, "_metadata"))
"""The names, in lower case, that no column of a file may have: those of the table's own columns, and of one that Spark has in each table.
It could not change rows of a table which has another one."""
TAKEN = "that the table, or Spark, has itself; rename it"
"""Why a name is among them."""


def reserved(names: Iterable[str], known: Container[str]) -> list[str]:
    """Those of the names that no column of a file may have. ``known``: the table's columns, in lower case: an earlier version took one."""
    return sorted({name.lower() for name in names if name.lower() in RESERVED and name.lower() not in known})


NAME, LINE, WRONG = "_incremental_assets_name", "_incremental_assets_line", "_incremental_assets_wrong"
"""Columns of the frames between reading and writing: Spark's name of the row's file, the row's text, and the reason to reject it.

The reason is NULL for a good row."""
NOT_TEXT = "it has bytes that are no UTF-8; say options: {encoding: windows-1252}, or whichever it is"
"""The reason to reject a row."""

# Options that the readers interpret or set themselves, and do not pass on to Spark.
_OURS = (
    *("header", "sep", "delimiter", "encoding", "charset", "schema", "inferschema", "enforceschema", "mode", "columnnameofcorruptrecord"),
    *("nullvalue", "skip_lines", "skip_footer", "true_values", "false_values", "decimal", "thousands"),
)
# Options of Spark that would lose rows or read other files without an error, each with the reason for refusing it.
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
    """One file to be read.

    ``key``: the key of its partition. ``path``: relative to the datastore's folder. ``modified``: its modification time in microseconds
    since 1970 UTC. ``size``: its stored size in bytes; 0: empty, or not known.
    """

    key: str
    path: str
    modified: int
    size: int = 0


@dataclass(frozen=True)
class Reading:
    """How the files of a container are read.

    ``options``: from the YAML; most are those of Spark's reader for the format. A list is given as JSON.
    ``types``: Spark types by column name, where the YAML sets them.
    ``cuts_times``: digits of a time below the microsecond are left out; otherwise a file with such digits is refused.
    ``valueless``: columns that files had before, none of them with a value, so that the table does not have them.
    ``folders``: a column of folders that is always there, whether the folders of some files name it or not.
    ``engine``: who reads them.
    ``by_line``: JSON has one record a line in any case, and is UTF-8. Otherwise its first bytes tell.
    Raises ConfigurationError for an option that must not be set.
    """

    format: FileFormat
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: Limits = field(default_factory=Limits)
    cuts_times: bool = False
    by_line: bool = False
    valueless: tuple[str, ...] = ()
    folders: str | None = None
    engine: Engine = Engine.AUTO

    def __post_init__(self) -> None:
        for name in self.options:
            if name.lower() in _REFUSED:
                raise ConfigurationError(f"options: {name} cannot be used here: {_REFUSED[name.lower()]}. Take it out.")
        expect_options(self.format, self.options, _REFUSED)

    def option(self, *names: str) -> str | None:
        """Returns the text of the first option with one of these names (in lower case), as Spark ignores the case; None: it is not set."""
        return next((_as_text(value) for name, value in self.options.items() if name.lower() in names), None)

    def texts(self, name: str) -> tuple[str, ...]:
        """Returns the texts of an option that may be a list; empty: it is not set."""
        given = self.option(name)
        if given is None:
            return ()
        return tuple(map(str, json.loads(given))) if given.startswith("[") and given.endswith("]") else (given,)

    def separated_by(self, separator: str | None) -> "Reading":
        """The same with the separator that a file names itself; None: it names none."""
        if separator is None:
            return self
        others = {name: value for name, value in self.options.items() if name.lower() not in ("sep", "delimiter")}
        return replace(self, options={**others, "sep": separator})

    @property
    def is_plain_number(self) -> bool:
        """Whether numbers are written with a point and without separators of thousands."""
        return self.option("decimal") in (None, ".") and self.option("thousands") is None

    @property
    def skip_lines(self) -> int:
        """How many lines at the beginning of each file are no data."""
        return int(self.option("skip_lines") or 0)

    @property
    def skip_footer(self) -> int:
        """How many lines at the end of each file are no data."""
        return int(self.option("skip_footer") or 0)

    def is_true(self, name: str) -> bool:
        """Whether an option is set to true."""
        return (self.option(name) or "").lower() == "true"

    @property
    def header(self) -> bool:
        """Whether the first line of each file names its columns; unlike in Spark, this is the default."""
        return (self.option("header") or "true").lower() == "true"

    @property
    def separator(self) -> str:
        """The separator of cells, by default a tab for TSV and else a comma. The text ``\\t`` in the YAML means a tab."""
        given = self.option("sep", "delimiter")
        return (given or ("\t" if self.format is FileFormat.TSV else ",")).replace("\\t", "\t")

    @property
    def encoding(self) -> str | None:
        """The encoding of text files, where it is another one than UTF-8; else None."""
        given = self.option("encoding", "charset")
        return None if given is None or given.lower().replace("_", "-") in ("utf-8", "utf8", "us-ascii", "ascii") else given

    @property
    def passed_on(self) -> dict[str, str]:
        """The options that are passed on to Spark as they are, by their names in lower case."""
        return {name.lower(): _as_text(value) for name, value in self.options.items() if name.lower() not in _OURS}


@dataclass(frozen=True)
class Group:
    """Files that are read alike.

    ``names``: their columns, in the files' order where it matters. ``separator``: that their first
    lines name, if any. ``whole``: each file is one JSON value. ``schema``: of Parquet and Avro,
    their Spark schema.
    """

    files: tuple[ReadFile, ...]
    names: tuple[str, ...] = ()
    separator: str | None = None
    whole: bool = False
    schema: Any = None


def refusal(file: ReadFile, reason: str) -> str:
    """The message that refuses a file."""
    return f"{shown_path(file.path)}: {reason}"


def shortened(text: str, length: int = 200) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
