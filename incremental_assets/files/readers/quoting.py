"""Finds the ends of lines that lie within quoted cells of CSV (RFC 4180), and replaces them by marks: then each line is a whole row.

Both readers go by lines: Spark, so that many tasks read a file, and this process, so that it reads in blocks. The marks are characters that
Unicode keeps free for the use within a program; cells and rejected lines get the original ones back.
"""

import codecs
import re
from collections.abc import Iterable, Iterator

import numpy as np

from incremental_assets.core.errors import SourceError
from incremental_assets.core.names import literal
from incremental_assets.files.readers.reading import LINE, NAME, ReadFile, Reading, refusal

END_MARKS = {"\n": "\ufdd0", "\r": "\ufdd1"}
"""The marks of ends of lines, by the end in the file."""
_MARKS = {**END_MARKS, "\ufffd": "\ufdd2"}
"""By the character in the file, its mark. U+FFFD gets one where Spark reads lines, as it shows bytes that are no UTF-8 so."""
_LINE_END_MARK = "\ufdd3"
"""The mark of another end of lines, which the option ``lineSep`` says."""
_ANY_MARK, _FIRST_BYTES = re.compile(b"\xef\xb7[\x90-\x93]"), b"\xef\xb7"
_NOT_TEXT = "\ufffd".encode()
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MARKED = "m"
"""What the names of copies begin with whose lines have marks."""
_IS_MARKED = f"{NAME} RLIKE '^[^/:]+/{MARKED}[0-9]+[.]'"
WRONG_BYTES = "incremental_assets.wrong_bytes"
"""The handler of errors for Python's codecs by which bytes of no character stay recognizable: in UTF-8 they are a byte 255."""


def _keep_wrong(error: UnicodeError) -> "tuple[str | bytes, int]":
    assert isinstance(error, UnicodeDecodeError | UnicodeEncodeError)
    return "\udcff" if isinstance(error, UnicodeDecodeError) else b"\xff", error.end


codecs.register_error(WRONG_BYTES, _keep_wrong)


class Quoting:
    """How the cells of a container's files are quoted, and which marks their lines may have.

    ``quote``: empty: no cell is quoted. ``marks``: by the text in the file.
    """

    def __init__(self, reading: Reading) -> None:
        given = reading.option("quote")
        self.quote = '"' if given is None else given if given != "\x00" else ""
        self._separator, self._escape = reading.separator, reading.option("escape") or self.quote
        self._comment, self.line_end = reading.option("comment") or "", reading.option("linesep") or ""
        self._blank = "[ \\t]*" if reading.is_true("ignoreleadingwhitespace") else ""
        self._is_asked = reading.option("unescapedquotehandling") is None
        self.marks = {**_MARKS, self.line_end: _LINE_END_MARK} if self.line_end.strip("\r\n") else _MARKS
        # All quotes of a file may be looked at together where these say nothing else.
        self._is_plain = (
            len(self.quote.encode()) == len(self._separator.encode()) == 1
            and self._escape == self.quote
            and not (self._comment or self.line_end or self._blank)
        )

    # ------------------------------------------------------------------ bytes
    def marked(self, data: bytes, is_open: bool, *, not_text: bool) -> tuple[bytes, bool]:
        """The lines with marks, and whether they end within quotes. ``is_open``: they begin so. ``not_text``: U+FFFD gets a mark, too."""
        parts: list[bytes] = []
        at = 0
        if self.quote and (is_open or self.quote.encode() in data):
            found = self._at_once(data, is_open) if self._is_plain else None
            ranges, is_open = self._one_by_one(data, is_open) if found is None else found
            ends = [(one.encode(), mark.encode()) for one, mark in self.marks.items() if one != "\ufffd"]
            for begin, end in ranges:
                within = data[begin:end]
                for one, mark in ends:
                    within = within.replace(one, mark)
                parts += (data[at:begin], within)
                at = end
        data = b"".join((*parts, data[at:])) if parts else data
        return (data.replace(_NOT_TEXT, _MARKS["\ufffd"].encode()) if not_text else data), is_open

    def originals(self, data: bytes) -> bytes:
        """The bytes with the original texts in place of marks."""
        if _FIRST_BYTES not in data:
            return data
        ones = {mark.encode(): one.encode() for one, mark in self.marks.items()}
        return _ANY_MARK.sub(lambda found: ones.get(found[0], found[0]), data)

    def original_text(self, text: str) -> str:
        return text.translate({ord(mark): one for one, mark in self.marks.items()})

    def _at_once(self, data: bytes, is_open: bool) -> tuple[list[tuple[int, int]], bool] | None:
        """The ranges of bytes that are ends of lines within quotes, and whether the data ends so.

        None: a quote is not beside a separator, an end of a line or another quote, as RFC 4180 has it.
        """
        array = np.frombuffer(data, np.uint8)
        ends = (array == 10) | (array == 13)
        quotes = np.flatnonzero(array == ord(self.quote))
        beside = ends | (array == ord(self._separator)) | (array == ord(self.quote))
        before, after = quotes[int(is_open) :: 2] - 1, quotes[1 - is_open :: 2] + 1
        if not (beside[before[before >= 0]].all() and beside[after[after < len(array)]].all()):
            return None
        lines = np.flatnonzero(ends)
        within = lines[(np.searchsorted(quotes, lines) + is_open) % 2 == 1]
        return [(at, at + 1) for at in within.tolist()], bool((len(quotes) + is_open) % 2)

    def _one_by_one(self, data: bytes, is_open: bool) -> tuple[list[tuple[int, int]], bool]:
        """The ranges of bytes that are within quotes, and whether the last of them is not closed."""
        end = f"(?:{_q(self.line_end)})" if self.line_end else "[\\r\\n]"
        comment = f"(?:\\A|{end}){_q(self._comment)}(?:(?!{end}).)*|" if self._comment else ""
        opening = re.compile(f"(?s){comment}(?:\\A|{_q(self._separator)}|{end}){self._blank}({_q(self.quote)})".encode())
        closing = re.compile(f"(?s){self._to_close('')}".encode())
        ranges: list[tuple[int, int]] = []
        at = 0
        while True:
            if not is_open:
                found = opening.search(data, at)
                if found is None:
                    return ranges, False
                at = found.end()
                if found[1] is None:
                    continue
            closed = closing.match(data, at)
            ranges.append((at, len(data) if closed is None else closed.end()))
            if closed is None:
                return ranges, True
            at, is_open = closed.end(), False

    def _to_close(self, once: str) -> str:
        """The pattern of the rest of a cell after its opening quote. ``once``: ``+`` in Java, where what is found is never given back."""
        quote, escape = _q(self.quote), _q(self._escape)
        if quote == escape:
            return f"{_but(self.quote)}*{once}(?:{quote}{quote}{_but(self.quote)}*{once})*{once}{quote}(?!{quote})"
        others = f"{_but(self.quote, self._escape)}*{once}"
        return f"{others}(?:{escape}.{others})*{once}{quote}"

    # ------------------------------------------------------------------ expressions of Spark SQL
    def original(self, cell: str) -> str:
        """The text of a cell with the original texts in place of marks, if its file is a copy with marks."""
        marks, ones = literal("".join(self.marks.values())), literal("".join(self.marks))
        return f"if({_IS_MARKED}, translate({cell}, {marks}, {ones}), {cell})"

    @property
    def may_be_part_of_row(self) -> str:
        """The condition that a rejected line of a file without marks may be a part of a row, or have a real U+FFFD."""
        tests = [f"instr({LINE}, {literal(one)}) > 0" for one in (self.quote, "\ufffd") if one]
        return f"NOT {_IS_MARKED} AND ({' OR '.join(tests)})"

    @property
    def why_unusual(self) -> str:
        """The reason to reject a line of which a quoted cell is not closed, or goes on after its closing quote; NULL where none does."""
        if not self.quote or not self._is_asked:
            return "cast(NULL AS string)"
        q, separator = self.quote, _q(self._separator)
        quoted = f"{self._blank}{_q(q)}{self._to_close('+')}[ \\t]*+"
        cell = f"(?:{quoted}|(?!{self._blank}{_q(q)}){_but(self._separator)}*+)"
        usual = f"(?s)^(?:{cell}{separator})*+{cell}\\z"
        unusual = f"instr({LINE}, {literal(q)}) > 0 AND NOT {LINE} RLIKE {literal(usual)}"
        lines = f"length({LINE}) - length(translate({LINE}, {literal(_MARKS[chr(10)])}, '')) + 1"
        over = f"if({_IS_MARKED} AND {lines} > 1, concat(' of ', {lines}, ' lines'), '')"
        doubled = f" a {q} within a cell is written twice; if \\ stands before it, say options: {{escape: '\\'}};"
        remedy = f"{doubled if self._escape == q else ''} if it is no more than text, say options: {{quote: ''}}"
        reason = f"concat({literal('in this row')}, {over}, {literal(f', a {q} is not closed, or followed by other text:{remedy}')})"
        return f"CASE WHEN {unusual} THEN {reason} END"


class MarkedLines:
    """The bytes of a file, in chunks, with marks.

    ``chunks``: its bytes as UTF-8. ``file``: for messages. ``not_text``: see ``Quoting.marked``. ``skip``: so many lines at the
    beginning are left out, and those at the end that the option ``skip_footer`` says. ``is_open``: at the end: a quote is not
    closed. ``is_changed``: something has been replaced. Raises SourceError for a file that has a mark itself, and for one of a longer line
    than the limit.
    """

    def __init__(self, chunks: Iterable[bytes], file: ReadFile, reading: Reading, *, not_text: bool, skip: int = 0) -> None:
        self._skip, self._last = skip, reading.skip_footer
        self._chunks, self._file, self._limits, self._not_text = chunks, file, reading.limits, not_text
        self._quoting = Quoting(reading)
        self._ends = (self._quoting.line_end.encode(),) if self._quoting.line_end else (b"\n", b"\r")
        self.is_open = self.is_changed = False

    def __iter__(self) -> Iterator[bytes]:
        rest, is_first = b"", True
        for chunk in self._without_others():
            rest += chunk
            if is_first and len(rest) >= len(BYTE_ORDER_MARK):
                rest, is_first = rest.removeprefix(BYTE_ORDER_MARK), False
            end = max(rest.rfind(one) + len(one) if one in rest else 0 for one in self._ends)
            if len(rest) - end > self._limits.line_bytes:
                raise SourceError(refusal(self._file, self._limits.too_long("it has a line of")))
            if end and not is_first:
                yield self._marked(rest[:end])
                rest = rest[end:]
        if rest:
            yield self._marked(rest)

    def _without_others(self) -> Iterator[bytes]:
        """The chunks without the lines that are left out."""
        skip, rest, end = self._skip, b"", self._quoting.line_end.encode() or b"\n"
        for chunk in self._chunks:
            rest += chunk
            while skip and (at := rest.find(end)) >= 0:
                rest, skip = rest[at + len(end) :], skip - 1
            if skip:
                rest = rest[-len(end) :]
                continue
            # The last lines are kept until it is known that others follow.
            at = len(rest)
            for _ in range(self._last + 1 if self._last else 0):
                at = max(rest.rfind(end, 0, max(at, 0)), -1)
            if at >= 0:
                at += len(end) if self._last else 0
                yield rest[:at]
                rest = rest[at:]
        if not skip:
            lines = rest.removesuffix(end).split(end)
            yield b"".join(line + end for line in lines[: max(len(lines) - self._last, 0)]) if self._last else rest
        self.is_changed |= bool(self._skip or self._last)

    def _marked(self, data: bytes) -> bytes:
        if _FIRST_BYTES in data and _ANY_MARK.search(data):
            raise SourceError(refusal(self._file, "it has a character of U+FDD0 to U+FDD3, which are none of any text; take it out"))
        found, self.is_open = self._quoting.marked(data, self.is_open, not_text=self._not_text)
        self.is_changed |= found is not data and found != data
        return found


def _q(text: str) -> str:
    """The pattern of a text, for Java and for Python."""
    return re.sub(r"([\x00-/:-@\[-^`{-\x7f])", r"\\\1", text)


def _but(*texts: str) -> str:
    """The pattern of one character with which none of the texts begins."""
    if all(len(text.encode()) == 1 for text in texts):
        return f"[^{''.join(map(_q, texts))}]"
    return f"(?:(?!{'|'.join(map(_q, texts))}).)"
