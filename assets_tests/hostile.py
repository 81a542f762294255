"""Text that parsers and templates may misread: names, comments, keys and values for random histories.

Belongs here: making such text from a ``random.Random``, so that a seed always makes the same. Does not belong: the tests that use it.
"""

import random
from collections.abc import Callable

PIECES = (
    *("'", '"', "`", "``", "\\", "\\\\", "\\'", "\\u0027", "\\n", '""', "''", "$$", "$1", "\\1", "\\N"),
    *("${x}", "${env:PATH}", "${env.PATH}", "${user.home}", "${system:user.home}", "$", "{", "}", "{}", "{0}", "{name}"),
    *("%", "%s", "%(a)s", "%%"),
    *("?", "??", ":a", "@", "*", "**", "[a]", "[!a]", "#", "&", "=", "==", "~", "^", "|", "<", ">", "<b>", "&amp;", "%2F", "%00", "+"),
    *("--", "-- ", "/*", "*/", ";", "; drop table x; --", ",", "(", ")", ") or (1=1", "' or '1'='1", "') or ('1'='1", "` or `1`=`1"),
    *(" ", "  ", "\t", "\n", "\r\n", "\r", "\v", "\x01", "\x1f", "\x7f", "\x85", "\u00a0", "\u200b", "\u2028", "\u2029", "\ufeff"),
    *(".", "..", "...", "a.b", "/", "../", "a/b", "-", "_", "__", "_U20_", "_c0", "~1"),
    *("select", "NULL", "true", "null", "1", "01", "1e5", "1d", "NaN", "infinity", "2024-01-01", "a", "A", "Z", "x y"),
    *("é", "e\u0301", "ß", "ẞ", "İ", "ı", "ﬁ", "Ω", "中文", "日本", "العربية", "עברית", "हिन्दी"),
    *("🙂", "👩\u200d👧", "\U0001f1e9\U0001f1ea", "\u202e"),
)  # fmt: skip
"""The pieces that texts are made of. Each has a meaning in SQL, in a pattern, in a file format, in a URL or in a template."""


def text(chance: random.Random, *, most_bytes: int = 60, without: str = "", least: int = 0) -> str:
    """Some pieces joined, which are at most ``most_bytes`` long in UTF-8, at least ``least`` characters, and have none of ``without``."""
    if chance.random() < 0.1:  # a text of the greatest length
        piece = chance.choice(PIECES)
        wanted = [piece] * (most_bytes // len(piece.encode()) + 1)
    else:
        wanted = [chance.choice(PIECES) for _ in range(chance.choice([1, 1, 2, 3, 5, 9]))]
    made = "".join(c for c in "".join(wanted) if c not in without)
    made = made.encode()[:most_bytes].decode("utf-8", "ignore")
    return made if len(made) >= least else made + "x" * (least - len(made))


def different(count: int, make: Callable[[], str], key: Callable[[str], str] = str.lower) -> list[str]:
    """``count`` texts of which no two have the same ``key``: by default no two differ only in case, which Spark ignores in names."""
    found: dict[str, str] = {}
    while len(found) < count:
        made = make()
        found.setdefault(key(made), made)
    return list(found.values())


def names(chance: random.Random, count: int, *, most_bytes: int = 63, without: str = "") -> list[str]:
    """Names of schemas, tables and columns that PostgreSQL accepts: 1 to 63 bytes.

    63 underscores are no name of a table: PostgreSQL names the type of its arrays by one more underscore and cuts it to 63 bytes.
    """

    def make() -> str:
        while (made := text(chance, most_bytes=most_bytes, without=f"{without}\0", least=1)) == "_" * 63:
            pass
        return made

    return different(count, make, key=_folded)


def _folded(name: str) -> str:
    """The key by which names are told apart. Java and Python disagree about the lower case of some letters, so those count as equal."""
    return name.lower().upper().casefold()


def file_names(chance: random.Random, count: int, ending: str) -> list[str]:
    """Names of files that Linux accepts: any text without a slash, up to 255 bytes. Hidden files are left out."""

    def make() -> str:
        return (
            "f" * chance.choice([0, 0, 1]) + text(chance, most_bytes=254 - len(ending.encode()), without="/\0", least=1).lstrip("._") or "f"
        )

    return [f"{name}{ending}" for name in different(count, make, key=str)]
