"""The column of folders by whose values the files of a container are partitioned: ``partition_by: {column: month}``.

Which rows belong to a partition is known from the column itself, whose text is that of the partition. So its type is one whose values have
one text each, and never becomes another.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.files import HIVE_NULL, decode_path, encode_path, path_columns

_WHOLE = frozenset(("tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"))
_KINDS = {"string": "text", "date": "date", **dict.fromkeys(_WHOLE, "whole number")}
_NUMBER, _DATE = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII), re.compile(r"\s*[0-9]{4}-[0-9]{2}-[0-9]{2}\s*", re.ASCII)


@dataclass(frozen=True)
class FolderColumn:
    """The column by which a container of files is partitioned. ``type``: Spark's, in lower case; text unless the YAML sets another one."""

    name: str
    type: str = "string"

    @classmethod
    def declared(cls, label: str, name: str, type_: str | None) -> "FolderColumn":
        """The column with the type that the YAML sets. Raises ConfigurationError for one that it cannot have."""
        chosen = (type_ or "string").strip().lower()
        if chosen not in _KINDS:
            raise ConfigurationError(
                f"{label}: the column of partition_by, {name!r}, is {type_}. Choose a type of whole numbers, date or string, or leave it "
                f"out: then it is string."
            )
        return cls(name, chosen)

    @property
    def signature(self) -> str:
        """What must not change once the table has rows: the partitions of its files go by it."""
        return f"{self.name.lower()} ({_KINDS[self.type]})"

    def partition_of(self, file: str) -> str:
        """The key of the partition of the file with this key."""
        return _of_folder(self, (decode_path(file) or "").rpartition("/")[0])

    def names(self, path: str) -> bool:
        """Whether folders of the path name the column."""
        return self.name.lower() in names_in(path)

    def trouble(self, path: str) -> str | None:
        """Why it is not known to which partition a file belongs; None where it is."""
        key = encode_path(path)
        if decode_path(key) is not None and decode_path(self.partition_of(key)) is not None:
            return None
        return f"its path, or its value of {self.name}, is too long for a partition; its rows stay as they were. Rename its folders"

    def text_of(self, text: str | None) -> str | None:
        """The text of the value that a folder's text stands for: 01 and 1 are one whole number. None: no value."""
        if text and self.type in _WHOLE and _NUMBER.fullmatch(text):
            return str(int(text))
        if text and self.type == "date" and _DATE.fullmatch(text):
            return text.strip()
        return text or None


@lru_cache(maxsize=4096)
def _of_folder(column: FolderColumn, folder: str) -> str:
    # Folders that cannot be understood are in the partition of those without value: their files are refused, and have no rows.
    return encode_path(column.text_of(names_in(f"{folder}/").get(column.name.lower())) or HIVE_NULL)


def names_in(path: str) -> dict[str, str | None]:
    """The columns that the folders of a path name, in lower case, with their texts; none where they cannot be understood."""
    try:
        return {name.lower(): text for name, text in path_columns(path).items()}
    except ValueError:
        return {}
