"""Reads from the events of a run what it has written, and how it ended.

Belongs here: reading the events. Does not belong: what a sync or a catalog records in them (``delta.result``, ``catalog_asset``).
"""

from collections.abc import Sequence

import dagster as dg

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

    Of a chain of causes this package's own error is chosen, else the innermost one. The message of this package's own error comes without
    the class name that Dagster puts in front of it. The class name is "" where Dagster recorded none.
    """
    for event in events:
        if event.is_step_failure:
            error = event.step_failure_data.error
            if error is None:
                return "", event.message or "failed"
            chain = [error]
            while chain[-1].cause is not None:
                chain.append(chain[-1].cause)
            ours = next((e for e in chain if e.message.startswith("incremental_assets.")), None)
            chosen = ours or chain[-1]
            if ours is None and is_interrupted([event]):
                return chosen.cls_name or "", INTERRUPTED
            text = chosen.message.strip()
            return chosen.cls_name or "", text.partition(": ")[2] if ours else text
    failed = next((e for e in events if e.is_failure), None)
    return (None, "") if failed is None else ("", failed.message or "failed")
