"""Plans one sync of a container of files: compares one listing of the folder file by file with the manifest, without Spark and Dagster.

Belongs here: the decision (skip, load, sync, refresh) and its reason in words. Does not belong: carrying it out (``files.sync``).
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from incremental_assets.core.cursor_type import CursorType, format_value
from incremental_assets.core.errors import ConfigurationError, EmptyRefused, RebuildNeeded
from incremental_assets.core.files import FilePlan, FileStamp, decode_path, encode_path, plan_files, shown_path
from incremental_assets.core.names import nearest
from incremental_assets.core.plan import Action, Mode, Plan, Request
from incremental_assets.core.watermark import TableState
from incremental_assets.delta.table import Head, LakeTable, expect_owner
from incremental_assets.files.attempt import ended_with
from incremental_assets.files.definition import FileDefinition
from incremental_assets.files.manifest import FileRecord, Manifest, Remembered, stamps
from incremental_assets.files.readers.read import ReadFile


@dataclass(frozen=True)
class FileListing:
    """One listing of the container's files.

    ``paths``: the path within the folder, by key. ``stamps``: by key. ``elsewhere``: keys of files that the container's pattern matches
    and that belong to another container. ``unseen``: by path, why a folder or file could not be inspected.
    """

    paths: Mapping[str, str]
    stamps: Mapping[str, FileStamp]
    elsewhere: frozenset[str] = frozenset()
    unseen: Mapping[str, str] = field(default_factory=dict[str, str])

    def may_hide(self, key: str) -> bool:
        """Whether a file that the listing lacks may be in a folder that could not be listed.

        A shortened key does not contain the whole path, so its file may be in any of them.
        """
        path = decode_path(key)
        return bool(self.unseen) and (path is None or any(path == one or path.startswith(f"{one}/") for one in self.unseen))

    def file(self, key: str) -> ReadFile:
        """The listed file with this key, as the readers take it. Raises KeyError where it is not in the listing."""
        return ReadFile(key, self.paths[key], self.stamps[key].modified, self.stamps[key].size)


@dataclass(frozen=True, kw_only=True)
class FilesPlan(Plan):
    """The plan of one sync of a container of files.

    ``files``: the files to be read, by modification time and path: first the changed ones, then the new ones, then those that are tried
    again. Their rows, and those of the keys in ``drop``, are replaced by the rows that are read. ``whole``: the whole table is replaced.
    ``gone``: keys of files with rows that are no longer in the folder. ``phantoms``: keys that were asked for and are neither in the
    folder nor in the lake. ``waiting``: how many files were modified too recently. ``left``: how many files are left for the next sync.
    ``recheck``: the table has commits that the manifest does not cover, so that it may hold files that the manifest lacks, or lack some
    that it has. ``prunes``: the rows of files that are gone are deleted. ``remembered``: the valid part of the manifest.
    """

    files: tuple[ReadFile, ...]
    drop: tuple[str, ...]
    gone: tuple[str, ...]
    phantoms: tuple[str, ...]
    waiting: int
    left: int
    whole: bool
    recheck: bool
    prunes: bool
    listed: FileListing = field(repr=False)
    remembered: Remembered = field(repr=False)

    @property
    def known(self) -> Mapping[str, FileRecord]:
        """The manifest's record of each file, by key."""
        return self.remembered.files

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing more to do until a file comes, changes or goes."""
        return self.action is Action.SKIP and not self.waiting and not self.listed.unseen

    @property
    def requested(self) -> str:
        """The number of files to be read, and the paths of the first three."""
        count = len(self.files)
        names = ", ".join(shown_path(file.path) for file in self.files[:3])
        return f"{count:,} file{'' if count == 1 else 's'}" + (f": {names}{', …' if count > 3 else ''}" if count else "")


def list_files(definition: FileDefinition) -> FileListing:
    """Lists the files that match the container's pattern. Raises SourceUnreachable where the folder is not there."""
    unseen: dict[str, str] = {}
    paths: dict[str, str] = {}
    found: dict[str, FileStamp] = {}
    elsewhere: set[str] = set()
    for path, stamp in definition.listing(lambda where, message: unseen.update({where: message})):
        key = encode_path(path)
        if definition.owns(path):
            paths[key], found[key] = path, stamp
        else:
            elsewhere.add(key)
    return FileListing(paths, found, frozenset(elsewhere), unseen)


def make_files_plan(definition: FileDefinition, table: LakeTable, manifest: Manifest, request: Request, listed: FileListing) -> FilesPlan:
    """Plans one sync. Raises ConfigurationError, RebuildNeeded, LakeError or EmptyRefused. Nothing is written here."""
    container, settings = definition.container, definition.settings
    head = table.head()
    state = _state(definition, table, head)
    remembered = manifest.remembered(head.table_id if head else None, state.data_version if state else None)
    known = remembered.files
    # Commits that the manifest does not cover: of a sync that ended before it wrote the manifest, of a RESTORE, or of another writer.
    recheck = head is not None and bool(table.data_commits_since(remembered.covered)) and not request.reset
    if request.reset and head is not None and listed.unseen and not request.allow_empty:
        raise EmptyRefused(
            f"{container.label}: {next(iter(listed.unseen.values()))} Its files would be lost with the table that is replaced; nothing was "
            f"written. To load the others alone, say so with --allow-empty."
        )
    asked, phantoms = _asked(definition, request, listed, known)
    choice = plan_files(listed.stamps, stamps(known), _now(), round(settings.settle_seconds * 1_000_000), asked, request.max_files)
    again, postponed = _tried_again(definition, request, choice, listed, known) if asked is None else ((), 0)
    read = (*choice.read, *again)
    # A record without rows, of a broken or empty file, is nothing to report or to delete once the file is gone.
    gone = tuple(key for key in choice.removed if not listed.may_hide(key) and (known[key].rows or known[key].rejected))
    # Rows of a file that now belongs to another container are always removed: they are in that container's table as well.
    drop = tuple(key for key in gone if definition.prunes or request.reset or key in listed.elsewhere)
    if request.keys is not None:
        drop = tuple(key for key in drop if key in set(request.keys))
    # A disk that is not mounted looks like a folder without files. Files that went to another container are no sign of that.
    if not listed.stamps and not request.allow_empty and any(key not in listed.elsewhere for key in drop):
        raise EmptyRefused(
            f"{container.label}: none of its {len(known):,} files is in {settings.address.display} any more; nothing was written. If they "
            f"were really removed, say so with --allow-empty."
        )
    refused = [known[key] for key in listed.stamps if key in known and known[key].refused is not None]
    refused = [record for record in refused if record.file not in set(read)]
    action, reason = _decide(definition, request, head, choice, bool(again), recheck, drop, listed, len(refused), state)
    return FilesPlan(
        container=container,
        request=request,
        action=action,
        reason="; ".join([reason, *_notes(definition, choice, refused, gone, drop, listed)]),
        watermark=state.watermark if state is not None else None,
        state=state,
        base_version=head.version if head is not None else None,
        warnings=(*listed.unseen.values(), *_of_phantoms(phantoms)),
        alarm=bool(refused or listed.unseen),
        files=tuple(listed.file(key) for key in read),
        drop=drop,
        gone=gone,
        phantoms=phantoms,
        waiting=len(choice.waiting),
        left=choice.left + postponed,
        whole=request.reset and head is not None,
        recheck=recheck,
        prunes=definition.prunes,
        listed=listed,
        remembered=remembered,
    )


def _asked(
    definition: FileDefinition, request: Request, listed: FileListing, known: Mapping[str, FileRecord]
) -> tuple[Sequence[str] | None, tuple[str, ...]]:
    """Returns the keys of the files that are read whether they have changed or not (None: those that have changed), and the phantoms.

    Raises ConfigurationError where a single key is asked for that no file has. Of several keys, one may belong to a file that has vanished
    since they were chosen, so those are only reported.
    """
    if request.reset or (request.mode is Mode.REFRESH and request.keys is None):
        return tuple(listed.stamps), ()
    if request.keys is None:
        return None, ()
    phantoms = tuple(key for key in request.keys if key not in listed.stamps and key not in known)
    if phantoms == request.keys and len(phantoms) == 1:
        near = nearest(phantoms[0], list(listed.stamps)[:1000])
        raise ConfigurationError(f"{definition.container.label}: there is no file for the partition {phantoms[0]!r}.{near}")
    return request.keys, phantoms


def _of_phantoms(phantoms: Sequence[str]) -> list[str]:
    return [f"there is no file for {len(phantoms):,} of the asked partitions, such as {phantoms[0]!r}"] if phantoms else []


def _tried_again(
    definition: FileDefinition, request: Request, choice: FilePlan, listed: FileListing, known: Mapping[str, FileRecord]
) -> tuple[tuple[str, ...], int]:
    """Returns the keys of unchanged files that could not be read and are to be tried again, and how many are left for the next round.

    A tick of a sensor or schedule tries them only beside other files, or where the settings by which they are read have changed;
    otherwise it would start a run for them each time. They come last, so that they never keep other files from being read. A file that
    ended the Spark server is not tried again as long as it would be refused with the same text, which names the server's memory.
    """
    chosen = {*choice.changed, *choice.waiting}
    refused = [key for key in listed.stamps if key in known and known[key].refused is not None and key not in chosen]
    refused = [key for key in refused if known[key].refused != ended_with(listed.file(key))]
    if request.max_files is None:
        return tuple(refused), 0
    most = max(0, request.max_files - len(choice.read))
    if request.again_before is not None:
        due = [key for key in refused if known[key].at < request.again_before]
        return tuple(due[:most]), len(due[most:])
    other = [key for key in refused if known[key].how != definition.how]
    return tuple(refused if choice.read else other)[:most], 0


def _decide(
    definition: FileDefinition,
    request: Request,
    head: Head | None,
    choice: FilePlan,
    again: bool,
    recheck: bool,
    drop: Sequence[str],
    listed: FileListing,
    refused: int,
    state: TableState | None,
) -> tuple[Action, str]:
    """Returns what the sync does, and the reason in words. Raises EmptyRefused where a reset would replace the table by no file at all.

    ``again``: files that could not be read are tried again. ``drop``: keys of files whose rows are removed. ``refused``: how many unchanged
    files could not be read before and are not tried again.
    """
    if not choice.read and not again and not drop and not recheck:
        if request.reset and head is not None:
            raise EmptyRefused(f"{definition.container.label}: there is no file to load it from; nothing was written, its rows stay.")
        same = len(listed.stamps) - len(choice.waiting) - refused
        if not listed.stamps and head is None:
            where = f"{definition.settings.address.display.rstrip('/')}/{shown_path(definition.glob)}"
            return Action.SKIP, f"nothing to do: no file matches {where} yet"
        watermark = "none" if state is None or state.watermark is None else format_value(CursorType.TIMESTAMP, state.watermark)
        return Action.SKIP, f"nothing to do: the {same:,} files are those of the last sync; watermark {watermark}"
    if request.reset:
        return Action.LOAD, "loads the whole container anew, as asked by --reset-watermarks"
    if head is None:
        return Action.LOAD, "first sync: loads all files" if not choice.left else "first sync: loads the oldest files"
    if request.mode is Mode.REFRESH:
        return Action.REFRESH, "reads all files again" if request.keys is None else "reads the asked files again"
    if not choice.read and not again and not drop:
        return Action.SYNC, "looks which files the table holds: it has a commit that is not recorded"
    tried = ", and tries those again that could not be read" if again else ""
    return Action.SYNC, f"reads {len(choice.new):,} new and {len(choice.changed):,} changed files{tried}"


def _notes(
    definition: FileDefinition,
    choice: FilePlan,
    refused: Sequence[FileRecord],
    gone: Sequence[str],
    drop: Sequence[str],
    listed: FileListing,
) -> list[str]:
    """Returns further sentences for the plan's reason: files that wait, are left, are gone or were refused."""
    notes: list[str] = []
    if choice.waiting:
        seconds = f"{definition.settings.settle_seconds:g}"
        notes.append(f"{len(choice.waiting):,} changed less than {seconds} s ago and wait for the next sync")
    if choice.left:
        notes.append(f"{choice.left:,} more wait for the next sync")
    kept = len(gone) - len(drop)
    if kept:
        notes.append(f"{kept:,} are gone from the folder; their rows stay (prune_files: true would remove them)")
    moved = sum(1 for key in drop if key in listed.elsewhere)
    if moved:
        notes.append(f"rows of {moved:,} that belong to another container now are removed")
    if len(drop) > moved:
        notes.append(f"rows of {len(drop) - moved:,} that are gone from the folder are removed")
    if refused:
        notes.append(f"{len(refused):,} could not be read before: {refused[0].refused}")
    return notes


def _state(definition: FileDefinition, table: LakeTable, head: Head | None) -> TableState | None:
    """Returns the state that the table carries as a property; None where there is no table.

    Raises LakeError for a table of another owner, RebuildNeeded for one that was not filled from files.
    """
    if head is None:
        return None
    container = definition.container
    expect_owner(container, table, head)
    if head.signature() not in (None, container.signature):
        raise RebuildNeeded(
            f"{container.label}: its table was filled by {head.signature()}, and not from files. Move the table away, or give the "
            f"container another name."
        )
    return head.state(container)


def _now() -> int:
    """This machine's clock, in microseconds since 1970 UTC."""
    return round(datetime.datetime.now(datetime.timezone.utc).timestamp() * 1_000_000)
