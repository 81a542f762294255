"""What the events of a run that has ended say of its end.

Belongs here: reading them. Does not belong: what a sync or a catalog wrote into them (``result``).
"""

from collections.abc import Sequence

import dagster as dg


def told_by(instance: dg.DagsterInstance, run_id: str) -> list[dg.DagsterEvent]:
    """What its assets told, as it is stored: a step that fails takes what it has logged out of the events that the run returns."""
    kinds = {dg.DagsterEventType.ASSET_OBSERVATION, dg.DagsterEventType.ASSET_MATERIALIZATION}
    return [entry.dagster_event for entry in instance.all_logs(run_id, of_type=kinds) if entry.dagster_event is not None]


def is_interrupted(events: Sequence[dg.DagsterEvent]) -> bool:
    """Whether the run's step was."""
    errors = [event.step_failure_data.error for event in events if event.is_step_failure]
    return any(error is not None and "Interrupt" in (error.cls_name or "") for error in errors)


def failure_of(events: Sequence[dg.DagsterEvent]) -> tuple[str | None, str]:
    """The class and the message of the innermost error of a failed run, and (None, "") where none failed. Ours come without their class."""
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
            text = chosen.message.strip()
            return chosen.cls_name or "", text.partition(": ")[2] if ours else text
    failed = next((e for e in events if e.is_failure), None)
    return (None, "") if failed is None else ("", failed.message or "failed")
