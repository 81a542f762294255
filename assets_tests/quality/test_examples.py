"""A failed row in the words of a message: the values that its rule is about, and its key."""

from incremental_assets.core.rules.examples import example, key_of, value_of
from incremental_assets.core.rules.values import Between, Compare, Expression, NotNull, Operator

ROW = '{"id":4711,"Seats":0,"note":"a\\nb","price":0.12345678901234567890,"gate":null,"extra":{"a":1}}'


def test_the_values_are_those_that_the_rule_names() -> None:
    """A whole row would hide the value that is wrong, and would show what has nothing to do with it."""
    assert value_of(Between(column="seats", min=1, max=600), ROW) == "Seats = 0"
    assert value_of(NotNull(columns=("gate", "id")), ROW) == "id = 4711, gate = NULL"
    assert value_of(Compare(column="price", operator=Operator.GREATER, field="seats"), ROW) == "Seats = 0, price = 0.12345678901234567890"
    assert value_of(Expression(expression="SEATS % 2 = 1 and extra is null"), ROW) == 'Seats = 0, extra = {"a": 1}'
    assert value_of(Expression(expression="1 = 0"), ROW) is None


def test_a_long_value_is_cut_and_none_begins_a_new_line() -> None:
    """A document in a column would be the whole message, and a line break in one a problem of its own."""
    assert value_of(NotNull(columns=("note",)), ROW) == "note = 'a\\nb'"
    long = value_of(NotNull(columns=("note",)), f'{{"note":"{"x" * 500}"}}')
    assert long == f"note = '{'x' * 60}…'"
    assert key_of(f'{{"id":"{"7" * 500}"}}') == f"id {'7' * 60}…"


def test_a_key_of_several_columns_names_each() -> None:
    assert key_of('{"order":"12","line":null}') == "order 12, line NULL"
    assert example("seats = 0", '{"id":"4711"}') == ", e.g. seats = 0 (id 4711)"
    assert (example(None, '{"id":"4711"}'), example("seats = 0", None), example(None, None)) == (", e.g. id 4711", ", e.g. seats = 0", "")
