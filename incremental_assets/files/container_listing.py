"""The files of one container as one listing of its folder shows them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from incremental_assets.core.errors import SourceError
from incremental_assets.core.files import FileStamp, decode_path, encode_path, shown_path
from incremental_assets.core.globs import fixed_part
from incremental_assets.files.definition import FileDefinition, is_above
from incremental_assets.files.readers.reading import ReadFile


@dataclass(frozen=True)
class FileListing:
    """One listing of the container's files.

    ``stamps``: by key. ``renamed``: the path within the folder, by key, of those files whose key is another text than their path.
    ``others``: keys of files that the container's pattern matches and that belong to another container. ``unseen``: by path, why a folder
    or file could not be inspected. ``at``: when it was begun, in seconds since 1970 UTC; None: it is not known.
    """

    stamps: Mapping[str, FileStamp]
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    others: frozenset[str] = frozenset()
    unseen: Mapping[str, str] = field(default_factory=dict[str, str])
    at: float | None = None

    def may_hide(self, key: str) -> bool:
        """Whether a file that the listing lacks may be in a folder that could not be listed.

        A shortened key does not contain the whole path, so its file may be in any of them.
        """
        if not self.unseen:
            return False
        path = decode_path(key)
        return path is None or any(is_above(one, path) for one in self.unseen)

    def path(self, key: str) -> str:
        """The path of a listed file; of any other key the key itself."""
        return self.renamed.get(key, key)

    def file(self, key: str) -> ReadFile:
        """The listed file with this key, as the readers take it. Raises KeyError where it is not in the listing."""
        stamp = self.stamps[key]
        return ReadFile(key, self.path(key), stamp.modified, stamp.size)


def list_files(definition: FileDefinition) -> FileListing:
    """Lists the files that match the container's pattern.

    Raises SourceUnreachable where the folder is not there, and SourceError where all of its files would be in a folder that is not read.
    """
    at = time.time()
    unseen: dict[str, str] = {}
    stamps: dict[str, FileStamp] = {}
    renamed: dict[str, str] = {}
    others: set[str] = set()
    for path, stamp in definition.listing(unseen):
        key = encode_path(path)
        if not definition.owns(path):
            others.add(key)
            continue
        trouble = None if definition.folders is None else definition.folders.trouble(path)
        if trouble is not None:
            unseen[path] = f"{shown_path(path)}: {trouble}."
            continue
        stamps[key] = stamp
        if key is not path:
            renamed[key] = path
    refused = next((why for path, why in unseen.items() if is_above(path, fixed_part(definition.glob))), None)
    if refused is not None:
        raise SourceError(refused)
    return FileListing(stamps, renamed, frozenset(others), unseen, at)
