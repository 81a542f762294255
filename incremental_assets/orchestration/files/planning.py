"""What one sync of a container of files is going to do: one listing, compared file by file with the manifest. No Spark and no Dagster.

Belongs here: the decision (skip, load, sync, refresh) and its reason in words. Does not belong: doing it (``sync``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from incremental_assets.catalog.folder import FileDefinition, now_micros
from incremental_assets.lake.manifest import FileRecord, Manifest, Remembered, stamps
from incremental_assets.lake.table import Head, LakeTable
from incremental_assets.model.axis import Axis, format_value
from incremental_assets.model.errors import ConfigurationError, EmptyRefused, LakeError, RebuildNeeded
from incremental_assets.model.files import FilePlan, FileStamp, decode_path, encode_path, plan_files
from incremental_assets.model.names import nearest
from incremental_assets.model.watermark import TableState
from incremental_assets.orchestration.plan import Action, Mode, Plan, Request
from incremental_assets.sources.files.read import ReadFile


@dataclass(frozen=True)
class Listed:
    """The container's files as they are now, by key. ``unseen``: folders that could not be looked into, with the reason."""

    paths: Mapping[str, str]
    stamps: Mapping[str, FileStamp]
    unseen: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class FilesPlan(Plan):
    """``files`` are read, the oldest first; their rows and those of ``drop`` are replaced by what is read. ``whole``: the table is.

    ``recheck``: the table has commits that the manifest does not know, so it may hold files that nobody remembers.
    """

    files: tuple[ReadFile, ...]
    drop: tuple[str, ...]
    whole: bool
    choice: FilePlan
    recheck: bool
    prunes: bool
    listed: Listed = field(repr=False)
    remembered: Remembered = field(repr=False)

    @property
    def known(self) -> Mapping[str, FileRecord]:
        """What is remembered of each file."""
        return self.remembered.files

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing more to do until a file comes, changes or goes."""
        return self.action is Action.SKIP and not self.choice.waiting and not self.listed.unseen

    @property
    def asked(self) -> str:
        count = len(self.files)
        names = ", ".join(file.path for file in self.files[:3])
        return f"{count:,} file{'' if count == 1 else 's'}" + (f": {names}{', …' if count > 3 else ''}" if count else "")


def list_files(definition: FileDefinition) -> Listed:
    """Raises SourceUnreachable where the folder is not there."""
    unseen: dict[str, str] = {}
    paths: dict[str, str] = {}
    found: dict[str, FileStamp] = {}
    for path, stamp in definition.settings.address.list(definition.folder, lambda where, message: unseen.update({where: message})):
        if definition.owns(path):
            key = encode_path(path)
            paths[key], found[key] = path, stamp
    return Listed(paths, found, unseen)


def make_files_plan(definition: FileDefinition, table: LakeTable, manifest: Manifest, request: Request, listed: Listed) -> FilesPlan:
    """Plans one sync. Raises ConfigurationError, RebuildNeeded, LakeError or EmptyRefused; nothing has been written then."""
    container, settings = definition.container, definition.settings
    head = table.head()
    state = _state(definition, table, head)
    remembered = manifest.remembered(head.table_id if head else None, state.data_version if state else None)
    known = remembered.files
    recheck = head is not None and bool(table.data_commits_since(remembered.covered or 0)) and not request.reset
    seen = {key: record for key, record in known.items() if key in listed.stamps or not _is_unseen(key, listed)}
    everything = request.reset or (request.mode is Mode.REFRESH and request.keys is None)
    asked = tuple(listed.stamps) if everything else request.keys
    _expect_known(definition, asked or (), listed, known)
    # What could not be read is tried again by people, and beside other files; a sensor would start a run for it at each of its ticks.
    patient = request.most_files is not None
    compared = {key: stamp for key, stamp in stamps(seen).items() if patient or known[key].refused is None}
    now, settle = now_micros(), round(settings.settle_seconds * 1_000_000)
    choice = plan_files(listed.stamps, compared, now, settle, asked, request.most_files)
    if patient and choice.read:
        again = {key: stamp for key, stamp in compared.items() if known[key].refused is None}
        choice = plan_files(listed.stamps, again, now, settle, asked, request.most_files)
    drop = choice.removed if definition.prunes or request.reset else ()
    if request.keys is not None:
        drop = tuple(key for key in drop if key in request.keys)
    if drop and not listed.stamps and not request.allow_empty:
        raise EmptyRefused(
            f"{container.label}: none of its {len(known):,} files is in {settings.address.display} any more; nothing was written. If they "
            f"were really removed, say so with --allow-empty."
        )
    files = tuple(ReadFile(key, listed.paths[key], listed.stamps[key].modified) for key in choice.read)
    action, reason = _decide(definition, request, head, state, choice, bool(files or recheck), drop, known)
    refused = [record for key, record in seen.items() if record.refused is not None and key not in choice.read]
    notes = _notes(definition, choice, refused, drop)
    return FilesPlan(
        container=container,
        request=request,
        action=action,
        reason="; ".join([reason, *notes]),
        watermark=state.watermark if state is not None else None,
        state=state,
        base_version=head.version if head is not None else None,
        warnings=tuple(listed.unseen.values()),
        alarm=bool(refused or listed.unseen),
        files=files,
        drop=drop,
        whole=request.reset and head is not None,
        choice=choice,
        recheck=recheck,
        prunes=definition.prunes,
        listed=listed,
        remembered=remembered,
    )


def _decide(
    definition: FileDefinition,
    request: Request,
    head: Head | None,
    state: TableState | None,
    choice: FilePlan,
    reads: bool,
    drop: tuple[str, ...],
    known: Mapping[str, FileRecord],
) -> tuple[Action, str]:
    if not reads and not drop:
        if request.reset and head is not None and not request.allow_empty:
            raise EmptyRefused(
                f"{definition.container.label}: there is no file to load it from, and its table is not empty; nothing was written."
            )
        if not known and not choice.waiting:
            where = f"{definition.settings.address.display.rstrip('/')}/{definition.glob}"
            return Action.SKIP, f"nothing to do: no file matches {where} yet"
        watermark = "none" if state is None or state.watermark is None else format_value(Axis.INSTANT, state.watermark)
        return Action.SKIP, f"nothing to do: the {len(known):,} files are those of the last sync; watermark {watermark}"
    if request.reset:
        return Action.LOAD, "loads the whole container anew, as asked by --reset-watermarks"
    if head is None:
        return Action.LOAD, "first sync: loads all files" if not choice.left else "first sync: loads the oldest files"
    if request.mode is Mode.REFRESH:
        return Action.REFRESH, "reads all files again" if request.keys is None else "reads the asked files again"
    if not choice.read and not drop:
        return Action.SYNC, "looks which files the table holds: it has a commit that is not recorded"
    return Action.SYNC, f"reads {len(choice.new):,} new and {len(choice.changed):,} changed files"


def _notes(definition: FileDefinition, choice: FilePlan, refused: list[FileRecord], drop: tuple[str, ...]) -> list[str]:
    """What else there is to say of the files."""
    notes: list[str] = []
    if choice.waiting:
        seconds = f"{definition.settings.settle_seconds:g}"
        notes.append(f"{len(choice.waiting):,} changed less than {seconds} s ago and wait for the next sync")
    if choice.left:
        notes.append(f"{choice.left:,} more wait for the next sync")
    kept = len(choice.removed) - len(drop)
    if kept:
        notes.append(f"{kept:,} are gone from the folder; their rows stay (prune_files: true would remove them)")
    if drop:
        notes.append(f"rows of {len(drop):,} that are gone from the folder are removed")
    if refused:
        notes.append(f"{len(refused):,} could not be read before: {refused[0].refused}")
    return notes


def _expect_known(definition: FileDefinition, asked: tuple[str, ...], listed: Listed, known: Mapping[str, FileRecord]) -> None:
    for key in asked:
        if key not in listed.stamps and key not in known:
            raise ConfigurationError(
                f"{definition.container.label}: there is no file for the partition {key!r}.{nearest(key, list(listed.stamps)[:1000])}"
            )


def _is_unseen(key: str, listed: Listed) -> bool:
    """Whether a file may be there, in a folder that could not be looked into."""
    path = decode_path(key) or key
    return any(path == unseen or path.startswith(f"{unseen}/") for unseen in listed.unseen)


def _state(definition: FileDefinition, table: LakeTable, head: Head | None) -> TableState | None:
    """The table's own word, if it fits the container."""
    if head is None:
        return None
    container = definition.container
    if head.owner != container.label:
        what = f"the table of {head.owner}" if head.owner else "a Delta table that this product did not make"
        raise LakeError(f"{container.label}: {table.url} holds {what}; move it away, or choose another lake or name. Nothing was written.")
    if head.signature() not in (None, container.signature):
        raise RebuildNeeded(
            f"{container.label}: its table was filled by {head.signature()}, and not from files. Load it anew: incremental-assets sync "
            f"{container.label} --reset-watermarks"
        )
    return head.state(container)
