"""CSV as everybody writes it (RFC 4180): cells of several lines, quotes, characters. Never a wrong row; what is no row is named.

Belongs here: real files, which both readers read in each case. Does not belong: types of cells (``test_file_reading``).
"""

import gzip
import random
from collections.abc import Callable

import pytest

from assets_tests.files import test_file_reading
from assets_tests.files.test_file_reading import Read
from assets_tests.harness import long
from incremental_assets.core.errors import SourceError
from incremental_assets.core.files import FileFormat, Limits
from incremental_assets.files.readers.quoting import MarkedLines
from incremental_assets.files.readers.reading import ReadFile, Reading

spark, scope, read = test_file_reading.spark, test_file_reading.scope, test_file_reading.read
ReadFiles = Callable[..., Read]

SPECTRUM = {
    "comma in quotes": (b'a,b,c\nJohn,"Anytown, WW",08123\n', [("John", "Anytown, WW", "08123")]),
    "empty": (b'a,b,c\n1,"",""\nx,3,4\n', [("1", None, None), ("x", "3", "4")]),
    "escaped quotes": (b'a,b\nx,"ha ""ha"" ha"\n3,4\n', [("x", 'ha "ha" ha'), ("3", "4")]),
    "json": (b'a,b\nx,"{""type"": ""Point"", ""coordinates"": [102.0, 0.5]}"\n', [("x", '{"type": "Point", "coordinates": [102.0, 0.5]}')]),
    "U+FFFD": ("a,b,c\nx,37\ufffd36'37.8\"N,y\n".encode(), [("x", "37\ufffd36'37.8\"N", "y")]),
    "newlines": (b'a,b,c\nx,2,3\n"Once upon \na time",5,6\n7,8,9\n', [("x", "2", "3"), ("Once upon \na time", "5", "6"), ("7", "8", "9")]),
    "newlines, as many cells": (b'a,b\nx,"1\ny,2"\nz,3\n', [("x", "1\ny,2"), ("z", "3")]),
    "newlines of Windows": (b'a,b\r\nx,"1\r\n2\r3"\r\n4,5\r\n', [("x", "1\r\n2\r3"), ("4", "5")]),
    "newlines of the old Mac": (b'a,b\rx,"1\r2"\r4,5\r', [("x", "1\r2"), ("4", "5")]),
    "quotes and newlines": (b'a,b\nx,"ha \n""ha"" \nha"\n3,4\n', [("x", 'ha \n"ha" \nha'), ("3", "4")]),
    "newlines at both ends": (b'a,b\n"\nx\n","\n"\n"",y\n', [("\nx\n", "\n"), (None, "y")]),
    "newlines and inches": (b'a,b\n5" pipe,"two\nlines"\nx,"3"\n', [('5" pipe', "two\nlines"), ("x", "3")]),
    "newlines and U+FFFD": ('a,b\nx,"\ufffd\n\ufffd"\n'.encode(), [("x", "\ufffd\n\ufffd")]),
    "newlines in a header": (b'a,"b\nc"\nx,1\ny,"2\n3"\n', [("x", "1"), ("y", "2\n3")]),
    "newlines and white space": (b'a,b\nx,"1\n2" \ny,z\n', [("x", "1\n2"), ("y", "z")]),
    "byte order mark": (b'\xef\xbb\xbf"a","b"\nx,"1\n2"\n', [("x", "1\n2")]),
    "a long first cell": (b"a,b\n" + b"x" * 140_000 + b",y\n", [("x" * 140_000, "y")]),
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, pytest.param(True, marks=pytest.mark.long)], ids=["plain", "packed"])
def test_csv_is_read_as_it_was_written(read: ReadFiles, packed: bool) -> None:
    """A cell of several lines would be rejected, or its second line would be a row of its own; a file with one odd character refused."""
    ending = ".csv.gz" if packed else ".csv"
    found = read({f"{i}{ending}": gzip.compress(one) if packed else one for i, (one, _) in enumerate(SPECTRUM.values())})
    assert not found.refused and not found.bad
    assert found.columns == {"a": "string", "b": "string", "c": "string", "b\nc": "string"}
    for i, (name, (_, rows)) in enumerate(SPECTRUM.items()):
        own = [row for row in found.good if row["_file"] == f"{i}{ending}"]
        cells = [(row["a"], row["b"] or row["b\nc"], *([row["c"]] if len(rows[0]) > 2 else ())) for row in own]
        assert sorted(cells, key=str) == sorted(rows, key=str), name


def test_what_is_no_row_is_rejected_as_a_whole(read: ReadFiles) -> None:
    """Half of a row would pass for one, with the cells of another column; or nobody could tell what is wrong with it."""
    known = [("id", "string"), ("note", "string")]
    found = read({"a.csv": b'id,note\n1,fine\n2,"open,x\n3,y\n4,"z",w\n5,fine\n6,a,"\n7,"a \\"b\\" c"\n8,b\n9,"end\n10,c\n'}, known=known)
    assert [row["id"] for row in found.good] == ["1", "5", "8"]
    lines = {line: reason for _, line, reason in found.bad}
    assert '2,"open,x\n3,y\n4,"z",w' in lines and " of 3 lines, a " in lines['2,"open,x\n3,y\n4,"z",w']
    assert any("quote: ''" in reason and "escape: '\\'" in reason for reason in lines.values())
    # One cell too many, and a quote that is not closed, made a row of the right number of cells.
    extra = read({"a.csv": b'id,note\n1,x\n2,y,"open\n'}, known=known)
    assert [row["id"] for row in extra.good] == ["1"] and [line.strip() for _, line, _ in extra.bad] == ['2,y,"open']


QUOTES = {
    "backslash": ({"escape": "\\"}, b'id,note\n1,"a \\"b, c\\"\nd"\n2,x\n', ['a "b, c"\nd', "x"]),
    "single": ({"quote": "'", "sep": ";"}, b"id;note\n1;'a\nb'\n2;\"x\n", ['"x', "a\nb"]),
    "none": ({"quote": ""}, b'id,note\n1,"x\n2,y"\n', ['"x', 'y"']),
    "comments": ({"comment": "#"}, b'#it is "so\nid,note\n1,"a\n# b"\n#x"\n2,c\n', ["a\n# b", "c"]),
    "a long separator": ({"sep": "||"}, b'id||note\n1||"a\nb||c"\n', ["a\nb||c"]),
    "no header": ({"header": "false"}, b'1,"a\nb"\n2,c\n', ["a\nb", "c"]),
    "ends of lines": ({"lineSep": "^"}, b'id,note^1,"a^b"^2,c^', ["a^b", "c"]),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ["backslash", *long(*list(QUOTES)[1:])])
def test_options_say_how_cells_are_quoted(read: ReadFiles, name: str) -> None:
    """Files with other quotes, or with none that mean anything, could not be read, or their cells of several lines would be cut."""
    options, content, notes = QUOTES[name]
    found = read({"a.csv": content}, options=options)
    assert sorted(found.column("c1" if "header" in options else "note")) == notes and not found.bad


@pytest.mark.long
def test_u_fffd_is_told_from_bytes_that_are_no_text(read: ReadFiles) -> None:
    """A file that some program has converted once, with one character lost then, could never be read."""
    content = "id,note\n1,\ufffd\n2,ok\n".encode() + b"3,\xff\n"
    found = read({"a.csv": content, "b.csv.gz": gzip.compress(content)})
    assert sorted(found.column("note")) == ["ok", "ok", "\ufffd", "\ufffd"]
    assert [(file, "no UTF-8" in reason) for file, _, reason in found.bad] == [("a.csv", True), ("b.csv.gz", True)]
    encoded = read({"a.csv": "id,note\n1,\ufffd\n".encode("utf-16")}, options={"encoding": "utf-16"})
    assert encoded.column("note") == ["\ufffd"]
    lines = read({"a.json": '{"id": 1, "note": "\ufffd"}\n'.encode() + b'{"id": 2, "note": "\xff"}\n'}, "json")
    assert lines.column("note") == ["\ufffd"] and "no UTF-8" in lines.bad[0][2]
    assert read({"a.txt": "\ufffd\n".encode()}, "text").column("value") == ["\ufffd"]


FILE = ReadFile("a.csv", "a.csv", 0)


def marked(data: bytes, size: int, **options: str) -> tuple[bytes, bool]:
    lines = MarkedLines([data[i : i + size] for i in range(0, len(data), size)], FILE, Reading(FileFormat.CSV, options), not_text=False)
    return b"".join(lines), lines.is_open


def as_rfc_4180_says(data: bytes) -> tuple[bytes, bool]:
    """The same, byte by byte."""
    out, is_start, is_open, at = bytearray(), True, False, 0
    while at < len(data):
        byte = data[at : at + 1]
        if is_open and data[at : at + 2] == b'""':
            out, at = out + b'""', at + 2
            continue
        out += {b"\n": "\ufdd0".encode(), b"\r": "\ufdd1".encode()}.get(byte, byte) if is_open else byte
        is_open = byte != b'"' if is_open else byte == b'"' and is_start
        is_start, at = byte in b",\n\r" and not is_open, at + 1
    return bytes(out), is_open


def test_ends_of_lines_within_quotes_are_found_wherever_a_file_is_cut() -> None:
    """A row would be cut where two blocks of a large file meet, or where a quote stands in an unusual place."""
    chance = random.Random(1)
    for _ in range(5000):
        data = bytes(chance.choice(b'"",\n\ra') for _ in range(chance.randrange(25)))
        expected, size = as_rfc_4180_says(data), chance.choice([1, 3, 7, 100])
        assert marked(data, size) == expected, data
        assert marked(data, size, comment="#") == expected, data
    with pytest.raises(SourceError, match="max_line_bytes"):
        list(MarkedLines([b"x" * 20], FILE, Reading(FileFormat.CSV, limits=Limits(line_bytes=9)), not_text=False))
