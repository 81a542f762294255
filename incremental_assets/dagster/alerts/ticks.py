"""What is wrong with the schedules and sensors, by what Dagster's daemon has recorded of their ticks.

Belongs here: which of this is a problem, and the words. Does not belong: the containers (``problems``).
"""

import dagster as dg
from dagster._core.scheduler.instigation import InstigatorStatus, TickStatus

from incremental_assets.dagster.alerts.problems import Problem, Severity, as_line


def failed_ticks(instance: dg.DagsterInstance) -> dict[str, Problem]:
    """The schedules and sensors whose last tick has failed, by their keys. Those that are switched off do not count."""
    problems: dict[str, Problem] = {}
    for state in instance.all_instigator_state():
        if state.status not in (InstigatorStatus.RUNNING, InstigatorStatus.DECLARED_IN_CODE):
            continue
        ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
        if ticks and ticks[0].status is TickStatus.FAILURE:
            error = ticks[0].error
            text = f"{state.instigator_name}: its last tick has failed: {as_line(error.message if error else '')}"
            problems[f"tick {state.instigator_name}"] = Problem(Severity.FAILURE, text)
    return problems
