"""Reads from the events of a run what it has written, and how it ended."""

from collections.abc import Sequence

import dagster as dg
from dagster_shared.error import SerializableErrorInfo

_OURS = ("incremental_assets.", f"{dg.Failure.__module__}.{dg.Failure.__name__}: ")
"""How Dagster writes this package's own errors, and the one of Dagster's that this package raises."""
INTERRUPTED = "it was interrupted, terminated, or took longer than max_runtime_seconds; the next sync reads what was not committed"
"""What is said of a run that has not ended by itself, in place of the name of Dagster's exception."""


def asset_events_of(instance: dg.DagsterInstance, run_id: str) -> list[dg.DagsterEvent]:
    """Returns the asset observations and materializations of a run, or of those of its steps that have ended, as the event log stores them.

    The events that ``execute_run`` returns are not enough for a failed run: they lack what the failed step has logged.
    """
    kinds = {dg.DagsterEventType.ASSET_OBSERVATION, dg.DagsterEventType.ASSET_MATERIALIZATION}
    return [entry.dagster_event for entry in instance.all_logs(run_id, of_type=kinds) if entry.dagster_event is not None]


def is_interrupted(events: Sequence[dg.DagsterEvent]) -> bool:
    """Whether the step of the run failed because of an interrupt (KeyboardInterrupt, or Dagster's own exception for it)."""
    errors = [event.step_failure_data.error for event in events if event.is_step_failure]
    return any(error is not None and "Interrupt" in (error.cls_name or "") for error in errors)


def failure_of(events: Sequence[dg.DagsterEvent]) -> tuple[str | None, str]:
    """The class name and the message of the error that made a run fail; ``(None, "")`` where it did not fail.

    The error is that of ``reason_of``. The class name is "" where Dagster recorded none.
    """
    for event in events:
        if event.is_step_failure:
            error = event.step_failure_data.error
            if error is None:
                return "", event.message or "failed"
            chosen, text = reason_of(error)
            return chosen.cls_name or "", INTERRUPTED if text is None and is_interrupted([event]) else text or chosen.message.strip()
    failed = next((e for e in events if e.is_failure), None)
    return (None, "") if failed is None else ("", failed.message or "failed")


def reason_of(error: SerializableErrorInfo) -> tuple[SerializableErrorInfo, str | None]:
    """Of a chain of causes this package's own error, else the innermost one; and the message of this package's own error, without the class
    name that Dagster puts in front of it. The message is None for an error of others."""
    chain = [error]
    while chain[-1].cause is not None:
        chain.append(chain[-1].cause)
    ours = next((one for one in chain if one.message.startswith(_OURS)), None)
    return (chain[-1], None) if ours is None else (ours, ours.message.strip().partition(": ")[2])
