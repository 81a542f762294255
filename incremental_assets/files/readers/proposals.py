"""Proposes options for reading a file of CSV, by its first lines."""

import re
from collections.abc import Iterator, Sequence

from incremental_assets.core.shown_text import counted
from incremental_assets.files.readers.beginning import Beginning, first_lines
from incremental_assets.files.readers.local_lines import SEPARATORS
from incremental_assets.files.readers.reading import Reading

_NULLS = frozenset(("NA", "N/A", "\\N", "NULL", "null", "-", "None", "#N/A"))
_NUMBER, _WITH_COMMA = re.compile(r"-?[0-9]+([.][0-9]+)?"), re.compile(r"-?[0-9]{1,3}([.][0-9]{3})*,[0-9]+|-?[0-9]+,[0-9]+")
_SEPARATOR = {one: f"sep: {repr(one) if one.isprintable() else chr(34) + chr(92) + chr(116) + chr(34)}" for one in SEPARATORS}
_ESCAPED = re.compile(rb'[^\\,;|\t\r\n]\\"[^,;|\t\r\n"]')


def proposed_options(head: bytes, reading: Reading) -> Iterator[tuple[str, str]]:
    """Yields options as the YAML has them, each with its reason. ``head``: the first bytes of a file, in its own encoding.

    What the YAML says already is not proposed again.
    """
    if reading.encoding is None:
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            yield "encoding: utf-16", "it begins as UTF-16 does"
            return
        try:
            head[: head.rfind(b"\n") + 1].decode()
        except UnicodeDecodeError:
            yield "encoding: windows-1252", "it has bytes that are no UTF-8; another encoding may be right"
    begins = Beginning.of(head, reading)
    if begins.separator is not None or begins.trouble is not None or not begins.lines:
        return
    if reading.option("sep", "delimiter") is None:
        lines = {one: [len(line) for line in first_lines(reading.separated_by(one), head)[1]] for one in sorted(SEPARATORS)}
        better = [one for one, counts in lines.items() if len(set(counts)) == 1 < counts[0]]
        if len(set(lines[reading.separator])) > 1 or lines[reading.separator][0] == 1:
            for separator in better[:1]:
                yield _SEPARATOR[separator], f"each of its first lines has {counted(lines[separator][0], 'cell')} then"
                reading = reading.separated_by(separator)
                begins = Beginning.of(head, reading)
    if begins.title and not reading.skip_lines:
        yield f"skip_lines: {begins.title}", "the lines before that have another number of cells than all that follow"
        return
    if begins.data and reading.option("header") is None:
        yield "header: 'false'", "its first line looks like data"
    if reading.option("escape") is None and _ESCAPED.search(head):
        yield "escape: '\\'", "a backslash stands before quotes within cells"
    yield from _of_values(reading, first_lines(reading, head)[1][1:])


def _of_values(reading: Reading, lines: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    nulls: dict[str, None] = {}
    comma = ""
    for column in zip(*lines, strict=False):
        texts = [text for text in column if text]
        own = [text for text in texts if text in _NULLS]
        numbers = [text for text in texts if _NUMBER.fullmatch(text)]
        others = [text for text in texts if _WITH_COMMA.fullmatch(text)]
        if (numbers or others) and len(own) + len(numbers) + len(others) == len(texts):
            nulls |= dict.fromkeys(own)
            comma = comma or (others[0] if others else "")
    if nulls and not reading.texts("nullvalue"):
        yield f"nullValue: [{', '.join(map(repr, nulls))}]", f"among numbers stands {' and '.join(nulls)}"
    if comma and reading.is_plain_number:
        yield "decimal: ',', thousands: '.'", f"{comma} seems to be a number"
