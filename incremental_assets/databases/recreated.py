"""What syncs do where the source's table may be another one than before, under its name: dropped and created anew, or
renamed into place.
"""

from collections.abc import Mapping
from typing import Any

from incremental_assets.core.comparison import Difference
from incremental_assets.core.container import Container, WhenRecreated
from incremental_assets.core.plan import Action
from incremental_assets.core.shown_text import counted
from incremental_assets.core.watermark import TableState
from incremental_assets.databases.column_numbers import numbers_after, numbers_read
from incremental_assets.databases.plan import TablePlan
from incremental_assets.databases.source import Relation
from incremental_assets.databases.stored_state import is_another, is_doubted, recreated_refusal


def decided(container: Container, plan: TablePlan, differ: Mapping[Difference, int], others: str | None) -> TablePlan | None:
    """The plan of a sync whose table was compared, because it may be another one; None if the sync goes on with the table as it is.
    ``differ``: how many rows do, of each kind. ``others``: how the columns do (``takeover.other_columns``), of a table that is certainly
    another one.

    Rows that the lake alone has are no sign of another table, as the source may have deleted them, or moved them above the watermark. But a
    table that is certainly another one is taken over only as ``adopt`` does it (``takeover.compared``). Raises RebuildNeeded where the YAML
    has it refused.
    """
    wrong = sum(number for kind, number in differ.items() if plan.is_certain or kind is not Difference.SURPLUS)
    if not wrong and others is None:
        return None
    differs = (
        counted(wrong, "row below the watermark differs", "rows below the watermark differ") + " from those in the lake"
        if others is None
        else f"its columns are others: {others}"
    )
    what = f"{plan.doubt}, and {differs}"
    if container.when_recreated is WhenRecreated.REFUSE:
        raise recreated_refusal(container, what)
    assert container.identifier is not None
    windows, nulls = (container.identifier.domain,), container.has_null_identifiers
    return plan.decided(Action.LOAD, f"loads the whole container anew: {what}", windows, nulls, whole=True, doubt=None)


def relation_after(plan: TablePlan, container: Container, relation: Relation, before: TableState) -> Mapping[str, Any]:
    """What to store of the source's table with the rows of a read, as fields of the state. ``before``: the state of the last commit, or a
    fresh one.

    If the table has become another one since the plan, what was known stays, so that the next sync finds it.
    """
    if not before.loaded or plan.proved == relation:
        return {"relation": relation.id, "numbers": numbers_read(container, relation) or None, "mark": relation.mark}
    reads_all = plan.action is Action.REFRESH and plan.request.keys is None
    if is_another(before, relation) or (is_doubted(before, relation) and not reads_all):
        return {"relation": before.relation, "numbers": before.numbers, "mark": before.mark}
    return {"relation": relation.id, "numbers": numbers_after(plan, container, relation, before), "mark": relation.mark}
