"""Whether Spark generates code for a session's queries.

Belongs here: the choice by the number of rows. Does not belong: who makes it (writes and scans).
"""

from pathlib import Path

from incremental_assets.spark.code_generation import FEW_ROWS, interpret_few
from incremental_assets.spark.session import open_session

SETTINGS = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")


def test_plans_over_few_rows_are_interpreted_and_a_larger_table_goes_by_the_server_again(spark_home: Path) -> None:
    """A scan of few rows would take twice as long; and a large table that comes after a small one in the same session far longer."""
    with open_session(spark_home, name="code generation") as session:
        of_the_server = [session.conf.get(name) for name in SETTINGS]
        interpret_few(session, FEW_ROWS)
        assert [session.conf.get(name) for name in SETTINGS] == ["false", "NO_CODEGEN"]
        session.conf.set(SETTINGS[0], "true")
        interpret_few(session, FEW_ROWS + 1)
        assert [session.conf.get(name) for name in SETTINGS] == of_the_server
