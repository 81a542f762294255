"""Text that people are shown: names and messages of a source, without characters that a terminal or a mail program obeys.

A name of a table, the name of an application and a message of an error are chosen by whoever uses the source. On a terminal, an escape
sequence in one of them changes the window's title, hides lines or types for the reader; a line break makes one line of a message two, of
which the second says whatever its author likes.
"""

import logging
import re

# Control characters, line separators, marks that reverse the direction of what follows, and halves of characters, as which Python reads the
# bytes of a file name that is not UTF-8.
_OBEYED = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_OBEYED_WITHIN_LINES = re.compile(_OBEYED.pattern.replace(r"\x00-\x1f", r"\x00-\x08\x0b-\x1f"))


def on_one_line(text: str) -> str:
    """The text with each such character written as its code, as in ``\\x1b``, and with line breaks as ``\\n``."""
    return text if text.isprintable() else _OBEYED.sub(_code, text)


def on_lines(text: str) -> str:
    """The same, but line breaks and tabs stay."""
    return text if text.isprintable() else _OBEYED_WITHIN_LINES.sub(_code, text.replace("\r\n", "\n"))


def in_json(text: str) -> str:
    """A JSON text with each such character written as JSON escapes it, so that it means the same."""
    return text if text.isprintable() else _OBEYED_WITHIN_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def counted(number: int, one: str, many: str | None = None) -> str:
    """The number with its noun, as in ``1 row`` and ``2,000 rows``. ``many``: the noun of several, with its verb if the text goes on
    with one; None: ``one`` with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def _code(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


class PlainFormatter(logging.Formatter):
    """Formats a record of a log that is read on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return on_lines(super().format(record))
