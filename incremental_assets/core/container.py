"""A container: one table or view, one asset, one Delta table, with everything a sync must know of it.

Belongs here: what the catalog found (``SourceTable``), what the YAML says (``ContainerOptions``), and what both make (``Container``).
Does not belong: reading either, or how the two are put together (``resolve``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from incremental_assets.core.axis import Axis, IdentifierType
from incremental_assets.core.grammar import Strategy
from incremental_assets.core.names import encode_name
from incremental_assets.core.partitions import Granularity
from incremental_assets.core.rules import Rule
from incremental_assets.core.tail import Tail
from incremental_assets.core.window import EVERYTHING, Window


class OnNull(str, Enum):
    """What happens to rows whose identifier is NULL."""

    INCLUDE = "include"
    EXCLUDE = "exclude"
    ERROR = "error"


class HoldBack(str, Enum):
    """Which open transactions hold the watermark back: all, or those with a write lock on the table."""

    ALL = "all"
    WRITERS = "writers"


class Kind(str, Enum):
    """What a container is in its source; only an ordinary table can be cut by ``ctid``, only tables have ``xmin``.

    ``FILES``: those of a folder that a pattern matches.
    """

    TABLE = "table"
    PARTITIONED = "partitioned table"
    FOREIGN = "foreign table"
    VIEW = "view"
    MATERIALIZED_VIEW = "materialized view"
    FILES = "files"

    @property
    def is_view(self) -> bool:
        """What ``include: [view]`` means; all others are tables."""
        return self in (Kind.VIEW, Kind.MATERIALIZED_VIEW)


@dataclass(frozen=True)
class Origin:
    """Who makes a column's values, as the source says it, in the table and in each of its partitions.

    ``identity``: ``GENERATED ALWAYS AS IDENTITY``. ``in_turn``: its sequences give values one by one and upwards. ``block``: the values
    that a session may draw from them at once (CACHE times increment; None: no sequence). ``at_insert``, ``at_update``: triggers that set it
    to the clock at each insert or update, whatever the application sends.
    """

    identity: bool = False
    in_turn: bool = False
    block: int | None = None
    at_insert: str | None = None
    at_update: str | None = None


@dataclass(frozen=True)
class SourceColumn:
    """``type``: the source's own name for it (``numeric(12,2)``); ``base``: without modifiers and domains (``numeric``).

    ``origin``: None where nothing is known, as of views, and in what earlier versions have stored.
    """

    name: str
    type: str
    base: str
    not_null: bool = False
    default: str | None = None
    sequence: str | None = None
    origin: Origin | None = None


@dataclass(frozen=True)
class SourceTable:
    """What the catalog found. ``first`` and ``last`` are identifier texts, ``rows`` an estimate, ``bytes`` the size with indexes.

    ``span``: from first to last integer identifier when the container was first found; the width of its partitions follows from it.
    ``glob``, ``format``, ``files``: of a container of files: its pattern, what they are, how many there were.
    ``subscribed``: a subscription of logical replication fills it, or one of its partitions.
    """

    name: str
    kind: Kind
    columns: tuple[SourceColumn, ...]
    primary_key: tuple[str, ...] = ()
    indexed: tuple[str, ...] = ()  # columns that lead an index
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

    def column(self, name: str) -> SourceColumn | None:
        return next((c for c in self.columns if c.name == name), None)


@dataclass(frozen=True)
class ContainerOptions:
    """What the YAML says under ``containers:``, already of the right types. ``safety_lag``: None, as the datastore says."""

    partition_by: str | int | None = None
    schedule: str | None = None
    safety_lag: int | Literal["auto"] | None = None
    primary_key: tuple[str, ...] = ()
    on_null: OnNull = OnNull.INCLUDE
    exclude_columns: tuple[str, ...] = ()
    text_columns: tuple[str, ...] = ()
    readers: int | None = None
    deletion_vectors: bool = True
    cluster: bool = False
    hold_back: HoldBack = HoldBack.ALL
    hold_back_warning_seconds: int = 3600
    where: str | None = None
    identifiers: bool | None = None  # auto, or not; None: as the datastore says
    max_runtime_seconds: int | None = None  # None: as the datastore says
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    checks: tuple[Rule, ...] = ()
    auto_resolve: bool = False  # anomalies that a later scan no longer finds
    samples: bool = True  # rows and values, in records and profiles


@dataclass(frozen=True)
class Identifier:
    """The column (or the greater of two) that tells new rows from old, and the axis its values live on."""

    columns: tuple[str, ...]
    type: IdentifierType
    axis: Axis
    start: int | None = None
    sequence: str | None = None

    @property
    def signature(self) -> str:
        """What a table was built with; another signature needs a rebuild."""
        return f"{'+'.join(self.columns)}:{self.type.value}:{self.axis.value}"

    @property
    def ground(self) -> Window:
        """Where rows are synced at all: from ``@start`` on."""
        return Window(self.start, None) if self.start is not None else EVERYTHING


@dataclass(frozen=True)
class Cut:
    """How a container is cut into partitions: a granularity with the start of its first one, a width of integers, or by file."""

    granularity: Granularity | None = None
    first: int | None = None
    width: int | None = None
    batch: bool = False
    by_file: bool = False

    @property
    def word(self) -> str | int | None:
        """As ``partition_by`` says it."""
        if self.by_file:
            return "file"
        return self.granularity.value if self.granularity else "batch" if self.batch else self.width


@dataclass(frozen=True)
class Container:
    """Everything about one container; ``identifier`` and ``cut`` are None together (a snapshot).

    ``lag``: the safety lag, in seconds for time and values for integers. ``lag_is_auto``: nobody has set it. ``lag_reason``: why it is
    needed or not, in words.
    """

    datastore: str
    schema: str
    name: str
    kind: Kind
    columns: tuple[SourceColumn, ...]
    identifier: Identifier | None
    cut: Cut | None
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

    @property
    def label(self) -> str:
        """``shop/orders``: how people and the command line name it."""
        return f"{self.datastore}/{self.name}"

    @property
    def key_path(self) -> tuple[str, str]:
        """Asset key, and the folder in the lake."""
        return encode_name(self.datastore), encode_name(self.name)

    @property
    def signature(self) -> str:
        return self.identifier.signature if self.identifier else "none"

    @property
    def axis(self) -> Axis | None:
        return self.identifier.axis if self.identifier else None

    @property
    def tail(self) -> Tail:
        """What its incremental syncs read."""
        assert self.identifier is not None
        return Tail(self.identifier.start, self.identifier.axis.lag_steps(self.lag))

    @property
    def has_null_identifiers(self) -> bool:
        """Whether rows without identifier may exist and are to be carried."""
        return self.identifier is not None and self.options.on_null is OnNull.INCLUDE and not self.identifier_is_required

    @property
    def identifier_is_required(self) -> bool:
        """Whether the source itself keeps each row's identifier from being NULL."""
        required = {column.name for column in self.columns if column.not_null}
        return self.identifier is not None and bool(required & set(self.identifier.columns))
