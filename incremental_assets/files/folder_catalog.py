"""Finds the containers of a folder for the catalog operation."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fsspec.utils import infer_compression

from incremental_assets.catalog.state import Catalog
from incremental_assets.core.container import Kind, SourceColumn, SourceTable
from incremental_assets.core.cursor_type import CursorType
from incremental_assets.core.errors import ConfigurationError, SourceError, SourceInterrupted
from incremental_assets.core.evidence import ListedContainer, TableEvidence
from incremental_assets.core.file_groups import group_files
from incremental_assets.core.files import FileFormat, FileStamp, format_of, shown_path
from incremental_assets.core.globs import fixed_part, owner_of
from incremental_assets.files.archives import no_text
from incremental_assets.files.definition import COLUMNS, FolderSettings, format_for, is_above
from incremental_assets.files.readers.beginning import HEAD_BYTES
from incremental_assets.files.readers.proposals import proposed_options
from incremental_assets.files.readers.reading import Reading

_ENDING = re.compile(r"(?:(?<=[^.])\.[^.]{1,12}(?:\.(?:gz|bz2|zst|xz|zip))?)?\Z")
_SHOWN_ENDINGS = 8


@dataclass
class _Found:
    """A container as one listing shows it: its pattern, and the stamp of each of its files by path."""

    glob: str
    format: FileFormat
    stamps: dict[str, FileStamp] = field(default_factory=dict[str, FileStamp])


class FolderCatalog:
    """The ``CatalogSource`` of a folder. It lists the folder once; ``tables`` answers from that listing.

    ``before``: the stored catalog, from which groups of files keep their names; None: there is none. ``troubles``: by path, why a folder
    could not be listed. The containers in such a folder count as unchanged. ``unread``: a sentence about the files whose endings are none
    that is read; None: there are none, or the YAML says which files are read. ``proposed``: sentences about options, of ``tables``.
    """

    def __init__(self, settings: FolderSettings, before: Catalog | None) -> None:
        self._settings = settings
        self._before = [one.table for one in before.entries] if before is not None else []
        self._found: dict[str, _Found] = {}
        self.troubles: dict[str, str] = {}
        self.missing_privileges: tuple[str, ...] = ()
        self.unread: str | None = None
        self.proposed: tuple[str, ...] = ()

    def listing(self) -> Mapping[str, ListedContainer]:
        self.troubles.clear()
        self._found = self._declared() if self._settings.declares else self._searched()
        return {name: _listed(found) for name, found in self._found.items()}

    def tables(self, names: Sequence[str]) -> Sequence[SourceTable]:
        self.proposed = tuple(self._proposals(names))
        return [_table(name, self._found[name]) for name in names]

    def evidence(self, names: Sequence[str]) -> Mapping[str, TableEvidence]:
        """Always empty: files need no proposal."""
        return {}

    def last_drawn(self, table: str, column: SourceColumn) -> int | None:
        """Always None: files have no sequence."""
        return None

    def span(self, table: str, columns: Sequence[str], cursor_type: CursorType) -> tuple[int, int] | None:
        """Always None: each file is a partition, whatever its modification time."""
        return None

    def _proposals(self, names: Sequence[str]) -> Iterator[str]:
        """A sentence for each container of CSV whose newest file seems to need options that the YAML does not say."""
        for name in names:
            found = self._found[name]
            if found.format not in (FileFormat.CSV, FileFormat.TSV) or not found.stamps:
                continue
            own = self._settings.options.get(name, self._settings.defaults)
            newest = max(found.stamps, key=lambda path: (found.stamps[path].modified, path))
            try:
                with self._settings.address.open(newest, decompress=infer_compression(newest) is not None) as stream:
                    head = stream.read(HEAD_BYTES)
                proposed = [] if no_text(head) else list(proposed_options(head, Reading(found.format, own.read)))
            except (SourceError, SourceInterrupted, ConfigurationError):
                continue  # the sync says what is wrong with it
            if proposed:
                options, reasons = ", ".join(one for one, _ in proposed), "; ".join(why for _, why in proposed)
                yield f"{self._settings.name}/{name}: {shown_path(newest)} seems to need options: {{{options}}}, as {reasons}."

    def _declared(self) -> dict[str, _Found]:
        """Returns a container for each pattern of the YAML, whether there are such files already or not."""
        found: dict[str, _Found] = {}
        for name, options in self._settings.options.items():
            assert options.glob is not None, "checked with the YAML"
            found[name] = _Found(options.glob, format_for(options, options.glob))
        names, patterns = list(found), [one.glob for one in found.values()]
        # Each fixed folder is listed once: one that lies below another is covered by the listing of that.
        roots = {fixed_part(pattern) for pattern in patterns}
        for root in sorted(one for one in roots if not any(is_above(other, one) for other in roots - {one})):
            for path, stamp in self._settings.address.list(root, self.troubles, patterns):
                owner = owner_of(path, patterns)
                assert owner is not None, "only what one of the patterns matches is listed"
                found[names[owner]].stamps[path] = stamp
        return found

    def _searched(self) -> dict[str, _Found]:
        """Lists the whole folder, and returns a container for each group of similar files."""
        stamps = dict(self._settings.address.list("", self.troubles))
        self.unread = _unread(self._settings.name, stamps)
        groups = group_files(stamps, {table.glob: table.name for table in self._before if table.glob is not None})
        formats = {name: options.format for name, options in self._settings.options.items() if options.format is not None}
        found = {g.name: _Found(g.pattern, formats.get(g.name, g.format), {path: stamps[path] for path in g.files}) for g in groups}
        # Containers in folders that could not be listed stay as they are: that they have no files in this listing says nothing.
        for table in self._before:
            if table.glob is None or table.format is None or table.name in found:
                continue
            folder = fixed_part(table.glob)
            if any(is_above(path, folder) or is_above(folder, path) for path in self.troubles):
                found[table.name] = _Found(table.glob, FileFormat(table.format))
        return found


def _unread(datastore: str, paths: Iterable[str]) -> str | None:
    """A sentence that names the endings that are not read, the most frequent first, each with a file; None if all are read."""
    found: dict[str, list[str]] = {}
    for path in paths:
        if format_of(path) is None:
            found.setdefault(_ENDING.search(path.rpartition("/")[2].lower())[0], []).append(path)  # pyright: ignore[reportOptionalSubscript]
    if not found:
        return None
    order = sorted(found.items(), key=lambda one: (-len(one[1]), one[0]))
    shown = [f"{shown_path(ending) or 'none'} ({len(own):,}, such as {shown_path(min(own))})" for ending, own in order[:_SHOWN_ENDINGS]]
    more = f", and {len(order) - _SHOWN_ENDINGS:,} more endings" if len(order) > _SHOWN_ENDINGS else ""
    return (
        f"{datastore}: some files belong to no container, as their endings are none that is read: "
        f"{', '.join(shown)}{more}. If they are data, put them there as CSV, JSON or Parquet."
    )


def _listed(found: _Found) -> ListedContainer:
    """The listing's entry. Its fingerprint covers pattern and format alone, so that new files of a container are no difference."""
    shape = hashlib.sha256(repr((found.glob, found.format.value)).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    newest = max((stamp.modified for stamp in found.stamps.values()), default=0)
    size, count = sum(stamp.size for stamp in found.stamps.values()), len(found.stamps)
    # The activity is stored and compared by later processes: Python randomizes the hashes of texts, not those of integers.
    return ListedContainer(Kind.FILES, shape, None, size, hash((count, newest)), files=count)


def _table(name: str, found: _Found) -> SourceTable:
    return SourceTable(name, Kind.FILES, COLUMNS, span=0, glob=found.glob, format=found.format.value)
