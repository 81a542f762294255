"""Recognizes folders that are Delta, Iceberg or Hudi tables: their files are not their rows.

Rows that were deleted or replaced are still in the files of such a table, and its compaction writes all rows once more.
"""

import re
from dataclasses import dataclass, field

from incremental_assets.core.files import TEXT_ENDING
from incremental_assets.files.trees import Tree

_BY_FOLDER = {"_delta_log": "Delta", ".hoodie": "Hudi"}
# ``v3.metadata.json`` or ``00003-<uuid>.metadata.json``, compressed or not: files that merely end so describe something else.
_ICEBERG = re.compile(r"v?[0-9].*\.metadata\.json(\.gz)?\Z")
NOT_OF_A_TABLE = re.compile(rf"(?<!\.metadata){TEXT_ENDING}", re.IGNORECASE | re.ASCII)
"""Matches the end of the names of files that no table has. In the folder of a table, they are somebody else's, and are read."""


class IsTable(Exception):
    """A folder is a table. ``folder``: its path. The text says what shows it."""

    def __init__(self, folder: str, kind: str, shown: str) -> None:
        self.folder = folder
        super().__init__(
            f"is {'an' if kind == 'Iceberg' else 'a'} {kind} table, as {shown} in it shows. Its files are not its rows: those that were "
            f"deleted or replaced are still in them. Read it as a table, in an asset of your own, or export its rows to another folder."
        )


@dataclass
class TableFolders:
    """The tables of one tree. Each folder is looked at once."""

    tree: Tree
    _known: dict[str, IsTable | None] = field(default_factory=dict[str, "IsTable | None"])

    def of(self, folder: str) -> IsTable | None:
        """The table that a folder is, or that it lies in; None where there is none. Folders above the tree's own are not looked at."""
        if folder not in self._known:
            found = self._at(folder)
            self._known[folder] = self.of(folder.rpartition("/")[0]) if found is None and folder else found
        return self._known[folder]

    def _at(self, folder: str) -> IsTable | None:
        below = f"{folder}/" if folder else ""
        for name, kind in _BY_FOLDER.items():
            if self.tree.has_folder(below + name):
                return IsTable(folder, kind, name)
        if not self.tree.has_folder(f"{below}metadata"):
            return None
        try:
            shown = next((name for name, _ in self.tree.entries(f"{below}metadata") if _ICEBERG.match(name)), None)
        except Exception:  # noqa: BLE001 - drivers raise errors of their own; what cannot be seen shows nothing
            return None
        return None if shown is None else IsTable(folder, "Iceberg", f"metadata/{shown}")
