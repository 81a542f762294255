"""Options of CSV, and lines that are no data: what they do, and what is said of those that do nothing or do not exist.

Belongs here: real files, read by Spark. Does not belong: rows of several lines and quotes (``test_csv_rows``).
"""

import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pytest

from assets_tests.files import test_file_reading
from assets_tests.files.test_file_reading import Read
from assets_tests.harness import Folder, long
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.core.files import FileFormat
from incremental_assets.files.readers.proposals import proposed_options
from incremental_assets.files.readers.reading import Reading

spark, scope, read = test_file_reading.spark, test_file_reading.scope, test_file_reading.read
ReadFiles = Callable[..., Read]

CASES: dict[str, tuple[Mapping[str, str], Mapping[str, str], bytes, list[list[Any]]]] = {
    "german numbers": (
        {"sep": ";", "decimal": ",", "thousands": "."},
        {"b": "decimal(12,2)"},
        b"a;b;c\n1.234,5;1.234,56;x\n-7;12;1.5\n",
        [[-7.0, Decimal(12), "1.5"], [1234.5, Decimal("1234.56"), "x"]],
    ),
    "thousands": ({"thousands": ","}, {"b": "bigint"}, b'a,b,c\n"1,234","12,345,678",x\n5,6,7\n', [[5, 6, "7"], [1234, 12345678, "x"]]),
    "truth": ({"true_values": '["ja", "Y"]', "false_values": "nein"}, {}, b"a,b\nJA,1\nnein,2\ny,3\n", [[False, 2], [True, 1], [True, 3]]),
    "no value": ({"nullValue": '["NA", "\\\\N"]'}, {}, b"a,b\nNA,1\n5,\\N\n6,x\n", [[5, None], [6, "x"], [None, "1"]]),
    "one no value": ({"nullValue": "NA"}, {}, b"a,b\nNA,1\n5,2\n", [[5, 2], [None, 1]]),
    "lines before and after": (
        {"skip_lines": "2", "skip_footer": "2"},
        {},
        b'Report "of, today\n\na,b\n1,"2\n3"\n4,5\nTotal,,9\nend',
        [[1, "2\n3"], [4, "5"]],
    ),
    "after, with a last end": ({"skip_footer": "1"}, {}, b"a,b\n1,2\nTotal: 1\n", [[1, 2]]),
    "more than there are": ({"skip_lines": "9"}, {"a": "int"}, b"a,b\n1,2\n", []),
    "dates": ({"dateFormat": "dd.MM.yyyy"}, {"a": "date"}, b"a,b\n31.12.2024,1\n", [[datetime.date(2024, 12, 31), 1]]),
    "sep in the first line": ({}, {}, b"sep=;\r\na;b\r\n1;2,5\r\n", [[1, "2,5"]]),
    "a tab in the first line": ({"sep": ";"}, {}, b'\xef\xbb\xbf"sep=\t"\na\tb\n1\t"x\ny"\n', [[1, "x\ny"]]),
}


@pytest.mark.parametrize("name", ["german numbers", "lines before and after", "sep in the first line", *long(*CASES)])
def test_options_say_how_values_are_written(read: ReadFiles, name: str) -> None:
    """A table would have text for numbers, rows that are none, or the columns of a line that is no header."""
    options, types, content, rows = CASES[name]
    found = read({"a.csv": content}, options=options, types=types)
    assert not found.bad and not found.refused
    assert sorted((list(row.values())[2:] for row in found.good), key=str) == sorted(rows, key=str)


def test_a_separator_is_that_of_its_file(read: ReadFiles) -> None:
    """A file that names its separator would be read by that of the others."""
    found = read({"a.csv": b"id,x\n1,a\n", "b.csv": b"sep=;\nid;x\n2;b\n", "c.csv": b"sep=|\nid|x\n3|c,d\n"})
    assert sorted((row["id"], row["x"]) for row in found.good) == [(1, "a"), (2, "b"), (3, "c,d")]


def test_a_title_before_the_header_is_refused_with_the_number_of_lines(read: ReadFiles) -> None:
    """The title would be the column, and each row would be rejected."""
    rows = b"id,name\n1,a\n2,b\n"
    files = {"a.csv": b"Report of today\n\n" + rows, "b.csv": b"x,y,z\n" + rows, "one.csv": b"id\n1\n2,x\n", "good.csv": rows}
    found = read(files)
    assert set(found.refused) == {"a.csv", "b.csv"} and set(found.counts) == {"one.csv", "good.csv"}
    assert "skip_lines: 2" in found.refused["a.csv"] and "skip_lines: 1" in found.refused["b.csv"]


@pytest.mark.long
def test_a_number_in_another_way_of_writing_is_rejected_with_a_hint(read: ReadFiles) -> None:
    """Nobody could tell what to do with a thousand rejected rows."""
    found = read({"a.csv": b'n,x\n"1.234,56",a\n"1,234.5",b\nx,c\n'}, types={"n": "decimal(12,2)"})
    reasons = {line[-1]: reason for _, line, reason in found.bad}
    assert "decimal: ','" in reasons["a"] and "thousands: ','" in reasons["b"] and "options" not in reasons["c"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delimter": ";"}, "there is no delimter for csv. Nearest: delimiter"),
        ({"skip_rows": "1"}, "skip_lines"),
        ({"skip_lines": "two"}, "it is a number of lines"),
        ({"decimal": ",,"}, "it is one character"),
        ({"thousands": "."}, "both"),
        ({"thousands": ",", "decimal": ","}, "both"),
    ],
)
def test_an_option_that_does_not_exist_is_refused(options: Mapping[str, str], words: str) -> None:
    """A slip of the pen in the YAML would do nothing, without a word."""
    with pytest.raises(ConfigurationError, match=words):
        Reading(FileFormat.CSV, options)


@pytest.mark.long
def test_an_option_without_effect_is_said_and_others_go_on(folder: Callable[..., Folder]) -> None:
    """Whoever knows Spark's reader would believe that the option does here what it does there; or one slip would stop all containers."""
    project = folder(
        containers={
            "de": {"glob": "de*.csv", "options": {"locale": "de", "nullValue": ["NA", "-"], "header": True}},
            "slip": {"glob": "slip*.csv", "options": {"delimter": ";"}},
        }
    )
    project.put("de.csv", "id,x\n1,NA\n2,-\n3,5\n")
    project.put("slip.csv", "id,x\n1,2\n")
    lines = project.sync("de", "slip")
    line, slip = lines["de"], lines["slip"]
    assert line["status"] == "warning" and "locale has no effect for csv: say decimal and thousands" in line["message"], line
    assert sorted(x or 0 for (x,) in project.rows("de", "x")) == [0, 0, 5]
    assert slip["status"] == "failed" and "Nearest: delimiter" in slip["message"], slip


@pytest.mark.parametrize(
    ("head", "proposed"),
    [
        (b"id,name\n1,a\n2,b\n", []),
        (b"id;name\n1;a,b\n2;c\n", ["sep: ';'"]),
        (b"id\tname\n1\ta\n", ['sep: "\\t"']),
        (b"Report\n\nid,name\n1,a\n2,b\n", ["skip_lines: 2"]),
        (b"1,2024-01-01\n2,2024-01-02\n", ["header: 'false'"]),
        (b'id,s\n1,"a \\"b\\" c"\n', ["escape: '\\'"]),
        (b'id;n;m\n1;"1.234,56";NA\n2;7;1.5\n', ["sep: ';'", "nullValue: ['NA']", "decimal: ',', thousands: '.'"]),
        ("id,größe\n1,2\n".encode("latin-1"), ["encoding: windows-1252"]),
        ("id,x\n1,2\n".encode("utf-16"), ["encoding: utf-16"]),
    ],
    ids=["none", "sep", "tab", "title", "header", "escape", "numbers", "encoding", "utf-16"],
)
def test_first_lines_show_which_options_are_needed(head: bytes, proposed: list[str]) -> None:
    """Whoever adds a folder would find out one rejected row after the other, or not at all."""
    assert [option for option, _ in proposed_options(head, Reading(FileFormat.CSV))] == proposed


def test_the_catalog_proposes_options_with_its_reason(folder: Callable[..., Folder]) -> None:
    """Nobody would see that a column is text because of three letters."""
    project = folder()
    project.put("sales/a.csv", "id;n\n1;NA\n2;5\n")
    project.put("plain/a.csv", "id,n\n1,2\n")
    said: list[str] = []
    project.component.take_catalog(None, progress=said.append)
    assert [one for one in said if "options" in one] == [
        "landing/sales_a: sales/a.csv seems to need options: {sep: ';', nullValue: ['NA']}, as each of its first lines has 2 cells then; "
        "among numbers stands NA."
    ]
