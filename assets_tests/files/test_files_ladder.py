"""Inferred columns of CSV widen by the ladder of ``core.ladder`` where a later file has other values; nothing is lost, no row is rejected.

Belongs here: real files, synced by both readers. Does not belong: types of new columns (``test_local_read``), and columns of databases
(``test_schema_changes``).
"""

import gzip
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets_tests.harness import Folder
from incremental_assets.core.errors import LakeError
from incremental_assets.core.ladder import Texts, next_type
from incremental_assets.core.schema import widens
from incremental_assets.delta import as_text
from incremental_assets.delta.engine import FILES_BY
from incremental_assets.files.rejected import rejected_table
from incremental_assets.spark.session import open_session

Make = Callable[..., Folder]
READERS = pytest.mark.parametrize("by", ["", pytest.param("spark", marks=pytest.mark.long)], ids=["read here", "read by Spark"])


def sales(folder: Make, **entry: Any) -> Folder:
    return folder(containers={"sales": {"glob": "*.csv*", "format": "csv", **entry}})


def type_of(project: Folder, name: str = "value") -> str:
    head = project.table("sales").head()
    assert head is not None
    return {column.name: column.type for column in head.columns}[name]


def columns(project: Folder, *names: str) -> list[list[str | None]]:
    """The values of columns as texts of Spark, in the order of the ids: delta-rs cannot read a table with widened columns."""
    with open_session(project.spark_home, name="test") as spark:
        frame = spark.read.format("delta").load(project.table("sales").url)
        rows = frame.orderBy("id").selectExpr(*(f"cast(`{name}` AS string)" for name in names)).collect()
    return [[row[number] for row in rows] for number in range(len(names))]


def values(project: Folder) -> list[str | None]:
    return columns(project, "value")[0]


def rejected(project: Folder) -> int:
    table = rejected_table(project.lake, ("landing", "sales")).opened()
    return 0 if table is None else table.count()


RUNGS = {
    "whole number, then one with a fraction": (["1", "-20"], ["12.5", "3"], "decimal(21,1)", ["1.0", "-20.0", "12.5", "3.0"]),
    "whole number of 18 digits, then a fraction": (["123456789012345678"], ["0.25"], "decimal(22,2)", ["123456789012345678.00", "0.25"]),
    "whole number, then one that is too large": (["7"], ["92233720368547758070"], "decimal(20,0)", ["7", "92233720368547758070"]),
    "whole number, then more digits than any number has": (["7"], ["1" * 39], "string", ["7", "1" * 39]),
    "whole number, then text": (["1", "20"], ["n/a", "3"], "string", ["1", "20", "n/a", "3"]),
    "double, then text": (["1.5", "12345678.25", "0.00001"], ["x"], "string", ["1.5", "12345678.25", "0.00001", "x"]),
    "date, then a time": (["2026-01-31"], ["2026-02-01 10:30:00"], "timestamp_ntz", ["2026-01-31 00:00:00", "2026-02-01 10:30:00"]),
    "date, then text": (["2026-01-31"], ["soon"], "string", ["2026-01-31", "soon"]),
    "date, then a time with zone": (["2026-01-31"], ["2026-02-01T10:30:00Z"], "string", ["2026-01-31", "2026-02-01T10:30:00Z"]),
    "time, then text": (["2026-01-31T10:00:00.5"], ["later"], "string", ["2026-01-31 10:00:00.5", "later"]),
    "time with zone, then text": (["2026-01-31T10:00:00+02:00"], ["later"], "string", ["2026-01-31 08:00:00Z", "later"]),
    "true or false, then text": (["true", "false"], ["maybe"], "string", ["true", "false", "maybe"]),
    "true or false, then numbers": (["true", "false"], ["1", "0"], "string", ["true", "false", "1", "0"]),
    "whole number, then one with zeros before it": (["1", "12345"], ["01234", "00"], "string", ["1", "12345", "01234", "00"]),
    "double, then one with zeros before it": (["1.5"], ["01.5"], "string", ["1.5", "01.5"]),
    "double, then digits that none has": (["1.5"], ["123456789.123456789"], "string", ["1.5", "123456789.123456789"]),
    "double, then digits that one has": (
        ["1.5"],
        ["0.30000000000000004", "1e5", "NaN"],
        "double",
        ["1.5", "0.30000000000000004", "100000.0", "NaN"],
    ),
    "whole number, then one with a plus": (["491234"], ["+491234", "5"], "string", ["491234", "+491234", "5"]),
    "double, then one with a plus": (["1", "2.5"], ["+2.5"], "string", ["1", "2.5", "+2.5"]),
    "other forms of the same value": (["1"], ["-0"], "bigint", ["1", "0"]),
}


@pytest.mark.long
@READERS
def test_each_column_widens_to_its_next_rung(folder: Make, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """The rows of a file whose columns have become wider would all be rejected, or old values would be others."""
    monkeypatch.setenv(FILES_BY, by)
    names = [f"c{number}" for number in range(len(RUNGS))]

    def content(first: int, columns: list[list[str]]) -> str:
        rows = [[column[at] if at < len(column) else "" for column in columns] for at in range(max(map(len, columns)))]
        return "\n".join([",".join(["id", *names]), *(",".join([str(at), *row]) for at, row in enumerate(rows, first)), ""])

    project = sales(folder)
    project.put("a.csv", content(0, [before for before, _, _, _ in RUNGS.values()]))
    project.one("sales")
    old = {name: type_of(project, name) for name in names}
    project.put("b.csv", content(10, [after for _, after, _, _ in RUNGS.values()]))
    line = project.one("sales")
    assert (line["status"], rejected(project)) == ("synced", 0), line
    for name, rung, (_, _, wanted, shown), found in zip(names, RUNGS, RUNGS.values(), columns(project, *names), strict=True):
        assert type_of(project, name) == wanted, rung
        assert [value for value in found if value is not None] == shown, rung
        if wanted == old[name]:
            continue
        was = f"was widened from {old[name]} to {wanted}" if widens(old[name], wanted) else f"was {old[name]} and is {wanted} now"
        assert f"column {name} {was}" in line["message"], rung
    assert project.one("sales")["status"] == "skipped"


@READERS
def test_a_file_that_is_half_old_and_half_new_loses_no_row(folder: Make, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """The half that fits would be in the table, and the other one rejected."""
    monkeypatch.setenv(FILES_BY, by)
    project = sales(folder)
    project.put("a.csv", "id,value,other\n0,1,x\n")
    project.one("sales")
    rows = [f"{i},{i if i <= 500 else f'{i}.75'},y" for i in range(1, 1001)]
    project.put("b.csv", "id,value,other\n" + "\n".join([*rows, "1001,,z", "1002,5"]) + "\n")
    line = project.one("sales")
    assert line["status"] == "warning" and "1 row of 1 file did not fit" in line["message"], "a line with too few cells is still rejected"
    assert type_of(project) == "decimal(22,2)" and type_of(project, "other") == "string"
    wanted = [1, *(Decimal(i) if i <= 500 else Decimal(f"{i}.75") for i in range(1, 1001)), None]
    assert [None if one is None else Decimal(one) for one in values(project)] == wanted


@pytest.mark.long
@READERS
def test_columns_of_json_widen_and_lose_no_digit(folder: Make, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """A later file would be rounded where the first one was exact, or its rows rejected; doubles of programs would become text."""
    monkeypatch.setenv(FILES_BY, by)
    project = folder(containers={"sales": {"glob": "*.json", "format": "json"}})
    project.put("a.json", '{"id": 0, "value": 7, "flag": true, "price": 1.5, "nested": {"a": 1.10}}\n')
    assert project.one("sales")["status"] == "synced"
    lines = [
        '{"id": 1, "value": 1234567890123456.78, "flag": "x", "price": 0.30000000000000004, "nested": [ 1.10 ]}',
        '{"id": 2, "value": 9, "flag": null, "price": 1234567890123456.78}',
    ]
    project.put("b.json", "\n".join(lines) + "\n")
    line = project.one("sales")
    assert (line["status"], rejected(project)) == ("warning", 1), "a double that exists stays, and what it does not hold is rejected"
    wanted = [["7.00", "1234567890123456.78"], ["true", "x"], ["1.5", "0.30000000000000004"], ['{"a": 1.10}', "[ 1.10 ]"]]
    assert columns(project, "value", "flag", "price", "nested") == wanted
    assert [type_of(project, name) for name in ("value", "flag", "price")] == ["decimal(22,2)", "string", "double"]


@pytest.mark.long
def test_a_column_climbs_several_rungs(folder: Make) -> None:
    """A second change would fail, as the table has Delta's type widening by then."""
    project = sales(folder)
    for number, value in enumerate(["1", "2.5", "3.125", "1" * 25, "n/a"]):
        project.put(f"f{number}.csv", f"id,value\n{number},{value}\n")
        line = project.one("sales")
        assert line["status"] == "synced", line
    assert type_of(project) == "string" and values(project) == ["1", "2.5", "3.125", "1" * 25, "n/a"]
    audited = project.audit("sales")["sales"]
    assert audited["status"] == "equal", audited


@pytest.mark.long
def test_both_readers_make_the_same_table(folder: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them reads a file depends on its name and size; its rows must not."""
    tables: list[Any] = []
    for by, packed in (("", False), ("spark", False), ("", True)):
        monkeypatch.setenv(FILES_BY, by)
        project = sales(folder)
        for number, row in enumerate(["0,1,2026-01-01,true,1.5", "1,2.5,2026-01-02 10:00:00,maybe,2.5", "2,x,,,3.5"]):
            content = f"id,value,day,flag,price\n{row}\n".encode()
            project.put(f"f{number}.csv{'.gz' if packed else ''}", gzip.compress(content) if packed else content)
            assert project.one("sales")["status"] == "synced"
        head = project.table("sales").head()
        assert head is not None
        tables.append((head.columns, columns(project, "value", "day", "flag", "price")))
    assert tables[0] == tables[1] == tables[2]


@pytest.mark.long
def test_a_declared_type_stays(folder: Make) -> None:
    """Whoever declares a type wants to see the rows that do not fit it."""
    project = sales(folder, columns={"value": "bigint"})
    project.put("a.csv", "id,value\n0,1\n")
    project.put("b.csv", "id,value\n1,2.5\n")
    line = project.one("sales")
    assert line["status"] == "warning" and rejected(project) == 1 and type_of(project) == "bigint", line
    project.put("c.csv", "id,value\n2,n/a\n")
    assert project.one("sales")["status"] == "warning" and rejected(project) == 2


@pytest.mark.long
def test_a_large_table_is_not_rewritten(folder: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single odd cell would make a terabyte be written anew."""
    monkeypatch.setattr(as_text, "REWRITTEN_BYTES", 10)
    project = sales(folder)
    project.put("a.csv", "id,value,other\n0,1,2\n")
    project.one("sales")
    project.put("b.csv", "id,value,other\n1,n/a,2\n2,2,2.5\n")
    line = project.one("sales")
    assert line["status"] == "warning" and "value would have to become text" in line["message"], line
    assert (type_of(project), type_of(project, "other"), rejected(project)) == ("bigint", "decimal(21,1)", 1)
    assert values(project) == ["1", "2"]


@pytest.mark.long
def test_a_table_is_rewritten_in_one_commit_and_older_versions_stay(folder: Make) -> None:
    """Readers would see half a table, or nobody could look up what the values were, or what somebody has noted of a column."""
    project = sales(folder)
    project.put("a.csv", "id,value\n0,1\n")
    project.one("sales")
    with open_session(project.spark_home, name="test") as spark:
        for name in ("id", "value"):
            spark.sql(f"ALTER TABLE delta.`{project.table('sales').url}` ALTER COLUMN {name} COMMENT 'the {name}'")
    before = project.table("sales").head()
    project.put("b.csv", "id,value\n1,n/a\n")
    project.one("sales")
    head, commits = project.table("sales").head(), project.table("sales").commits(10)
    assert before is not None and head is not None and head.table_id == before.table_id
    written = [one for one in commits if one.version > before.version and one.operation == "WRITE"]
    assert len(written) == 2, "the table as it was, with text; and the new rows"
    assert all(one.commit_metadata["container"] == "landing/sales" for one in written)
    with open_session(project.spark_home, name="test") as spark:
        at = spark.read.format("delta").option("versionAsOf", before.version).load(project.table("sales").url)
        assert [row["value"] for row in at.collect()] == [1]
        fields = spark.read.format("delta").load(project.table("sales").url).schema.fields
        assert [field.metadata.get("comment") for field in fields] == [None, None, "the id", "the value"]


@pytest.mark.long
@pytest.mark.parametrize(
    "other",
    [
        "INSERT INTO {0} SELECT * FROM {0}",
        pytest.param("REPLACE TABLE {0} USING delta AS SELECT id, 'n' AS value FROM {0}", marks=pytest.mark.long),
    ],
)
def test_what_another_writer_commits_before_spark_begins_is_not_lost(folder: Make, monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    """Spark begins to rewrite the table late, perhaps after the sync was killed and another one has written."""
    project = sales(folder)
    project.put("a.csv", "id,value\n0,100\n")
    project.one("sales")
    url = project.table("sales").url
    project.put("b.csv", "id,value\n1,2.5\n")
    project.one("sales")
    project.put("c.csv", "id,value\n2,n/a\n")
    found: list[list[tuple[int, str]]] = []

    def begins_late(*_: object) -> None:
        with open_session(project.spark_home, name="test") as spark:
            spark.sql(other.format(f"delta.`{url}`"))

    def rows(*_: object) -> None:
        with open_session(project.spark_home, name="test") as spark:
            found.append(sorted((row["id"], row["value"]) for row in spark.read.format("delta").load(url).collect()))
        raise LakeError("seen")

    with monkeypatch.context() as late:
        late.setattr(as_text, "expect_unmoved", begins_late)
        late.setattr(as_text, "newest", rows)
        line = project.one("sales", ok=False)
    assert line["status"] == "failed", line
    if other.startswith("INSERT"):
        assert found == [[(0, "100"), (0, "100"), (1, "2.5"), (1, "2.5")]]
    else:
        assert not found, "the rewriting has failed"
        assert values(project) == ["n", "n"]


TYPES = ["bigint", "double", "date", "timestamp", "timestamp_ntz", "boolean"]


@given(st.sampled_from(TYPES), st.lists(st.builds(Texts, st.just(1), st.booleans(), st.integers(0, 40), st.integers(0, 40), st.booleans())))
def test_each_rung_is_above_the_one_before(type_: str, texts: list[Texts]) -> None:
    """A column would go back to a narrower type, or round its old values."""
    for one in texts:
        new = next_type(type_, one)
        assert new == "string" or widens(type_, new), (type_, new)
        if new == "string":
            return
        type_ = new
