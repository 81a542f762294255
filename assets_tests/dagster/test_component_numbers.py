"""Numbers in ``defs.yaml``: a word where a number belongs is named; a number in quotes, as a template makes it, is a number.

Belongs here: every numeric attribute of every component. Does not belong: which numbers make sense (each component's own tests).
"""

from typing import Any

import pytest

from incremental_assets.core.errors import ConfigurationError
from incremental_assets.dagster.components.datastore import DatastoreComponent, numeric_attributes
from incremental_assets.dagster.components.files import FileDatastore
from incremental_assets.dagster.components.jdbc import JdbcDatastore
from incremental_assets.dagster.components.mysql import MySQLDatastore
from incremental_assets.dagster.components.postgres import PostgresDatastore
from incremental_assets.dagster.components.sqlserver import SQLServerDatastore

PLACES = {
    PostgresDatastore: {"url": "postgresql://u@localhost/shop"},
    MySQLDatastore: {"url": "mysql://u@localhost/shop"},
    JdbcDatastore: {"url": "jdbc:h2:mem:shop", "schema": "PUBLIC", "driver": "org.h2.Driver"},
    SQLServerDatastore: {"url": "sqlserver://u@localhost/shop"},
    FileDatastore: {"path": "landing"},
}
ATTRIBUTES = [(component, name) for component in PLACES for name in numeric_attributes(component)]
NO_NUMBERS = [
    (component, name, value)
    for component, name in ATTRIBUTES
    for value in ("soon", "", [1], True, float("nan"), "1e400", None)
    if value not in numeric_attributes(component)[name][1]
]


def made(component: Any, **attributes: Any) -> DatastoreComponent:
    return component(name="shop", **PLACES[component], **attributes)


@pytest.mark.parametrize(("component", "name", "value"), NO_NUMBERS, ids=str)
def test_an_attribute_that_is_no_number_is_named(component: type[DatastoreComponent], name: str, value: Any) -> None:
    """Without it, a typing error in the YAML ends in a TypeError of the product, which names neither the datastore nor the attribute."""
    with pytest.raises(ConfigurationError, match=f"^shop: {name} is .*; write a "):
        made(component, **{name: value}).settings()


@pytest.mark.parametrize(("component", "name"), ATTRIBUTES, ids=str)
def test_a_number_in_quotes_is_accepted(component: type[DatastoreComponent], name: str) -> None:
    """What an environment variable says in a template is a text."""
    one = made(component, **{name: "7"})
    one.settings()
    value = getattr(one, name)
    assert value == 7 and isinstance(value, numeric_attributes(component)[name][0])


def test_a_fraction_is_refused_where_a_whole_number_is_needed() -> None:
    with pytest.raises(ConfigurationError, match=r"max_source_connections is 3\.5; write a whole number"):
        made(PostgresDatastore, max_source_connections=3.5).settings()
