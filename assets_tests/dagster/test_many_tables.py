"""A datastore of very many tables: what is done for each does not depend on how many there are."""

import pytest

from benchmarks.tables import catalog, datastore
from incremental_assets.core.container import SourceTable
from incremental_assets.databases.definition import DatastoreSettings, definitions_of


@pytest.mark.parametrize("specified", [False, True])
def test_the_work_for_each_table_does_not_grow_with_the_number_of_tables(monkeypatch: pytest.MonkeyPatch, specified: bool) -> None:
    """Loading 10,000 tables took over a minute while a map of all their columns was made for each of them."""
    looks = [0]
    plain = SourceTable.__getattribute__

    def counted(table: SourceTable, name: str) -> object:
        looks[0] += 1
        return plain(table, name)

    def looks_a_table(tables: int) -> float:
        settings, known = datastore(tables, specified=specified).settings(), catalog(tables)
        looks[0] = 0
        with monkeypatch.context() as patched:
            patched.setattr(SourceTable, "__getattribute__", counted)
            assert len(definitions_of(settings, known)) == tables
        return looks[0] / tables

    assert looks_a_table(200) == looks_a_table(10)


def test_the_maps_of_specifications_are_made_once() -> None:
    settings = datastore(10, specified=True).settings()
    assert isinstance(settings, DatastoreSettings)
    assert settings.specs is settings.specs and settings.named is settings.named
