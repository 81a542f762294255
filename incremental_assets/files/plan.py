"""Plans one sync of a container of files: compares one listing of the folder file by file with the manifest, without Spark and Dagster."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from incremental_assets.core.container import Container
from incremental_assets.core.cursor_type import CursorType, format_value
from incremental_assets.core.errors import ConfigurationError, EmptyRefused, RebuildNeeded
from incremental_assets.core.files import ComparedFiles, FileState, compare_files, shown_path
from incremental_assets.core.folder_column import FolderColumn, names_in
from incremental_assets.core.looks import Look
from incremental_assets.core.names import nearest
from incremental_assets.core.plan import Action, Mode, Plan, Request
from incremental_assets.core.shown_text import counted
from incremental_assets.core.watermark import TableState
from incremental_assets.delta.table import Head, LakeTable, Left, expect_owner
from incremental_assets.files.attempt import ended_with
from incremental_assets.files.container_listing import FileListing
from incremental_assets.files.definition import FileDefinition
from incremental_assets.files.manifest import FileRecord, Manifest, Remembered, stamps
from incremental_assets.files.readers.reading import ReadFile


@dataclass(frozen=True, kw_only=True)
class FilesPlan(Plan):
    """The plan of one sync of a container of files, as the files' states (``core.files.FileState``) before it.

    ``due``: by modification time and path: first the changed ones, then the new ones, then those that are tried again. Their rows, and
    those of the keys in ``drop``, are replaced by the rows that are read. ``whole``: the whole table is replaced. ``recent`` and ``later``:
    how many files are waiting as they were modified too recently, and as this sync has enough others to read. ``gone``: keys of files that
    are gone and have rows. ``drop``: the keys of those whose rows this sync removes. ``unknown``: keys that were asked for and are of no
    file in the folder or in the lake. ``recheck``: the table has commits that the manifest does not cover, so that it may hold files that
    the manifest lacks, or lack some that it has. ``prunes``: the rows of all files that are gone are removed. ``remembered``: the valid
    part of the manifest.
    """

    due: tuple[ReadFile, ...]
    recent: int
    later: int
    gone: tuple[str, ...]
    drop: tuple[str, ...]
    unknown: tuple[str, ...]
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
        return self.action is Action.SKIP and not self.recent and not self.later and not self.listed.unseen

    @property
    def look(self) -> Look | None:
        """See ``Plan``. Files that could not be read count as covered, as each look would find them again: they are reported otherwise."""
        return None if self.later or self.listed.unseen else super().look

    @property
    def requested(self) -> str:
        """The number of files to be read, and the paths of the first three."""
        count = len(self.due)
        names = ", ".join(shown_path(file.path) for file in self.due[:3])
        return counted(count, "file") + (f": {names}{', …' if count > 3 else ''}" if count else "")


def make_files_plan(definition: FileDefinition, table: LakeTable, manifest: Manifest, request: Request, listed: FileListing) -> FilesPlan:
    """Plans one sync. Raises ConfigurationError, RebuildNeeded, LakeError or EmptyRefused. Nothing is written here."""
    container, settings = definition.container, definition.settings
    head = table.head()
    state = _state(definition, table, head, request)
    remembered = manifest.remembered(head.table_id if head else None, state.data_version if state else None)
    known = remembered.files
    if definition.folders is not None and (head is None or request.reset):
        _expect_folders(definition, definition.folders, listed)
    recheck = head is not None and not request.reset and not _is_covered(table, state, remembered.covered)
    if request.reset and head is not None and listed.unseen and not request.allow_empty:
        raise EmptyRefused(
            f"{container.label}: {next(iter(listed.unseen.values()))} Its files would be lost with the table that is replaced; nothing was "
            f"written. To load the others alone, say so with --allow-empty."
        )
    requested, unknown = _requested_files(definition, request, listed, known)
    if request.audit is not None and request.audit.keys is not None:
        _expect_one(definition, request.audit.keys, listed, known)
    compared = compare_files(listed.stamps, stamps(known), _now(), round(settings.settle_seconds * 1_000_000), requested, request.max_files)
    again, again_later = _tried_again(definition, request, compared, listed, known) if requested is None else ((), 0)
    due = (*compared.due, *again)
    # A record without rows, of a broken or empty file, is nothing to report or to delete once the file is gone.
    gone = tuple(key for key in compared.gone if not listed.may_hide(key) and (known[key].rows or known[key].rejected))
    # Rows of a file that now belongs to another container are always removed: they are in that container's table as well.
    drop = tuple(key for key in gone if definition.options.prune or request.reset or key in listed.others)
    if request.keys is not None:
        asked = set(request.keys)
        drop = tuple(key for key in drop if definition.partition_of(key) in asked)
    # A disk that is not mounted looks like a folder without files. Files that went to another container are no sign of that.
    if not listed.stamps and not request.allow_empty and any(key not in listed.others for key in drop):
        raise EmptyRefused(
            f"{container.label}: none of its {counted(len(known), 'file')} is in {settings.address.display} any more; nothing was written. "
            f"If they were really removed, say so with --allow-empty."
        )
    reading = set(due)
    refused = [record for record in _refused(listed, known) if record.file not in reading]
    facts = _Facts(definition, request, head, state, listed, known, compared, again, refused, gone, drop, recheck)
    action, reason = _decide(facts)
    # A sync that writes something has the warnings in its message; the message of one that does not is the reason alone.
    unseen = list(listed.unseen.values())[:3] if action is Action.SKIP else []
    return FilesPlan(
        container=container,
        request=request,
        action=action,
        reason="; ".join([reason, *_notes(facts), *unseen]),
        watermark=state.watermark if state is not None else None,
        state=state,
        base_version=head.version if head is not None else None,
        warnings=(*listed.unseen.values(), *_of_unknown(unknown)),
        alarm=bool(refused or listed.unseen),
        due=tuple(listed.file(key) for key in due),
        # Files that were modified too recently wait: what is read is how the folder was before.
        looked_at=listed.at - settings.settle_seconds if listed.at is not None and compared.recent else listed.at,
        recent=compared.recent,
        later=len(compared.waiting) - compared.recent + again_later,
        gone=gone,
        drop=drop,
        unknown=unknown,
        whole=request.reset and head is not None,
        recheck=recheck,
        prunes=definition.options.prune,
        listed=listed,
        remembered=remembered,
    )


@dataclass(frozen=True)
class _Facts:
    """What the decision and its reason in words go by.

    ``again``: keys of files that could not be read and are tried again. ``refused``: the records of those that are not. ``gone`` and
    ``drop``: see ``FilesPlan``.
    """

    definition: FileDefinition
    request: Request
    head: Head | None
    state: TableState | None
    listed: FileListing
    known: Mapping[str, FileRecord]
    compared: ComparedFiles
    again: Sequence[str]
    refused: Sequence[FileRecord]
    gone: Sequence[str]
    drop: Sequence[str]
    recheck: bool


def _refused(listed: FileListing, known: Mapping[str, FileRecord]) -> list[FileRecord]:
    """The records of the listed files that could not be read, in the order of the listing."""
    found = {record.file for record in known.values() if record.state is FileState.REFUSED}
    return [known[key] for key in listed.stamps if key in found] if found else []


def _requested_files(
    definition: FileDefinition, request: Request, listed: FileListing, known: Mapping[str, FileRecord]
) -> tuple[Sequence[str] | None, tuple[str, ...]]:
    """Returns the keys of the files that are read whether they have changed or not (None: those that have changed), and unknown keys.

    Raises ConfigurationError where a single key is asked for that no file has. Of several keys, one may belong to a file that has vanished
    since they were chosen, so those are only reported.
    """
    if request.reset or (request.mode is Mode.REFRESH and request.keys is None):
        return tuple(listed.stamps), ()
    if request.keys is None:
        return None, ()
    unknown = _expect_one(definition, request.keys, listed, known)
    if definition.folders is None:
        return request.keys, unknown
    asked = set(request.keys)
    return tuple(key for key in listed.stamps if definition.partition_of(key) in asked), unknown


def _expect_one(definition: FileDefinition, keys: Sequence[str], listed: FileListing, known: Mapping[str, FileRecord]) -> tuple[str, ...]:
    """Returns the keys that no file has. Raises ConfigurationError where a single key is given that no file has."""
    there = {definition.partition_of(key): None for key in (*listed.stamps, *known)}
    unknown = tuple(key for key in keys if key not in there)
    if len(unknown) == len(keys) == 1:
        near = nearest(unknown[0], list(there)[:1000])
        raise ConfigurationError(f"{definition.container.label}: there is no file for the partition {unknown[0]!r}.{near}")
    return unknown


def _of_unknown(keys: Sequence[str]) -> list[str]:
    return [f"there is no file for {len(keys):,} of the asked partitions, such as {keys[0]!r}"] if keys else []


def _tried_again(
    definition: FileDefinition, request: Request, compared: ComparedFiles, listed: FileListing, known: Mapping[str, FileRecord]
) -> tuple[tuple[str, ...], int]:
    """Returns the keys of unchanged files that could not be read and are to be tried again, and how many wait for the next round.

    A tick of a sensor or schedule tries them only beside other files, or where the settings by which they are read have changed;
    otherwise it would start a run for them each time. They come last, so that they never keep other files from being read. A file that
    ended the Spark server is not tried again as long as it would be refused with the same text, which names the server's memory.
    """
    refused = _refused(listed, known)
    if not refused:
        return (), 0
    chosen = {*compared.due, *compared.waiting}
    refused = [record for record in refused if record.file not in chosen]
    refused = [record for record in refused if record.refused != ended_with(listed.file(record.file))]
    if request.max_files is None:
        return tuple(record.file for record in refused), 0
    most = max(0, request.max_files - len(compared.due))
    if request.again_before is not None:
        due = [record.file for record in refused if record.at < request.again_before]
        return tuple(due[:most]), len(due[most:])
    chosen_records = refused if compared.due else [record for record in refused if record.how != definition.how]
    return tuple(record.file for record in chosen_records)[:most], 0


def _decide(facts: _Facts) -> tuple[Action, str]:
    """Returns what the sync does, and the reason in words. Raises EmptyRefused where a reset would replace the table by no file at all."""
    definition, request, head, compared = facts.definition, facts.request, facts.head, facts.compared
    if not compared.due and not facts.again and not facts.drop and not facts.recheck:
        if request.reset and head is not None:
            raise EmptyRefused(f"{definition.container.label}: there is no file to load it from; nothing was written, its rows stay.")
        same = len(facts.listed.stamps) - len(compared.waiting) - len(facts.refused)
        if not facts.listed.stamps and head is None:
            where = f"{definition.settings.address.display.rstrip('/')}/{shown_path(definition.glob)}"
            return Action.SKIP, f"nothing to do: no file matches {where} yet"
        state = facts.state
        watermark = "none" if state is None or state.watermark is None else format_value(CursorType.TIMESTAMP, state.watermark)
        return Action.SKIP, f"nothing to do: the {counted(same, 'file is that', 'files are those')} of the last sync; watermark {watermark}"
    if request.reset:
        return Action.LOAD, "loads the whole container anew, as asked by --reset-watermarks"
    if head is None:
        every = len(compared.waiting) == compared.recent
        return Action.LOAD, "first sync: loads all files" if every else "first sync: loads the oldest files"
    if request.mode is Mode.REFRESH:
        return Action.REFRESH, "reads all files again" if request.keys is None else "reads the asked files again"
    if not compared.due and not facts.again and not facts.drop:
        return Action.SYNC, "looks which files the table holds: it has a commit that is not recorded"
    tried = ", and tries those again that could not be read" if facts.again else ""
    new = sum(1 for key in compared.due if key not in facts.known)
    replaced = sum(1 for key in compared.due if key in facts.known and facts.listed.stamps[key].is_doubtful(facts.known[key].stamp))
    of_same = f", and {replaced:,} of the same time and size that may have been replaced" if replaced else ""
    return Action.SYNC, f"reads {new:,} new and {counted(len(compared.due) - new - replaced, 'changed file')}{of_same}{tried}"


def _notes(facts: _Facts) -> list[str]:
    """Returns further sentences for the plan's reason: files that wait, are gone or could not be read."""
    notes: list[str] = []
    compared, drop, refused = facts.compared, facts.drop, facts.refused
    if compared.recent:
        seconds = f"{facts.definition.settings.settle_seconds:g}"
        notes.append(f"{compared.recent:,} changed less than {seconds} s ago and wait for the next sync")
    later = len(compared.waiting) - compared.recent
    if later:
        notes.append(f"{later:,} more wait for the next sync")
    kept = len(facts.gone) - len(drop)
    if kept:
        notes.append(f"{kept:,} are gone from the folder; their rows stay (prune_files: true would remove them)")
    moved = sum(1 for key in drop if key in facts.listed.others)
    if moved:
        notes.append(f"rows of {moved:,} that belong to another container now are removed")
    if len(drop) > moved:
        notes.append(f"rows of {len(drop) - moved:,} that are gone from the folder are removed")
    if refused:
        notes.append(f"{len(refused):,} could not be read before: {refused[0].refused}")
    return notes


def _expect_folders(definition: FileDefinition, column: FolderColumn, listed: FileListing) -> None:
    """Raises ConfigurationError before a first load where no folder names the column by which the files are to be partitioned."""
    paths = [listed.path(key) for key in listed.stamps]
    if not paths or any(map(column.names, paths)):
        return
    found = {name for path in paths for name in names_in(path)}
    raise ConfigurationError(
        f"{definition.container.label}: partition_by: no folder of its files names a column {column.name!r}, as {column.name}=… would."
        f"{nearest(column.name, sorted(found))} Correct it, or leave partition_by out: then each file is a partition."
    )


def expect_same_partitions(container: Container, state: TableState | None) -> None:
    """Raises RebuildNeeded where the files of a table were partitioned otherwise when it was loaded. ``state``: of the table.

    Its partitions in Dagster would not be those of its rows; the table may not even have the column.
    """
    by = container.cut if container.partitioning is not None and container.partitioning.folders is not None else None
    if state is None or state.cut == by:
        return
    before, now = (f"by {one}" if one is not None else "by file" for one in (state.cut, by))
    put_back = f"partition_by: {{column: {state.cut.partition(' (')[0]}}}" if state.cut is not None else "no partition_by"
    raise RebuildNeeded(
        f"{container.label}: its files were partitioned {before} when its table was loaded, and are to be partitioned {now} now; nothing "
        f"was written. To load it anew so: incremental-assets sync {container.label} --reset-watermarks. To leave it as it was, say "
        f"{put_back} in the YAML, and the column's type as it was."
    )


def _state(definition: FileDefinition, table: LakeTable, head: Head | None, request: Request) -> TableState | None:
    """Returns the state that the table carries as a property; None where there is no table.

    Raises LakeError for a table of another owner, RebuildNeeded for one that was not filled from files, or by other partitions.
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
    state = head.state(container)
    if not request.reset:
        expect_same_partitions(container, state)
    return state


def _is_covered(table: LakeTable, state: TableState | None, covered: int) -> bool:
    """Whether the table has no commits that the manifest does not cover: of a sync that ended before it wrote the manifest, of a RESTORE,
    of another writer, or one that has taken the place of the last sync's. ``covered``: ``Remembered.covered``."""
    if state is not None and state.data_version == covered:
        return table.left(state) is Left.THERE
    return not table.data_commits_since(covered)


def _now() -> int:
    """This machine's clock, in microseconds since 1970 UTC."""
    return round(datetime.datetime.now(datetime.timezone.utc).timestamp() * 1_000_000)
