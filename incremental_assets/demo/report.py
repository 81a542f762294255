"""How the demo prints its results on the terminal: one table a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from incremental_assets.demo.business_day import Change
from incremental_assets.demo.compare import Comparison
from incremental_assets.demo.landing import Landed

STATUS_STYLE = {"synced": "green", "skipped": "dim", "warning": "yellow", "failed": "bold red"}


@dataclass(frozen=True)
class SyncLine:
    """One line of ``sync --json``: what a sync did with one container."""

    container: str
    status: str
    strategy: str
    rows: tuple[int | None, int | None, int | None, int | None]  # read, inserted, updated, deleted
    previous: Any
    new: Any
    held_back_by: list[dict[str, Any]]
    partitions: list[str]
    seconds: float
    message: str

    @classmethod
    def of(cls, found: dict[str, Any]) -> SyncLine:
        """Make it from the parsed JSON object."""
        watermark = found.get("watermark") or {}
        return cls(
            container=found["container"],
            status=found["status"],
            strategy=found.get("strategy") or "",
            rows=(found.get("rows_read"), found.get("rows_inserted"), found.get("rows_updated"), found.get("rows_deleted")),
            previous=watermark.get("previous"),
            new=watermark.get("new"),
            held_back_by=watermark.get("held_back_by") or [],
            partitions=[str(key) for key in found.get("partitions") or []],
            seconds=float(found.get("seconds") or 0),
            message=found.get("message") or "",
        )

    @property
    def watermark(self) -> str:
        """The watermark before and after the sync, as text."""
        if self.previous is None and self.new is None:
            return ""
        if self.previous == self.new:
            return f"{_short(self.new)} (stays)"
        return f"{_short(self.previous)} → {_short(self.new)}"


def step(console: Console, number: int, title: str, why: str) -> None:
    """Print the heading of a step, and why it is shown."""
    console.print()
    console.rule(f"[bold]{number}. {escape(title)}", align="left")
    console.print(escape(why), style="italic")


def loaded(console: Console, rows: dict[str, int], seconds: float) -> None:
    """Print how many rows each table of the source has."""
    table = Table("table", ("rows"), title=f"The source, filled in {seconds:.1f} s", title_justify="left")
    table.columns[1].justify = "right"
    for name, count in sorted(rows.items(), key=lambda item: -item[1]):
        table.add_row(name, f"{count:,}")
    console.print(table)


def changes(console: Console, title: str, found: Iterable[Change]) -> None:
    """Print what happened in the source."""
    table = Table(title=title, title_justify="left")
    table.add_column("table")
    table.add_column("rows", justify="right")
    table.add_column("what happened in the source")
    for change in found:
        table.add_row(change.container, f"{change.rows:,}" if change.rows else "", change.what)
    console.print(table)


def synced(console: Console, lines: Sequence[SyncLine], seconds: float) -> None:
    """Print the result of a sync: one row for each container. This is the table that the demo is about."""
    table = Table(title=f"{len(lines)} container{'s' if len(lines) != 1 else ''} in {seconds:.1f} s", title_justify="left")
    table.add_column("container", no_wrap=True)
    table.add_column("strategy")
    for name in ("read", "inserted", "updated", "deleted"):
        table.add_column(name, justify="right")
    table.add_column("watermark before → after")
    table.add_column("partitions")
    table.add_column("s", justify="right")
    for line in lines:
        style = STATUS_STYLE.get(line.status, "")
        mark = line.strategy if line.status == "synced" else f"{line.strategy} [{style}]{line.status}[/]"
        below = "".join(f"\n[yellow]held back by {escape(_who(one))}[/]" for one in line.held_back_by)
        table.add_row(
            line.container.partition("/")[2],
            mark,
            *(_count(count) for count in line.rows),
            escape(line.watermark) + below,
            escape(_partitions(line.partitions)),
            f"{line.seconds:.1f}",
        )
    console.print(table)
    for line in lines:
        if line.message:
            console.print(f"  [{STATUS_STYLE.get(line.status, '')}]{escape(line.container)}: {escape(line.message)}[/]", highlight=False)


def compared(console: Console, found: Sequence[Comparison], title: str) -> None:
    """Print the comparison of lake and source."""
    table = Table(title=title, title_justify="left")
    table.add_column("container")
    for name in ("rows in both", "only in the lake", "only in the source"):
        table.add_column(name, justify="right")
    table.add_column("lake = source")
    table.add_column("s", justify="right")
    for one in found:
        verdict = "[green]yes[/]" if one.equal else "[bold red]no[/]"
        table.add_row(
            one.container,
            f"{one.in_both:,}",
            f"{one.only_in_lake:,}",
            f"{one.only_in_source:,}",
            verdict,
            f"{one.seconds:.1f}",
        )
    console.print(table)


def audited(console: Console, lines: Sequence[dict[str, Any]]) -> None:
    """Print the result of an audit: the lines of ``audit --json``."""
    table = Table(title="The audit", title_justify="left")
    table.add_column("container")
    for name in ("rows", "partitions", "of these differ", "missing", "stale", "surplus"):
        table.add_column(name, justify="right")
    table.add_column("for example, by key")
    table.add_column("now")
    table.add_column("s", justify="right")
    for line in lines:
        counts = (
            line["rows"],
            line["partitions_checked"],
            len(line["partitions_different"]),
            line["missing"],
            line["stale"],
            line["surplus"],
        )
        examples = [f"{kind} {', '.join(keys[0])}" for kind, keys in (line["examples"] or {}).items() if keys]
        style = "green" if line["status"] in ("equal", "repaired") else "bold red"
        table.add_row(
            line["container"].partition("/")[2], *map(_count, counts), escape("; ".join(examples)), f"[{style}]{line['status']}[/]",
            f"{line['seconds']:.1f}",
        )  # fmt: skip
    console.print(table)


def landed(console: Console, found: Sequence[Landed], title: str) -> None:
    """Print the comparison of lake and landing folder."""
    table = Table(title=title, title_justify="left")
    table.add_column("container")
    for name in ("files", "rows in the folder", "rows in the lake", "kept beside it"):
        table.add_column(name, justify="right")
    table.add_column("lake = folder")
    for one in found:
        verdict = "[green]yes[/]" if one.equal else "[bold red]no[/]"
        table.add_row(one.container, f"{one.files:,}", f"{one.rows:,}", f"{one.in_lake:,}", f"{one.rejected:,}", verdict)
    console.print(table)


def differences(console: Console, found: Iterable[Comparison]) -> None:
    """Print examples of the rows that differ between lake and source."""
    for one in found:
        if one.equal:
            continue
        if one.columns_missing_in_lake:
            console.print(f"  {one.container}: not in the lake: {', '.join(one.columns_missing_in_lake)}", style="red")
        for side, rows in (("lake", one.examples_in_lake), ("source", one.examples_in_source)):
            for row in rows:
                console.print(f"  {one.container}, only in the {side}: {row}", style="red", markup=False, highlight=False)


def _short(watermark: Any) -> str:
    return "none" if watermark is None else f"{watermark:,}" if isinstance(watermark, int) else str(watermark)


def _count(count: int | None) -> str:
    return "?" if count is None else f"{count:,}" if count else "[dim]0[/]"


def _partitions(keys: list[str]) -> str:
    if not keys:
        return ""
    return keys[0] if len(keys) == 1 else f"{len(keys)}: {keys[0]} … {keys[-1]}"


def _who(holder: dict[str, Any]) -> str:
    return f"{holder.get('application') or 'no name'} (pid {holder.get('pid')}, {holder.get('user')})"
