"""Whether Spark generates code for a session's queries.

Belongs here: the choice by the number of rows. Does not belong: who makes it (writes and scans).
"""

from pathlib import Path

from incremental_assets.spark.code_generation import FEW_ROWS, interpret_few
from incremental_assets.spark.session import open_session

SETTINGS = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")


def test_plans_over_few_rows_are_interpreted_and_those_over_more_go_by_the_server(spark_home: Path) -> None:
    """A scan of few rows would take twice as long, and one of many rows far longer."""
    with open_session(spark_home, name="code generation") as session:
        session.conf.set(SETTINGS[0], "true")
        session.conf.set(SETTINGS[1], "FALLBACK")
        interpret_few(session, FEW_ROWS + 1)
        assert [session.conf.get(name) for name in SETTINGS] == ["true", "FALLBACK"]
        interpret_few(session, FEW_ROWS)
        assert [session.conf.get(name) for name in SETTINGS] == ["false", "NO_CODEGEN"]
