"""The description of a container: one table, view or group of files, which is one Dagster asset and one Delta table."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal

from incremental_assets.core.capture import Capture
from incremental_assets.core.cursor_type import CursorType, IdentifierType
from incremental_assets.core.deletes import EVERY_SECONDS, MOST_SHARE, Deletes
from incremental_assets.core.folder_column import FolderColumn
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.lag_window import LagWindow
from incremental_assets.core.metadata_documents import MetadataSettings
from incremental_assets.core.names import canonical_name, encode_name
from incremental_assets.core.partitions import Granularity
from incremental_assets.core.rules.rule import Rule
from incremental_assets.core.window import EVERYTHING, Window

NO_IDENTIFIER = "none"
"""The signature of a container that is synced whole."""


class OnNull(str, Enum):
    """What a sync does with rows whose identifier is NULL (they belong to no partition).

    ``INCLUDE``: each incremental sync reads and replaces them. ``EXCLUDE``: they are left out. ``ERROR``: the sync fails if there are any.
    """

    INCLUDE = "include"
    EXCLUDE = "exclude"
    ERROR = "error"


class HoldBack(str, Enum):
    """Which open transactions hold the watermark back.

    ``ALL``: all of the database. ``WRITERS``: only those with a write lock on the table or one of its partitions. The latter is exact only
    if the insert itself makes the identifier (a sequence, ``clock_timestamp()``): ``now()`` is older than the lock.
    """

    ALL = "all"
    WRITERS = "writers"


class RowSecurity(str, Enum):
    """What a sync does where the source's row security would hide rows from our role. ``REFUSE``: it fails, and says how the role sees all
    rows. ``ACCEPT``: it reads the rows that are not hidden."""

    REFUSE = "refuse"
    ACCEPT = "accept"


class WhenRecreated(str, Enum):
    """What a sync does where the table is another one than before, under its name. ``REFUSE``: it fails. ``RELOAD``: it loads the container
    anew. ``ADOPT``: it goes on if the rows below the watermark are equal in source and lake, and loads the container anew otherwise."""

    REFUSE = "refuse"
    RELOAD = "reload"
    ADOPT = "adopt"


class OnNewTable(str, Enum):
    """What happens to a table that a later run of the catalog finds, and that the YAML does not name. ``ANNOUNCE``: it is reported,
    and it is not synced. ``LOAD``: it is synced if it is small or has a trusted identifier that is used, and otherwise announced.
    ``LOAD_ALL``: it is synced."""

    ANNOUNCE = "announce"
    LOAD = "load"
    LOAD_ALL = "load_all"


class Engine(str, Enum):
    """Who reads and writes the rows of a container. ``SPARK``: Spark, all of them. ``ARROW``: the sync's own process, whatever it can,
    also where Spark has other machines. ``AUTO``: who is faster. All ways write the same table (docs/decisions/ways-of-writing.md)."""

    AUTO = "auto"
    SPARK = "spark"
    ARROW = "arrow"


class Arrays(str, Enum):
    """How arrays of the source arrive in the lake: as its ``TEXT``, or as a ``LIST``, which is an array of the lake."""

    TEXT = "text"
    LIST = "list"


class Inherited(str, Enum):
    """Whether a table's rows are its own alone (``ONLY``), or also those of the tables that inherit from it (``INCLUDE``)."""

    ONLY = "only"
    INCLUDE = "include"


class Heirs(str, Enum):
    """The tables that inherit from a table, partitions apart.

    ``BESIDE``: the table has rows of its own, too. ``ALL``: as far as is known, all rows are in them. ``CHUNKS``: it is a hypertable of
    TimescaleDB, which keeps all rows in them and lets a key hold across them; it may have none yet.
    """

    BESIDE = "beside"
    ALL = "all"
    CHUNKS = "chunks"


class Kind(str, Enum):
    """The kind of object that a container is in its source; ``FILES`` are the files of a folder that a glob matches.

    Only an ordinary table can be read in ranges of ``ctid``. Rows of views and foreign tables have no ``xmin``, from which the fingerprint
    is computed that lets a sync be skipped; these kinds are read with every sync.
    """

    TABLE = "table"
    PARTITIONED = "partitioned table"
    FOREIGN = "foreign table"
    VIEW = "view"
    MATERIALIZED_VIEW = "materialized view"
    FILES = "files"

    @property
    def is_view(self) -> bool:
        """Whether ``include: [view]`` of the YAML selects it. All other kinds count as tables there."""
        return self in (Kind.VIEW, Kind.MATERIALIZED_VIEW)


@dataclass(frozen=True)
class Origin:
    """What the source's catalog says about who makes the values of a column. A statement holds for the table and all of its partitions.

    ``identity``: the column is ``GENERATED ALWAYS AS IDENTITY``. ``in_turn``: its sequences return values one by one and ascending (CACHE
    1, a positive increment, no CYCLE). ``block``: how far apart the values can be that one session draws at once (CACHE times increment);
    None if there is no sequence. ``at_insert``, ``at_update``: the name of a trigger that sets the column to the clock at each insert or
    update, whatever the application sends; None if there is none. ``in_own_zone``: a column without time zone, which these triggers set to
    the time in a zone that they name, and whose clocks are never set back; otherwise it is the time in the zone of each session.
    ``is_rowversion``: SQL Server itself gives the column a higher value at each insert and update. ``counts_down``: one of its sequences
    has a negative increment.
    """

    identity: bool = False
    in_turn: bool = False
    block: int | None = None
    at_insert: str | None = None
    at_update: str | None = None
    is_rowversion: bool = False
    in_own_zone: bool = False
    counts_down: bool = False


@dataclass(frozen=True)
class SourceColumn:
    """A column of a container as the source describes it.

    ``type``: the type as the source writes it (``numeric(12,2)``); ``base``: the same type without modifiers, and the base type of a domain
    (``numeric``). ``default``: the source's text of its DEFAULT. ``sequence``: the qualified name of the sequence that belongs to the
    column. ``origin`` is None if nothing is known, which is so for views and for columns that an earlier version of this product has
    stored. ``comment``: empty if the column has none; None if the source does not tell it.
    """

    name: str
    type: str
    base: str
    not_null: bool = False
    default: str | None = None
    sequence: str | None = None
    origin: Origin | None = None
    comment: str | None = None


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key of the source: ``columns`` refer to the columns ``referenced`` of the table ``table`` of the same datastore."""

    columns: tuple[str, ...]
    table: str
    referenced: tuple[str, ...]


@dataclass(frozen=True)
class SourceTable:
    """A table, view or group of files as the catalog operation found it.

    ``first`` and ``last``: the text of the lowest and the highest identifier. ``rows``: an estimate. ``bytes``: the size including indexes.
    ``span``: the difference between the highest and the lowest integer identifier at the time when the container was first measured; the
    width of its partitions follows from it and must not change later. ``spanned``: the column that ``first``, ``last`` and ``span`` are
    about, where that is not the identifier (``partition_by: {column: …}``). ``glob``, ``format`` and ``files`` are set for a container of
    files: its pattern, the format of the files, and how many files there were. ``subscribed``: a subscription of logical replication fills
    the table or one of its partitions. ``foreign_keys``: those to tables of the same datastore, as far as the kind of source tells them.
    ``heirs``: the tables that inherit from it; None if there are none, or if an earlier version of this product has stored the table.
    """

    name: str
    kind: Kind
    columns: tuple[SourceColumn, ...]
    primary_key: tuple[str, ...] = ()
    indexed: tuple[str, ...] = ()  # columns that are the first column of an index
    rows: int | None = None
    bytes: int | None = None
    comment: str | None = None
    first: str | None = None
    last: str | None = None
    span: int | None = None
    glob: str | None = None
    format: str | None = None
    files: int | None = None
    subscribed: bool = False
    spanned: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    heirs: Heirs | None = None

    def column(self, name: str) -> SourceColumn | None:
        return next((c for c in self.columns if c.name == name), None)


@dataclass(frozen=True)
class AuditSettings:
    """The attribute ``audit`` of the YAML: regular audits of a container, or of all containers of a datastore.

    ``schedule``: a cron expression; None: no audit by itself. ``repair``: partitions that differ are refreshed. ``newest``: only so many of
    the newest partitions are compared; ``rotating``: each time so many others, one after another; both None: all rows are.
    """

    schedule: str | None = None
    repair: bool = False
    newest: int | None = None
    rotating: int | None = None


@dataclass(frozen=True)
class RegularScan:
    """The attribute ``scan`` or ``profile`` of the YAML: regular scans or profiles of a container, or of all containers of a datastore.

    ``schedule``: a cron expression. ``full``: all rows each time; otherwise what is new, of containers that have an identifier.
    """

    schedule: str
    full: bool = False


@dataclass(frozen=True)
class ContainerOptions:
    """The options of one container under ``containers:`` in the YAML, already converted to their types (docs/configuration.md).

    ``safety_lag``: seconds for times, values for integers; None means that the datastore's ``safety_lag_seconds`` applies.
    ``timezone``: the zone of dates and times without zone; None means the datastore's. ``deletes_every``: seconds from one sweep to the
    next. ``max_deleted_share``: from 0 to 1, a sweep that would delete more is refused.
    """

    partition_by: str | int | None = None
    schedule: str | None = None
    safety_lag: int | Literal["auto"] | None = None
    timezone: str | None = None
    primary_key: tuple[str, ...] = ()
    on_null: OnNull = OnNull.INCLUDE
    exclude_columns: tuple[str, ...] = ()
    text_columns: tuple[str, ...] = ()
    binary_columns: tuple[str, ...] = ()
    arrays: Arrays = Arrays.TEXT
    readers: int | None = None
    engine: Engine | None = None  # None: the datastore's setting applies
    deletion_vectors: bool | None = None  # None: ``auto``, by the size of the source when the table is made
    cluster: bool = False
    hold_back: HoldBack = HoldBack.ALL
    hold_back_warning_seconds: int = 3600
    where: str | None = None
    identifiers: bool | None = None  # True: ``auto``, False: ``yaml``, None: the datastore's setting applies
    max_runtime_seconds: int | None = None  # None: the datastore's setting applies
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    checks: tuple[Rule, ...] = ()
    auto_resolve: bool = False  # whether a scan resolves open anomalies that it no longer finds
    audit: AuditSettings | None = None  # None: the datastore's setting applies
    scan: RegularScan | None = None  # beside those of the datastore
    profile: RegularScan | None = None  # beside those of the datastore
    metadata: MetadataSettings | None = None  # None: the datastore's setting applies
    deletes: Deletes | None = None  # None: deleted rows are found by refreshes, and in the lag window, and a sync warns of others
    deletes_every: int = EVERY_SECONDS
    max_deleted_share: float = MOST_SHARE
    capture: Capture | None = None  # None: the datastore's setting applies
    row_security: RowSecurity | None = None  # None: the datastore's setting applies
    when_recreated: WhenRecreated | None = None  # None: the datastore's setting applies
    inherited: Inherited | None = None  # None: no other table inherits from it
    freshness: int | None = None  # seconds from one materialization to the next, as Dagster's freshness policy has them; None: no policy
    every: int | None = None  # seconds from one read of a container that is read whole to the next; None: each sync reads it
    samples: bool = True  # whether scans keep failed rows, and profiles keep values of texts and frequent values

    @property
    def sweeps(self) -> bool:
        """Whether all keys are compared with the source's from time to time, to find deleted rows."""
        return self.deletes in (Deletes.SWEEP, Deletes.SOFT)


@dataclass(frozen=True)
class Identifier:
    """The incremental identifier: one column, or the greater of two columns, and its cursor type.

    ``start``: the ``@start`` value of the grammar; rows below it are never synced (None: there is no such bound). ``sequence``: the
    sequence that a single integer column belongs to; its last value limits the watermark.
    """

    columns: tuple[str, ...]
    type: IdentifierType
    cursor_type: CursorType
    start: int | None = None
    sequence: str | None = None

    @property
    def signature(self) -> str:
        """Columns, type and cursor type as one text, which is stored with the Delta table. If it changes, the table has to be rebuilt."""
        return f"{'+'.join(self.columns)}:{self.type.value}:{self.cursor_type.value}"

    @property
    def domain(self) -> Window:
        """The domain: the window of the identifier values that are synced at all, from ``start`` on."""
        return Window(self.start, None) if self.start is not None else EVERYTHING


@dataclass(frozen=True)
class Partitioning:
    """The partitioning of a container. Exactly one of ``granularity``, ``width`` and ``by_file`` is set.

    ``granularity`` with ``first``, the start of the first partition in units of the cursor type; ``width``: the number of integers in a
    partition; ``batch``: each integer is a partition, and ``width`` is 1; ``by_file``: each file is a partition or, with ``folders``, all
    files whose folders have the same value of that column.
    """

    granularity: Granularity | None = None
    first: int | None = None
    width: int | None = None
    batch: bool = False
    by_file: bool = False
    folders: FolderColumn | None = None

    @property
    def word(self) -> str | int | None:
        """The value of ``partition_by`` in the YAML that means this partitioning."""
        if self.by_file:
            return self.folders.name if self.folders is not None else "file"
        return self.granularity.value if self.granularity else "batch" if self.batch else self.width

    def of_file(self, key: str) -> str:
        """The key of the partition of the file with this key, where files are partitions."""
        return key if self.folders is None else self.folders.partition_of(key)


@dataclass(frozen=True)
class Container:
    """Everything that a sync needs to know about one container. It is made by ``core.resolve`` or, for files, ``files.definition``.

    ``identifier`` and ``partitioning`` are both None for the strategy ``snapshot``. ``identifier`` tells new and changed rows from others,
    and the watermark is a value of it. ``partitioned_on``: what the partitions are windows of; None if that is the identifier, as it mostly
    is. Code that means partitions asks for ``axis``, which is right in both cases. ``primary_key``: the columns that identify a row;
    ``key_is_enforced``: the source itself guarantees that they are unique and not NULL, so that a sync need not check it. ``lag``: the
    safety lag, in seconds for times and values for integers. ``lag_is_auto``: the YAML does not set it. ``lag_reason``: why the lag has
    this value, as a sentence. ``timezone``: the zone in which dates and times without zone are meant. ``indexed``, ``rows``, ``bytes``,
    ``comment`` and ``heirs`` are those of ``SourceTable``. ``canonical``: those columns of the key in which equal values may look different
    to the source (1 and 1.0), and of which the lake has the canonical form, too, in a column of its own. ``tracked_by``: of a container
    ``along_axis``, the identifier that it had. ``left_out``: the columns of the source that the lake cannot have, by
    name, each with what it is; they are not in ``columns``.
    """

    datastore: str
    schema: str
    name: str
    kind: Kind
    columns: tuple[SourceColumn, ...]
    identifier: Identifier | None
    partitioning: Partitioning | None
    strategy: Strategy
    primary_key: tuple[str, ...]
    key_is_enforced: bool
    lag: int
    options: ContainerOptions
    indexed: tuple[str, ...] = ()
    rows: int | None = None
    bytes: int | None = None
    comment: str | None = None
    lag_is_auto: bool = False
    lag_reason: str = ""
    partitioned_on: Identifier | None = None
    timezone: str = "UTC"
    heirs: Heirs | None = None
    canonical: tuple[str, ...] = ()
    tracked_by: Identifier | None = None
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def label(self) -> str:
        """``<datastore>/<container>`` (``shop/orders``): its name on the command line and in messages."""
        return f"{self.datastore}/{self.name}"

    @property
    def key_path(self) -> tuple[str, str]:
        """The path of the Dagster asset key, which is also the path of the Delta table below the lake's root."""
        return encode_name(self.datastore), encode_name(self.name)

    @property
    def signature(self) -> str:
        return self.identifier.signature if self.identifier else NO_IDENTIFIER

    @property
    def cursor_type(self) -> CursorType | None:
        return self.identifier.cursor_type if self.identifier else None

    @property
    def axis(self) -> Identifier | None:
        """What the partitions are windows of: the identifier, or another column with ``partition_by: {column: …}``."""
        return self.partitioned_on or self.identifier

    @property
    def cut(self) -> str | None:
        """By what the rows are cut into partitions, as text; None if there are no partitions."""
        if self.partitioning is None or self.axis is None:
            return None
        if self.partitioning.folders is not None:
            return self.partitioning.folders.signature
        return f"{self.partitioning.word} of {'/'.join(self.axis.columns)}"

    @property
    def along_axis(self) -> "Container":
        """This container for code that reads or writes rows by the windows of partitions: its identifier is the axis.

        It has no watermark of its own. A container that is partitioned along its identifier is returned as it is.
        """
        if self.partitioned_on is None:
            return self
        options = replace(self.options, on_null=OnNull.INCLUDE)
        return replace(self, identifier=self.partitioned_on, partitioned_on=None, tracked_by=self.identifier, options=options)

    @property
    def placed_by(self) -> tuple[SourceColumn, ...]:
        """The columns of the identifier and of the partitions. A row with a value there that no window holds is not read."""
        found = (self.identifier, self.partitioned_on, self.tracked_by)
        names = {name for one in found if one is not None for name in one.columns}
        return tuple(column for column in self.columns if column.name in names)

    @property
    def comments(self) -> Mapping[str, str]:
        """The comments of the columns as far as the source tells them, by the names in lower case; empty where a column has none."""
        return {column.name.lower(): column.comment for column in self.columns if column.comment is not None}

    @property
    def padded(self) -> Mapping[str, str]:
        """The columns whose values PostgreSQL fills up with spaces to the length in their type, each with that type."""
        return {column.name: column.type for column in self.columns if column.base == "character"}

    @property
    def lake_key(self) -> tuple[str, ...]:
        """The columns of the lake that identify a row as the source does it: those of the key, or their canonical forms."""
        return tuple(canonical_name(name) if name in self.canonical else name for name in self.primary_key)

    def with_canonical(self, known: Collection[str]) -> "Container":
        """This container with no other canonical forms than those of these columns, which its table in the lake has."""
        return replace(self, canonical=tuple(name for name in self.canonical if name in known))

    @property
    def refusal(self) -> str | None:
        """Why there can be no Delta table of its name and with its columns, whatever the YAML says of partitions and keys; None: it can."""
        if self.name == "_delta_log":
            return (
                f"{self.label}: the folder of a Delta table cannot have this name, as each of them has a folder of that name for its log. "
                f"Nothing was read. Read a view of it that has another name, and list it under exclude."
            )
        if self.left_out and not self.columns:
            return f"{self.label}: none of its columns can be carried ({self._said_left_out}). Nothing was read. List it under exclude."
        alike: dict[str, list[str]] = {}
        for column in self.columns:
            alike.setdefault(column.name.lower(), []).append(column.name)
        same = [names for names in alike.values() if len(names) > 1]
        if not same:
            return None
        which = "; ".join(" and ".join(map(repr, names)) for names in same)
        out = ", ".join(name for names in same for name in names[1:])
        return (
            f"{self.label}: columns {which} differ only in case, which Delta Lake does not tell apart. Nothing was read. Leave all but one "
            f"of them out: containers: {{{self.name}: {{exclude_columns: [{out}]}}}}"
        )

    @property
    def left_out_note(self) -> list[str]:
        """The message about columns that are left out; empty if there are none."""
        return [f"left out, as the lake cannot have it: {self._said_left_out}"] if self.left_out else []

    @property
    def _said_left_out(self) -> str:
        return "; ".join(f"{name!r} is {why}" for name, why in self.left_out.items())

    @property
    def unheld(self) -> str:
        """Which values of the source's types no type of the lake can hold, in words."""
        return "infinity, NaN or an array of more than one dimension" if self.options.arrays is Arrays.LIST else "infinity or NaN"

    @property
    def settings_text(self) -> str:
        """The settings of the YAML that decide which rows and columns are read, as JSON. It is stored: another text has all rows read."""
        options = self.options
        more: list[object] = [sorted(options.binary_columns)] if options.binary_columns else []
        more += [options.arrays.value] if options.arrays is Arrays.LIST else []
        return json.dumps([options.where, sorted(options.exclude_columns), sorted(options.text_columns), options.on_null.value, *more])

    @property
    def lag_window(self) -> LagWindow:
        """The lag window that its incremental syncs read. The container must have an identifier."""
        assert self.identifier is not None
        cursor_type = self.identifier.cursor_type
        return LagWindow(self.identifier.start, cursor_type.lag_steps(self.lag), cursor_type, self.timezone)

    @property
    def is_captured(self) -> bool:
        """Whether it follows the log of its source (``capture: log``)."""
        return self.options.capture is Capture.LOG

    @property
    def row_security(self) -> RowSecurity:
        """What a sync does with row security. Resolved options have the datastore's setting where they have none of their own."""
        return self.options.row_security or RowSecurity.REFUSE

    @property
    def when_recreated(self) -> WhenRecreated:
        """What a sync does where the table is another one than before, by the same rule."""
        return self.options.when_recreated or WhenRecreated.REFUSE

    @property
    def engine(self) -> Engine:
        """Who reads and writes its rows, by the same rule."""
        return self.options.engine or Engine.AUTO

    @property
    def inherited(self) -> Inherited | None:
        """Whose rows a read returns. Of a table from which none inherits, they are its own; None if nobody has said it of another one."""
        return self.options.inherited or (Inherited.ONLY if self.heirs is None else None)

    @property
    def is_one_table(self) -> bool:
        """Whether all rows that are read lie in the pages of one table: not those of partitions, or of tables that inherit from it."""
        return self.kind is Kind.TABLE and self.inherited is not Inherited.INCLUDE

    @property
    def is_watched(self) -> bool:
        """Whether the source's counters tell of changes that no sync meets: of deletions for an upsert that looks for none, of updates and
        deletions for an append, unless its identifier may be NULL, as an update may fill it in then."""
        if self.identifier is None or self.is_captured or self.kind not in (Kind.TABLE, Kind.PARTITIONED):
            return False
        if self.strategy is Strategy.UPSERT:
            return self.options.deletes is None
        return not any(column.name in self.identifier.columns and not column.not_null for column in self.columns)

    @property
    def has_null_identifiers(self) -> bool:
        """Whether rows whose identifier is NULL can exist and have to be synced."""
        return self.identifier is not None and self.options.on_null is OnNull.INCLUDE and not self.identifier_is_required

    @property
    def identifier_is_required(self) -> bool:
        """Whether constraints of the source rule out that the identifier of a row is NULL."""
        # Of two columns the greater one counts and NULLs are ignored, so that one NOT NULL column is enough.
        required = {column.name for column in self.columns if column.not_null}
        return self.identifier is not None and bool(required & set(self.identifier.columns))
