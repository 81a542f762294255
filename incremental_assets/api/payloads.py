"""What callers send, and what they get: the models of bodies and queries. The OpenAPI document is made from them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StringConstraints,
    model_validator,
)

Type = Literal["sync", "scan", "profile", "catalog", "audit"]
Result = Literal["queued", "running", "success", "failure", "aborted"]
MOST_NAMES = 1000
MOST_PAGE, MOST_SIZE = 10_000, 200


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("has characters that are not printable")
    return text


def _as_list(value: Any) -> Any:
    """One name stands for a list of one, and a number for the name that it writes: 003 sends ``datastore_id``, 000 a list of numbers."""
    several = value if isinstance(value, list) else [value]
    return [str(one) if isinstance(one, int) and not isinstance(one, bool) else one for one in several]


Name = Annotated[str, StringConstraints(min_length=1, max_length=500), AfterValidator(_printable)]
Names = Annotated[list[Name], Field(max_length=MOST_NAMES), BeforeValidator(_as_list)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_printable)]

_SCANS = {"incremental", "greater_than_time", "greater_than_batch"}
_OPTIONS: dict[str, set[str]] = {
    "sync": {"mode", "sweep"},
    "scan": {*_SCANS, "auto_resolve_passed_anomalies"},
    "profile": _SCANS,
    "catalog": {"prune", "recreate", "include"},
    "audit": {"repair"},
}


class Body(BaseModel):
    """A body or query: what it does not know is refused, so that a misspelt option does not pass silently."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class RunBody(Body):
    """Which operation is to run, and over what."""

    type: Type
    datastores: Names = Field(
        default_factory=list,
        validation_alias=AliasChoices("datastores", "datastore_ids", "datastore_id", "datastore"),
        description="Names of datastores; by default all of the project. Also datastore_ids, datastore_id.",
    )
    containers: Names = Field(
        default_factory=list,
        validation_alias=AliasChoices("containers", "container_names", "container_ids", "container"),
        description="Names of containers, of the named datastores or of all; or DATASTORE/CONTAINER. Also container_names.",
    )
    tags: dict[Name, Name] = Field(
        default_factory=dict, max_length=50, description="Only containers with these tags; of several tags, a container needs all."
    )
    incremental: bool = Field(default=False, description="scan, profile: only what is new; else all rows.")
    greater_than_time: Text | None = Field(default=None, description="scan, profile: with incremental, what is above this time.")
    greater_than_batch: StrictInt | Text | None = Field(
        default=None, description="scan, profile: with incremental, what is above this value."
    )
    auto_resolve_passed_anomalies: bool = Field(default=False, description="scan: resolve anomalies that it does not find again.")
    mode: Literal["incremental", "refresh"] | None = Field(default=None, description="sync: what is new, or all partitions again.")
    sweep: bool = Field(default=False, description="sync: find rows that the source has deleted, due or not.")
    prune: bool | None = Field(default=None, description="catalog: forget containers that are gone; by default as the YAML says.")
    recreate: bool | None = Field(default=None, description="catalog: bring removed containers back; by default as the YAML says.")
    include: Annotated[list[Literal["table", "view"]], Field(min_length=1, max_length=2)] | None = Field(
        default=None, description="catalog: look only at tables, or only at views."
    )
    repair: bool = Field(default=False, description="audit: refresh the partitions that differ.")
    triggered_by: Text = Field(default="api", description="Who asks; the operation shows it.")

    @model_validator(mode="after")
    def _options_of_the_type(self) -> "RunBody":
        options = set().union(*_OPTIONS.values())
        wrong = sorted((self.model_fields_set & options) - _OPTIONS[self.type])
        if wrong:
            raise ValueError(f"{', '.join(wrong)} does not go with type {self.type}")
        if (self.greater_than_time is not None or self.greater_than_batch is not None) and not self.incremental:
            raise ValueError("greater_than_time and greater_than_batch go with incremental: true")
        if self.type == "catalog" and (self.containers or self.tags):
            raise ValueError("a catalog is of whole datastores: leave containers and tags out")
        return self


class FieldBody(Body):
    """The incremental field of a container. PUT replaces the whole entry of the YAML; PATCH keeps of it what is not sent."""

    incremental_field: Name | Annotated[list[Name], Field(min_length=2, max_length=2)] | None = Field(
        default=None, description="A column, or two: the greater of them; null: none."
    )
    type: Literal["date", "datetime", "timestamp", "integer"] | None = Field(default=None, description="By default as the column is.")
    start: Text | StrictInt | None = Field(default=None, description="Inclusive; lower values are never synced.")
    strategy: Literal["append", "upsert"] | None = Field(default=None, description="By default append.")


class RunsQuery(Body):
    """Which operations are listed. Times without a zone are UTC."""

    id: Annotated[str | None, StringConstraints(pattern=r"^[0-9a-f-]{4,36}$")] = Field(default=None, description="An id, or its beginning.")
    type: Type | None = Field(default=None, validation_alias=AliasChoices("type", "kind"))
    datastore: Name | None = None
    container: Name | None = Field(default=None, description="DATASTORE/CONTAINER")
    result: Result | None = Field(default=None, validation_alias=AliasChoices("result", "status"))
    start: datetime | None = Field(default=None, validation_alias=AliasChoices("from", "start"), serialization_alias="from")
    end: datetime | None = Field(default=None, validation_alias=AliasChoices("to", "end"), serialization_alias="to")
    sort: Literal["created", "-created", "duration", "-duration"] = Field(default="-created", description="- : the greatest first.")
    page: int = Field(default=1, ge=1, le=MOST_PAGE)
    size: int = Field(default=50, ge=1, le=MOST_SIZE)


class ContainersQuery(Body):
    """Which containers are listed."""

    datastore: Name | None = None
    page: int = Field(default=1, ge=1, le=MOST_PAGE)
    size: int = Field(default=50, ge=1, le=MOST_SIZE)
