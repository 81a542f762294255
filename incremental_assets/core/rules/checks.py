"""The entries under ``checks:`` of a container: all kinds of rules together."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.rules.declared import Declared, NotDeclared
from incremental_assets.core.rules.keys import AnyKeyRule
from incremental_assets.core.rules.numbers import AnyAggregateRule
from incremental_assets.core.rules.rule import Rule
from incremental_assets.core.rules.table import AnyTableRule
from incremental_assets.core.rules.values import AnyRowRule

AnyRule = Annotated[AnyRowRule | AnyKeyRule | AnyAggregateRule | AnyTableRule, Field(discriminator="rule")]
"""Any entry under ``checks:``. Its attribute ``rule`` decides which class it is."""


def check_rules(
    label: str,
    rules: Sequence[Rule],
    columns: Sequence[str] | None,
    containers: Mapping[str, Sequence[str] | None],
    has_partitions: bool = True,
) -> None:
    """Raises ConfigurationError, beginning with the place in the YAML, if a rule of the container ``label`` cannot be right.

    The arguments are described in ``Declared``.
    """
    declared = Declared(label, columns, containers, has_partitions)
    seen: dict[str, Rule] = {}
    for rule in rules:
        try:
            # Ids are names of Dagster asset checks and parts of anomaly fingerprints, so they must be unique.
            other = seen.setdefault(rule.id.lower(), rule)
            if other is not rule:
                there = f" ({other.place})" if other.place else ""
                raise NotDeclared(f"another rule has the id {rule.id!r} too{there}; give one of them a name")
            rule.check(declared)
        except NotDeclared as error:
            place = f"{rule.place}: " if rule.place else ""
            raise ConfigurationError(f"{place}{label}: check {rule.id}: {str(error).rstrip('.')}.") from error
